"""Library pages go back, and everything works on."""

import subprocess
import sys

PROGRAM = """
import json, zlib
import pyarrow as pa
import pyarrow.parquet as pq
from fastwire_daemon.pages import release_library_pages

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


def test_pages_of_libraries_go_back_and_come_again() -> None:
    done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    before, after, again = map(int, done.stdout.strip("[]\n").split(","))
    assert after < before / 2
    assert after < again < before
