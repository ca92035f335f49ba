"""Ports that are not those of a system's brokers: each command says so, for each system and each kind of port."""

import ssl
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from fastwire.systems import SYSTEMS, grammar_named
from fastwire_daemon.devbroker.kafka import KafkaDevBroker
from fastwire_daemon.devbroker.pulsar import PulsarDevBroker
from fastwire_daemon.devbroker.server import Server, running
from fastwire_daemon.devbroker.tank import TankDevBroker
from fastwire_daemon.devbroker.tubemq import TubeMQDevBroker
from tests.brokers.certs import make_certificates
from tests.daemon.cli.program import Run
from tests.support.answering import answering

BROKERS: dict[str, Callable[[], Server]] = {
    "pulsar": PulsarDevBroker,
    "kafka": KafkaDevBroker,
    "tank": TankDevBroker,
    "tubemq": TubeMQDevBroker,
}
SECURED = ("pulsar", "kafka", "tubemq")
SERVERS = (*SYSTEMS, "tls", "http", "alert", "closing", "silent")
# A silent Master is waited for as long as a busy one.
PAIRS = [(a, b) for a in SYSTEMS for b in SERVERS if a != b and (a, b) != ("tubemq", "silent")]
HTTP = b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n"
ALERT = bytes.fromhex("15030300020246")  # of TLS 1.2, fatal: protocol version


@pytest.fixture(scope="module")
def ports(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, int]]:
    """The ports of a broker of each system, of a broker with TLS, and of servers of other kinds."""
    files = make_certificates(tmp_path_factory.mktemp("certificates"))
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(files.cert, files.key)
    with ExitStack() as stack:
        found = {name: stack.enter_context(running(make())).port for name, make in BROKERS.items()}
        found["tls"] = stack.enter_context(running(KafkaDevBroker(tls=context))).port
        answers = {"http": HTTP, "alert": ALERT, "closing": b"", "silent": None}
        yield found | {name: stack.enter_context(answering(answer)) for name, answer in answers.items()}


@pytest.fixture(autouse=True)
def impatient(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Shorten the wait for what may never come; what a server says is waited for."""
    if "server" not in request.fixturenames or request.getfixturevalue("server") in ("http", "alert"):
        return
    for name in ("pulsar", "kafka", "tank"):
        monkeypatch.setattr(f"fastwire.{name}.protocol.connection.CONNECT_TIMEOUT_S", 0.5)


def check(run: Run, tmp_path: Path, url: str) -> str:
    system = url.partition("://")[0].partition("+")[0]
    file = tmp_path / "c.toml"
    word = grammar_named(system).group_word
    group = f'{word} = "group"\n' if word else ""
    source = f'[pipelines.p.source]\nurl = "{url}"\ntopics = ["topic"]\n{group}start = "latest"\n'
    file.write_text(source + '[pipelines.p.sink]\ntype = "discard"\n')
    code, out, _ = run("check", file, "--connect")
    assert code == 1
    (said,) = (line for line in out.splitlines() if line.startswith("  broker "))
    return said.removeprefix("  broker   FAILED: ")


def assert_named(said: str, client: str, server: str) -> None:
    """``said`` says what is wrong with the port of ``server``, and where the system's own servers listen."""
    grammar = grammar_named(client)
    assert f"{grammar.servers} listen at {grammar.schemes[client]}" in said
    if server == "http":
        assert f"the server speaks HTTP, not the protocol of {grammar.title}" in said
    elif server == "alert":
        way = f"the url needs {client}+ssl://" if client in SECURED else f"which {grammar.title} does not have"
        assert f"the server speaks TLS, {way}" in said
    elif "nothing came from the server" in said:
        assert f"none of {grammar.title}" in said
        assert (f"may be one with TLS ({client}+ssl://)" in said) is (client in SECURED)
    else:
        assert f"the server does not speak the protocol of {grammar.title}" in said


@pytest.mark.parametrize(("client", "server"), PAIRS)
def test_a_port_of_something_else(run: Run, tmp_path: Path, ports: dict[str, int], client: str, server: str) -> None:
    assert_named(check(run, tmp_path, f"{client}://127.0.0.1:{ports[server]}"), client, server)


@pytest.mark.parametrize("client", SECURED)
@pytest.mark.parametrize("server", [*SYSTEMS, "http", "closing"])
def test_a_port_without_tls(run: Run, tmp_path: Path, ports: dict[str, int], client: str, server: str) -> None:
    said = check(run, tmp_path, f"{client}+ssl://127.0.0.1:{ports[server]}")
    assert said.startswith(f"no TLS connection to 127.0.0.1:{ports[server]}: ")
    assert said.endswith(": the server may not speak TLS at this port, which the url asks for by +ssl")


@pytest.mark.parametrize("client", SYSTEMS)
@pytest.mark.parametrize("server", ["http", "alert"])
def test_commands_that_read_and_write(run: Run, ports: dict[str, int], client: str, server: str) -> None:
    url = f"{client}://127.0.0.1:{ports[server]}"
    for command in (("tail", url, "topic"), ("produce", url, "topic", "--load", "1")):
        code, out, err = run(*command)
        assert (code, out) == (1, "")
        assert_named(err, client, server)


def test_a_port_that_is_usually_of_another_system() -> None:
    from fastwire_daemon.systems.links.wrongport import unheard

    assert unheard(grammar_named("kafka"), 6650, False).endswith("as shipped; 6650 is a port of Pulsar")
    assert not unheard(grammar_named("kafka"), 9094, False).endswith("of Kafka")
