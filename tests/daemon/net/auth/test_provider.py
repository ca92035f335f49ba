"""Tokens of plug-ins: fresh for each login, faults with their text, and those for Amazon MSK with a sound signature."""

import asyncio
import base64
import hashlib
import hmac
import threading
from collections.abc import Callable
from importlib.metadata import EntryPoint, entry_points
from typing import Any
from urllib.parse import parse_qsl, quote, urlsplit

import pytest

from fastwire_daemon.config import AuthConfig, ConfigError
from fastwire_daemon.net.auth import AuthError, BasicCredentials, Credentials, UnavailableError, credentials, provider
from fastwire_daemon.systems.kafka.config import KafkaAuthConfig
from fastwire_daemon.systems.kafka.login import Login

KEYS = {
    "AWS_ACCESS_KEY_ID": "AKIDEXAMPLE",
    "AWS_SECRET_ACCESS_KEY": "secret/of+tests",
    "AWS_SESSION_TOKEN": "a session",
}


def counted(*, realm: str, fault: str = "") -> Callable[[], str]:
    """A plug-in whose tokens are counted; it fails where ``fault`` says."""
    if fault == "start":
        raise LookupError("no such realm")
    made = []

    def token() -> str:
        made.append(realm)
        if fault == "token":
            raise OSError("the signer is away")
        return "" if fault == "empty" else f"{realm}-{len(made)}"

    return token


def given(**options: str) -> Credentials:
    found = credentials(AuthConfig.model_validate({"provider": {"type": "counted", "options": options}}))
    assert not isinstance(found, BasicCredentials)
    return found


@pytest.fixture(autouse=True)
def installed(monkeypatch: pytest.MonkeyPatch) -> None:
    real = entry_points

    def points(**chosen: Any) -> Any:
        ours = EntryPoint("counted", f"{__name__}:counted", provider.GROUP)
        return (ours,) if chosen.get("name") == "counted" else real(**chosen)

    monkeypatch.setattr(provider, "entry_points", points)


async def test_each_login_gets_a_fresh_token() -> None:
    found = given(realm="shop")
    assert (found.method, found.check()) == ("token", "tokens of the plug-in counted")
    assert [await found.data() for _ in range(3)] == [b"shop-1", b"shop-2", b"shop-3"]


async def test_it_is_the_login_of_kafka() -> None:
    auth = {"provider": {"type": "counted", "options": {"realm": "shop"}}, "extensions": {"logicalCluster": "lkc-1"}}
    first = (await Login(KafkaAuthConfig.model_validate(auth)).begin()).first()
    assert b"auth=Bearer shop-1" in first and b"logicalCluster=lkc-1" in first


