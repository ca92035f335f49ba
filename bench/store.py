"""From the socket of a replaying server to Parquet files in an object store on this machine, beside a folder.

    python -m bench.store [--json]

The store is versitygw, a process of its own: what a message costs is that of the daemon's process alone. Files have
128 MiB. Then the same with one, a hundred and a thousand open folders, for the memory that they need.
"""

import tempfile
from pathlib import Path
from typing import Any

from tests.brokers.maven import BrokerUnavailableError
from tests.stores.place import BucketPlace
from tests.stores.servers import VersityGateway

from .child import Case, serving, show
from .pipeline import ours, row
from .targets import BUDGET_MIB

CASE = Case(100, 1000, "none")
MESSAGES = 10_000_000
FEW_MESSAGES = 4_000_000
FOLDERS = (1, 100, 1000)
ROUNDS = 3
FILES = 'type = "parquet"\ncreate = true\nroll = { bytes = "128MiB", idle = "5s" }\n'


def text(sink: dict[str, Any]) -> str:
    """Keys of the place, as TOML."""
    store = sink["store"]
    keys = ", ".join(f"{name} = {'true' if value is True else repr(value)}" for name, value in store.items())
    return f'path = "{sink["path"]}"\nstore = {{ {keys} }}\n'


def cost(place: BucketPlace) -> list[dict[str, Any]]:
    """CPU of a message, into a folder and into the store in turn: the least of some runs each."""
    found: dict[str, list[dict[str, Any]]] = {"folder": [], "store": []}
    for number in range(ROUNDS):
        for who, runs in found.items():
            with serving(CASE, MESSAGES) as told, tempfile.TemporaryDirectory(prefix="fastwire-bench-") as folder:
                into = BucketPlace(place.endpoint, f"cost-{number}", place.folder)
                where = text(into.sink) if who == "store" else f'path = "{folder}/dataset"\n'
                runs.append(ours(told, FILES + where, Path(folder)))
    best = {who: min(runs, key=lambda figures: figures["cpu_us_per_row"]) for who, runs in found.items()}
    beyond = best["store"]["cpu_us_per_row"] - best["folder"]["cpu_us_per_row"]
    first = row("store", CASE, "folder", best["folder"], None)
    return [first, {**row("store", CASE, "store", best["store"], first), "beyond_folder_us": round(beyond, 3)}]


def memory(place: BucketPlace, folders: int) -> dict[str, Any]:
    """The peak of the daemon's memory with so many open folders."""
    with serving(CASE, FEW_MESSAGES, folders) as told, tempfile.TemporaryDirectory(prefix="fastwire-bench-") as folder:
        into = BucketPlace(place.endpoint, f"folders-{folders}", place.folder)
        figures = ours(told, f'{FILES}split = "partition"\n{text(into.sink)}', Path(folder))
    return {
        "bench": "store",
        **CASE.fields(),
        "who": "store",
        "folders": folders,
        "messages": figures["rows"],
        "peak_rss_mib": figures["peak_rss_mib"],
        "beyond_budget_mib": round(figures["peak_rss_mib"] - BUDGET_MIB),
    }


def main() -> None:
    """Measure and print."""
    with tempfile.TemporaryDirectory(prefix="fastwire-bench-store-") as folder:
        store = VersityGateway(Path(folder))
        try:
            store.start()
        except BrokerUnavailableError as exc:
            raise SystemExit(f"no object store: {exc}") from None
        try:
            place = BucketPlace(store.endpoint, "bench", Path(folder))
            show([*cost(place), *(memory(place, count) for count in FOLDERS)])
        finally:
            store.stop(at_once=True)


if __name__ == "__main__":
    main()
