"""Every way of saying who one is, to a real broker; the official client says the same and is the witness."""

import asyncio
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pulsar
import pytest

from tests.brokers.pulsar import CERTIFICATE_ROLE, PASSWORD, USER, PulsarBroker
from tests.real.daemon import RUN_LIMIT, Daemon, Job
from tests.real.matrix import quiet_client
from tests.support.oauth_issuer import CLIENT_ID, CLIENT_SECRET, Issuer, issuing
from tests.support.sequence_audit import assert_each_once, landed_numbers, numbered

pytestmark = pytest.mark.broker

WAYS = ["token_file", "basic", "certificate", "oauth2"]


class Identity:
    """The same credentials as our configuration has them, and as the official client takes them."""

    def __init__(self, broker: PulsarBroker, folder: Path, issuer: Issuer) -> None:
        assert broker.certificates is not None
        folder.mkdir(exist_ok=True)
        self._ca = broker.certificates.ca
        self._files = broker.certificates.client(folder, CERTIFICATE_ROLE)
        self._folder = folder
        self._issuer = issuer
        self._token = broker.token("admin")

    def ours(self, way: str) -> dict[str, Any]:
        """Keys of a source."""
        tls: dict[str, Any] = {"ca": self._ca}
        if way == "certificate":
            return {"tls": tls | {"cert": self._files[0], "key": self._files[1]}}
        file = self._folder / way
        if way == "basic":
            file.write_text(PASSWORD + "\n")
            return {"tls": tls, "auth": {"user": USER, "password_file": file}}
        if way == "oauth2":
            key = self._issuer.key_file(self._folder)
            return {"tls": tls, "auth": {"oauth2": {"key_file": key, "audience": "urn:cluster"}}}
        file.write_text(self._token)
        return {"tls": tls, "auth": {"token_file": file}}

    def theirs(self, way: str) -> pulsar.Authentication:
        """Return the authentication for the official client."""
        if way == "certificate":
            return pulsar.AuthenticationTLS(*map(str, self._files))
        if way == "basic":
            return pulsar.AuthenticationBasic(USER, PASSWORD)
        if way == "oauth2":
            return pulsar.AuthenticationOauth2(
                json.dumps(
                    {
                        "issuer_url": self._issuer.url,
                        "client_id": CLIENT_ID,
                        "client_secret": CLIENT_SECRET,
                        "audience": "urn:cluster",
                    }
                )
            )
        return pulsar.AuthenticationToken(self._token)

    def client(self, broker: PulsarBroker, way: str) -> pulsar.Client:
        """The official client, let in in this way."""
        return quiet_client(broker.tls_url, authentication=self.theirs(way), tls_trust_certs_file_path=str(self._ca))


def send(client: pulsar.Client, topic: str, numbers: range) -> None:
    producer = client.create_producer(topic)
    for number in numbers:
        producer.send(numbered(number))
    producer.close()


@pytest.mark.parametrize("way", WAYS)
async def test_both_clients_are_let_in(
    guarded_pulsar: PulsarBroker, fresh_name: Callable[[str], str], tmp_path: Path, way: str
) -> None:
    async with issuing() as issuer:
        issuer.mint = lambda life: guarded_pulsar.token("admin", life)
        identity = Identity(guarded_pulsar, tmp_path, issuer)
        topic = fresh_name(way)
        client = identity.client(guarded_pulsar, way)
        await asyncio.to_thread(send, client, topic, range(10))
        await asyncio.to_thread(client.close)
        theirs = len(issuer.forms)
        job = Job(guarded_pulsar.tls_url, topic, tmp_path / "data", source=identity.ours(way))
        with Daemon("run", str(job.write(tmp_path)), "--until-end", log=tmp_path / "run.log") as daemon:
            await asyncio.to_thread(daemon.wait_done)
        assert_each_once(job.path, 10)
        if way == "oauth2":
            assert (theirs > 0, len(issuer.forms)) == (True, theirs + 1)
            # Both have asked for the same; only the way of writing a form may differ.
            assert issuer.forms[0] == issuer.forms[-1]
        said = daemon.output
        assert PASSWORD not in said and CLIENT_SECRET not in said and guarded_pulsar.token("admin") not in said


