"""From the socket of a replaying server to Parquet files in an object store on this machine, beside a folder.

    python -m bench.store [--json]

The store is versitygw, a process of its own: what a message costs is that of the daemon's process alone. Files have
128 MiB. It is reached with TLS, whose encryption counts, and without it, where the content is signed or not. Then the
same with one, a hundred and a thousand open folders, for the memory that they need.
"""

import re
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import replace
from itertools import count
from pathlib import Path
from typing import Any

from tests.brokers.certs import make_certificates
from tests.brokers.maven import BrokerUnavailableError
from tests.stores.place import BucketPlace
from tests.stores.servers import VersityGateway

from .child import Case, serving, show
from .pipeline import Figures, least_disturbed, ours, row
from .targets import BUDGET_MIB

CASE = Case(100, 1000, "none")
MESSAGES = 10_000_000
FEW_MESSAGES = 4_000_000
FOLDERS = (1, 100, 1000)
FILES = 'type = "parquet"\ncreate = true\nroll = { bytes = "128MiB", idle = "5s" }\n'


def text(sink: dict[str, Any]) -> str:
    """Keys of the place, as TOML."""
    store = sink["store"]
    keys = ", ".join(
        f"{name} = {str(value).lower() if isinstance(value, bool) else repr(value)}" for name, value in store.items()
    )
    return f'path = "{sink["path"]}"\nstore = {{ {keys} }}\n'


def cost(places: dict[str, tuple[BucketPlace, dict[str, Any]]]) -> list[dict[str, Any]]:
    """CPU of a message, into a folder and into these stores in turn: the least of some runs each."""
    numbers = count()

    def turn() -> Iterator[tuple[str, Figures]]:
        for who in ("folder", *places):
            with serving(CASE, MESSAGES) as told, tempfile.TemporaryDirectory(prefix="fastwire-bench-") as folder:
                where = f'path = "{folder}/dataset"\n'
                if who in places:
                    place, keys = places[who]
                    into = replace(place, prefix=f"{re.sub('[^a-z]+', '-', who.lower())}-{next(numbers)}").sink
                    where = text({**into, "store": {**into["store"], **keys}})
                yield who, ours(told, FILES + where, Path(folder))

    best = least_disturbed(turn)
    first = row("store", CASE, "folder", best["folder"], None)
    rows = [first]
    for who in places:
        beyond = best[who]["cpu_us_per_row"] - best["folder"]["cpu_us_per_row"]
        rows.append({**row("store", CASE, who, best[who], first), "beyond_folder_us": round(beyond, 3)})
    return rows


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
    with tempfile.TemporaryDirectory(prefix="fastwire-bench-store-") as name, ExitStack() as stack:
        folder = Path(name)
        certificates = make_certificates(folder / "certificates")
        plain, tls = VersityGateway(folder / "plain"), VersityGateway(folder / "tls", certificates)
        for store in (plain, tls):
            try:
                store.start()
            except BrokerUnavailableError as exc:
                raise SystemExit(f"no object store: {exc}") from None
            stack.callback(store.stop, at_once=True)
        place = BucketPlace(plain.endpoint, "bench", folder)
        places: dict[str, tuple[BucketPlace, dict[str, Any]]] = {
            "store": (replace(place, endpoint=tls.endpoint), {"ca": str(certificates.ca)}),
            "store, no TLS": (place, {}),
            "store, no TLS, unsigned": (place, {"sign_payload": False}),
        }
        show([*cost(places), *(memory(place, count) for count in FOLDERS)])


if __name__ == "__main__":
    main()
