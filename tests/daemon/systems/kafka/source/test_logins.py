"""Logins at an embedded Kafka broker: let in in every way, refused in plain words, repeated before they end."""

import asyncio
import logging
import ssl
from pathlib import Path
from typing import Any

import confluent_kafka as ck
import pytest

from fastwire_daemon.config.brokers.access import TlsConfig
from fastwire_daemon.devbroker.kafka import KafkaDevBroker, KafkaOptions, running
from fastwire_daemon.net.tls import ClientTls
from fastwire_daemon.systems.kafka.config import KafkaAuthConfig
from fastwire_daemon.systems.kafka.login import Login
from fastwire_daemon.systems.source import SourceFailed
from tests.brokers.certs import make_certificates
from tests.support.kafka.source_pipe import KafkaPipe, batches
from tests.support.kafka.source_scene import assert_once, reading, serving
from tests.support.source_pipe import until

MECHANISMS = ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"]
USER, PASSWORD = "us,er=1", "a pass: word"  # SCRAM has to escape the one
USERS = {USER: PASSWORD}


def login(mechanism: str, **changed: Any) -> Login:
    keys = {"user": USER, "password": PASSWORD, "mechanism": mechanism, **changed}
    return Login(KafkaAuthConfig.model_validate({name: value for name, value in keys.items() if value is not None}))


@pytest.mark.parametrize("mechanism", MECHANISMS)
@pytest.mark.parametrize("release", ["0.11", "1.1", "2.3", "4.1"])
async def test_all_of_it_is_read(mechanism: str, release: str) -> None:
    async with serving(2, users=USERS, release=release, nodes=2) as broker:
        for partition in range(2):
            broker.append("t", batches(0, 10), partition)
        async with reading(broker, login=login(mechanism)) as pipe:
            await pipe.got(200)
            assert_once(pipe, 200)
            await pipe.drained()
        assert broker.logins >= 2


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_the_official_client_is_let_in_as_we_are(mechanism: str) -> None:
    with running(KafkaDevBroker(KafkaOptions(users=USERS))) as broker:
        broker.create_topic("t")
        settings: dict[str, Any] = {
            "bootstrap.servers": f"{broker.host}:{broker.port}",
            "log_level": 0,
            "group.id": "x",
            "security.protocol": "SASL_PLAINTEXT",
            "sasl.mechanism": mechanism,
            "sasl.username": USER,
        }
        consumer = ck.Consumer({**settings, "sasl.password": PASSWORD})
        assert "t" in consumer.list_topics(timeout=30).topics
        consumer.close()
        refused = ck.Consumer({**settings, "sasl.password": "guess"})
        with pytest.raises(ck.KafkaException):
            refused.list_topics(timeout=2)
        refused.close()
        assert broker.logins and broker.refused_logins
        assert broker.violations == []


@pytest.mark.parametrize("mechanism", MECHANISMS)
@pytest.mark.parametrize("wrong", [{"password": "hunter2"}, {"user": "nobody"}])
async def test_a_refused_login_is_told_in_the_brokers_words_and_tried_again(
    mechanism: str, wrong: dict[str, str], caplog: pytest.LogCaptureFixture
) -> None:
    said = {
        "PLAIN": "Authentication failed: Invalid username or password",
        "SCRAM-SHA-256": "invalid credentials with SASL mechanism SCRAM-SHA-256",
        "SCRAM-SHA-512": "invalid credentials with SASL mechanism SCRAM-SHA-512",
    }
    with caplog.at_level(logging.WARNING, "fastwire.source"):
        async with serving(users=USERS) as broker:
            pipe = KafkaPipe(broker, login=login(mechanism, **wrong))
            starting = asyncio.ensure_future(pipe.start())
            await until(lambda: broker.refused_logins > 1, "a second attempt")
            assert f"{mechanism}: the broker refuses the login: " in pipe.source.unreachable_because
            assert said[mechanism] in pipe.source.unreachable_because
            assert pipe.source.unreachable_since is not None
            starting.cancel()
            await asyncio.gather(starting, return_exceptions=True)
            await pipe.close()
            assert broker.logins == 0
    told = [vars(one)["fields"]["error"] for one in caplog.records if "retrying" in one.message]
    assert told and all(said[mechanism] in each and "hunter2" not in each for each in told)


@pytest.mark.parametrize("at_first", ["refused", "missing"])
async def test_a_password_that_comes_late(tmp_path: Path, at_first: str) -> None:
    file = tmp_path / "password"
    if at_first == "refused":
        file.write_text("guess")
    async with serving(users=USERS) as broker:
        broker.append("t", batches(0, 1))
        pipe = KafkaPipe(broker, login=login("PLAIN", password=None, password_file=str(file)))
        starting = asyncio.ensure_future(pipe.start())
        await until(lambda: bool(pipe.source.cluster.failure), "a failure")
        assert not starting.done()
        file.write_text(PASSWORD)
        await starting
        await pipe.got(10)
        await pipe.close()


