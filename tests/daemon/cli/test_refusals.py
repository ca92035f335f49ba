"""Messages and exit codes where a broker cannot or will not serve, word for word, for every system."""

import socket
import ssl
from collections.abc import Callable
from pathlib import Path

import pytest

from fastwire_daemon.devbroker.kafka import KafkaDevBroker, KafkaOptions
from fastwire_daemon.devbroker.pulsar import PulsarDevBroker, PulsarOptions, running
from tests.brokers.certs import Certificates, make_certificates
from tests.daemon.cli.orders import AnyBroker, shown_name
from tests.daemon.cli.program import Run

SYSTEMS = pytest.mark.parametrize("system", ["pulsar", "kafka"])
SECRET, GUESS = "hunter1", "hunter2"


def broker_of(system: str, *, guarded: bool = False, tls: ssl.SSLContext | None = None) -> AnyBroker:
    """A broker that makes no topics; one that is ``guarded`` wants a token, or a user with a password."""
    if system == "pulsar":
        return PulsarDevBroker(PulsarOptions(auto_create=False, token=SECRET if guarded else ""), tls=tls)
    return KafkaDevBroker(KafkaOptions(auto_create=False, users={"me": SECRET} if guarded else None), tls=tls)


@pytest.fixture
def check(run: Run, tmp_path: Path) -> Callable[[str, str], tuple[int, str]]:
    """Ask ``check --connect`` about topic t; returns the exit code and what it says of the broker."""

    def ask(url: str, keys: str) -> tuple[int, str]:
        file = tmp_path / "c.toml"
        sink = '[pipelines.p.sink]\ntype = "discard"\n'
        source = f'[pipelines.p.source]\nurl = "{url}"\ntopics = ["t"]\ngroup = "g"\nstart = "latest"\n{keys}\n'
        file.write_text(source + sink)
        code, out, err = run("check", file, "--connect")
        assert err == ""
        (said,) = (line for line in out.splitlines() if line.startswith("  broker "))
        return code, said.removeprefix("  broker   FAILED: ")

    return ask


def assert_said(
    run: Run,
    check: Callable[[str, str], tuple[int, str]],
    url: str,
    why: str,
    options: tuple[str | Path, ...] = (),
    keys: str = "",
) -> None:
    """All three commands end with 1 and with ``why``, and say nothing else but where, once."""
    topic = "persistent://public/default/t" if url.startswith("pulsar") else "t"
    assert check(url, keys) == (1, why)
    code, out, err = run("tail", url, "t", *options)
    assert (code, out, err.removeprefix(f"{url}: ").replace(f"{topic}: ", "", 1)) == (1, "", f"{why}\n")
    assert run("produce", url, "t", "--load", "1", *options) == (1, "", f"{topic}: {why}\n")


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    return make_certificates(tmp_path_factory.mktemp("certificates"))


def secured(certificates: Certificates) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificates.cert, certificates.key)
    return context


@SYSTEMS
def test_nobody_there(run: Run, check: Callable[[str, str], tuple[int, str]], system: str) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        place = f"127.0.0.1:{free.getsockname()[1]}"
        assert_said(run, check, f"{system}://{place}", f"cannot connect to {place}: Connection refused")


@SYSTEMS
def test_a_topic_that_is_not_there(
    run: Run, check: Callable[[str, str], tuple[int, str]], system: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fastwire_daemon.systems.kafka.producer.MISSING_S", 0.1)
    with running(broker_of(system)) as broker:
        topic = shown_name(broker, "t")
        missing = f"{topic} does not exist; fastwire reads topics and creates none"
        said = {
            "pulsar": (
                f"TopicNotFound: {missing}",
                f"TopicNotFound: {missing}",
                f"{topic}: TopicNotFound: Topic {topic} not found",
            ),
            "kafka": (
                f"{broker.url}: {missing}",
                f"{broker.url}: {missing}",
                "t: does not exist, and the broker does not make it: UNKNOWN_TOPIC_OR_PARTITION",
            ),
        }[system]
        assert check(broker.url, "") == (1, said[0])
        assert run("tail", broker.url, "t") == (1, "", f"{said[1]}\n")
        assert run("produce", broker.url, "t", "--load", "1") == (1, "", f"{said[2]}\n")
        assert broker.violations == []


@SYSTEMS
def test_who_one_is_not(
    run: Run, check: Callable[[str, str], tuple[int, str]], system: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FASTWIRE_TOKEN" if system == "pulsar" else "FASTWIRE_PASSWORD", GUESS)
    keys = {
        "pulsar": f'auth = {{ token = "{GUESS}" }}',
        "kafka": f'auth = {{ user = "me", password = "{GUESS}", mechanism = "PLAIN" }}',
    }[system]
    why = {
        "pulsar": "AuthenticationError: Failed to authenticate",
        "kafka": "PLAIN: the broker refuses the login: Authentication failed: Invalid username or password",
    }[system]
    options = () if system == "pulsar" else ("--user", "me", "--mechanism", "PLAIN")
    with running(broker_of(system, guarded=True)) as broker:
        broker.create_topic("t")
        assert_said(run, check, broker.url, why, options, keys)
        assert broker.violations == []


@SYSTEMS
def test_a_certificate_that_nobody_vouches_for(
    run: Run, check: Callable[[str, str], tuple[int, str]], system: str, certificates: Certificates
) -> None:
    with running(broker_of(system, tls=secured(certificates))) as broker:
        broker.create_topic("t")
        why = f"the certificate of 127.0.0.1:{broker.port} is not accepted: unable to get local issuer certificate"
        ca = certificates.other_ca
        assert_said(run, check, broker.url, why, ("--ca", ca), f'tls = {{ ca = "{ca}" }}')


def test_a_kafka_broker_that_wants_a_login(run: Run, check: Callable[[str, str], tuple[int, str]]) -> None:
    """Such a broker hangs up without a word; looking waits for nothing."""
    with running(broker_of("kafka", guarded=True)) as broker:
        broker.create_topic("t")
        why = f"connection to 127.0.0.1:{broker.port}: closed by the broker"
        assert_said(run, check, broker.url, why)
        assert broker.violations == []
