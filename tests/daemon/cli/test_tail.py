"""``tail``: records as they are shown, and who one says one is."""

import json
import re
import socket
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest

from fastwire.pulsar import pulsar_pb2 as pb
from fastwire.pulsar.format.payload import Record, encode_single_entry
from fastwire_daemon.config import Secured
from fastwire_daemon.devbroker.kafka import KafkaDevBroker, KafkaOptions, running
from fastwire_daemon.devbroker.pulsar import PulsarDevBroker
from fastwire_daemon.systems.kafka.config import KafkaConnection
from tests.daemon.cli.orders import AnyBroker, add_orders, shown_name
from tests.daemon.cli.program import Run
from tests.support.kafka.source_pipe import batches


def numbers(lines: str) -> list[int]:
    return [json.loads(line)["number"] for line in lines.splitlines()]


def test_tail_shows_records_and_leaves_no_trace(run: Run, any_broker: AnyBroker) -> None:
    url = (any_broker.url, "orders", "--from", "earliest", "--until-end")
    code, out, err = run("tail", *url, "--format", "raw")
    assert (code, err) == (0, "")
    assert sorted(numbers(out)) == list(range(40))
    code, out, _ = run("tail", *url, "--format", "jsonl", "-n", "3")
    rows = [json.loads(line) for line in out.splitlines()]
    assert len(rows) == 3
    assert {row["topic"] for row in rows} == {shown_name(any_broker, "orders")}
    code, out, _ = run("tail", *url, "-n", "1")
    assert json.loads(out)["partition"] in (0, 1)  # no terminal
    code, out, _ = run("tail", *url, "-n", "1", "--format", "pretty")
    name, place = shown_name(any_broker, "orders").removeprefix("persistent://"), r"\d+:0:0"
    if isinstance(any_broker, PulsarDevBroker):
        assert any_broker.subscriptions("orders-partition-0") == []
    else:
        place = "0"
        assert any_broker.groups == {}
    assert re.match(rf"2023-11-14T22:13:20\S*Z  {name}-[01] {place}  key=\S+\n    \{{.*\}}\n$", out)
    assert any_broker.violations == []


def test_tail_lays_out_what_is_json_and_shows_times(run: Run, broker: PulsarDevBroker) -> None:
    broker.create_topic("wide")
    now_ms = int(time.time() * 1000)
    json_ = b'{"a": [1, "%s"], "b": "\\u001b"}' % (b"x" * 100)
    for value, ago_s in ((b"old", 600), (json_, 60), (b"[" + b"y" * 200, 30)):
        record = Record(value=value, event_time=1_700_000_000_000, properties=[("p", "q")])
        when = now_ms - ago_s * 1000
        broker.append("wide", [encode_single_entry(record, producer_name="p", sequence_id=ago_s, publish_time=when)])
    code, out, _ = run("tail", broker.url, "wide", "--from", "-5m", "--until-end", "--format", "pretty")
    assert code == 0
    lines = out.splitlines()
    laid_out = ["{", '"a": [', "1,", f'"{"x" * 100}"', "],", '"b": "\\u001b"', "}"]
    assert [line.strip() for line in lines[1:-2]] == laid_out
    assert lines[-1] == "    [" + "y" * 200  # no JSON
    assert all(line.endswith("  p=q  event=2023-11-14T22:13:20.000000Z") for line in (lines[0], lines[-2]))
    assert run("tail", broker.url, "wide", "--from", "-5x")[0] == 2


def test_tail_shows_each_schema_before_its_records(run: Run, broker: PulsarDevBroker) -> None:
    topic = "persistent://public/default/typed"
    broker.create_topic(topic)
    pair = b'\0\0\0\3"a"\0\0\0\5{\x1b\n 1'
    schemas = [
        pb.Schema(name="Order", type=pb.Schema.Json, schema_data=b'{"type": "record"}'),
        pb.Schema(name="Order", type=pb.Schema.Json, schema_data=b"\xff"),
    ]
    versions = [broker.register_schema(topic, each) for each in schemas] + [b"\7", b""]
    properties = [pb.KeyValue(key="key.schema.type", value="STRING")]
    other = pb.Schema(name="", type=pb.Schema.KEY_VALUE, schema_data=pair, properties=properties)
    broker.create_topic("pairs")
    broken = pb.Schema(name="", type=pb.Schema.KEY_VALUE, schema_data=pair[:-1])
    pairs = [broker.register_schema("pairs", each) for each in (other, broken)]
    for name, given in ((topic, [*versions, *versions]), ("pairs", pairs)):
        for number, version in enumerate(given):
            metadata = pb.MessageMetadata(schema_version=version) if version else None
            record = Record(value=b"%d" % number)
            entry = encode_single_entry(
                record, producer_name="p", sequence_id=number, publish_time=1, metadata=metadata
            )
            broker.append(name, [entry])
    reading = ("--from", "earliest", "--until-end", "--schemas", "--format", "raw")
    code, out, err = run("tail", broker.url, "typed", *reading)
    assert (code, out.split()) == (0, [str(number) for number in range(8)])
    assert err.splitlines() == [
        "schema 0 of public/default/typed: JSON Order",
        '    {"type": "record"}',
        "schema 1 of public/default/typed: JSON Order",
        "    0xff",
        "schema 0x07 of public/default/typed: the broker does not know it",
    ]
    code, _, err = run("tail", broker.url, "pairs", *reading)
    assert (code, err.splitlines()) == (
        0,
        [
            "schema 0 of public/default/pairs: KEY_VALUE",
            '    key STRING "a"',
            "    value BYTES {\\x1b\\n 1",
            "schema 1 of public/default/pairs: KEY_VALUE",
            "    cannot be read: schema of the value at byte 7: needs 5 bytes, 4 are left",
        ],
    )
    assert broker.violations == []


