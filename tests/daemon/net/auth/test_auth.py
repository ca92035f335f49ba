"""Credentials: tokens, passwords, certificates, and the tokens of an issuer that fails in every way."""

import asyncio
import math
import ssl
from pathlib import Path
from typing import Any

import pytest

from fastwire.errors import FastwireError
from fastwire_daemon.config import AuthConfig, OAuth2Config, TlsConfig
from fastwire_daemon.devbroker.pulsar import PulsarConnection, PulsarDevBroker, PulsarOptions
from fastwire_daemon.devbroker.pulsar.logins import basic, bearer, certificate
from fastwire_daemon.net.auth import AuthError, BasicCredentials, Credentials, UnavailableError, credentials
from fastwire_daemon.net.auth.oauth2 import OAuth2Credentials
from fastwire_daemon.net.tls import ClientTls
from fastwire_daemon.systems.pulsar.login import login
from tests.brokers.certs import Certificates, make_certificates
from tests.support.oauth_issuer import CLIENT_SECRET, Issuer, issuing
from tests.support.source_pipe import Pipe, entries, until


def configured(**keys: Any) -> Credentials:
    found = credentials(AuthConfig.model_validate(keys))
    assert not isinstance(found, BasicCredentials)
    return found


# --- files


async def test_a_token_file_is_read_at_each_use(tmp_path: Path) -> None:
    file = tmp_path / "token"
    token = configured(token_file=str(file))
    with pytest.raises(AuthError, match=f"^cannot read the token file {file}: No such file or directory$"):
        await token.data()
    file.write_text("token:one\n")
    assert (token.method, await token.data(), token.check()) == ("token", b"one", "token found")
    file.write_text("two")
    assert await token.data() == b"two"
    cases = ((b"", "is empty"), (b"two\nlines", "not allowed in a token"), (b"\xff\xfe", "is not UTF-8 text"))
    for content, words in cases:
        file.write_bytes(content)
        with pytest.raises(AuthError, match=words):
            await token.data()


async def test_a_token_by_reference(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "a token").write_text("one")
    assert await configured(token=f"file://{tmp_path}/a%20token").data() == b"one"
    token = configured(token="env:TOKEN_OF_TEST")
    with pytest.raises(AuthError, match="TOKEN_OF_TEST of the token is not set"):
        await token.data()
    monkeypatch.setenv("TOKEN_OF_TEST", "token:two")
    assert await token.data() == b"two"


# --- an issuer


def client(issuer: Issuer, folder: Path, *, timeout_s: float = 10.0, **keys: Any) -> OAuth2Credentials:
    keys = {"key_file": str(issuer.key_file(folder)), "audience": "urn:cluster", **keys}
    return OAuth2Credentials(OAuth2Config.model_validate(keys), timeout_s=timeout_s)


async def test_a_token_is_fetched_once_for_all_and_kept(tmp_path: Path) -> None:
    async with issuing() as issuer:
        who = client(issuer, tmp_path, scope="read write")
        assert who.check() == f"tokens for client landing from {issuer.url}"
        assert await asyncio.gather(*(who.data() for _ in range(20))) == [b"issued-1"] * 20
        assert await who.data() == b"issued-1"
        assert issuer.forms == [
            {
                "grant_type": "client_credentials",
                "client_id": "landing",
                "client_secret": CLIENT_SECRET,
                "audience": "urn:cluster",
                "scope": "read write",
            }
        ]
        # The broker wants another one than it has seen; the second to say so gets what the first has fetched.
        who.forget(b"issued-1")
        assert await who.data() == b"issued-2"
        who.forget(b"issued-1")
        assert await who.data() == b"issued-2"


async def test_one_who_gives_up_takes_the_token_from_nobody(tmp_path: Path) -> None:
    async with issuing() as issuer:
        who = client(issuer, tmp_path)
        issuer.gate.clear()
        first, second = asyncio.ensure_future(who.data()), asyncio.ensure_future(who.data())
        await until(lambda: issuer.forms != [], "a request")
        first.cancel()
        issuer.gate.set()
        assert await second == b"issued-1"
        assert len(issuer.forms) == 1


