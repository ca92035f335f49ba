"""``check``: what a configuration will do, and with ``--connect`` whether it can."""

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from fastwire_daemon import connect
from fastwire_daemon.checks import CheckResult
from tests.cli.orders import AnyBroker, shown_name
from tests.cli.program import GOOD, Run


def test_check_says_what_will_happen(run: Run, good: Path, tmp_path: Path) -> None:
    good.write_text(good.read_text().replace('type = "parquet"', 'type = "parquet"\nwriters = 1'))
    code, out, err = run("check", good)
    assert (code, err) == (0, "")
    assert (
        out
        == f"""\
orders
  from     persistent://public/default/orders
  from     persistent://public/default/refunds
           at pulsar://127.0.0.1:6650, subscription fastwire-orders (failover)
           start earliest, where nothing has landed yet
  into     parquet in {tmp_path}/data, zstd:1, 1 writer
           a roll ends at 128MiB, 5,000,000 rows, 1m of age or 10s of rest
  promise  exactly once: files and positions are one commit
look
  from     persistent://public/default/events
           at pulsar+ssl://127.0.0.1:6651, subscription fastwire-look (failover)
           start latest, where nothing has landed yet
  into     stdout, 1 writer
           a roll ends at 128MiB, 5,000,000 rows, 1m of age or 10s of rest
  promise  at least once: stdout has no log, what was not acknowledged comes again after a crash
  auth     token found
  tls      the broker must be vouched for by the system
the configuration is good (--connect asks the brokers, too)
"""
    )
    assert not (tmp_path / "data").exists()


@pytest.mark.parametrize(
    ("sink", "promise"),
    [
        ('type = "arrow"\npath = "/x"', "exactly once: files and positions are one commit"),
        ('type = "jsonl"\npath = "/x"', "exactly once: files and positions are one commit"),
        ('type = "discard"', "none: discard acknowledges records and throws them away"),
    ],
)
def test_promises(run: Run, tmp_path: Path, sink: str, promise: str) -> None:
    file = tmp_path / "c.toml"
    file.write_text(GOOD.partition("[pipelines.orders.sink]")[0] + f"[pipelines.orders.sink]\n{sink}\n")
    code, out, _ = run("check", file)
    assert code == 0
    assert f"\n  promise  {promise}\n" in out


@pytest.mark.parametrize(
    ("protocol", "said"),
    [
        ("auto", "group fastwire-orders (protocol auto)"),
        ("none", "all partitions alone, offsets kept as group fastwire-orders"),
    ],
)
def test_check_speaks_of_groups_where_kafka_is(run: Run, good: Path, protocol: str, said: str) -> None:
    text = good.read_text().partition("[pipelines.look")[0]
    text = text.replace("pulsar://127.0.0.1:6650", "kafka://127.0.0.1:9092").replace("subscription = ", "group = ")
    good.write_text(text.replace("[pipelines.orders.sink]", f'group_protocol = "{protocol}"\n[pipelines.orders.sink]'))
    code, out, err = run("check", good)
    assert (code, err) == (0, "")
    assert f"           at kafka://127.0.0.1:9092, {said}\n" in out


def test_check_looks_for_the_token(run: Run, good: Path, tmp_path: Path) -> None:
    (tmp_path / "token").unlink()
    code, out, err = run("check", good)
    assert (code, err) == (1, "")
    assert f"  auth     FAILED: cannot read the token file {tmp_path}/token: No such file or directory\n" in out
    assert out.endswith("\n1 of 4 checks failed\n")