def test_tail_from_a_position(run: Run, broker: PulsarDevBroker) -> None:
    ledger, entry, _ = broker.positions("orders-partition-1")[1]
    url = (broker.url, "orders-partition-1", "--from", f"{ledger}:{entry}", "--until-end", "--format", "raw")
    code, out, _ = run("tail", *url)
    assert code == 0
    assert numbers(out) == list(range(21, 40, 2))


@pytest.mark.parametrize(("start", "wanted"), [("-1", [39]), ("-2", range(21, 40, 2)), ("-99", range(1, 40, 2))])
def test_tail_of_the_last_entries_of_a_partition(
    run: Run, broker: PulsarDevBroker, start: str, wanted: Iterable[int]
) -> None:
    url = (broker.url, "orders-partition-1", "--from", start, "--until-end", "--format", "raw")
    code, out, err = run("tail", *url)
    assert (code, err, numbers(out)) == (0, "", list(wanted))


@pytest.fixture
def offset_broker() -> Iterator[KafkaDevBroker]:
    with running(KafkaDevBroker(KafkaOptions())) as broker:
        broker.create_topic("t", 2)
        for partition in range(2):
            broker.append("t", batches(0, 2 + partition), partition)
        yield broker


def test_tail_reads_from_the_replica_in_our_rack(run: Run) -> None:
    with running(KafkaDevBroker(KafkaOptions(nodes=2, racks=("a", "b")))) as broker:
        broker.create_topic("t")
        broker.append("t", batches(0, 2))
        code, out, err = run("tail", broker.url, "t", "--from", "earliest", "--until-end", "--rack", "b")
        assert (code, len(out.splitlines()), err) == (0, 20, "")
        assert set(broker.read_at) == {1}


@pytest.mark.parametrize(
    ("start", "wanted"),
    [
        ("15", {0: range(15, 20), 1: range(15, 30)}),
        ("25", {1: range(25, 30)}),  # partition 0 ends before it
        ("1=12", {1: range(12, 30)}),
        ("0=19,1=28", {0: [19], 1: [28, 29]}),
        ("99", {}),
        ("-3", {0: range(17, 20), 1: range(27, 30)}),
        ("-25", {0: range(20), 1: range(5, 30)}),
        ("1=-2", {1: [28, 29]}),
        ("1=-99,0=18", {0: [18, 19], 1: range(30)}),
    ],
)
def test_tail_from_offsets_of_kafka(
    run: Run, offset_broker: KafkaDevBroker, start: str, wanted: dict[int, Iterable[int]]
) -> None:
    code, out, err = run("tail", offset_broker.url, "t", "--from", start, "--until-end", "--format", "jsonl")
    assert (code, err) == (0, "")
    rows = [json.loads(line) for line in out.splitlines()]
    assert {partition: [row["offset"] for row in rows if row["partition"] == partition] for partition in (0, 1)} == {
        partition: list(wanted.get(partition, ())) for partition in (0, 1)
    }


def test_tail_from_offsets_that_are_none(run: Run, offset_broker: KafkaDevBroker, broker: PulsarDevBroker) -> None:
    for given, words in (
        ((broker.url, "t", "--from", "15"), "of Pulsar is LEDGER:ENTRY"),
        ((offset_broker.url, "t.*", "--pattern", "--from", "0=15"), "of which topic"),
        ((offset_broker.url, "t", "--from", "5=15", "--until-end"), ""),
    ):
        code, out, err = run("tail", *given)
        assert (code == 2) == bool(words)
        assert words in err
        assert out == ""


