"""The child process of the crash test of ``SinkConformance``: it writes into a sink until it is killed.

Run as ``python -m fastwire_daemon.testing.child FILE CLASS FOLDER``, where CLASS in FILE is the test class that makes
the sink. It prints its next step on standard error, one word per line; standard output may be the sink's.
"""

import importlib.util
import json
import os
import sys
from pathlib import Path
from typing import Any, NoReturn

from fastwire.coverage import Coverage

from .feed import Feed


def acked(path: Path) -> Coverage:
    """Return the Coverage that was acknowledged to the feed's broker; it outlives the process."""
    file = path.with_name(path.name + ".acked")
    return Coverage.from_json(json.loads(file.read_text())) if file.exists() else Coverage()


def _ack(path: Path, coverage: Coverage) -> None:
    file = path.with_name(path.name + ".acked")
    temporary = file.with_suffix(".new")
    temporary.write_text(json.dumps(coverage.to_json()))
    os.replace(temporary, file)


def _load(file: str, name: str) -> Any:
    """Return the class ``name`` of the module in ``file``, which need not be on the import path."""
    spec = importlib.util.spec_from_file_location("fastwire_conformance_module", file)
    if spec is None or spec.loader is None:
        raise ImportError(f"{file} is not a Python module")
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    found: Any = module
    for part in name.split("."):
        found = getattr(found, part)
    return found


def _say(word: str) -> None:
    """Print a step for the parent, which may kill this process as soon as it has read the line."""
    print(word, file=sys.stderr, flush=True)


def _run(test: Any, path: Path) -> NoReturn:
    _say("opening")
    sink = test.make_sink(path)
    coverage = sink.open()
    # A sink without a log is fed from the acknowledged position.
    feed: Feed = test.make_feed(coverage if len(coverage) else acked(path))
    while True:
        for _ in range(3):
            _say("writing")
            sink.write(feed.chunk())
        _say("committing")
        _ack(path, sink.commit())
        _say("committed")


def main() -> None:
    """Run the child process with the arguments of the command line."""
    file, name, path = sys.argv[1:]
    _run(_load(file, name)(), Path(path))


if __name__ == "__main__":
    main()
