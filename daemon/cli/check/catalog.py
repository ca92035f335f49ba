"""A look at a table in a catalog that may never answer, for a person who waits at a prompt."""

from collections.abc import Mapping
from time import monotonic

from ...dataset.tableformat import PublishedTable, Seen, TableLateError
from ..say import say

CATALOG_S = 30.0
"""The longest time for an answer of a catalog; the start of the process that asks it takes some of it."""


def look_within(table: PublishedTable, catalog: Mapping[str, str]) -> Seen | None:
    """Return ``table`` as it is now; None if it does not exist. It was made ``hasty``, so each look waits two seconds.

    Says on standard error what it waits for, if that takes longer than a few seconds. Raises like ``table.look``:
    TableLateError without an answer within ``CATALOG_S``.
    """
    began, told = monotonic(), False
    while True:
        table.begin(late=False)
        try:
            return table.look()
        except TableLateError as exc:
            if max(exc.seconds, monotonic() - began) >= CATALOG_S:
                why = f"the {table.title} table {table.url}: its catalog has not answered within {CATALOG_S:.0f} s"
                raise exc.named(why) from exc
        if not told:
            which = ", ".join(catalog[key] for key in ("type", "uri") if key in catalog)
            say(f"waiting at most {CATALOG_S:.0f} s for the catalog of the table {table.url} ({which})", err=True)
            told = True