def test_tail_of_a_pattern(run: Run, any_broker: AnyBroker) -> None:
    add_orders(any_broker, "orders-eu", 7, 1)
    options = ("--pattern", "--from", "earliest", "--until-end", "--format", "jsonl")
    code, out, err = run("tail", any_broker.url, "orders.*", *options)
    assert (code, err) == (0, "")
    topics = [json.loads(line)["topic"].rpartition("/")[2] for line in out.splitlines()]
    assert (topics.count("orders"), topics.count("orders-eu")) == (40, 7)
    assert run("tail", any_broker.url, "nothing.*", *options)[:2] == (0, "")
    code, _, err = run("tail", any_broker.url, "(", *options)
    assert code == 2
    assert "TOPIC" in err and "not a regular expression" in err
    assert any_broker.violations == []


@pytest.mark.parametrize("system", ["pulsar", "kafka"])
def test_tail_where_no_broker_is(run: Run, system: str) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
        code, out, err = run("tail", f"{system}://127.0.0.1:{port}", "orders")
    assert (code, out) == (1, "")
    whom = f"127.0.0.1:{port}"
    assert err.rpartition(f"{system}://{whom}: ")[2] == f"cannot connect to {whom}: Connection refused\n"


@pytest.fixture
def connections(monkeypatch: pytest.MonkeyPatch) -> list[Secured]:
    """The brokers that ``tail`` was asked to read."""
    asked: list[Secured] = []

    async def tail(connection: Secured, *_: object, **options: Any) -> int:
        asked.append(connection)
        return 0

    monkeypatch.setattr("fastwire_daemon.cli.tail.tail.tail", tail)
    return asked


def test_tail_takes_its_token_from_file_or_environment(
    run: Run, connections: list[Secured], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FASTWIRE_TOKEN", "hunter2")
    assert run("tail", "pulsar+ssl://h", "t", "--insecure")[0] == 0
    assert run("tail", "pulsar://h", "t", "--token-file", tmp_path / "token")[0] == 0
    first, second = connections
    assert first.auth.token is not None and first.auth.token.get_secret_value() == "hunter2"
    assert first.tls.verify is False
    assert (second.auth.token, second.auth.token_file) == (None, tmp_path / "token")
    monkeypatch.setenv("FASTWIRE_TOKEN", "hünter2")
    code, out, err = run("tail", "pulsar://h", "t")
    assert code == 2
    assert err.endswith("Invalid value for FASTWIRE_TOKEN: contains characters that are not allowed in a token\n")
    assert "hünter2" not in out + err


def test_tail_takes_every_way_of_saying_who_one_is(
    run: Run, connections: list[Secured], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("FASTWIRE_TOKEN", raising=False)
    monkeypatch.setenv("FASTWIRE_PASSWORD", "hunter2")
    start = ("tail", "pulsar+ssl://h", "t")
    assert run(*start, "--user", "me")[0] == 0
    assert run(*start, "--user", "me", "--password-file", tmp_path / "p")[0] == 0
    issuer = ("--oauth2-issuer", "https://i", "--oauth2-audience", "urn:a", "--oauth2-scope", "s")
    assert run(*start, "--oauth2-key-file", tmp_path / "k", *issuer)[0] == 0
    assert run(*start, "--ca", "a", "--cert", "b", "--key", "c", "--server-name", "d")[0] == 0
    more = ("--cert", "b", "--key-password-file", tmp_path / "p", "--client-id", "looking")
    assert run("tail", "kafka+ssl://h", "t", *more)[0] == 0
    first, second, third, fourth, fifth = connections
    assert isinstance(fifth, KafkaConnection)
    assert (fifth.tls.key_password_file, fifth.client_id) == (tmp_path / "p", "looking")
    assert first.auth.password is not None and first.auth.password.get_secret_value() == "hunter2"
    assert (second.auth.user, second.auth.password, second.auth.password_file) == ("me", None, tmp_path / "p")
    oauth2 = third.auth.oauth2
    assert oauth2 is not None
    assert (oauth2.key_file, oauth2.issuer_url, oauth2.audience, oauth2.scope) == (
        tmp_path / "k",
        "https://i",
        "urn:a",
        "s",
    )
    assert not fourth.auth.given
    assert [str(value) for value in (fourth.tls.ca, fourth.tls.cert, fourth.tls.key)] == ["a", "b", "c"]
    assert fourth.tls.server_name == "d"
    for options, words in (
        (("--token-file", "x", "--user", "me"), "for --user: token_file is given too"),
        (("--password-file", "x"), "for --password-file: needs user"),
        (("--oauth2-issuer", "http://i", "--oauth2-key-file", "x"), "for --oauth2-issuer: must be https://"),
        (("--oauth2-audience", "x"), "for --oauth2-key-file: is required without key_file"),
    ):
        code, _, err = run(*start, *options)
        assert code == 2
        assert words in err, err