def test_check_knows_what_pulsar_makes_of_a_colon(run: Run, good: Path, tmp_path: Path) -> None:
    """A broker of Pulsar's takes user:password apart there; one of Kafka's is given both."""
    (tmp_path / "password").write_text("a:b\n")
    for url, said in (
        ("pulsar://h", "FAILED: the password holds a colon, at which a Pulsar broker takes user and password apart"),
        ("kafka://h", "user u, password found"),
    ):
        good.write_text(
            f"""\
[pipelines.p.source]
url = "{url}"
topics = ["t"]
group = "g"
start = "earliest"
auth = {{ user = "u", password_file = "{tmp_path}/password" }}
[pipelines.p.sink]
type = "discard"
"""
        )
        assert f"  auth     {said}\n" in run("check", good)[1]


def test_check_looks_at_certificates(run: Run, good: Path, tmp_path: Path) -> None:
    text = good.read_text()
    good.write_text(text.replace("[pipelines.look.sink]", f'tls.ca = "{tmp_path}/ca.pem"\n[pipelines.look.sink]'))
    code, out, _ = run("check", good)
    assert code == 1
    assert f"  tls      FAILED: ca: cannot use {tmp_path}/ca.pem: No such file or directory\n" in out
    good.write_text(text.replace("[pipelines.look.sink]", "tls.verify = false\n[pipelines.look.sink]"))
    code, out, _ = run("check", good)
    assert code == 0
    assert "  tls      encrypted, but verify = false: anybody could be the broker\n" in out


def test_check_connect_asks_brokers_and_folders(
    run: Run, good: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def check_connections(config: Any) -> list[CheckResult]:
        return [
            CheckResult("orders", "broker", True, "pulsar://127.0.0.1:6650 answers"),
            CheckResult("look", "broker", False, "127.0.0.1:6651 refuses connections"),
        ]

    monkeypatch.setattr(connect, "check_connections", check_connections)
    code, out, err = run("check", good, "--connect")
    assert (code, err) == (1, "")
    assert f"  folder   {tmp_path}/data can hold a dataset\n" in out
    assert "  broker   pulsar://127.0.0.1:6650 answers\n" in out
    assert "  broker   FAILED: 127.0.0.1:6651 refuses connections\n" in out
    assert out.endswith("\n1 of 7 checks failed\n")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["good.toml", "token"]
    monkeypatch.setattr(connect, "check_connections", lambda config: [])
    assert run("check", good, "--connect")[1].endswith("\nall is well\n")


def test_check_connect_finds_a_folder_that_cannot_hold_a_dataset(
    run: Run, good: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connect, "check_connections", lambda config: [])
    good.write_text(good.read_text().replace(f'"{tmp_path}/data"', '"/proc/data"'))
    code, out, _ = run("check", good, "--connect")
    assert code == 1
    assert "  folder   FAILED: make a folder: /proc: " in out


def test_check_of_a_pattern(run: Run, any_broker: AnyBroker, tmp_path: Path) -> None:
    config = tmp_path / "pattern.toml"
    config.write_text(
        f"""
        [pipelines.it.source]
        url = "{any_broker.url}"
        topics_pattern = "orders.*"
        subscription = "s"
        start = "latest"
        [pipelines.it.sink]
        type = "discard"
        """
    )
    code, out, _ = run("check", config, "--connect")
    assert code == 0
    pattern, topic = (shown_name(any_broker, name) for name in ("orders.*", "orders"))
    assert f"  from     all topics that match {pattern}, also those that come later\n" in out
    assert f"  topic    {topic}: 2 partitions\n" in out
    config.write_text(config.read_text().replace("orders.*", "invoices.*"))
    code, out, _ = run("check", config, "--connect")
    assert code == 0
    assert f"  topic    none matches {shown_name(any_broker, 'invoices.*')} yet\n" in out


def test_check_does_not_load_pyarrow(good: Path) -> None:
    code = (
        "import sys\nfrom fastwire_daemon.cli import app\n"
        f"try:\n    app(['check', {str(good)!r}])\nexcept SystemExit:\n    pass\n"
        "print([name for name in ('pyarrow', 'aiohttp', 'uvloop') if name in sys.modules], file=sys.stderr)"
    )
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert result.stderr == "[]\n"