@pytest.mark.parametrize(("life", "early"), [(5, 0.5), ("5.0", 0.5), (3600, 60.0)])
async def test_a_token_is_renewed_before_it_ends(tmp_path: Path, life: object, early: float) -> None:
    async with issuing() as issuer:
        issuer.life = life
        who = client(issuer, tmp_path)
        assert await who.data() == b"issued-1"
        assert who._ends_at - who._renew_at == pytest.approx(early)
        now = asyncio.get_running_loop().time()
        assert now + float(str(life)) - 5 < who._ends_at <= now + float(str(life))
        who._renew_at = now
        assert await who.data() == b"issued-2"


@pytest.mark.parametrize("life", [None, 0, -1, "soon", True, [], float("1e300")])
async def test_a_token_of_unknown_life_is_not_kept(tmp_path: Path, life: object) -> None:
    async with issuing() as issuer:
        issuer.life = life
        who = client(issuer, tmp_path)
        assert await who.data() == b"issued-1"
        assert await who.data() == (b"issued-2" if life is not True else b"issued-1")


async def test_a_failed_early_renewal_leaves_the_old_token_in_use(tmp_path: Path) -> None:
    async with issuing() as issuer:
        who = client(issuer, tmp_path)
        await who.data()
        who._renew_at = 0.0
        issuer.answers = [(503, {})]
        assert await who.data() == b"issued-1"
        assert await who.data() == b"issued-3"
        who._renew_at = who._ends_at = 0.0
        issuer.answers = [(503, {})]
        with pytest.raises(UnavailableError):
            await who.data()


MANY = "x" * (2 << 20)
FAILURES: dict[str, tuple[tuple[int, object] | None, type[FastwireError], str]] = {
    "unauthorized": ((401, {"error": "invalid_client"}), AuthError, "HTTP 401: invalid_client"),
    "bad request": (
        (400, {"error": "invalid_scope", "error_description": f"not for {CLIENT_SECRET}\x1b[1m"}),
        AuthError,
        r"HTTP 400: invalid_scope: not for \*\*\* \[1m",
    ),
    "words of another kind": ((403, {"error": {"a": 1}, "error_description": 5}), AuthError, "HTTP 403$"),
    "redirect": ((302, ""), AuthError, "HTTP 302: it redirects to http://else.example"),
    "broken": ((500, "<html>"), UnavailableError, "HTTP 500$"),
    "busy": ((429, {"error": "slow_down"}), UnavailableError, "HTTP 429: slow_down"),
    "silent": (None, UnavailableError, "did not answer in time"),
    "no JSON": ((200, "<html>"), AuthError, "is not a JSON object"),
    "no object": ((200, "[1]"), AuthError, "is not a JSON object"),
    "deep": ((200, "[" * 100_000), AuthError, "is not a JSON object"),
    "no token": ((200, {"token": "x"}), AuthError, "without a valid access_token"),
    "two lines": ((200, {"access_token": "a\nb"}), AuthError, "without a valid access_token"),
    "empty": ((200, {"access_token": ""}), AuthError, "a token of 0 bytes"),
    "giant token": ((200, {"access_token": "a" * 70_000}), AuthError, "a token of 70000 bytes"),
    "giant": ((200, {"access_token": MANY}), UnavailableError, "more than 1048576 bytes"),
}


@pytest.mark.parametrize("mood", FAILURES)
async def test_an_issuer_that_fails(tmp_path: Path, mood: str) -> None:
    answer, kind, words = FAILURES[mood]
    async with issuing() as issuer:
        who = client(issuer, tmp_path, timeout_s=3.0 if answer is None else 10.0)
        issuer.answers = [answer]
        with pytest.raises(kind, match=words) as caught:
            await who.data()
        assert type(caught.value) is kind
        assert str(caught.value).startswith(f"{issuer.url}/oauth/token ")
        assert CLIENT_SECRET not in f"{caught.value!r}{caught.value.__context__!r}"
        assert await who.data() == b"issued-2"  # nothing of it stays


