"""Options of the Spark source: texts to values, every mistake at once."""

import pickle
from pathlib import Path
from typing import Any

import pytest

from fastwire.grammar import NamePattern
from fastwire.position import Position
from fastwire_daemon.config import ConfigError
from fastwire_daemon.spark.source.kafka.system import settings_of
from fastwire_daemon.spark.source.options import Where, columns_of, parse_options
from fastwire_daemon.spark.source.ranges import QueryPartition
from fastwire_daemon.spark.source.rows import ddl

A, B = "persistent://public/default/a", "persistent://public/default/b"


def parse(streaming: bool = True, /, **given: str) -> Any:
    return parse_options({"servers": "pulsar://h:6650", "subscribe": "a"} | given, streaming=streaming)


def wrong(streaming: bool = True, /, **given: str) -> list[str]:
    with pytest.raises(ConfigError) as caught:
        parse(streaming, **given)
    return [str(problem) for problem in caught.value.problems]


def test_defaults() -> None:
    found = parse()
    assert str(found.connection.url) == "pulsar://h:6650"
    assert (found.topics, found.system) == ((A,), "pulsar")
    assert (found.starting, found.ending) == (Where("latest"), Where("latest"))
    assert parse(False).starting == Where("earliest")
    assert found.fail_on_data_loss
    assert not found.commits
    assert (found.max_rows, found.max_bytes, found.min_rows, found.min_partitions) == (None, None, None, None)
    assert (found.patience_s, found.poll_s, found.refresh_s, found.max_delay_s) == (120, 0.2, 60, 900)


def test_names_are_told_apart_without_regard_to_case() -> None:
    found = parse(MAXRECORDSPERTRIGGER="7", failondataloss="False", **{"AUTH.TOKEN": "env:T"})
    assert found.max_rows == 7
    assert not found.fail_on_data_loss
    assert found.connection.auth.token.get_secret_value() == "env:T"


def test_a_table_of_names_is_json() -> None:
    """Spark forgets the case of option names, so names that matter stand in the value."""
    found = parse(**{"encryption.private_keys": '{"MyKey": "/keys/a.pem"}', "encryption.on_failure": "discard"})
    assert found.connection.encryption.private_keys == {"MyKey": Path("/keys/a.pem")}
    assert found.connection.encryption.on_failure == "discard"
    (problem,) = wrong(**{"encryption.private_keys": "MyKey=/keys/a.pem"})
    assert problem.startswith("encryption.private_keys: ")
    kafka = {"servers": "kafka://h:9092", "auth.token": "t", "auth.extensions": '{"logicalCluster": "c"}'}
    assert parse(**kafka).connection.auth.extensions == {"logicalCluster": "c"}


def test_values() -> None:
    found = parse(
        subscribe=" a, b ,a",
        subscription="s",
        maxOffsetsPerTrigger="5",
        maxBytesPerTrigger="2MiB",
        minOffsetsPerTrigger="3",
        maxTriggerDelay="5s",
        pollTimeoutMs="1500",
    )
    assert found.topics == (A, B)
    assert found.commits
    assert (found.max_rows, found.max_bytes, found.min_rows) == (5, 2 << 20, 3)
    assert (found.max_delay_s, found.patience_s) == (5, 1.5)
    assigned = parse_options({"servers": "pulsar://h", "assign": '{"a":[1,0]}'}, streaming=True).assigned
    assert assigned == frozenset({QueryPartition(A, 0), QueryPartition(A, 1)})


