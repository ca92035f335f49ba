"""Messages to systemd, and the printed unit."""

import os
import re
import shutil
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from fastwire_daemon.config import DaemonConfig, parse_duration
from fastwire_daemon.service.systemd import Notifier, own_executable, unit


@pytest.fixture(params=["path", "abstract"])
def listener(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[tuple[socket.socket, str]]:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sock:
        name = str(tmp_path / "notify") if request.param == "path" else f"@fastwire-test-{os.getpid()}-{id(sock)}"
        sock.bind(name.replace("@", "\0", 1) if request.param == "abstract" else name)
        sock.settimeout(5)
        yield sock, name


def test_what_is_said(listener: tuple[socket.socket, str]) -> None:
    sock, name = listener
    notifier = Notifier({"NOTIFY_SOCKET": name})
    notifier.ready("reading 2 pipelines")
    notifier.status("1,000 rows\nso far")
    notifier.watchdog()
    notifier.stopping()
    heard = [sock.recv(4096).decode() for _ in range(4)]
    assert heard == [
        "READY=1\nSTATUS=reading 2 pipelines",
        "STATUS=1,000 rows so far",
        "WATCHDOG=1",
        "STOPPING=1",
    ]
    notifier.close()
    notifier.ready()
    notifier.close()
    sock.setblocking(False)
    with pytest.raises(BlockingIOError):
        sock.recv(1)


def test_without_systemd_nothing_happens() -> None:
    notifier = Notifier({"WATCHDOG_USEC": "1000"})
    assert notifier.watchdog_s is None
    notifier.ready("x")
    notifier.stopping()
    notifier.close()


def test_a_listener_that_is_gone_does_not_matter(tmp_path: Path) -> None:
    notifier = Notifier({"NOTIFY_SOCKET": str(tmp_path / "gone")})
    notifier.ready()
    notifier.watchdog()
    notifier.close()


def test_a_listener_that_does_not_listen_does_not_stop_us(tmp_path: Path) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sock:
        sock.bind(str(tmp_path / "deaf"))
        notifier = Notifier({"NOTIFY_SOCKET": str(tmp_path / "deaf")})
        for _ in range(2000):
            notifier.watchdog()
        notifier.close()


@pytest.mark.parametrize(
    ("environ", "seconds"),
    [
        ({}, None),
        ({"WATCHDOG_USEC": "60000000"}, 60.0),
        ({"WATCHDOG_USEC": "60000000", "WATCHDOG_PID": str(os.getpid())}, 60.0),
        ({"WATCHDOG_USEC": "60000000", "WATCHDOG_PID": "1"}, None),
        ({"WATCHDOG_USEC": "0"}, None),
        ({"WATCHDOG_USEC": "often"}, None),
    ],
)
def test_the_watchdog(environ: dict[str, str], seconds: float | None) -> None:
    assert Notifier({"NOTIFY_SOCKET": "/x", **environ}).watchdog_s == seconds


def settings(text: str) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for line in text.splitlines():
        if match := re.fullmatch(r"([A-Za-z]+)=(.*)", line):
            found.setdefault(match[1], []).append(match[2])
    return found


@pytest.mark.parametrize("hardened", [False, True])
def test_the_unit(hardened: bool) -> None:
    got = settings(unit(hardened, "/opt/fw/bin/fastwire-consume"))
    assert got["Type"] == ["notify"]
    assert got["ExecStartPre"] == ["/opt/fw/bin/fastwire-consume check /etc/fastwire/%i.toml"]
    assert got["ExecStart"] == ["/opt/fw/bin/fastwire-consume run /etc/fastwire/%i.toml"]
    assert got["Restart"] == ["on-failure"]
    assert got["RestartPreventExitStatus"] == ["2 78"]
    assert got["KillSignal"] == ["SIGTERM"]
    assert parse_duration(got["WatchdogSec"][0] + "s") == 60
    assert int(got["StartLimitBurst"][0]) > 0
    # A drain must be over before systemd kills.
    assert parse_duration(got["TimeoutStopSec"][0] + "s") > DaemonConfig().drain_timeout
    assert "/usr/bin/fastwire-consume" not in unit(hardened, "/opt/fw/bin/fastwire-consume")


def test_the_hardened_unit_only_adds() -> None:
    plain, hardened = settings(unit(False, "/x")), settings(unit(True, "/x"))
    assert {key: hardened[key] for key in plain} == plain
    added = hardened.keys() - plain.keys()
    assert {"ProtectSystem", "NoNewPrivileges", "SystemCallFilter", "CapabilityBoundingSet", "ReadWritePaths"} <= added


def test_an_odd_path_is_quoted() -> None:
    assert settings(unit(False, "/opt/my env/100%/fc"))["ExecStart"] == [
        '"/opt/my env/100%%/fc" run /etc/fastwire/%i.toml'
    ]


def test_our_own_executable(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    program = tmp_path / "fastwire-consume"
    program.touch()
    monkeypatch.setattr(sys, "argv", [str(program)])
    assert own_executable() == str(program)
    monkeypatch.setattr(sys, "argv", ["/usr/bin/pytest"])
    monkeypatch.setattr(sys, "executable", str(tmp_path / "python"))
    assert own_executable() == str(program)
    program.unlink()
    monkeypatch.setattr(shutil, "which", lambda name: None)
    assert own_executable() == "/usr/bin/fastwire-consume"


@pytest.mark.parametrize("hardened", [False, True])
def test_systemd_understands_the_unit(hardened: bool, tmp_path: Path) -> None:
    analyze = shutil.which("systemd-analyze")
    if analyze is None:
        pytest.skip("needs systemd-analyze: apt-get install systemd")
    file = tmp_path / "fastwire@orders.service"
    file.write_text(unit(hardened, "/bin/true"))
    # --man=no and a runtime folder of our own: only our file is looked at.
    result = subprocess.run([analyze, "verify", "--man=no", str(file)], capture_output=True, text=True, check=False)
    complaints = [line for line in result.stderr.splitlines() if "fastwire" in line]
    assert complaints == []


@pytest.mark.parametrize("weakened", ["", "PrivateDevices=true", "SystemCallFilter=~@privileged @resources"])
def test_the_hardened_unit_exposes_little(weakened: str, tmp_path: Path) -> None:
    """At most 2.0 of 10 by systemd's count, and each line counts."""
    analyze = shutil.which("systemd-analyze")
    if analyze is None:
        pytest.skip("needs systemd-analyze: apt-get install systemd")
    file = tmp_path / "fastwire@orders.service"

    def exposure(text: str) -> float:
        file.write_text(text)
        command = (analyze, "security", "--no-pager", "--offline=true", "--threshold=20", str(file))
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        found = re.search(r"exposure level for \S+: ([\d.]+)", done.stdout)
        if found is None:
            pytest.skip(f"this systemd-analyze cannot judge a file: {done.stderr.strip()[:100]}")
        return float(found[1])

    whole = unit(hardened=True, executable="/bin/true")
    if weakened:
        assert exposure(whole.replace(f"{weakened}\n", "")) > exposure(whole)
    else:
        assert exposure(whole) <= 2.0
