"""Arrow IPC files are read on the caller's thread only, and a file without its end is refused."""

import io
import threading
from collections.abc import Callable
from typing import Any, BinaryIO

import pyarrow as pa
import pyarrow.ipc
import pyarrow.parquet as pq
import pytest

from fastwire_daemon.dataset.commitlog.deadletterfile import each_dead_letter, read_dead_letters
from fastwire_daemon.dataset.commitlog.ipcfile import opened_ipc_file
from fastwire_daemon.dataset.erasure.condition import parse_condition
from fastwire_daemon.dataset.erasure.rewrite import Rewriter, rewriter
from fastwire_daemon.dataset.proof.content import row_counter

_TABLE = pa.table(
    {
        "rows": pa.array(range(3000), pa.int64()),
        "payload": pa.array([b"x" * 90] * 3000),
        **dict.fromkeys(("topic", "partition", "position", "reason"), pa.array(["a"] * 3000)),
    }
)


class Watched(io.BytesIO):
    """A file that keeps which threads touched it."""

    def __init__(self, content: bytes) -> None:
        super().__init__(content)
        self.threads: set[int] = set()

    def read(self, size: int | None = -1, /) -> bytes:
        """Read, and keep by which thread."""
        self.threads.add(threading.get_ident())
        return super().read(size)

    def seek(self, offset: int, whence: int = 0, /) -> int:
        """Seek, and keep by which thread."""
        self.threads.add(threading.get_ident())
        return super().seek(offset, whence)


def ipc_file(compression: str | None = None) -> bytes:
    file = io.BytesIO()
    options = pa.ipc.IpcWriteOptions(compression=compression)
    with pa.ipc.new_file(pa.PythonFile(file, mode="w"), _TABLE.schema, options=options) as writer:
        writer.write_table(_TABLE, 1000)
    return file.getvalue()


def parquet_file() -> bytes:
    file = io.BytesIO()
    pq.write_table(_TABLE, file, row_group_size=1000)
    return file.getvalue()


def drop(piece: bytes) -> None:
    """Nobody asks what is written."""


def _rewriter(extension: str) -> Rewriter:
    found = rewriter(extension)
    assert found is not None
    return found


_MEANT = parse_condition("rows = 7")
_READERS: dict[str, Callable[[BinaryIO], Any]] = {
    "dead letters": lambda file: read_dead_letters(file).num_rows,
    "each dead letter": lambda file: len(list(each_dead_letter(file))),
    "count": row_counter("arrow") or (lambda file: 0),
    "look": lambda file: _rewriter("arrow").look(file, _MEANT),
    "copy": lambda file: _rewriter("arrow").copy(file, _MEANT, drop),
}


@pytest.mark.parametrize("compression", [None, "zstd"])
@pytest.mark.parametrize("reader", _READERS)
def test_only_the_thread_that_asks_touches_a_file(reader: str, compression: str | None) -> None:
    """Another one that drops a file while the interpreter ends would end the process by SIGABRT."""
    file = Watched(ipc_file(compression))
    assert _READERS[reader](file)
    assert file.threads == {threading.get_ident()}


@pytest.mark.parametrize("what", ["look", "copy"])
def test_only_the_thread_that_asks_touches_a_parquet_file_of_an_erasure(what: str) -> None:
    file = Watched(parquet_file())
    of_parquet = _rewriter("parquet")
    assert of_parquet.look(file, _MEANT) if what == "look" else of_parquet.copy(file, _MEANT, drop)
    assert file.threads == {threading.get_ident()}


def test_rows_are_counted_over_all_batches() -> None:
    count = row_counter("arrow")
    assert count is not None
    assert count(io.BytesIO(ipc_file("zstd"))) == _TABLE.num_rows


@pytest.mark.parametrize("left", [0, 5, 13, 14, 500, -1])
def test_a_file_that_is_cut_is_refused(left: int) -> None:
    with pytest.raises(pa.ArrowInvalid, match="not a whole"), opened_ipc_file(io.BytesIO(ipc_file()[:left])):
        pass
