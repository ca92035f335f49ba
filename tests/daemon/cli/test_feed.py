"""``fastwire-consume produce``: lines, JSON lines and loads into a topic, and what it says of it."""

import json
import os
import re
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from fastwire_daemon.cli.produce.input import parse_json, parse_line
from fastwire_daemon.devbroker.pulsar import PulsarDevBroker, PulsarOptions, running
from fastwire_daemon.systems.writer import Put
from tests.daemon.systems.pulsar.test_producer import NoReceipts, read
from tests.support.nursery import shared

PROGRAM = [sys.executable, "-m", "fastwire_daemon.cli", "produce"]


@pytest.fixture
def broker() -> Iterator[PulsarDevBroker]:
    with running(PulsarDevBroker(PulsarOptions(max_message_size=20_000))) as broker:
        broker.create_topic("two", 2)
        yield broker
        assert broker.violations == []


def produce(*arguments: str, data: bytes = b"", environ: dict[str, str] | None = None) -> tuple[int, str]:
    """Run the command; returns its exit code and what it said."""
    done = shared().run("produce", *arguments, given=data, env=environ)
    assert done.stdout == ""
    return done.returncode, done.stderr


def rows(broker: PulsarDevBroker, topic: str, count: int) -> list[bytes]:
    return [message.data() for message in read(broker, topic, count)]


# --- reading records


def test_a_line_is_a_value() -> None:
    assert parse_line(b"a\tb") == Put(b"a\tb")


@pytest.mark.parametrize(
    ("line", "wanted"),
    [
        ('{"value": "é"}', Put("é".encode())),
        ('{"value": null, "key": "k"}', Put(None, key="k")),
        ('{"value": {"base64": "AP8="}}', Put(b"\0\xff")),
        ('{"value": "", "key": {"base64": "AP8="}}', Put(b"", key=b"\0\xff")),
        (
            '{"value": "v", "properties": {"a": "1"}, "ordering_key": "o", "event_time": 7, "partition": 3}',
            Put(b"v", properties=(("a", "1"),), ordering_key=b"o", event_time=7, partition=3),
        ),
        ('{"value": "v", "event_time": "1970-01-01T00:00:01.5Z"}', Put(b"v", event_time=1500)),
        ('{"value": "v", "key": null, "properties": null, "partition": null}', Put(b"v")),
    ],
)
def test_json_lines(line: str, wanted: Put) -> None:
    assert parse_json(line.encode()) == wanted


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("{", "not JSON"),
        ("[]", "not an object"),
        ("{}", '"value" is missing'),
        ('{"value": 1}', '"value" must be text'),
        ('{"value": {"base64": "A"}}', '"value" is not base64'),
        ('{"value": {"base64": "AA==", "x": 1}}', '"value" must be text'),
        ('{"value": "", "vlaue": ""}', '"vlaue" is not one of key, value'),
        ('{"value": "", "key": 1}', '"key" must be text'),
        ('{"value": "", "properties": {"a": 1}}', '"properties" must be an object with text values'),
        ('{"value": "", "event_time": -1}', '"event_time" must be milliseconds'),
        ('{"value": "", "event_time": "2026-01-01T00:00:00"}', '"event_time" must be milliseconds'),
        ('{"value": "", "partition": -1}', '"partition" must be a whole number'),
        ('{"value": "", "partition": true}', '"partition" must be a whole number'),
    ],
)
def test_json_lines_that_are_none(line: str, message: str) -> None:
    with pytest.raises(ValueError, match=re.escape(message)):
        parse_json(line.encode())


# --- the command


def test_lines(broker: PulsarDevBroker) -> None:
    code, said = produce(broker.url, "t", data=b"a\n\nlast")
    assert code == 0
    assert re.fullmatch(
        r"3 records confirmed in persistent://public/default/t, \d+ B in 1 entry; \d+\.\d s, [\d,]+ records/s\n", said
    )
    assert rows(broker, "t", 3) == [b"a", b"", b"last"]


def test_lines_longer_than_a_read_and_than_a_message(broker: PulsarDevBroker, tmp_path: Path) -> None:
    long = os.urandom(400_000).replace(b"\n", b" ")
    file = tmp_path / "lines"
    file.write_bytes(b"first\n" + long + b"\nlast\n")
    with file.open("rb") as lines:
        done = subprocess.run([*PROGRAM, broker.url, "t"], stdin=lines, capture_output=True, timeout=60)
    assert done.returncode == 0, done.stderr
    assert rows(broker, "t", 3) == [b"first", long, b"last"]


def test_json_lines_to_partitions(broker: PulsarDevBroker) -> None:
    given = [{"value": "x", "partition": 1, "key": "k", "properties": {"a": "b"}}, {"value": None, "partition": 0}]
    data = "\n".join(map(json.dumps, given)).encode()
    code, said = produce(broker.url, "two", "--format", "jsonl", "--compression", "zstd", data=data)
    assert (code, said.startswith("2 records confirmed")) == (0, True)
    (message,) = read(broker, "two-partition-1", 1)
    assert (message.data(), message.partition_key(), message.properties()) == (b"x", "k", {"a": "b"})
    assert read(broker, "two-partition-0", 1)[0].has_null_value()


