"""The part of a program that valgrind counts: all else runs several times faster under it."""

import ctypes
import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

VARIABLE = "FASTWIRE_COUNTING"  # of the environment, with the path of the library
SOURCE = """
#include <valgrind/callgrind.h>
void begin(void) { CALLGRIND_START_INSTRUMENTATION; CALLGRIND_ZERO_STATS; }
void end(void) { CALLGRIND_DUMP_STATS; CALLGRIND_STOP_INSTRUMENTATION; }
"""


def library(folder: Path) -> Path:
    """Build what tells callgrind of both ends, with headers that come with valgrind, and return its path."""
    source, built = folder / "counting.c", folder / "counting.so"
    source.write_text(SOURCE)
    subprocess.run(["cc", "-O1", "-shared", "-fPIC", "-o", built, source], check=True)
    return built


@contextmanager
def counted() -> Iterator[None]:
    """Let callgrind write a file with the counts of what is done within."""
    told = ctypes.CDLL(os.environ[VARIABLE])
    told.begin()
    yield
    told.end()