async def test_discovery_that_fails(tmp_path: Path) -> None:
    async with issuing() as issuer:
        who = client(issuer, tmp_path)
        for endpoint, words in (
            ({"issuer": "x"}, "names no token_endpoint"),
            ({"token_endpoint": 1}, "names no token_endpoint"),
            ({"token_endpoint": "http://else.example/"}, "must be https://: the secret would cross the network"),
            ({"token_endpoint": "ftp://h"}, "must be a URL"),
        ):
            issuer.discovery = endpoint
            with pytest.raises(AuthError, match=words):
                await who.data()
        assert issuer.forms == []
        elsewhere = client(issuer, tmp_path, issuer_url=f"{issuer.url}/nowhere")
        with pytest.raises(AuthError, match=r"/nowhere/.well-known/openid-configuration gives no token: HTTP 404"):
            await elsewhere.data()
    with pytest.raises(UnavailableError, match="cannot be reached for a token"):
        await who.data()


async def test_keys_that_are_none(tmp_path: Path) -> None:
    issuer = Issuer()
    issuer.port = 1
    for changed, words in (
        ({"type": "service_account"}, 'is not of type "client_credentials"'),
        ({"client_id": None}, "has no client_id"),
        ({"client_secret": ""}, "has no client_secret"),
        ({"issuer_url": 5}, "has no issuer_url"),
        ({"issuer_url": "http://else.example"}, "issuer_url of the key file must be https://"),
    ):
        who = client(issuer, tmp_path)
        issuer.key_file(tmp_path, **changed)
        with pytest.raises(AuthError, match=words):
            who.check()
        with pytest.raises(AuthError, match=words) as caught:
            await who.data()
        assert CLIENT_SECRET not in str(caught.value)
    for text, words in ((f"{CLIENT_SECRET}", "is not JSON"), ("[]", "is not a JSON object")):
        (tmp_path / "key.json").write_text(text)
        with pytest.raises(AuthError, match=words) as caught:
            who.check()
        assert CLIENT_SECRET not in f"{caught.value}{caught.value.__context__!s}"


async def test_an_issuer_behind_tls_is_verified(tmp_path: Path) -> None:
    certs = make_certificates(tmp_path)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certs.cert, certs.key)
    async with issuing(context) as issuer:
        assert issuer.url.startswith("https://")
        assert await client(issuer, tmp_path, ca=str(certs.ca)).data() == b"issued-1"
        with pytest.raises(UnavailableError, match="CERTIFICATE_VERIFY_FAILED"):
            await client(issuer, tmp_path, ca=str(certs.other_ca)).data()
        with pytest.raises(UnavailableError, match="CERTIFICATE_VERIFY_FAILED"):
            await client(issuer, tmp_path).data()
        with pytest.raises(AuthError, match="the issuer cannot be trusted: ca: cannot use"):
            await client(issuer, tmp_path, ca=str(tmp_path / "nothing")).data()


async def test_a_client_without_a_key_file(tmp_path: Path) -> None:
    async with issuing() as issuer:
        secret = tmp_path / "secret"
        keys = {"issuer_url": issuer.url, "client_id": "landing"}
        who = configured(oauth2=keys | {"client_secret_file": str(secret)})
        with pytest.raises(AuthError, match="cannot read the file of the client's secret"):
            await who.data()
        secret.write_text("\n")
        with pytest.raises(AuthError, match="is empty"):
            await who.data()
        secret.write_text("wrong\n")
        with pytest.raises(AuthError, match=r"invalid_client: no client landing with \*\*\*$"):
            await who.data()
        secret.write_text(f"{CLIENT_SECRET}\n")
        assert await who.data() == b"issued-2"
        assert await configured(oauth2=keys | {"client_secret": CLIENT_SECRET}).data() == b"issued-3"


# --- with a broker