@pytest.mark.parametrize(("batching", "entries"), [("key", 4), ("grouped", 2), ("mixed", 1)])
def test_the_keys_in_a_batch(broker: PulsarDevBroker, batching: str, entries: int) -> None:
    """A broker hands a batch to one reader of a key_shared subscription."""
    data = "\n".join(json.dumps({"value": "v", "key": f"k{number % 2}"}) for number in range(4)).encode()
    for options in (("--batching", batching), ()) if batching == "key" else (("--batching", batching),):
        code, said = produce(broker.url, "t", "--format", "jsonl", *options, data=data)
        assert (code, said.startswith("4 records confirmed")) == (0, True)
        assert f"in {entries} entr" in said


def test_a_bad_line_ends_it_behind_the_good_ones(broker: PulsarDevBroker) -> None:
    code, said = produce(broker.url, "t", "--format", "jsonl", data=b'{"value": "good"}\n{"valu": 1}\n{"value": "x"}')
    assert code == 1
    first, second, _ = said.split("\n")
    assert first.startswith("1 record confirmed")
    assert second == 'line 2: "valu" is not one of key, value, properties, event_time, ordering_key, partition'
    assert rows(broker, "t", 1) == [b"good"]
    code, said = produce(broker.url, "two", "--format", "jsonl", data=b'{"value": "x", "partition": 2}')
    assert code == 1
    assert "persistent://public/default/two has no partition 2: there are 2" in said


def test_a_generated_load(broker: PulsarDevBroker) -> None:
    code, said = produce(broker.url, "two", "--load", "1000", "--size", "200", "--batch", "60")
    assert (code, said.startswith("1,000 records confirmed")) == (0, True)
    assert broker.messages("two") == 1000
    assert len(broker.positions("two-partition-0")) == 9
    values = rows(broker, "two", 1000)
    assert sorted(json.loads(value)["number"] for value in values) == list(range(1000))
    assert {len(value) for value in values} <= {199, 200, 201}
    code, _ = produce(broker.url, "t", "--load", "5", "--batch", "0", "--rate", "100000")
    assert (code, len(broker.positions("t"))) == (0, 5)


def test_a_terminal_is_left_behind(broker: PulsarDevBroker) -> None:
    """The first signal sends what was read, though the input does not end."""
    with subprocess.Popen([*PROGRAM, broker.url, "t"], stdin=subprocess.PIPE, stderr=subprocess.PIPE) as program:
        assert program.stdin is not None and program.stderr is not None
        program.stdin.write(b"one\ntwo\nhalf")
        program.stdin.flush()
        while not broker.call(lambda: "persistent://public/default/t" in broker.topics) or broker.messages("t") < 2:
            assert program.poll() is None
        program.send_signal(signal.SIGINT)
        assert program.wait(60) == 0
        assert program.stderr.read().startswith(b"2 records confirmed")


def test_a_second_signal_aborts() -> None:
    with running(NoReceipts()) as broker:
        with subprocess.Popen([*PROGRAM, broker.url, "t"], stdin=subprocess.PIPE, stderr=subprocess.PIPE) as program:
            assert program.stdin is not None and program.stderr is not None
            program.stdin.write(b"one\n")
            program.stdin.flush()
            while not broker.call(lambda: "persistent://public/default/t" in broker.topics) or not broker.messages("t"):
                assert program.poll() is None
            program.send_signal(signal.SIGTERM)
            with pytest.raises(subprocess.TimeoutExpired):
                program.wait(0.5)  # it waits for the receipt
            program.send_signal(signal.SIGTERM)
            assert program.wait(60) == 1
            said = program.stderr.read().decode().splitlines()
        assert said[0].startswith("0 records confirmed")
        assert said[1] == "aborted: unconfirmed records may be stored or not"


# --- refusals


def test_nobody_there_or_not_wanted() -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
        code, said = produce(f"pulsar://127.0.0.1:{port}", "t")
        why = f"persistent://public/default/t: cannot connect to 127.0.0.1:{port}: Connection refused"
        lines = said.splitlines()
        assert (code, len(lines), lines[1]) == (1, 2, why)
        assert re.fullmatch(re.escape(why) + r"; retrying for [1-4] s", lines[0])
    with running(PulsarDevBroker(PulsarOptions(token="secret", auto_create=False))) as broker:
        assert produce(broker.url, "t") == (
            1,
            "persistent://public/default/t: AuthenticationError: Failed to authenticate\n",
        )
        assert produce(broker.url, "t", environ={"FASTWIRE_TOKEN": "secret"}) == (
            1,
            "persistent://public/default/t: TopicNotFound: Topic persistent://public/default/t not found\n",
        )


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["produce", "pulsar://h"], "Missing argument 'TOPIC'"),
        (["produce", "http://h", "t"], "Invalid value for URL"),
        (["produce", "pulsar://h", "bad/name"], "Invalid value for TOPIC"),
        (["produce", "pulsar://h", "t", "--load", "0"], "Invalid value for '--load'"),
        (["produce", "pulsar://h", "t", "--compression", "bz2"], "Invalid value for '--compression'"),
        (["produce", "pulsar://h", "t", "--create", "2"], "Pulsar: topics are created by the brokers"),
        (["produce", "kafka://h", "t", "--create", "2"], "Kafka: topics are created by the brokers"),
        (["produce", "pulsar://h", "t", "--ca", "x"], "Invalid value for --ca: needs an encrypted connection"),
    ],
)
def test_usage_is_2(arguments: list[str], message: str) -> None:
    code, said = produce(*arguments[1:])
    assert code == 2
    assert message in said