async def test_faults_come_with_their_text(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(AuthError, match=r"^counted: LookupError: no such realm$"):
        await given(realm="shop", fault="start").data()
    with pytest.raises(AuthError, match="no such realm"):
        given(realm="shop", fault="start").check()
    with pytest.raises(UnavailableError, match=r"^counted: OSError: the signer is away$"):
        await given(realm="shop", fault="token").data()
    with pytest.raises(AuthError, match=r"^the token is empty$"):
        await given(realm="shop", fault="empty").data()
    monkeypatch.setattr(provider, "TIMEOUT_S", 0)
    with pytest.raises(UnavailableError, match="has made no token within 0 s"):
        await given(realm="shop").data()


async def test_a_plug_in_that_hangs_is_called_so_often_and_no_more(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its threads cannot be ended: they do not grow, and do not hold up the end of the process."""
    go_on, real = threading.Event(), counted
    monkeypatch.setattr(provider, "MOST_CALLS", 2)
    monkeypatch.setattr(f"{__name__}.counted", lambda realm: lambda: go_on.wait(60) and real(realm=realm)())
    found = given(realm="shop")
    monkeypatch.setattr(provider, "TIMEOUT_S", 0)
    for _ in range(2):
        with pytest.raises(UnavailableError, match="has made no token"):
            await found.data()
    with pytest.raises(UnavailableError, match="counted has not ended 2 earlier calls"):
        await found.data()
    threads = [each for each in threading.enumerate() if each.name == "a token of counted"]
    assert len(threads) == 2 and all(each.daemon for each in threads)
    go_on.set()
    for thread in threads:
        thread.join()
    monkeypatch.setattr(provider, "TIMEOUT_S", 60)
    assert await found.data() == b"shop-1"


@pytest.mark.parametrize(
    ("table", "said"),
    [
        (
            {"type": "nobody"},
            'auth.provider.type: no plug-in "nobody" is installed .fastwire.tokens.; there is aws_msk',
        ),
        ({"type": "counted"}, "auth.provider.options: counted does not take them: missing a required .*'realm'"),
        ({"type": "aws_msk_iam", "options": {"rgion": "x"}}, "auth.provider.options: .*unexpected keyword .*'rgion'"),
    ],
)
def test_a_wrong_table_is_an_error_at_once(table: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        credentials(AuthConfig.model_validate({"provider": table}))


def signed(text: str, secret: str, *scope: str) -> str:
    """The signature of ``text`` as AWS describes it."""
    key = b"AWS4" + secret.encode()
    for part in scope:
        key = hmac.digest(key, part.encode(), hashlib.sha256)
    return hmac.new(key, text.encode(), hashlib.sha256).hexdigest()


async def test_a_token_for_amazon_msk_is_a_signed_url(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in KEYS.items():
        monkeypatch.setenv(name, value)
    table = {"type": "aws_msk_iam", "options": {"region": "eu-central-1"}}
    found = credentials(AuthConfig.model_validate({"provider": table}))
    assert not isinstance(found, BasicCredentials)
    token = await found.data()
    assert token is not None and b"=" not in token
    url = base64.urlsafe_b64decode(token + b"=" * (-len(token) % 4)).decode()
    parts = urlsplit(url)
    asked = dict(parse_qsl(parts.query))
    assert (parts.scheme, parts.netloc, parts.path) == ("https", "kafka.eu-central-1.amazonaws.com", "/")
    assert asked.pop("User-Agent") == "fastwire"
    signature, date = asked.pop("X-Amz-Signature"), asked["X-Amz-Date"]
    assert asked == {
        "Action": "kafka-cluster:Connect",
        "X-Amz-Algorithm": "AWS4-HMAC-SHA256",
        "X-Amz-Credential": f"AKIDEXAMPLE/{date[:8]}/eu-central-1/kafka-cluster/aws4_request",
        "X-Amz-Date": date,
        "X-Amz-Expires": "900",
        "X-Amz-SignedHeaders": "host",
        "X-Amz-Security-Token": "a session",
    }
    query = "&".join(f"{quote(name, safe='')}={quote(value, safe='')}" for name, value in sorted(asked.items()))
    canonical = f"GET\n/\n{query}\nhost:{parts.netloc}\n\nhost\n{hashlib.sha256(b'').hexdigest()}"
    scope = (date[:8], "eu-central-1", "kafka-cluster", "aws4_request")
    digest = hashlib.sha256(canonical.encode()).hexdigest()
    text = f"AWS4-HMAC-SHA256\n{date}\n{'/'.join(scope)}\n{digest}"
    assert signature == signed(text, KEYS["AWS_SECRET_ACCESS_KEY"], *scope)


async def test_amazon_msk_without_a_region_or_credentials(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in (*KEYS, "AWS_REGION", "AWS_DEFAULT_REGION", "AWS_PROFILE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", "/nonexistent")
    monkeypatch.setenv("AWS_CONFIG_FILE", "/nonexistent")
    found = credentials(AuthConfig.model_validate({"provider": {"type": "aws_msk_iam"}}))
    with pytest.raises(AuthError, match="aws_msk_iam has no region"):
        found.check()
    monkeypatch.setenv("AWS_DEFAULT_REGION", "eu-central-1")
    found = credentials(AuthConfig.model_validate({"provider": {"type": "aws_msk_iam"}}))
    assert not isinstance(found, BasicCredentials)
    with pytest.raises(UnavailableError, match="finds no AWS credentials"):
        await asyncio.wait_for(found.data(), 20)