async def serving(**options: Any) -> PulsarDevBroker:
    broker = PulsarDevBroker(PulsarOptions(**options))
    await broker.start()
    broker.create_topic("t")
    return broker


def answers(broker: PulsarDevBroker) -> int:
    """Return how often connected clients have shown fresh credentials."""
    return sum(
        each.commands.count("AUTH_RESPONSE") for each in broker.connections if isinstance(each, PulsarConnection)
    )


async def test_tokens_that_end_are_renewed_on_a_living_connection(tmp_path: Path) -> None:
    async with issuing() as issuer:
        broker = await serving(authenticate=bearer(issuer.seconds_left), refresh_check_s=60.0)
        pipe = await Pipe(broker, credentials=client(issuer, tmp_path)).start()
        await pipe.granted()
        for number in range(5):
            issuer.given.clear()  # whoever shows the old one again is thrown out
            broker.expire_credentials()
            await until(lambda: answers(broker) == number + 1, "fresh credentials")  # noqa: B023
            broker.append("t", entries(number, 1))
            await pipe.got(10 * number + 10)
        assert pipe.count("revoked") == 0
        assert (broker.accepted, len(issuer.forms)) == (1, 6)
        # Who does not answer until the next look is thrown out as well, and comes back.
        issuer.gate.clear()
        broker.expire_credentials()
        await until(lambda: len(issuer.forms) == 7, "a request")
        broker.expire_credentials()
        await until(lambda: pipe.count("revoked") == 1, "a revocation")
        issuer.gate.set()
        broker.append("t", entries(5, 1))
        await pipe.got(60)
        await pipe.close()
        assert broker.violations == []
        await broker.stop()


async def test_a_token_of_seconds_is_followed_by_others(tmp_path: Path) -> None:
    async with issuing() as issuer:
        issuer.life = 1.0
        broker = await serving(authenticate=bearer(issuer.seconds_left), refresh_check_s=0.2)
        pipe = await Pipe(broker, credentials=client(issuer, tmp_path)).start()
        for number in range(3):  # on the same connection or, on a slow machine, on others
            given = len(issuer.given)
            await until(lambda: len(issuer.given) > given, "a new token")  # noqa: B023
            broker.append("t", entries(number, 1))
            await pipe.got(10 * number + 10)
        assert pipe.failure is None
        await pipe.close()
        await broker.stop()


async def test_an_issuer_that_is_away_is_waited_for(tmp_path: Path) -> None:
    async with issuing() as issuer:
        issuer.answers = [(503, {}), (500, "")]
        broker = await serving(authenticate=bearer(issuer.seconds_left))
        pipe = await Pipe(broker, credentials=client(issuer, tmp_path)).start()
        await pipe.granted()
        assert len(issuer.forms) == 3
        # A token that the broker does not take any more is not shown again.
        issuer.given.clear()
        issuer.answers = [(503, {})]
        broker.drop_connections()
        await until(lambda: pipe.count("revoked") == 1, "a revocation")
        broker.append("t", entries(0, 2))
        await pipe.got(20)
        assert pipe.failure is None
        await pipe.close()
        await broker.stop()


async def test_a_client_that_the_issuer_refuses_is_told_and_tried_again(tmp_path: Path) -> None:
    async with issuing() as issuer:
        issuer.key_file(tmp_path)
        broker = await serving(authenticate=bearer(issuer.seconds_left))
        who = client(issuer, tmp_path)
        issuer.key_file(tmp_path, client_secret="wrong")
        await Pipe(broker, credentials=who).waits_for("HTTP 401: invalid_client")
        await broker.stop()


