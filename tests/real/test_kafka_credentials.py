"""Every way of saying who one is, to a real Kafka broker; the official client says the same and is the witness."""

import asyncio
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer
from confluent_kafka.admin._resource import ResourceType

from tests.brokers.kafka import LOGIN_S, PASSWORD, PLAIN_USER, USER, GuardedKafka, unsecured_token
from tests.real.daemon import Daemon, Job
from tests.real.test_kafka import Sent, assert_same, produce, records, rows
from tests.real.test_kafka_transactions import Feed, check, read
from tests.support.nursery import shared
from tests.support.oauth_issuer import CLIENT_SECRET, issuing
from tests.support.waiting import until

pytestmark = pytest.mark.broker


def job(guarded: GuardedKafka, listener: str, topic: str, tmp_path: Path, **more: Any) -> Job:
    """A job by a listener; ``source`` has what it is told beside the authority."""
    source = {"subscription_type": None, **more.pop("source", {})}
    if guarded.url_of(listener).startswith("kafka+ssl"):
        source["tls"] = {"ca": guarded.certificates.ca, **source.get("tls", {})}
    url = guarded.url_of(listener)
    return Job(url, topic, tmp_path / "data", subscription=f"group-of-{topic}", source=source, **more)


def login(mechanism: str, folder: Path, **changed: Any) -> dict[str, Any]:
    file = folder / "password"
    file.write_text(PASSWORD + "\n")
    user = PLAIN_USER if mechanism == "PLAIN" else USER
    return {"auth": {"user": user, "password_file": file, "mechanism": mechanism, **changed}}


def written(guarded: GuardedKafka, topic: str, count: int = 60) -> list[Sent]:
    guarded.create_topic(topic, 2)
    sent = records(count, 2, seed=3)
    produce(guarded, topic, sent)
    return sent


def their_topics(guarded: GuardedKafka, listener: str, **settings: str) -> None:
    """The official client is let in in this way."""
    said = {key.replace("_", "."): value for key, value in settings.items()}
    consumer = Consumer({"bootstrap.servers": guarded.servers_of(listener), "group.id": "x", "log_level": 0, **said})
    try:
        assert consumer.list_topics(timeout=30).brokers
    finally:
        consumer.close()


def runs(task: Job, tmp_path: Path) -> str:
    with Daemon("run", str(task.write(tmp_path)), "--until-end", log=tmp_path / "log") as daemon:
        daemon.wait_done()
        return daemon.output


def refused(task: Job, tmp_path: Path) -> str:
    with Daemon("run", str(task.write(tmp_path)), log=tmp_path / "log") as daemon:
        assert daemon.wait() == 1, daemon.tail()
        return daemon.output


def denied(task: Job, tmp_path: Path, why: str) -> str:
    """Run until a refused login is said and tried again; return what was said."""
    with Daemon("run", str(task.write(tmp_path)), log=tmp_path / "log") as daemon:
        daemon.wait_until(lambda: daemon.output.count(why) > 1, f"it said {why!r} twice")
        return daemon.output


@pytest.mark.parametrize("listener", ["SASL", "BOTH"])
@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"])
def test_passwords(
    guarded_kafka: GuardedKafka, fresh_name: Callable[[str], str], tmp_path: Path, listener: str, mechanism: str
) -> None:
    topic = fresh_name("login")
    sent = written(guarded_kafka, topic)
    their_topics(
        guarded_kafka,
        listener,
        security_protocol="SASL_SSL" if listener == "BOTH" else "SASL_PLAINTEXT",
        ssl_ca_location=str(guarded_kafka.certificates.ca),
        sasl_mechanism=mechanism,
        sasl_username=PLAIN_USER if mechanism == "PLAIN" else USER,
        sasl_password=PASSWORD,
    )
    task = job(guarded_kafka, listener, topic, tmp_path, source=login(mechanism, tmp_path))
    assert PASSWORD not in runs(task, tmp_path)
    assert_same(sent, rows(task.path), topic)


def test_tokens(guarded_kafka: GuardedKafka, fresh_name: Callable[[str], str], tmp_path: Path) -> None:
    topic = fresh_name("token")
    sent = written(guarded_kafka, topic)
    token = unsecured_token("landing")
    (tmp_path / "token").write_text(token)
    task = job(guarded_kafka, "BOTH", topic, tmp_path, source={"auth": {"token_file": tmp_path / "token"}})
    assert token not in runs(task, tmp_path)
    assert_same(sent, rows(task.path), topic)