def test_beginnings() -> None:
    assert parse(startingOffsets="earliest").starting == Where("earliest")
    places = parse(startingOffsets='{"a":{"0":"12:34","1":-2,"2":-1}}').starting
    assert places.positions == {
        QueryPartition(A, 0): Position(12, 34),
        QueryPartition(A, 1): "earliest",
        QueryPartition(A, 2): "latest",
    }
    assert places.kind == "latest"
    assert parse(False, startingOffsets='{"a":{"0":"1:2"}}').starting.kind == "earliest"
    assert parse(startingTimestamp="1700000000000", startingOffsets="earliest").starting == Where("time", 1700000000000)
    assert parse(startingOffsetsByTimestamp='{"a":{"0":5}}').starting.times == {QueryPartition(A, 0): 5}


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"subscrbe": "x"}, 'subscrbe: is not an option of this source, did you mean "subscribe"?'),
        ({"subscribe": "a/b"}, "subscribe: topic 'a/b': a short name is TOPIC or TENANT/NAMESPACE/TOPIC"),
        (
            {"subscribe": "non-persistent://p/d/a"},
            "a non-persistent topic keeps no positions",
        ),
        ({"assign": '{"a":[0]}'}, "subscribe and assign: exactly one of subscribe, subscribePattern, assign"),
        ({"assign": "a"}, 'assign: must be JSON such as {"topic":[0,1]}'),
        ({"startingOffsets": "newest"}, "startingOffsets: must be earliest, latest or JSON"),
        (
            {"startingOffsets": '{"a":{"0":12}}'},
            "startingOffsets: '12' is not a position of pulsar: expected ledger:entry",
        ),
        ({"startingOffsets": '{"a":{"0":"x"}}'}, "-2 is the earliest, -1 the latest"),
        ({"startingTimestamp": "soon"}, "startingTimestamp: must be a whole number"),
        ({"endingOffsets": "latest"}, "endingOffsets: is only for batch queries"),
        (
            {"maxRecordsPerTrigger": "0"},
            'maxRecordsPerTrigger: must be a whole number from 1 to 9223372036854775807, not "0"',
        ),
        ({"maxRecordsPerTrigger": "1", "maxOffsetsPerTrigger": "1"}, "maxOffsetsPerTrigger: is another name"),
        ({"maxRecordsPerTrigger": "1", "minOffsetsPerTrigger": "2"}, "minOffsetsPerTrigger: is more than one trigger"),
        ({"failOnDataLoss": "no"}, "failOnDataLoss: must be true or false"),
        ({"commitOffsets": "true"}, "commitOffsets: needs a subscription: whose progress is it?"),
        ({"groupId": "g"}, "groupId: is not an option of Pulsar, which has subscription instead"),
        ({"columns": "key,vlaue"}, 'columns: "vlaue" is not a column, did you mean "value"?'),
        ({"system": "kafka"}, 'system: is "kafka", and servers says pulsar'),
        ({"servers": "rabbit://h"}, 'servers: "rabbit://" is not a known kind of broker'),
        ({"servers": "h:6650"}, "servers: "),
        ({"tls.ca": "/nowhere"}, "tls"),
        ({"auth.tokn": "x"}, "auth.tokn: "),
        ({"auth": "x"}, "auth: is not an option of this source"),
    ],
)
def test_mistakes(given: dict[str, str], said: str) -> None:
    assert any(said in each for each in wrong(**given)), wrong(**given)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"startingOffsets": "latest"}, "startingOffsets: a batch query cannot begin at the latest"),
        ({"startingOffsets": '{"a":{"0":-1}}'}, "startingOffsets: a batch query cannot begin at the latest"),
        ({"endingOffsets": "earliest"}, "endingOffsets: a batch query cannot end at the earliest"),
        ({"maxRecordsPerTrigger": "5"}, "maxRecordsPerTrigger: is only for streaming queries"),
    ],
)
def test_mistakes_of_batch_queries(given: dict[str, str], said: str) -> None:
    assert said in wrong(False, **given)


TOO_LARGE = ["9" * 19 + "9", "9" * 400, "9" * 5000]
NUMBERS = {
    **dict.fromkeys(("minPartitions", "batchRows", "prefetchBatches"), (1, 2**31 - 1)),
    "fetchOffset.numRetries": (0, 2**31 - 1),
    **dict.fromkeys(("maxRecordsPerTrigger", "minOffsetsPerTrigger", "maxRecordsPerPartition"), (1, 2**63 - 1)),
    **dict.fromkeys(("startingTimestamp", "pollTimeoutMs", "fetchOffset.retryIntervalMs"), (0, 2**63 - 1)),
    **dict.fromkeys(("offsetPollIntervalMs", "topicRefreshIntervalMs"), (0, 2**63 - 1)),
}


@pytest.mark.parametrize("name", NUMBERS)
@pytest.mark.parametrize("value", ["-1", "1.5", "x", "", *TOO_LARGE])
def test_numbers_outside_of_their_range(name: str, value: str) -> None:
    lowest, highest = NUMBERS[name]
    shown = value if len(value) <= 40 else value[:40] + "…"
    assert f'{name}: must be a whole number from {lowest} to {highest}, not "{shown}"' in wrong(**{name: value})


