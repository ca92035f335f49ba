"""Hashes of keys: those of SipHash, in which one column follows the other."""

import numpy as np
import pytest

from fastwire.columns.keyhash import chain_cells, chain_words

SECRET = bytes(range(16))
# By OpenSSL, of the bytes 0, 1, 2 … of these lengths; the first 16 are the hash that is there before.
KNOWN = {
    16: "6ee2a4ca67b054bbfd3315bf85230577",
    17: "473d06e8738db89854c066c47ae47740",
    24: "2db479ae78bd50d8882a8a178a6132ad",
    36: "3dc47d1f29c448461e9e76ed904f6711",
}


def before(rows: int = 1) -> np.ndarray:
    return np.frombuffer(bytes(range(16)) * rows, "<u8").copy().reshape(rows, 2)


def test_the_hashes_are_those_of_siphash() -> None:
    cells = [bytes(range(16, size)) for size in KNOWN]
    hashes = before(len(cells))
    offsets = np.cumsum([3, *map(len, cells)], dtype=np.int32)
    chain_cells(hashes, SECRET, offsets, b"???" + b"".join(cells))
    assert [row.astype("<u8").tobytes().hex() for row in hashes] == [*KNOWN.values()]
    word = before()
    chain_words(word, SECRET, np.frombuffer(bytes(range(16, 24)), "<i8").astype(np.int64))
    assert word.astype("<u8").tobytes().hex() == KNOWN[24]


@pytest.mark.parametrize("offsets", [[0, 5], [2, 1], [-1, 1], [0], [0, 1, 2]])
def test_cells_outside_their_data_are_refused(offsets: list[int]) -> None:
    with pytest.raises(ValueError, match=r"within the data|an offset more"):
        chain_cells(before(), SECRET, np.array(offsets, np.int32), b"four")


def test_what_does_not_fit_is_refused() -> None:
    with pytest.raises(ValueError, match="16 bytes"):
        chain_words(before(), b"short", np.zeros(1, np.int64))
    with pytest.raises(ValueError, match="two words for each row"):
        chain_words(before(), SECRET, np.zeros(2, np.int64))
    with pytest.raises(ValueError, match="two words for each row"):
        chain_words(np.zeros((1, 3), np.uint64), SECRET, np.zeros(1, np.int64))
    chain_cells(before(0), SECRET, np.zeros(1, np.int32), b"")
