"""The options of ``run`` that bound it: ``--from`` and ``--until``, and ``--into`` for another dataset."""

import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

if TYPE_CHECKING:
    from ..config import Config


@dataclass(frozen=True)
class Bounds:
    """The places that options name for pipelines instead of the configuration: first position, end and dataset."""

    start: str | None = None
    end: str | None = None
    into: str | None = None
    group: str | None = None

    def apply(self, config: "Config", names: Sequence[str]) -> "Config":
        """Return the configuration with these bounds and only the pipelines ``names``; ``config`` without any.

        A pipeline ``into`` another dataset reads under a name of its own, so that it takes no record away from the one
        that runs, and serves no HTTP. Raises typer.BadParameter, and ConfigError like ``load_config``.
        """
        if self == Bounds():
            return config
        from ..config import load_config

        if self.into is not None:
            if len(names) != 1:
                raise typer.BadParameter("needs one pipeline, named by --pipeline", param_hint="--into")
            sink = config.pipelines[names[0]].sink
            if not sink.is_dataset or sink.table is not None:
                what = f"needs a dataset at a path, and the sink of this pipeline is {sink.type}"
                raise typer.BadParameter(what, param_hint="--into")
            if self.into == str(sink.path) or Path(self.into).absolute() == Path(str(sink.path)).absolute():
                raise typer.BadParameter("is the dataset of the pipeline itself", param_hint="--into")
        elif self.group is not None:
            raise typer.BadParameter("is for a run with --into", param_hint="--group")
        assert config.path is not None
        changed = load_config(config.path, change=lambda tables: self._change(tables, config, names))
        changed._path = None  # a reload would read the file, which does not say this
        return changed

    def _change(self, tables: dict[str, Any], config: "Config", names: Sequence[str]) -> None:
        tables["pipelines"] = {name: tables["pipelines"][name] for name in names}
        for name in names:
            source, sink = tables["pipelines"][name]["source"], tables["pipelines"][name]["sink"]
            source |= {key: value for key, value in (("start", self.start), ("end", self.end)) if value is not None}
            if self.into is None:
                continue
            tables.setdefault("daemon", {})["http"] = ""
            sink |= {"path": self.into, "create": True}
            own = getattr(config.pipelines[name].source, "subscription", None)
            if own is not None:
                source.pop("group", None)
                source["subscription"] = self.group or f"{own}-{zlib.crc32(self.into.encode()):08x}"
            elif self.group is not None:
                source["subscription"] = self.group  # the model says that there is none
