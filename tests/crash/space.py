"""A small disk of its own for a test: a tmpfs in a mount namespace that ends with the test."""

import os
import subprocess
from pathlib import Path
from typing import Self

import pytest


class SmallDisk:
    """``path`` is the folder as processes with ``prefix`` see it, ``seen`` the same folder for everybody else.

    Skips the test where the kernel refuses. Use as a context manager.
    """

    def __init__(self, mountpoint: Path, mib: int) -> None:
        mountpoint.mkdir(parents=True)
        self.path = mountpoint
        own = ["--user", "--map-root-user"] if os.geteuid() else []
        script = 'mount -t tmpfs -o "size=$1m" tmpfs "$2" && echo mounted && exec sleep infinity'
        self._holder = subprocess.Popen(
            ["setpriv", "--pdeathsig", "KILL", "unshare", *own, "--mount", "--", "sh", "-c", script, "sh", str(mib),
             str(mountpoint)],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )  # fmt: skip
        assert self._holder.stdout is not None and self._holder.stderr is not None
        if self._holder.stdout.readline() != "mounted\n":
            self._holder.wait(60)
            reason = self._holder.stderr.read().strip()
            self._close()
            pytest.skip(f"the kernel gives no small disk of its own (a tmpfs in a mount namespace): {reason}")
        pid = str(self._holder.pid)
        join = ["--user", "--preserve-credentials"] if own else []
        self.prefix = ("nsenter", "--target", pid, *join, "--mount", "--")
        self.seen = Path(f"/proc/{pid}/root{mountpoint}")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._holder.kill()
        self._holder.wait()
        self._close()

    def _close(self) -> None:
        for stream in (self._holder.stdout, self._holder.stderr):
            if stream is not None:
                stream.close()

    def remount(self, options: str) -> None:
        """Change the mount: ``ro``, ``rw``, ``size=…``."""
        command = [*self.prefix, "mount", "-o", f"remount,{options}", str(self.path)]
        subprocess.run(command, check=True, capture_output=True)

    @property
    def free(self) -> int:
        """Bytes that can still be written."""
        found = os.statvfs(self.seen)
        return found.f_bavail * found.f_frsize