async def test_tokens_of_seconds_are_followed_by_others_on_the_same_connection(
    guarded_pulsar: PulsarBroker, fresh_name: Callable[[str], str], tmp_path: Path
) -> None:
    """The broker looks every second whether a token has ended, asks for another, and throws out who has none."""
    async with issuing() as issuer:
        issuer.life = 4
        issuer.mint = lambda life: guarded_pulsar.token("admin", life)
        identity = Identity(guarded_pulsar, tmp_path, issuer)
        topic = fresh_name("seconds")
        guarded_pulsar.admin.create_topic(topic)
        source = identity.ours("oauth2")
        job = Job(guarded_pulsar.tls_url, topic, tmp_path / "data", source=source, roll={"idle": "500ms"})
        client = identity.client(guarded_pulsar, "token_file")
        sent = lost = begun = 0
        with Daemon("run", str(job.write(tmp_path)), log=tmp_path / "run.log") as daemon:
            async with asyncio.timeout(RUN_LIMIT):
                while len(issuer.forms) < begun + 4:
                    await asyncio.to_thread(send, client, topic, range(sent, sent + 5))
                    sent += 5
                    await asyncio.sleep(0.5)
                    before, lost = lost, [event["event"] for event in daemon.events()].count("connection lost")
                    if lost > before:  # a busy machine has answered the broker too late: four tokens from here on
                        begun = len(issuer.forms)
            await asyncio.to_thread(daemon.end)
        await asyncio.to_thread(client.close)
        landed = landed_numbers(job.path)
        assert landed and max(landed.values()) == 1
        assert set(landed) == set(range(len(landed)))


def test_a_token_that_nobody_renews_ends_the_connection(
    guarded_pulsar: PulsarBroker, fresh_name: Callable[[str], str], tmp_path: Path
) -> None:
    """Otherwise the test above could not fail."""
    assert guarded_pulsar.certificates is not None
    topic = fresh_name("ended")
    guarded_pulsar.admin.create_topic(topic)
    source = {
        "tls": {"ca": guarded_pulsar.certificates.ca},
        "auth": {"token": guarded_pulsar.token("admin", 4)},
    }
    job = Job(guarded_pulsar.tls_url, topic, tmp_path / "data", source=source)
    with Daemon("run", str(job.write(tmp_path)), log=tmp_path / "run.log") as daemon:
        daemon.wait_for("connection lost")
        daemon.wait_for("AuthenticationError")


@pytest.mark.parametrize(
    ("way", "said"),
    [("basic", "AuthenticationError"), ("certificate", "AuthorizationError"), ("oauth2", "invalid_client")],
)
async def test_others_are_refused_and_told_why(
    guarded_pulsar: PulsarBroker, fresh_name: Callable[[str], str], tmp_path: Path, way: str, said: str
) -> None:
    async with issuing() as issuer:
        identity = Identity(guarded_pulsar, tmp_path, issuer)
        source = identity.ours(way)
        topic = fresh_name("refused")
        guarded_pulsar.admin.create_topic(topic)
        if way == "basic":
            (tmp_path / way).write_text("wrong")
        elif way == "certificate":
            assert guarded_pulsar.certificates is not None
            guarded_pulsar.certificates.client(tmp_path, "somebody")
        else:
            issuer.key_file(tmp_path, client_secret="wrong")
        job = Job(guarded_pulsar.tls_url, topic, tmp_path / "data", source=source)
        with Daemon("run", str(job.write(tmp_path)), log=tmp_path / "run.log") as daemon:
            if said == "AuthorizationError":
                assert await asyncio.to_thread(daemon.wait) == 1, daemon.tail()
            await asyncio.to_thread(daemon.wait_for, said)