async def test_tokens_of_an_issuer_are_renewed_on_the_same_connection(
    guarded_kafka: GuardedKafka, fresh_name: Callable[[str], str], tmp_path: Path
) -> None:
    """The broker ends a session with its token, at the first request that comes later."""
    async with issuing() as issuer:
        issuer.life = LOGIN_S
        issuer.mint = lambda life: unsecured_token("landing", life_s=life)
        topic = fresh_name("issued")
        sent = written(guarded_kafka, topic)
        key = issuer.key_file(tmp_path)
        source = {"auth": {"oauth2": {"key_file": key, "audience": "urn:cluster"}}}
        task = job(guarded_kafka, "SASL", topic, tmp_path, source=source, roll={"idle": "100ms"})
        with Daemon("run", str(task.write(tmp_path)), log=tmp_path / "log") as daemon:
            await asyncio.to_thread(daemon.wait_for_rows, 60)
            asked = len(issuer.forms)
            await until(lambda: len(issuer.forms) >= asked + 3, "three more tokens")
            await asyncio.to_thread(produce, guarded_kafka, topic, sent)
            await asyncio.to_thread(daemon.wait_for_rows, 120)
            await asyncio.to_thread(daemon.end)
            assert "connection lost" not in daemon.output, daemon.tail()
            assert CLIENT_SECRET not in daemon.output
        assert len(rows(task.path)) == 120


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-512"])
def test_logins_are_repeated_before_they_end(
    guarded_kafka: GuardedKafka, fresh_name: Callable[[str], str], tmp_path: Path, mechanism: str
) -> None:
    topic = fresh_name("brief")
    written(guarded_kafka, topic)
    task = job(guarded_kafka, "BRIEF", topic, tmp_path, source=login(mechanism, tmp_path), roll={"idle": "100ms"})
    with Daemon("run", str(task.write(tmp_path)), log=tmp_path / "log") as daemon:
        daemon.wait_for_rows(60)
        expected, end = 60, time.monotonic() + 3 * LOGIN_S
        while time.monotonic() < end:
            produce(guarded_kafka, topic, records(2, 2, seed=expected))
            expected += 2
            daemon.wait_for_rows(expected)
        assert "connection lost" not in daemon.output, daemon.tail()
        daemon.end()
    assert len(rows(task.path)) == expected


def test_the_certificate_of_a_client(
    guarded_kafka: GuardedKafka, fresh_name: Callable[[str], str], tmp_path: Path
) -> None:
    topic = fresh_name("mutual")
    sent = written(guarded_kafka, topic)
    cert, key = guarded_kafka.certificates.client(tmp_path, "landing")
    task = job(guarded_kafka, "MUTUAL", topic, tmp_path, source={"tls": {"cert": cert, "key": key}})
    runs(task, tmp_path)
    assert_same(sent, rows(task.path), topic)


def test_tls_alone(guarded_kafka: GuardedKafka, fresh_name: Callable[[str], str], tmp_path: Path) -> None:
    topic = fresh_name("tls")
    sent = written(guarded_kafka, topic)
    task = job(guarded_kafka, "TLS", topic, tmp_path)
    runs(task, tmp_path)
    assert_same(sent, rows(task.path), topic)
    other = job(guarded_kafka, "TLS", topic, tmp_path, source={"tls": {"ca": guarded_kafka.certificates.other_ca}})
    with Daemon("run", str(other.write(tmp_path)), log=tmp_path / "other.log") as daemon:
        daemon.wait_for("is not accepted: unable to get local issuer certificate")


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"])
def test_a_wrong_password(guarded_kafka: GuardedKafka, tmp_path: Path, mechanism: str) -> None:
    source = login(mechanism, tmp_path)
    (tmp_path / "password").write_text("something else")
    why = {
        "PLAIN": "Authentication failed: Invalid username or password",
        "SCRAM-SHA-256": "Authentication failed during authentication due to invalid credentials with SASL mechanism "
        "SCRAM-SHA-256",
        "SCRAM-SHA-512": "Authentication failed during authentication due to invalid credentials with SASL mechanism "
        "SCRAM-SHA-512",
    }
    task = job(guarded_kafka, "SASL", "any", tmp_path, source=source)
    said = denied(task, tmp_path, f"{mechanism}: the broker refuses the login: {why[mechanism]}")
    assert "something else" not in said