def test_a_system_whose_ranges_cannot_be_read_again() -> None:
    with pytest.raises(ConfigError, match=r"^servers: a job cannot read TubeMQ: .* let the job read the dataset$"):
        parse_options({"servers": "tubemq://h", "subscribe": "a"}, streaming=True)


@pytest.mark.parametrize("value", ["0", "-1", "3 GiB", *TOO_LARGE, "9" * 400 + ".5 GiB"])
@pytest.mark.parametrize("name", ["batchBytes", "fetchMaxBytes"])
def test_sizes_outside_of_their_range(name: str, value: str) -> None:
    given = {"servers": "kafka://h", "subscribe": "a", name: value}
    with pytest.raises(ConfigError) as caught:
        parse_options(given, streaming=True)
    [problem] = caught.value.problems
    assert problem.key == name
    assert "must be a size from 1 to 2147483647 bytes, not" in problem.message or "too many digits" in problem.message


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"assign": '{"a":[0,true]}'}, 'assign: must be JSON such as {"topic":[0,1]}'),
        ({"assign": '{"a":[-2]}'}, 'assign: a partition of a must be a whole number from -1 to 2147483647, not "-2"'),
        (
            {"assign": '{"a":[99999999999]}'},
            'assign: a partition of a must be a whole number from -1 to 2147483647, not "99999999999"',
        ),
        (
            {"startingOffsets": '{"a":{"--1":-2}}'},
            'startingOffsets: a partition of a must be a whole number from -1 to 2147483647, not "--1"',
        ),
        (
            {"startingOffsetsByTimestamp": '{"a":{"0":true}}'},
            'startingOffsetsByTimestamp: must be a whole number from 0 to 9223372036854775807, not "True"',
        ),
        ({"maxTriggerDelay": "9" * 400 + "s"}, "maxTriggerDelay: "),
    ],
)
def test_numbers_within_json_and_times(given: dict[str, str], said: str) -> None:
    assert any(each.startswith(said) for each in wrong(**given)), wrong(**given)


def test_all_mistakes_at_once() -> None:
    with pytest.raises(ConfigError) as caught:
        parse_options({"columns": "x", "minPartitions": "-1", "nonsense": "1"}, streaming=True)
    assert [problem.key for problem in caught.value.problems] == [
        "minPartitions",
        "nonsense",
        "servers",
        "columns",
        "subscribe",
    ]


def kafka(**given: str) -> Any:
    return parse_options({"servers": "kafka+ssl://h:9093", "subscribe": "a"} | given, streaming=True)


