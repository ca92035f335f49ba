"""What a Kafka source has to be told."""

from dataclasses import dataclass, field
from typing import Literal

from fastwire.kafka.fetch import FetchLimits

from ...config import Start
from ...kafka.settings import ClientSettings

__all__ = ["KafkaSettings"]


@dataclass(frozen=True, slots=True, kw_only=True)
class KafkaSettings(ClientSettings):
    """Everything about one Kafka source."""

    topics: tuple[str, ...]
    group: str
    start: Start
    cluster: str  # of every Log; stays what it is when the URL changes
    on_truncation: Literal["stop", "continue"] = "stop"
    limits: FetchLimits = field(default_factory=FetchLimits)
    metadata_age_s: float = 60.0
    """How often topics are asked about without a reason: new partitions are found by it."""
