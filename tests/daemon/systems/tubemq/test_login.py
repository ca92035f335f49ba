"""Login and TLS towards TubeMQ: signed requests, visit tokens, and certificates of both sides."""

import asyncio
import ssl
from pathlib import Path

import pytest

from fastwire.errors import FastwireError
from fastwire.wire.pool import Pool
from fastwire_daemon.config import TopicChoice, parse_connection
from fastwire_daemon.devbroker.tubemq import TubeMQDevBroker, TubeMQOptions
from fastwire_daemon.systems.registry import system_named
from fastwire_daemon.systems.tubemq.settings import client_fields
from fastwire_daemon.systems.writer import Put, WriteOptions
from tests.brokers.certs import Certificates, make_certificates
from tests.support import source_pipe
from tests.support.source_pipe import until
from tests.support.tubemq.source_pipe import reading, serving

PASSWORD = "s3cret+/="
GUARDED = {"users": {"alice": PASSWORD}, "check_token": True}


async def test_requests_are_signed(tmp_path: Path) -> None:
    """The group, the list of partitions for latest, the Broker's requests and the producer show who they are."""
    file = tmp_path / "password"
    file.write_text(PASSWORD + "\n")
    async with serving(1, **GUARDED) as broker:
        connection = parse_connection({"url": broker.url, "auth": {"user": "alice", "password_file": str(file)}})
        for start in ("earliest", "latest"):
            async with reading(broker, start=start, group=start, **client_fields(connection)) as pipe:
                await until(lambda pipe=pipe: pipe.assigned != [], "an assignment")  # type: ignore[misc]
                await pipe.granted()
                before = pipe.rows
                async with system_named("tubemq").open_writer(connection, "t", WriteOptions()) as writer:
                    await writer.write(Put(b"x"))
                await pipe.got(before + 1)


async def test_a_wrong_password_is_told_and_tried_again(tmp_path: Path) -> None:
    file = tmp_path / "password"
    file.write_text("another")
    async with serving(1, **GUARDED) as broker:
        connection = parse_connection({"url": broker.url, "auth": {"user": "alice", "password_file": str(file)}})
        async with reading(broker, started=False, **client_fields(connection)) as pipe:
            starting = asyncio.create_task(pipe.start())
            await until(lambda: "415" in pipe.source.unreachable_because, "a refusal")
            assert not starting.done()
            file.write_text(PASSWORD)
            await starting
            broker.produce("t", [b"x"])
            await pipe.got(1)
            assert pipe.failure is None


async def test_a_password_that_cannot_be_read_is_waited_for(tmp_path: Path) -> None:
    file = tmp_path / "password"
    async with serving(1, **GUARDED) as broker:
        connection = parse_connection({"url": broker.url, "auth": {"user": "alice", "password_file": str(file)}})
        async with reading(broker, started=False, **client_fields(connection)) as pipe:
            starting = asyncio.create_task(pipe.start())
            await until(lambda: str(file) in pipe.source.status()["membership"]["error"], "the error")
            file.write_text(PASSWORD)
            await starting
            broker.produce("t", [b"x"])
            await pipe.got(1)


def asking_for_certificates(certs: Certificates) -> TubeMQDevBroker:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certs.cert, certs.key)
    context.verify_mode = ssl.CERT_REQUIRED
    context.load_verify_locations(certs.ca)
    return TubeMQDevBroker(TubeMQOptions(), tls=context)


async def test_tls_with_certificates_of_both_sides(tmp_path: Path) -> None:
    certs = make_certificates(tmp_path)
    async with source_pipe.serving(asking_for_certificates(certs), 1) as broker:
        assert broker.url.startswith("tubemq+ssl://")
        tls = {"ca": str(certs.ca), "cert": str(certs.cert), "key": str(certs.key)}
        broker.produce("t", [b"x"] * 10)
        connection = parse_connection({"url": broker.url, "tls": tls})
        async with reading(broker, **client_fields(connection)) as pipe:
            await pipe.got(10)


async def test_a_server_that_is_not_trusted(tmp_path: Path) -> None:
    certs = make_certificates(tmp_path)
    async with source_pipe.serving(asking_for_certificates(certs), 1) as broker:
        connection = parse_connection({"url": broker.url, "tls": {"ca": str(certs.other_ca)}})
        system, topics = system_named("tubemq"), TopicChoice(("t",))
        reader = system.open_reader(connection, topics, system.start_of("earliest", topics), Pool(1 << 24))
        with pytest.raises(FastwireError, match="certificate"):
            await reader.open()
        await reader.close()