def test_kafka_has_words_of_its_own() -> None:
    found = kafka(subscribe="a,b.c", groupId="g", isolationLevel="read_uncommitted", fetchMaxBytes="1MiB")
    assert (found.system, str(found.connection.url)) == ("kafka", "kafka+ssl://h:9093")
    assert (found.topics, found.subscription, found.commits) == (("a", "b.c"), "g", True)
    assert found.own["isolationLevel"] == "read_uncommitted"
    limits = settings_of(found).limits
    assert (limits.read_committed, limits.response_bytes) == (False, 1 << 20)
    assert settings_of(kafka()).limits.read_committed
    connection = kafka(clientRack="eu-1a", clientId="me").connection
    assert (connection.rack, connection.client_id) == ("eu-1a", "me")
    assert (kafka().connection.rack, kafka().connection.client_id) == (None, None)
    places = kafka(startingOffsets='{"a":{"0":23,"1":"45@6","2":-2,"3":-1}}').starting.positions
    assert list(places.values()) == [Position(23, -1), Position(45, 6), "earliest", "latest"]
    given = {"servers": "kafka://h", "subscribePattern": "orders-.*"}
    pattern = parse_options(given, streaming=True).pattern
    assert isinstance(pattern, NamePattern)
    assert [name for name in ("orders-1", "orders", "my-orders-1") if pattern.matches(name)] == ["orders-1"]
    assert columns_of({"servers": "kafka://h"})[-2:] == ("timestamp", "timestampType")
    assert pickle.loads(pickle.dumps(found)) == found


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"subscribe": "a/b"}, "subscribe: topic 'a/b': a name has"),
        ({"subscribePattern": "a("}, 'subscribePattern: "a(": not a regular expression'),
        ({"subscription": "s"}, "subscription: is not an option of Kafka, which has groupId instead"),
        ({"kafka.bootstrap.servers": "h"}, "kafka.bootstrap.servers: is not an option of Kafka, which has servers"),
        ({"kafka.client.rack": "r"}, "kafka.client.rack: is not an option of Kafka, which has clientRack instead"),
        ({"receiverQueueSize": "5"}, "receiverQueueSize: is not an option of Kafka, which has fetchMaxBytes instead"),
        ({"commitOffsets": "true"}, "commitOffsets: needs a groupId"),
        ({"isolationLevel": "committed"}, "isolationLevel: must be read_committed or read_uncommitted"),
        ({"startingOffsets": '{"a":{"0":-3}}'}, "startingOffsets: '-3' is not a position of kafka"),
        ({"startingOffsets": '{"a":{"0":1.5}}'}, "startingOffsets: '1.5' is not a position of kafka"),
        ({"columns": "ledger"}, 'columns: "ledger" is not a column'),
        ({"auth.tokn": "x"}, "auth.tokn"),
    ],
)
def test_mistakes_with_kafka(given: dict[str, str], said: str) -> None:
    with pytest.raises(ConfigError) as caught:
        kafka(**given)
    assert any(said in str(problem) for problem in caught.value.problems), caught.value


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (
            {"kafka.bootstrap.servers": "h:9092", "subscribe": "a"},
            "kafka.bootstrap.servers: is not an option of Kafka, which has servers instead",
        ),
        (
            {"kafka.bootstrap.servers": "h:9092", "subscribe": "a"},
            'servers: is missing: the brokers, such as "kafka://',
        ),
        ({"bootstrap.servers": "h:9092"}, "bootstrap.servers: is not an option of Kafka, which has servers instead"),
        ({"kafka.sasl.jaas.config": "x"}, "kafka.sasl.jaas.config: is not an option of Kafka, which has auth.username"),
        ({"kafka.ssl.keystore.location": "x"}, "is not an option of Kafka, which has tls.ca_file"),
        ({"kafka.max.poll.records": "x"}, "kafka.max.poll.records: is not an option of Kafka"),
        ({"service.url": "pulsar://h"}, "service.url: is not an option of Pulsar, which has servers instead"),
        ({"predefinedSubscription": "s", "servers": "pulsar://h"}, "which has subscription instead"),
        ({"kafka.bootstrap.servers": "h", "servers": "pulsar://h"}, "is not an option of Pulsar, which has servers"),
    ],
)
def test_words_of_other_sources(given: dict[str, str], said: str) -> None:
    with pytest.raises(ConfigError) as caught:
        parse_options(given, streaming=True)
    assert any(said in str(problem) for problem in caught.value.problems), caught.value


def test_secrets_are_in_no_message_and_no_text() -> None:
    secrets = {"auth.token": "s3cret\x00", "auth.password": "s3cret2"}
    said = wrong(**secrets)
    assert said
    assert not any("s3cret" in each for each in said)
    assert "s3cret" not in repr(parse(**{"auth.token": "s3cret"}))


def test_options_travel() -> None:
    found = parse(subscription="s", **{"auth.token": "s3cret"})
    assert pickle.loads(pickle.dumps(found)) == found


def test_columns() -> None:
    default = ["key", "value", "topic", "partition", "offset", "timestamp", "timestampType", "ledger", "batchIndex"]
    assert columns_of({}) == tuple(default)
    assert columns_of({"includeHeaders": "true"}) == (*default[:7], "headers", *default[7:])
    assert columns_of({"includeMetadata": "false"}) == ("key", "value")
    assert columns_of({"columns": "offset, VALUE"}) == ("value", "offset")
    assert len(columns_of({"columns": "*"})) == 16
    # What is wrong elsewhere is said where all options are looked at.
    assert columns_of({"nonsense": "1"}) == tuple(default)
    with pytest.raises(ConfigError, match="columns"):
        columns_of({"columns": "nope"})
    assert ddl(("key", "timestamp")) == "key binary, timestamp timestamp"
