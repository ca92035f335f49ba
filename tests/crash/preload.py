"""A library that is loaded before libc: fsync that fails once, a disk that is full for a moment, a clock that jumps.

Compiled by the test with gcc and loaded by LD_PRELOAD. Controlled through the environment of the child, so the product
knows nothing of it.
"""

import errno
import mmap
import shutil
import struct
import subprocess
from pathlib import Path

import pytest

SOURCE = r"""
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

/* FAIL_FSYNC_UNDER: a folder; FAIL_FSYNC_NTH: which call on something in it fails, from 1; FAIL_FSYNC_TIMES: how
   many in a row (1); FAIL_FSYNC_ERRNO: with which error (EIO). */
static atomic_long calls;

static int fails(int fd)
{
    const char *under = getenv("FAIL_FSYNC_UNDER"), *nth = getenv("FAIL_FSYNC_NTH");
    char link[64], path[4096];
    ssize_t size;

    if (!under || !nth)
        return 0;
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    size = readlink(link, path, sizeof path - 1);
    if (size < 0)
        return 0;
    path[size] = 0;
    if (strncmp(path, under, strlen(under)))
        return 0;
    const char *times = getenv("FAIL_FSYNC_TIMES");
    long call = atomic_fetch_add(&calls, 1) + 1 - atol(nth);
    return call >= 0 && call < (times ? atol(times) : 1);
}

static int flushed(const char *name, int fd)
{
    int (*real)(int) = (int (*)(int))dlsym(RTLD_NEXT, name);

    if (fails(fd)) {
        const char *code = getenv("FAIL_FSYNC_ERRNO");
        errno = code ? atoi(code) : EIO;
        return -1;
    }
    return real(fd);
}

int fsync(int fd) { return flushed("fsync", fd); }
int fdatasync(int fd) { return flushed("fdatasync", fd); }

/* FULL_IN: part of a path; the first write to such a file takes half, the next two find no space. */
static atomic_int written;

ssize_t write(int fd, const void *data, size_t size)
{
    static ssize_t (*real)(int, const void *, size_t);
    const char *name = getenv("FULL_IN");
    char link[64], path[4096];
    ssize_t length;
    int before;

    if (!real)
        real = (ssize_t (*)(int, const void *, size_t))dlsym(RTLD_NEXT, "write");
    if (!name)
        return real(fd, data, size);
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    length = readlink(link, path, sizeof path - 1);
    path[length < 0 ? 0 : length] = 0;
    if (!strstr(path, name))
        return real(fd, data, size);
    before = atomic_fetch_add(&written, 1);
    if (before == 0)
        return real(fd, data, size / 2);
    if (before <= 2) {
        errno = ENOSPC;
        return -1;
    }
    return real(fd, data, size);
}

/* CLOCK_OFFSET_FILE: eight bytes, the seconds that the wall clock is ahead. */
static int64_t offset(void)
{
    static const volatile int64_t *shared;
    const char *name = getenv("CLOCK_OFFSET_FILE");

    if (!shared && name) {
        int fd = open(name, O_RDONLY | O_CLOEXEC);
        void *page = fd < 0 ? MAP_FAILED : mmap(NULL, 8, PROT_READ, MAP_SHARED, fd, 0);
        if (fd >= 0)
            close(fd);
        if (page != MAP_FAILED)
            shared = page;
    }
    return shared ? *shared : 0;
}

int clock_gettime(clockid_t clock, struct timespec *now)
{
    static int (*real)(clockid_t, struct timespec *);
    int result;

    if (!real)
        real = (int (*)(clockid_t, struct timespec *))dlsym(RTLD_NEXT, "clock_gettime");
    result = real(clock, now);
    if (!result && clock == CLOCK_REALTIME)
        now->tv_sec += offset();
    return result;
}
"""


def library(folder: Path) -> Path:
    """The library, built in ``folder``; skips the test where there is no compiler."""
    gcc = shutil.which("gcc")
    if gcc is None:
        pytest.skip("no compiler for the library that makes fsync fail: apt-get install gcc")
    source, built = folder / "preload.c", folder / "preload.so"
    if not built.exists():
        source.write_text(SOURCE)
        subprocess.run([gcc, "-shared", "-fPIC", "-O1", "-o", built, source, "-ldl"], check=True)
    return built


def failing_fsync(under: Path, nth: int, *, times: int = 1, code: int = errno.EIO) -> dict[str, str]:
    """The environment in which the ``nth`` fsync of something in ``under`` fails, and so many after it."""
    return {
        "FAIL_FSYNC_UNDER": str(under),
        "FAIL_FSYNC_NTH": str(nth),
        "FAIL_FSYNC_TIMES": str(times),
        "FAIL_FSYNC_ERRNO": str(code),
    }


def full_disk(within: str) -> dict[str, str]:
    """The environment in which space runs out in the middle of the first file with ``within`` in its path."""
    return {"FULL_IN": within}


class Clock:
    """The wall clock of the children that were started with ``env``."""

    def __init__(self, folder: Path) -> None:
        self._file = folder / "clock"
        self._file.write_bytes(bytes(8))
        self.env = {"CLOCK_OFFSET_FILE": str(self._file)}

    def set_ahead(self, seconds: int) -> None:
        """From now on the children's clock is ``seconds`` ahead (or behind, if negative)."""
        with self._file.open("r+b") as file, mmap.mmap(file.fileno(), 8) as page:
            page[:8] = struct.pack("=q", seconds)
