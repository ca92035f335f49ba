"""SASL exchanges: recorded ones to the byte, and brokers that do not prove who they are."""

import base64
import hashlib
import hmac
import json
from typing import Any

import pytest

from fastwire.kafka.protocol.sasl import OAuthBearer, Plain, SaslError, Scram
from tests.support.kafka.golden import GOLDEN

RECORDED: dict[str, dict[str, Any]] = json.loads((GOLDEN / "frames" / "sasl-exchanges.json").read_text())
SCRAMS = ["SCRAM-SHA-256", "SCRAM-SHA-512"]

# RFC 7677, section 3.
RFC_7677 = {
    "user": "user",
    "password": "pencil",
    "client_nonce": "rOprNGfwEbeRWgbNEkqO",
    "client_first": "n,,n=user,r=rOprNGfwEbeRWgbNEkqO",
    "server_first": "r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096",
    "client_final": "c=biws,r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,"
    "p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ=",
    "server_final": "v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4=",
}
EXCHANGES = [(name, RECORDED[name]) for name in SCRAMS] + [("SCRAM-SHA-256", RFC_7677)]


def scram(name: str, said: dict[str, Any]) -> Scram:
    return Scram(name, said["user"], said["password"], said["client_nonce"])


@pytest.mark.parametrize(("name", "said"), EXCHANGES)
def test_scram_to_the_byte(name: str, said: dict[str, Any]) -> None:
    exchange = scram(name, said)
    assert exchange.name == name
    assert exchange.first() == said["client_first"].encode()
    assert exchange.next(said["server_first"].encode()) == said["client_final"].encode()
    assert exchange.next(said["server_final"].encode()) is None


def test_plain_and_bearer_to_the_byte() -> None:
    plain, bearer = RECORDED["PLAIN"], RECORDED["OAUTHBEARER"]
    exchange = Plain(plain["user"], plain["password"])
    assert (exchange.first().hex(), exchange.next(b"")) == (plain["token"], None)
    token = OAuthBearer(bearer["token"])
    assert token.first().hex() == bearer["initial"]
    assert token.next(b"") is None


def test_a_refused_token_is_answered_so_that_the_broker_says_why() -> None:
    token = OAuthBearer("t")
    token.first()
    assert token.next(b'{"status":"invalid_token"}') == b"\x01"


@pytest.mark.parametrize(
    ("answer", "why"),
    [
        ("r=somebody-elses,s=c2FsdA==,i=4096", "nonce does not begin with ours"),
        ("r=ours,s=c2FsdA==,i=4096", "nonce does not begin with ours"),  # it added nothing
        ("s=c2FsdA==,i=4096", "nonce does not begin with ours"),
        ("r=ours-and-more,i=4096", "no salt or no number"),
        ("r=ours-and-more,s=no base64!,i=4096", "no salt or no number"),
        ("r=ours-and-more,s=c2FsdA==", "no salt or no number"),
        ("r=ours-and-more,s=c2FsdA==,i=-4096", "no salt or no number"),
        ("r=ours-and-more,s=c2FsdA==,i=4095", "4095 iterations"),
        ("r=ours-and-more,s=c2FsdA==,i=1000001", "1000001 iterations"),
        ("r=ours-and-more,s=c2FsdA==,i=" + "9" * 100_000, "9999999999 iterations"),
        ("", "nonce does not begin with ours"),
    ],
)
def test_a_first_answer_that_is_not_to_be_trusted(answer: str, why: str) -> None:
    exchange = Scram("SCRAM-SHA-256", "user", "hunter2", "ours")
    exchange.first()
    with pytest.raises(SaslError, match=why) as refused:
        exchange.next(answer.encode())
    assert "hunter2" not in str(refused.value)


@pytest.mark.parametrize("name", SCRAMS)
def test_a_broker_without_the_password(name: str) -> None:
    said = RECORDED[name]
    for final in ("v=" + base64.b64encode(b"x" * 32).decode(), "v=", "", "v=no base64!", said["server_final"][:-4]):
        exchange = scram(name, said)
        exchange.first()
        exchange.next(said["server_first"].encode())
        with pytest.raises(SaslError, match="does not know the password itself"):
            exchange.next(final.encode())


def test_a_broker_that_says_no() -> None:
    said = RECORDED["SCRAM-SHA-256"]
    exchange = scram("SCRAM-SHA-256", said)
    exchange.first()
    exchange.next(said["server_first"].encode())
    with pytest.raises(SaslError, match="SCRAM-SHA-256: the broker says other-error"):
        exchange.next(b"e=other-error")


def test_bytes_that_are_no_text() -> None:
    exchange = Scram("SCRAM-SHA-256", "user", "pencil", "ours")
    exchange.first()
    with pytest.raises(SaslError, match="not UTF-8"):
        exchange.next(b"r=\xff")


def test_passwords_and_users_in_utf8() -> None:
    """Against the definition of RFC 5802, written down once more."""
    exchange = Scram("SCRAM-SHA-512", "jörg", "pässword", "abc")
    assert exchange.first() == "n,,n=jörg,r=abc".encode()
    proof = exchange.next(b"r=abcdef,s=c2FsdA==,i=4096")
    salted = hashlib.pbkdf2_hmac("sha512", "pässword".encode(), b"salt", 4096)
    signed = "n=jörg,r=abc,r=abcdef,s=c2FsdA==,i=4096,c=biws,r=abcdef".encode()
    client = hmac.digest(salted, b"Client Key", "sha512")
    mask = hmac.digest(hashlib.sha512(client).digest(), signed, "sha512")
    expected = base64.b64encode(bytes(a ^ b for a, b in zip(client, mask, strict=True)))
    assert proof == b"c=biws,r=abcdef,p=" + expected
    server = hmac.digest(hmac.digest(salted, b"Server Key", "sha512"), signed, "sha512")
    assert exchange.next(b"v=" + base64.b64encode(server)) is None


@pytest.mark.parametrize("nonce", ["", "a,b", "a\n"])
def test_a_nonce_that_is_none(nonce: str) -> None:
    with pytest.raises(ValueError, match="nonce"):
        Scram("SCRAM-SHA-256", "user", "pencil", nonce)


def test_a_mechanism_that_is_none() -> None:
    with pytest.raises(ValueError, match="SCRAM-SHA-1 is not a SCRAM mechanism"):
        Scram("SCRAM-SHA-1", "user", "pencil", "abc")


def test_extensions_stand_behind_the_token() -> None:
    token = OAuthBearer("t", {"logicalCluster": "lkc-1", "identityPoolId": "pool 7"})
    assert token.first() == b"n,,\x01auth=Bearer t\x01logicalCluster=lkc-1\x01identityPoolId=pool 7\x01\x01"


@pytest.mark.parametrize("extension", [("auth", "x"), ("", "x"), ("a-b", "x"), ("a", ""), ("a", "\x01auth=Bearer u")])
def test_extensions_that_cannot_be_sent(extension: tuple[str, str]) -> None:
    with pytest.raises(ValueError, match=r"extension|printable"):
        OAuthBearer("t", dict([extension]))
