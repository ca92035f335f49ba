"""The totals of a pipeline that has ended, as fields of a log line and as a sentence."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from ..runtime.amounts import counted, format_bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Totals:
    """Rows committed, payload received, files published, and dead letters of one pipeline.

    ``seconds`` and ``cpu_s``, the CPU time of the process, are counted from the first record to the last commit, and 0
    without one. ``stages`` is the result of ``stage_figures``.
    """

    rows: int
    payload_bytes: int
    files: int
    file_bytes: int
    dead_letters: int = 0
    seconds: float = 0.0
    cpu_s: float = 0.0
    stages: Mapping[str, Any] = field(default_factory=dict)

    def fields(self) -> dict[str, Any]:
        """Return the totals for a log line that a program reads."""
        fields: dict[str, Any] = {
            "rows": self.rows,
            "payload_bytes": self.payload_bytes,
            "files": self.files,
            "file_bytes": self.file_bytes,
        }
        if self.dead_letters:
            fields["dead_letters"] = self.dead_letters
        if self.seconds > 0:
            fields["seconds"] = round(self.seconds, 3)
            if self.rows:
                fields["rows_per_s"] = round(self.rows / self.seconds)
                fields["cpu_us_per_row"] = round(self.cpu_s / self.rows * 1e6, 3)
        return {**fields, **self.stages}

    def sentence(self, name: str) -> str:
        """Return the totals of pipeline ``name`` for a person."""
        said = f"{name} has ended: {counted(self.rows, 'row')} committed"
        if self.dead_letters:
            said += f" and {counted(self.dead_letters, 'dead letter')}"
        if not self.rows:
            return said
        said += f" ({format_bytes(self.payload_bytes)})"
        if self.files:
            said += f" in {counted(self.files, 'file')} ({format_bytes(self.file_bytes)})"
        if self.seconds > 0:
            said += f", {self.seconds:,.1f} s, {self.rows / self.seconds:,.0f} rows/s"
            said += f", {self.cpu_s / self.rows * 1e6:.2f} µs of CPU a row"
        if limit := self.stages.get("limit"):
            said += f"; limited by: {limit}"
            if setting := self.stages["setting"]:
                said += f" (what helps: {setting})"
        return said