async def test_a_challenge_that_is_not_answered_ends_the_connection_only(tmp_path: Path) -> None:
    async with issuing() as issuer:
        broker = await serving(authenticate=bearer(issuer.seconds_left))
        pipe = await Pipe(broker, credentials=client(issuer, tmp_path)).start()
        await pipe.granted()
        issuer.gate.clear()
        broker.challenge()
        broker.challenge()
        await until(lambda: len(issuer.forms) == 2, "a request")
        issuer.gate.set()
        (connection,) = broker.connections
        assert isinstance(connection, PulsarConnection)
        await until(lambda: "AUTH_RESPONSE" in connection.commands, "an answer")
        broker.append("t", entries(0, 2))
        await pipe.got(20)
        assert connection.commands.count("AUTH_RESPONSE") == 1
        issuer.gate.clear()
        broker.challenge()
        await until(lambda: len(issuer.forms) == 3, "a request")
        broker.drop_connections()  # while the answer is being fetched
        issuer.gate.set()
        broker.append("t", entries(2, 2))
        await pipe.got(40)
        assert pipe.failure is None
        await pipe.close()
        assert broker.violations == []
        await broker.stop()


def _user(password: str) -> Credentials:
    return login(AuthConfig.model_validate({"user": "me", "password": password}), client_certificate=False)


async def test_a_user_and_a_password() -> None:
    broker = await serving(authenticate=basic({"me": "x y"}))
    pipe = await Pipe(broker, credentials=_user("x y")).start()
    broker.append("t", entries(0, 2))
    await pipe.got(20)
    await pipe.close()
    await Pipe(broker, credentials=_user("x")).waits_for("AuthenticationError")
    await broker.stop()


# --- certificates


def tls_of(certs: Certificates, folder: Path, name: str) -> TlsConfig:
    cert, key = certs.client(folder, name)
    return TlsConfig.model_validate({"ca": str(certs.ca), "cert": str(cert), "key": str(key)})


async def test_a_renewed_certificate_is_used_at_the_next_connection(tmp_path: Path) -> None:
    certs = make_certificates(tmp_path)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certs.cert, certs.key)
    context.load_verify_locations(certs.ca)
    context.verify_mode = ssl.CERT_REQUIRED
    broker = PulsarDevBroker(PulsarOptions(authenticate=certificate({"first"})), tls=context)
    await broker.start()
    broker.create_topic("t")
    tls = ClientTls(tls_of(certs, tmp_path / "ours", "first"))
    who = credentials(AuthConfig(), client_certificate=True)
    pipe = await Pipe(broker, tls=tls, credentials=who).start()
    broker.append("t", entries(0, 2))
    await pipe.got(20)
    # Only the new one is let in from here on.
    broker.options = PulsarOptions(authenticate=certificate({"second"}))
    broker.drop_connections()
    await until(lambda: "AuthenticationError" in pipe.source.partitions[0].error, "a refusal")
    tls_of(certs, tmp_path / "ours", "second")
    broker.append("t", entries(2, 2))
    await pipe.got(40)
    await pipe.close()
    await broker.stop()


def test_a_file_that_breaks_is_said_once_and_the_old_context_stays(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    certs = make_certificates(tmp_path)
    config = tls_of(certs, tmp_path / "ours", "first")
    tls = ClientTls(config)
    first = tls.context()
    assert tls.context() is first
    assert config.cert is not None and config.key is not None
    other_cert, other_key = certs.client(tmp_path / "other", "second")
    config.cert.write_bytes(other_cert.read_bytes())  # without its key
    assert tls.context() is first
    assert tls.context() is first
    assert [record.message for record in caplog.records] == [
        "a changed TLS file cannot be used; connections go on with the old one"
    ]
    config.key.write_bytes(other_key.read_bytes())
    second = tls.context()
    assert second is not first
    assert tls.context() is second
    config.key.unlink()
    assert tls.context() is second


def test_what_the_embedded_broker_lets_in() -> None:
    assert basic({"a": "b"})(_shown("basic", b"a:b")) == math.inf
    assert basic({"a": "b"})(_shown("token", b"a:b")) is None
    assert bearer({"t": 5.0}.get)(_shown("token", b"t")) == 5.0
    assert bearer({"t": 5.0}.get)(_shown("basic", b"t")) is None
    assert certificate({"me"})(_shown("tls", b"")) is None


def _shown(method: str, data: bytes) -> Any:
    from fastwire_daemon.devbroker.pulsar.logins import Shown

    return Shown(method, data)