async def test_a_mechanism_that_is_not_offered() -> None:
    async with serving(users=USERS, mechanisms=("PLAIN",)) as broker:
        pipe = KafkaPipe(broker, login=login("SCRAM-SHA-512"))
        with pytest.raises(SourceFailed, match="does not take SCRAM-SHA-512; it offers PLAIN"):
            await pipe.start()
        await pipe.close()


async def test_a_broker_that_wants_no_login() -> None:
    async with serving() as broker:
        pipe = KafkaPipe(broker, login=login("PLAIN"))
        with pytest.raises(SourceFailed, match="ILLEGAL_SASL_STATE"):
            await pipe.start()
        await pipe.close()


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256"])
async def test_logins_are_repeated_on_the_same_connections(mechanism: str) -> None:
    async with serving(users=USERS, login_ms=3000) as broker:
        async with reading(broker, login=login(mechanism), protocol="classic") as pipe:
            await pipe.granted()
            await until(lambda: len(broker.connections) == 3, "connections to ask, to read, and of the group")
            rows = 0
            while broker.logins < 6:
                broker.append("t", batches(rows // 10, 1))
                rows += 10
                await pipe.got(rows)
            assert_once(pipe, rows)
            assert broker.accepted == 3
            assert broker.accepted == 3
            assert pipe.source.status()["reconnects"] == {}


@pytest.mark.parametrize("protocol", ["none", "classic", "consumer"])
async def test_a_password_that_is_changed_meanwhile(protocol: str) -> None:
    """The connection ends with its login, and no other one comes up; the daemon waits, for it has been let in once."""
    users = dict(USERS)
    async with serving(users=users, login_ms=1200) as broker:
        async with reading(broker, login=login("SCRAM-SHA-256"), protocol=protocol) as pipe:
            broker.append("t", batches(0, 1))
            await pipe.got(10)
            users[USER] = "another"
            await until(lambda: broker.refused_logins > 0, "a refusal")
            await until(lambda: "refuses the login" in pipe.source.unreachable_because, "what the broker says")
            await until(lambda: pipe.source.unreachable_since is not None, "that nobody is reached")
            await until(lambda: broker.refused_logins >= 8, "that everybody has tried")
            users[USER] = PASSWORD
            broker.append("t", batches(1, 1))
            await pipe.got(20)
            assert_once(pipe, 20)
            assert pipe.failure is None


@pytest.mark.parametrize("mutual", [False, True])
async def test_tls_with_and_without_a_certificate(mutual: bool, tmp_path: Path) -> None:
    certificates = make_certificates(tmp_path)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificates.cert, certificates.key)
    given = {"ca": str(certificates.ca)}
    if mutual:
        context.load_verify_locations(certificates.ca)
        context.verify_mode = ssl.CERT_REQUIRED
        cert, key = certificates.client(tmp_path / "ours", "landing")
        given |= {"cert": str(cert), "key": str(key)}

    broker = KafkaDevBroker(KafkaOptions(nodes=2), tls=context)
    await broker.start()
    broker.create_topic("t", 2)
    for partition in range(2):
        broker.append("t", batches(0, 10), partition)
    try:
        async with reading(broker, started=False, tls=ClientTls(TlsConfig.model_validate(given))) as pipe:
            await asyncio.wait_for(pipe.start(), 30.0)
            await pipe.got(200)
            assert_once(pipe, 200)
            await pipe.drained()
        other = {"ca": str(certificates.ca if mutual else certificates.other_ca)}
        async with reading(broker, started=False, tls=ClientTls(TlsConfig.model_validate(other))) as pipe:
            starting = asyncio.ensure_future(pipe.start())
            await until(lambda: bool(pipe.source.cluster.failure), "a failure")
            assert not starting.done()
            starting.cancel()
            await asyncio.gather(starting, return_exceptions=True)
    finally:
        await broker.stop()
    assert broker.violations == []


@pytest.mark.parametrize("mechanism", MECHANISMS)
async def test_brokers_before_1_0_refuse_without_a_word(mechanism: str) -> None:
    async with serving(users=USERS, release="0.11") as broker:
        pipe = KafkaPipe(broker, login=login(mechanism, password="guess"))
        starting = asyncio.ensure_future(pipe.start())
        await until(lambda: broker.refused_logins > 1, "a second attempt")
        assert "during the login: so do brokers before 1.0" in pipe.source.cluster.failure
        starting.cancel()
        await asyncio.gather(starting, return_exceptions=True)
        await pipe.close()