def test_a_token_that_has_ended(guarded_kafka: GuardedKafka, tmp_path: Path) -> None:
    source = {"auth": {"token": unsecured_token("landing", life_s=-60)}}
    denied(job(guarded_kafka, "SASL", "any", tmp_path, source=source), tmp_path, "OAUTHBEARER: the broker refuses the")


def test_a_mechanism_that_the_broker_does_not_offer(guarded_kafka: GuardedKafka, tmp_path: Path) -> None:
    source = {"auth": {"token": unsecured_token("landing")}}
    said = refused(job(guarded_kafka, "BRIEF", "any", tmp_path, source=source), tmp_path)
    assert "the broker does not take OAUTHBEARER; it offers " in said
    offered = said.partition("it offers ")[2].partition('"')[0]
    assert sorted(offered.split(", ")) == ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"]


def test_nobody_without_a_certificate(guarded_kafka: GuardedKafka, tmp_path: Path) -> None:
    task = job(guarded_kafka, "MUTUAL", "any", tmp_path)
    with Daemon("run", str(task.write(tmp_path)), log=tmp_path / "log") as daemon:
        daemon.wait_for("ertificate")


@pytest.mark.parametrize("kind", [ResourceType.TOPIC, ResourceType.GROUP], ids=["topic", "group"])
def test_a_user_without_permission(
    guarded_kafka: GuardedKafka, fresh_name: Callable[[str], str], tmp_path: Path, kind: ResourceType
) -> None:
    topic = fresh_name("forbidden")
    written(guarded_kafka, topic)
    task = job(guarded_kafka, "SASL", topic, tmp_path, source=login("PLAIN", tmp_path))
    guarded_kafka.forbid(PLAIN_USER, kind, topic if kind is ResourceType.TOPIC else task.subscription)
    said = refused(task, tmp_path)
    assert f"{kind.name}_AUTHORIZATION_FAILED" in said
    assert PASSWORD not in said


COPY = """\
daemon.http = ""
[pipelines.copy.source]
url = "{open}"
topics = ["{source}"]
group = "{source}"
start = "earliest"
[pipelines.copy.sink]
type = "kafka"
url = "{guarded}"
auth = {{ user = "{user}", password_file = "{file}", mechanism = "PLAIN" }}
topic = "{target}"
roll.idle = "100ms"
"""


def test_a_user_who_may_not_have_transactions_copies_at_least_once(
    guarded_kafka: GuardedKafka, fresh_name: Callable[[str], str], tmp_path: Path
) -> None:
    source, target, config = fresh_name("source"), fresh_name("target"), tmp_path / "config.toml"
    guarded_kafka.create_topic(source, 2)
    guarded_kafka.create_topic(target, 1)
    feed = Feed(guarded_kafka.servers, source)
    feed.more(50)
    auth = login("PLAIN", tmp_path)["auth"]
    config.write_text(
        COPY.format(
            open=guarded_kafka.url,
            guarded=guarded_kafka.url_of("SASL"),
            source=source,
            target=target,
            user=auth["user"],
            file=auth["password_file"],
        )
    )

    def says(*arguments: str) -> str:
        ran = shared().run(*arguments, config, limit=90)
        assert ran.returncode == 0, ran.stdout + ran.stderr
        return " ".join((ran.stdout + ran.stderr).split())

    assert "exactly once: the brokers of the topic allow it" in says("check", "--connect")
    assert "delivery is exactly once" in says("run", "--until-end")
    for kind, name in ((ResourceType.TOPIC, "fastwire-positions"), (ResourceType.TRANSACTIONAL_ID, "*")):
        guarded_kafka.forbid(PLAIN_USER, kind, name)
        why = f"{kind.name}_AUTHORIZATION_FAILED"
        said = says("check", "--connect")
        assert "at least once, because" in said and why in said
        feed.more(50)
        said = says("run", "--until-end")
        assert "delivery is at least once" in said and "AUTHORIZATION_FAILED" in said
    check(read(guarded_kafka.servers, source), read(guarded_kafka.servers, target))
