"""Dead letters as the records of a topic."""

from collections.abc import Sequence

import pyarrow as pa

from fastwire.columns.chunk import DeadLetter
from fastwire.columns.rows import Rows
from fastwire.position import format_position

from ..dataset.deadletters.reader import NULL_VALUE

_HEADERS = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))


def letter_rows(letters: Sequence[DeadLetter], origin: int) -> Rows:
    """Return the records of dead letters; ``origin`` is the number of the first one.

    A record has the bytes of the entry, or the value of the record, and the headers ``fastwire.reason``, ``.system``,
    ``.topic``, ``.partition`` and ``.position``.
    """
    values = [None if NULL_VALUE in letter.reason.partition(": ")[0] else letter.payload for letter in letters]
    headers = [[(f"fastwire.{name}", text.encode()) for name, text in _facts(letter)] for letter in letters]
    columns = {
        "value": pa.array(values, pa.binary()),
        "key": pa.nulls(len(letters), pa.binary()),
        "headers": pa.array(headers, _HEADERS),
    }
    return Rows(pa.record_batch(columns), text_keys=True, origin=origin)


def _facts(letter: DeadLetter) -> list[tuple[str, str]]:
    log = letter.log
    return [
        ("reason", letter.reason),
        ("system", log.system),
        ("topic", log.topic),
        ("partition", log.partition),
        ("position", format_position(log.system, letter.position)),
    ]
