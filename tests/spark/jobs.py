"""Jobs for tests: a configuration, and what has become of the tables."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.dataset as ds

from fastwire_daemon.config import Config, parse_config
from fastwire_daemon.dataset.proof.report import VerifyReport
from fastwire_daemon.dataset.proof.verify import verify


def _toml(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int):
        return str(value)
    if isinstance(value, Mapping):
        return "{ " + ", ".join(f"{key} = {_toml(each)}" for key, each in value.items()) + " }"
    if isinstance(value, list | tuple):
        return "[" + ", ".join(_toml(each) for each in value) + "]"
    return '"' + str(value).replace("\\", "\\\\").replace('"', '\\"') + '"'


@dataclass
class Job:
    """One job with all its folders in ``folder``."""

    folder: Path
    decode: Mapping[str, Any] = field(default_factory=dict)
    dedupe: Mapping[str, Any] | None = None
    output: Mapping[str, Any] = field(default_factory=dict)
    source: Mapping[str, Any] = field(default_factory=dict)
    trigger: str = "available-now"
    name: str = "orders"

    @property
    def landed(self) -> Path:
        return self.folder / "landed"

    @property
    def table(self) -> Path:
        return self.folder / "table"

    @property
    def bad(self) -> Path:
        return self.folder / "bad"

    @property
    def checkpoint(self) -> Path:
        return self.folder / "checkpoint"

    def text(self) -> str:
        output = {"path": self.table, "dead_letters": self.bad, "checkpoint": self.checkpoint, **self.output}
        lines = [
            f"[spark.{self.name}]",
            f"source = {_toml(self.source if 'url' in self.source else {'dataset': self.landed, **self.source})}",
            f"decode = {_toml(self.decode)}",
            f"output = {_toml(output)}",
            f"trigger = {_toml(self.trigger)}",
        ]
        if self.dedupe is not None:
            lines.append(f"dedupe = {_toml(self.dedupe)}")
        return "\n".join(lines) + "\n"

    def config(self) -> Config:
        return parse_config(self.text(), {})

    def write(self) -> Path:
        path = self.folder / "job.toml"
        path.write_text(self.text())
        return path

    def rows(self, path: Path | None = None) -> list[dict[str, Any]]:
        """All rows of a table as a plain listing shows them."""
        rows: list[dict[str, Any]] = self.read(path).to_pylist()
        return rows

    def read(self, path: Path | None = None) -> pa.Table:
        # Names beginning with _ or . are skipped, as by Spark.
        return ds.dataset(path or self.table, format="parquet", partitioning="hive").to_table()

    def verify(self, path: Path | None = None) -> VerifyReport:
        """The proof for a table; fails the test if there is none."""
        report = verify(path or self.table)
        assert report.ok, report.problems
        return report
