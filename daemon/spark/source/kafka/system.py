"""Kafka for Spark."""

from dataclasses import replace

from ....systems.kafka.config import KafkaConnection
from ....systems.kafka.source import DRIVER, KafkaSettings
from ..offsetrangereader import OffsetRangeReader, fetch_bytes
from ..offsetranges import FETCH_WAIT_MS, offset_ranges, range_settings
from ..options import Options
from ..rows import Rows
from ..system import System
from .dialect import DIALECT
from .driver import KafkaBroker


def settings_of(options: Options) -> KafkaSettings:
    """Return the settings of the source for the options. Raises ConfigError for unusable files."""
    own, most = KafkaConnection.of(options.connection), fetch_bytes(options)
    settings: KafkaSettings = range_settings(DRIVER, own, Rows.built(DIALECT, options.columns))
    limits = replace(
        settings.limits,
        response_bytes=most,
        partition_bytes=most,
        max_wait_ms=FETCH_WAIT_MS,
        read_committed=options.own.get("isolationLevel") != "read_uncommitted",
    )
    return replace(settings, client_id=own.client_id or options.prefix, limits=limits)


SYSTEM = System(lambda options: offset_ranges(DRIVER, settings_of(options)), KafkaBroker, OffsetRangeReader)
