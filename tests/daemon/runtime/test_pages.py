"""Library pages go back, and everything works on; pages of the heap stay; Arrow has none of its own."""

import json
import os
import platform
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.config_file import MINIMAL

LIBRARIES = """
import json, zlib
import pyarrow as pa
import pyarrow.parquet as pq
from fastwire_daemon.runtime.pages import release_library_pages

def resident():
    with open("/proc/self/status") as status:
        return next(int(line.split()[1]) for line in status if line.startswith("RssFile:"))

def work():
    stream = pa.BufferOutputStream()
    pq.write_table(pa.table({"a": ["x", "y", None]}), stream, compression="zstd")
    return zlib.crc32(stream.getvalue())

first, before = work(), resident()
release_library_pages()
after = resident()
assert work() == first
print(json.dumps([before, after, resident()]))
"""


HEAP = """
import resource
from fastwire_daemon.runtime.pages import keep_heap_pages

def columns():
    blocks = [b"x" * (2 << 20) for _ in range(5)]
    while blocks:
        blocks.pop()

if %r:
    keep_heap_pages(256 << 20)
for _ in range(3):
    columns()
before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
for _ in range(10):
    columns()
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""

ARROW = """
import json, sys
from pathlib import Path
from fastwire.wire.pool import Pool
from fastwire_daemon.config import load_config
from fastwire_daemon.runtime.resident import use_system_allocator
from fastwire_daemon.sinks.registry import build_sink

config = load_config(Path(sys.argv[1]))
use_system_allocator(64 << 20)
sink = build_sink(config.pipelines["orders"], memory=64 << 20)
import pyarrow as pa
from fastwire_daemon.testing import Feed

sink.open()
sink.create_dataset()
sink.write(Feed().chunk(4))
sink.commit()
sink.close()
print(json.dumps([pa.default_memory_pool().backend_name, pa.mimalloc_memory_pool().max_memory()]))
"""


BLAS = """
import os
from fastwire_daemon.runtime.resident import use_one_blas_thread

use_one_blas_thread()
import numpy

print(len(os.listdir("/proc/self/task")))
"""


def said(program: str, *arguments: str, **environment: str) -> str:
    """Return the output of a separate process, which ends without an error."""
    done = subprocess.run(
        [sys.executable, "-c", program, *arguments],
        capture_output=True,
        text=True,
        check=False,
        env=os.environ | environment,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_pages_of_libraries_go_back_and_come_again() -> None:
    before, after, again = json.loads(said(LIBRARIES))
    assert after < before / 2
    assert after < again < before


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="others have no such settings")
def test_pages_of_the_heap_stay() -> None:
    assert int(said(HEAP % True)) < 100
    assert int(said(HEAP % False)) > 10_000, "nobody would need our settings"


@pytest.mark.parametrize("named", ["", "mimalloc"])
def test_arrow_takes_its_memory_from_the_system_unless_somebody_wants_it_otherwise(named: str, tmp_path: Path) -> None:
    config = tmp_path / "c.toml"
    config.write_text(MINIMAL.replace("/data/orders", f"{tmp_path}/data"))
    environment = {"ARROW_DEFAULT_MEMORY_POOL": named} if named else {}
    backend, own = json.loads(said(ARROW, str(config), **environment))
    assert backend == (named or "system")
    assert bool(own) == (named == "mimalloc")


@pytest.mark.skipif((os.cpu_count() or 1) < 2, reason="one core has one thread")
def test_loading_arrow_starts_no_threads_unless_somebody_wants_some() -> None:
    assert int(said(BLAS)) == 1
    assert int(said(BLAS, OPENBLAS_NUM_THREADS="2")) == 2
