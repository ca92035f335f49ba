"""Values of columns that cannot name a folder level, for the writers of folders by columns."""

import pyarrow as pa

from fastwire.reason import Reason

from .level import NO_VALUE, level_fits

# The days of the years 1 to 9999, since 1970: readers understand the text of no others.
_FIRST_DAY, _LAST_DAY = -719_162, 2_932_896


def unnameable(column: pa.Array, level: str, *, table: bool = False) -> dict[int, str]:
    """Return the rows whose values cannot name a folder of ``level``, with the reason.

    The log of a ``table`` has the values, so there a text that readers of folders take for null is one like others.
    """
    import pyarrow.compute as pc  # takes as long as the rest of pyarrow

    if pa.types.is_date32(column.type):
        days = column.cast(pa.int32())
        far = pc.or_(pc.less(days, _FIRST_DAY), pc.greater(days, _LAST_DAY))
        return dict.fromkeys(pc.indices_nonzero(pc.fill_null(far, False)).to_pylist(), Reason.NO_FOLDER.value)
    if not pa.types.is_string(column.type):
        return {}
    longest = pc.max(pc.binary_length(column)).as_py() or 0
    all_fit = level_fits(level, "/" * longest, table=table)  # no text of this length takes more room
    if all_fit and (table or longest < len(NO_VALUE)):
        return {}
    encoded = column.dictionary_encode()
    wrong = {
        code: (Reason.NO_FOLDER if text == NO_VALUE else Reason.LONG_FOLDER).value
        for code, text in enumerate(encoded.dictionary.to_pylist())
        if (text == NO_VALUE and not table) or not (all_fit or level_fits(level, text, table=table))
    }
    if not wrong:
        return {}
    rows = pc.indices_nonzero(pc.is_in(encoded.indices, pa.array(wrong, pa.int32()))).to_pylist()
    return {row: wrong[encoded.indices[row].as_py()] for row in rows}
