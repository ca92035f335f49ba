"""Secrets that cross the network unencrypted are named: of all systems, catalogs and databases; others are not."""

from pathlib import Path

import pytest

from fastwire_daemon.cli.check.checks import static_checks
from fastwire_daemon.config import load_config
from fastwire_daemon.config.cleartext import of_job, of_pipeline
from tests.real.daemon import Daemon

PASSWORD = 'auth = { user = "me", password = "hidden-word" }'
TOKEN = 'auth = { token = "hidden-word" }'
PLAIN = 'auth = { user = "me", password = "hidden-word", mechanism = "PLAIN" }'
OF = {
    "pulsar": 'topics = ["t"]\nsubscription = "s"',
    "kafka": 'topics = ["t"]\ngroup = "gg"',
    "tank": 'topics = ["t"]',
    "tubemq": 'topics = ["t"]\ngroup = "gg"',
}
FILES = 'type = "parquet"\npath = "{path}"'
ICEBERG = FILES.replace("parquet", "iceberg") + '\ntable = "shop.orders"\ncatalog = {{ type = "rest", {catalog} }}'


def told(tmp_path: Path, url: str, login: str = "", sink: str = FILES) -> list[str]:
    file = tmp_path / "c.toml"
    source = f'start = "earliest"\nurl = "{url}"\n{OF[url.partition("://")[0].partition("+")[0]]}\n{login}'
    file.write_text(
        f"[pipelines.p.source]\n{source}\n[pipelines.p.sink]\n{sink.replace('{path}', str(tmp_path / 'd'))}\n"
    )
    found = of_pipeline(load_config(file).pipelines["p"])
    assert "hidden-word" not in "".join(found)
    return found


@pytest.mark.parametrize(
    ("url", "login", "secret"),
    [
        ("pulsar://a.example:6650", TOKEN, "the token"),
        ("pulsar://a.example:6650", PASSWORD, "the password"),
        ("pulsar://127.0.0.1,a.example:6650", TOKEN, "the token"),
        ("kafka://a.example:9092", PLAIN, "the password"),
        ("kafka://a.example:9092", TOKEN, "the token"),
        ("kafka://[2001:db8::1]:9092", 'auth = { oauth2 = { key_file = "/k" } }', "the token"),
    ],
)
def test_a_secret_that_anyone_can_read_on_its_way(tmp_path: Path, url: str, login: str, secret: str) -> None:
    (found,) = told(tmp_path, url, login)
    assert found.startswith(f"{secret} crosses the network unencrypted on the way to ")
    assert "+ssl://" in found
    encrypted = url.replace("://", "+ssl://")
    assert told(tmp_path, encrypted, login) == []


def test_check_and_the_log_say_it_once(tmp_path: Path) -> None:
    (why,) = told(tmp_path, "kafka://a.invalid:9092", PLAIN)
    file = tmp_path / "c.toml"
    checks = [each for each in static_checks(load_config(file)) if each.what == "tls"]
    assert [(each.ok, each.detail) for each in checks] == [(True, f"none: {why}")]
    file.write_text('daemon.http = ""\n' + file.read_text())
    with Daemon("run", str(file), log=tmp_path / "log") as daemon:
        daemon.wait_for("retrying", 60)
        daemon.end()
    lines = [line for line in (tmp_path / "log").read_text().splitlines() if why in line]
    assert len(lines) == 1
    assert '"level":"warning"' in lines[0]


@pytest.mark.parametrize(
    ("url", "login"),
    [
        ("pulsar://a.example:6650", ""),
        ("pulsar://localhost:6650,127.0.0.1:6651,[::1]:6652", TOKEN),
        ("kafka://a.example:9092", PASSWORD),  # SCRAM
        ("tank://a.example:11011", ""),
        ("tubemq://a.example:8715", PASSWORD),  # HMAC
    ],
)
def test_what_nobody_can_read(tmp_path: Path, url: str, login: str) -> None:
    assert told(tmp_path, url, login) == []


def test_a_topic_that_is_written_to(tmp_path: Path) -> None:
    sink = f'type = "kafka"\nurl = "kafka://b.example:9092"\ntopic = "u"\n{PLAIN}'
    (found,) = told(tmp_path, "kafka://a.example:9092", "", sink)
    assert "b.example" in found


@pytest.mark.parametrize(
    ("catalog", "secrets"),
    [
        ('uri = "http://c.example:8181", token = "hidden-word"', ["the token"]),
        ('uri = "http://c.example:8181", credential = "i:hidden-word"', ["the credential"]),
        (
            'uri = "https://c.example", credential = "i:hidden-word", oauth2_server_uri = "http://o.example/token"',
            ["the credential"],
        ),
        ('uri = "https://c.example", token = "hidden-word"', []),
        ('uri = "http://127.0.0.1:8181", token = "hidden-word"', []),
        ('uri = "http://c.example:8181"', []),
    ],
)
def test_a_catalog(tmp_path: Path, catalog: str, secrets: list[str]) -> None:
    found = told(tmp_path, "kafka://a.example:9092", "", ICEBERG.format(path="{path}", catalog=catalog))
    assert [each.partition(" of the catalog")[0] for each in found] == secrets


@pytest.mark.parametrize(
    ("url", "count"),
    [
        ("postgresql://me@d.example/shop?sslmode=disable", 1),
        ("postgresql://me@d.example/shop?sslmode=allow", 1),
        ("postgresql://me@d.example/shop?sslmode=verify-full", 0),
        ("postgresql://me@localhost/shop?sslmode=disable", 0),
        ("postgresql:///shop?host=/run/postgresql&sslmode=disable", 0),
    ],
)
def test_a_database(tmp_path: Path, url: str, count: int) -> None:
    sink = f'type = "postgresql"\nurl = "{url}"\ntable = "orders"\npassword = "hidden-word"'
    assert len(told(tmp_path, "kafka://a.example:9092", "", sink)) == count


def test_a_job(tmp_path: Path) -> None:
    file = tmp_path / "c.toml"
    (tmp_path / "token").write_text("hidden-word")
    (tmp_path / "s.avsc").write_text('{"type": "record", "name": "R", "fields": [{"name": "x", "type": "long"}]}')
    file.write_text(
        f"""[spark.j.source]
url = "pulsar://a.example:6650"
topics = ["t"]
start = "earliest"
auth = {{ token_file = "{tmp_path}/token" }}
[spark.j.decode]
format = "json"
schema = "{tmp_path}/s.avsc"
[spark.j.output]
format = "delta"
path = "{tmp_path}/out"
checkpoint = "{tmp_path}/check"
dead_letters = "{tmp_path}/dead"
"""
    )
    (found,) = of_job(load_config(file).spark["j"])
    assert found.startswith("the token crosses the network unencrypted on the way to a.example:6650")
