"""The memory and the cores that the machine, or the control group, allows the process."""

import os
from pathlib import Path


def available_memory(root: Path = Path("/")) -> int:
    """Return the bytes of memory this process may use: the machine's, or less under the limit of a control group."""
    limits = [os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")]
    try:
        groups = (root / "proc/self/cgroup").read_text().splitlines()
    except OSError:
        return limits[0]
    for group in groups:
        _, controllers, path = group.split(":", 2)
        if not controllers:
            limits += _limits(root / "sys/fs/cgroup", path, "memory.max")
        elif "memory" in controllers.split(","):
            limits += _limits(root / "sys/fs/cgroup/memory", path, "memory.limit_in_bytes")
    return min(limits)


def _limits(mount: Path, path: str, name: str) -> list[int]:
    """Read the limits of a group and its ancestors; inside a container its path may not exist, but the root does."""
    found = []
    group = mount / path.lstrip("/")
    for folder in (group, *group.parents):
        try:
            text = (folder / name).read_text().strip()
        except OSError:
            text = ""
        if text.isdecimal():
            found.append(int(text))
        if folder == mount:
            break
    return found


def cores() -> int:
    """Return the number of cores this process may run on."""
    return len(os.sched_getaffinity(0))
