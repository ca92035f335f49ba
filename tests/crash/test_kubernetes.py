"""The promises of the manifests, by processes: pods that are replaced, killed, moved, and a map that changes under one.

A pod is a process with a folder of its own: its mounts are there as kubelet makes them, and the working directory is
its volume, so that a path of the configuration leads to another place when the volume comes back elsewhere.
"""

import os
import shutil
import signal
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from tests.crash.scene import Scene
from tests.real.daemon import Daemon, Job, ask
from tests.support.waiting import eventually

pytestmark = pytest.mark.crash

FED = 500
GRACE_S = 45.0


class Node:
    """Runs pods: each has its ConfigMap in a folder with kubelet's links, and a Unix socket for the probes."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._started = 0

    def map(self, name: str, text: str) -> Path:
        """Write a version of a ConfigMap, and return the path of the file in a pod."""
        mount = self._folder / name
        mount.mkdir(parents=True, exist_ok=True)
        version = mount / f"..{len(list(mount.iterdir()))}"
        version.mkdir()
        (version / "config.toml").write_text(text)
        (mount / "..data_tmp").symlink_to(version.name)
        (mount / "..data_tmp").rename(mount / "..data")
        file = mount / "config.toml"
        if not file.is_symlink():
            file.symlink_to("..data/config.toml")
        return file

    def pod(self, job: Job, name: str, *, volume: Path | None = None) -> "Pod":
        """Start a pod; its configuration is the map of its name."""
        self._started += 1
        probes = self._folder / f"{name}-{self._started}.sock"
        job = replace(job, daemon={"http": f"unix:{probes}", "reload": "change"})
        log = self._folder / f"{name}-{self._started}.log"
        # As in a container: started in its folder, by itself.
        prefix = ("env", f"--chdir={volume}", f"PYTHONPATH={os.getcwd()}") if volume else ()
        return Pod(self, job, name, Daemon("run", str(self.map(name, job.text())), log=log, prefix=prefix), probes)


class Pod(Daemon):
    """A daemon as kubelet sees it."""

    def __init__(self, node: Node, job: Job, name: str, daemon: Daemon, probes: Path) -> None:
        self.process, self.log = daemon.process, daemon.log
        self.node, self.job, self.name, self._probes = node, job, name, probes

    def wait_ready(self) -> None:
        """Wait until the readiness probe succeeds."""
        self.wait_until(lambda: ask(self._probes, "/readyz") == "ok\n", "it is ready")

    def evict(self) -> None:
        """End it as kubelet does, within the grace period; it has to end well."""
        self.process.terminate()
        assert self.wait(GRACE_S) == 0, self.tail()

    def apply(self, job: Job) -> None:
        """Replace its map."""
        self.job = replace(job, daemon=self.job.daemon)
        self.node.map(self.name, self.job.text())


@pytest.mark.parametrize("kind", ["failover", "static"])
def test_a_rolling_update_lands_each_record_once(dev_scene: Callable[..., Scene], tmp_path: Path, kind: str) -> None:
    """maxSurge 1, maxUnavailable 0: a new pod is ready before an old one has to go, and both write into one dataset."""
    scene = dev_scene(kind=kind)
    node = Node(tmp_path / "node")
    jobs = [scene.job] * 4
    if kind == "static":
        # A static member does not leave: its partitions wait for the end of its session.
        source = {**scene.job.source, "session_timeout": "10s"}
        jobs = [replace(scene.job, source=source | {"group_instance_id": f"pod-{n}"}) for n in range(4)]
    scene.feed.add(5)
    pods = [node.pod(job, f"old-{n}") for n, job in enumerate(jobs[:2])]
    try:
        for pod in pods:
            pod.wait_ready()
        for n, job in enumerate(jobs[2:]):
            scene.feed.add(3)
            pods.append(node.pod(job, f"new-{n}"))
            pods[-1].wait_ready()
            scene.feed.add(3)
            pods[n].evict()
        scene.feed.add(3)
        scene.wait_until_acknowledged()
        for pod in pods[2:]:
            pod.evict()
    finally:
        for pod in pods:
            pod.__exit__()
    scene.judge(ordered=False)


@pytest.mark.parametrize("kind", ["failover", "tank"])
def test_a_killed_pod_goes_on_where_its_volume_is(dev_scene: Callable[..., Scene], tmp_path: Path, kind: str) -> None:
    """A pod is killed, and its volume is mounted on another node: other inodes, another device, another path."""
    scene = dev_scene(kind=kind)
    node = Node(tmp_path / "node")
    job = replace(scene.job, path=Path("orders"))
    volume = tmp_path / "volume-0"
    volume.mkdir()
    for number in range(1, 4):
        scene.feed.add(5)
        with node.pod(job, "pod", volume=volume) as pod:
            pod.wait_for_rows(FED)
            scene.feed.add(5)
            pod.signal(signal.SIGKILL)
            pod.wait()
        moved = tmp_path / f"volume-{number}"
        shutil.copytree(volume, moved, symlinks=True)
        shutil.rmtree(volume)
        volume = moved
    (volume / "orders").rename(scene.job.path)
    scene.settle()
    scene.judge()


def test_a_map_that_changes_under_a_pod(dev_scene: Callable[..., Scene], tmp_path: Path) -> None:
    """A map that cannot be is refused, said aloud, and the pod goes on; a sound one is taken over without a restart."""
    scene = dev_scene()
    node = Node(tmp_path / "node")
    scene.feed.add(5)
    with node.pod(scene.job, "pod") as pod:
        pod.wait_for_rows(FED)
        pod.apply(replace(scene.job, roll={"idle": "200ms", "age": "soon"}))
        pod.wait_for("the old one stays in force")
        scene.feed.add(1)
        pod.wait_for_rows(scene.feed.count)
        pod.apply(replace(scene.job, roll={"idle": "100ms"}))
        pod.wait_for("configuration reloaded")
        pod.wait_ready()
        scene.feed.add(1)
        eventually(lambda: pod.committed() == scene.feed.count, "the new one lands")
        pod.evict()
    scene.judge()
