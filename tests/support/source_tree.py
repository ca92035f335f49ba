"""The source tree as the tests about the tree itself see it."""

import os
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]

# Folder in the tree -> name of the installed package.
PACKAGES = {"fastwire": "fastwire", "daemon": "fastwire_daemon", "pyspark_fastwire": "pyspark_fastwire"}


@dataclass(frozen=True)
class Source:
    """A file of source code and the name that imports it."""

    path: Path
    module: str

    @property
    def is_package(self) -> bool:
        return self.path.stem == "__init__"

    @property
    def package(self) -> str:
        """The package from which relative imports in this file start."""
        return self.module if self.is_package else self.module.rpartition(".")[0]

    def __str__(self) -> str:
        return os.fspath(self.path.relative_to(ROOT))


def sources(*suffixes: str) -> list[Source]:
    """Every file of the packages with one of these suffixes."""
    found = []
    for folder, package in PACKAGES.items():
        for path in sorted((ROOT / folder).rglob("*")):
            if path.suffix in suffixes:
                parts = path.relative_to(ROOT / folder).with_suffix("").parts
                if parts[-1] == "__init__":
                    parts = parts[:-1]
                found.append(Source(path, ".".join((package, *parts))))
    return found
