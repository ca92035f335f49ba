"""A look at a table in a catalog that may never answer, for a person who waits at a prompt."""

import threading
from collections.abc import Mapping
from time import monotonic

from ...dataset.tableformat import PublishedTable, Seen, TableLateError
from ..say import say

CATALOG_S = 30.0
"""The longest time for an answer of a catalog; the start of the process that asks it takes some of it."""

_lock = threading.Lock()  # several tables are looked at at the same time
_waited_for: set[str] = set()  # what names the catalogs of which this was said
_given_up: dict[str, float] = {}  # by what names a catalog, the time


def look_within(table: PublishedTable, catalog: Mapping[str, str]) -> Seen | None:
    """Return ``table`` as it is now; None if it does not exist. It was made ``hasty``, so each look waits two seconds.

    If that takes longer than a few seconds, says on standard error what it waits for, once for all tables of a catalog.
    Raises like ``table.look``: TableLateError without an answer within ``CATALOG_S``. For as long again the catalog is
    not asked for its other tables: a pipeline may have a thousand of them.
    """
    began, which = monotonic(), ", ".join(catalog[key] for key in ("type", "uri") if key in catalog)
    late = f"the {table.title} table {table.url}: its catalog has not answered within {CATALOG_S:.0f} s"
    if began - _given_up.get(which, -CATALOG_S) < CATALOG_S:
        raise TableLateError(late, CATALOG_S)
    while True:
        table.begin(late=False)
        try:
            return table.look()
        except TableLateError as exc:
            if max(exc.seconds, monotonic() - began) >= CATALOG_S:
                _given_up[which] = monotonic()
                raise exc.named(late) from exc
        with _lock:
            told = which in _waited_for
            _waited_for.add(which)
        if not told:
            say(f"waiting at most {CATALOG_S:.0f} s for the catalog of the table {table.url} ({which})", err=True)
