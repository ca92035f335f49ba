"""Mistakes in a configuration: all at once, each with its place, in the exact words."""

from collections.abc import Callable
from pathlib import Path

import pytest

from fastwire_daemon.config import ConfigError, load_config, parse_config, parse_connection
from tests.support.config_file import COLUMNS, MINIMAL, problem, problems, sink, source


def test_all_mistakes_at_once_each_with_its_place() -> None:
    text = """\
sparks = {}
[daemon]
memory = "5M"
htp = ""
http = "127.0.0.1"

[pipelines.orders.source]
url = "pulsar+ssl://me@h"
topics = [
  "persistent://public/default/orders",
  "a/b",  # a comment, "a string" and a bracket ]
  "orders", 5,
]
group = "fastwire-orders"
subscription_type = "failovr"
auth = { token = "x", token_file = "x", oauth2 = {} }
tls = { kye = "x", key = "y" }

[pipelines.orders.sink]
type = "parqet"
roll = { bytes = 0, rows = "x", age = 60, idel = "10s" }

[pipelines.b]

[pipelines."b c".source]
topics = "x"
start = { "a" = "1:2", b = "12" }

[pipelines."b c".sink]
type = "stdout"
path = "/x"
columns = ["key", "valu", "key"]
writers = 2
"""
    assert problems(text) == [
        'f.toml:1: sparks: unknown key, did you mean "spark"?',
        'f.toml:3: daemon.memory: "5M" can be read in two ways: write "5MiB" or "5MB"',
        'f.toml:4: daemon.htp: unknown key, did you mean "http"?',
        'f.toml:5: daemon.http: "127.0.0.1" has no port; an address is "127.0.0.1:8650", "unix:/path" or "" for none',
        (
            "f.toml:7: pipelines.orders.source.start: is required, because it has no safe default: "
            '"earliest" (everything the topic holds), "latest" (only what is produced from the first start on), '
            'an RFC 3339 time such as "2025-01-31T00:00:00Z" or a time ago such as "-24h" (what was published since), '
            'or { "<topic>-partition-0" = "12:34" } (what follows that position)'
        ),
        "f.toml:8: pipelines.orders.source.url: a user or password does not belong into the URL: use the key auth",
        "f.toml:11: pipelines.orders.source.topics[1]: topic 'a/b': a short name is TOPIC or TENANT/NAMESPACE/TOPIC",
        'f.toml:12: pipelines.orders.source.topics[2]: "orders" is repeated',
        "f.toml:12: pipelines.orders.source.topics[3]: must be a string, not a number",
        (
            'f.toml:15: pipelines.orders.source.subscription_type: must be "exclusive", "failover", "shared" or '
            '"key_shared", not "failovr", did you mean "failover"?'
        ),
        "f.toml:16: pipelines.orders.source.auth.token_file: token is given too: use one of them",
        "f.toml:16: pipelines.orders.source.auth.oauth2: token is given too: use one of them",
        "f.toml:16: pipelines.orders.source.auth.oauth2.client_id: is required without key_file",
        "f.toml:16: pipelines.orders.source.auth.oauth2.issuer_url: is required without a key file that names it",
        "f.toml:17: pipelines.orders.source.tls.key: is the key of a certificate: cert is missing",
        'f.toml:17: pipelines.orders.source.tls.kye: unknown key, did you mean "key"?',
        'f.toml:20: pipelines.orders.sink.type: no sink is called "parqet", did you mean "parquet"?',
        "f.toml:21: pipelines.orders.sink.roll.bytes: must be greater than zero",
        "f.toml:21: pipelines.orders.sink.roll.rows: must be a whole number, not a string",
        'f.toml:21: pipelines.orders.sink.roll.age: needs a unit: write "60s" for seconds',
        'f.toml:21: pipelines.orders.sink.roll.idel: unknown key, did you mean "idle"?',
        "f.toml:23: pipelines.b.source: is required: a table [pipelines.NAME.source]",
        "f.toml:23: pipelines.b.sink: is required: a table [pipelines.NAME.sink]",
        'f.toml:25: pipelines."b c": a name consists of letters, digits and _ . - only',
        (
            'f.toml:25: pipelines."b c".source.url: is required: the broker, such as "pulsar://127.0.0.1:6650" or '
            '"kafka://127.0.0.1:9092" or "tank://127.0.0.1:11011" or "tubemq://127.0.0.1:8715"'
        ),
        (
            'f.toml:25: pipelines."b c".source.subscription: is required: the name under which the brokers keep '
            "the progress"
        ),
        'f.toml:26: pipelines."b c".source.topics: must be an array such as ["x"]',
        'f.toml:31: pipelines."b c".sink.path: is for files: stdout writes no files',
        'f.toml:32: pipelines."b c".sink.columns[2]: "key" is repeated',
        'f.toml:32: pipelines."b c".sink.columns[1]: "valu" is not a column, did you mean "value"?',
        'f.toml:33: pipelines."b c".sink.writers: there is only one stdout',
    ]


def test_an_empty_file() -> None:
    expected = "pipelines: is required: at least one [pipelines.NAME.source] with its [pipelines.NAME.sink]"
    assert problem("") == f"f.toml:1: {expected}"
    assert problem("\n[pipelines]\n") == f"f.toml:2: {expected}"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a = 1\nb =\n", "f.toml:2: is not TOML: Invalid value"),
        ("a = 1\n\na = 2\n", "f.toml:3: is not TOML: Cannot overwrite a value"),
        ('a = """\nx\n', "f.toml:3: is not TOML: "),
        ("[a", "f.toml:1: is not TOML: Expected ']' at the end of a table declaration"),
    ],
)
def test_what_is_no_toml(text: str, message: str) -> None:
    assert problem(text).startswith(message)


def test_files_that_cannot_be_read(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=f"^{tmp_path}/no: cannot read the configuration: No such file or directory$"):
        load_config(tmp_path / "no", {})
    with pytest.raises(ConfigError, match=r"cannot read the configuration: Is a directory$"):
        load_config(tmp_path, {})
    (tmp_path / "latin").write_bytes(b"a = '\xe9'")
    with pytest.raises(ConfigError, match=r"latin: is not UTF-8 text \(byte 5\)$"):
        load_config(tmp_path / "latin", {})


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        ({"topics": "[]"}, "3: pipelines.orders.source.topics: names no topic"),
        (
            {"topics": "['t', 't-partition-1']"},
            '3: pipelines.orders.source.topics[1]: "t-partition-1" is part of "persistent://public/default/t" above',
        ),
        (
            {"topics": "['persistent://a/b/c/d']"},
            (
                "3: pipelines.orders.source.topics[0]: topic 'persistent://a/b/c/d': old names with a cluster in "
                "them are "
                "not supported"
            ),
        ),
        (
            {"topics": "['non-persistent://a/b/c']"},
            (
                '3: pipelines.orders.source.topics[0]: "non-persistent://a/b/c": a non-persistent topic keeps no '
                "positions, so nothing can be promised about it"
            ),
        ),
        ({"topics": "{}"}, "3: pipelines.orders.source.topics: must be an array, not a table"),
        (
            {"subscription_type": "'shared'", "read_compacted": "true"},
            '7: pipelines.orders.source.read_compacted: needs subscription_type = "exclusive" or "failover"',
        ),
        (
            {"subscription_type": "'key_shared'", "priority_level": "1"},
            (
                '7: pipelines.orders.source.priority_level: is for "failover" and "shared": the broker does not look '
                "at it on key_shared"
            ),
        ),
        ({"priority_level": "-1"}, "6: pipelines.orders.source.priority_level: must be at least 0, not -1"),
        (
            {"consumer_properties": "{ a = 1 }"},
            "6: pipelines.orders.source.consumer_properties.a: must be a string, not a number",
        ),
        (
            {"url": "'kafka://h'", "topics": "['t']", "consumer_name": "'c'"},
            "6: pipelines.orders.source.consumer_name: is not supported for kafka: it is a key for pulsar",
        ),
        (
            {"url": "'kafka://h'", "topics": "['t']", "encryption": "{ private_keys = { k = 'f' } }"},
            "6: pipelines.orders.source.encryption: is not supported for kafka: it is a key for pulsar",
        ),
        (
            {"consumer_properties": "{ '' = 'x' }"},
            '6: pipelines.orders.source.consumer_properties."": this name is empty',
        ),
        ({"subscription": "''"}, "4: pipelines.orders.source.subscription: is empty"),
        ({"subscription": "5"}, "4: pipelines.orders.source.subscription: must be a string, not a number"),
        ({"group": "'x'"}, "6: pipelines.orders.source.group: is an alias of subscription, which is given too"),
        (
            {"start": "'erliest'"},
            (
                '5: pipelines.orders.source.start: must be "earliest" (everything the topic holds), "latest" (only '
                "what is "
                'produced from the first start on), an RFC 3339 time such as "2025-01-31T00:00:00Z" or a time ago '
                'such as "-24h" (what was published '
                'since), or { "<topic>-partition-0" = "12:34" } (what follows that position), not "erliest", did you '
                "mean "
                '"earliest"?'
            ),
        ),
        (
            {"start": "'2025-01-31'"},
            (
                '5: pipelines.orders.source.start: "2025-01-31" must be a whole RFC 3339 time with its zone, such as '
                '"2025-01-31T00:00:00Z"'
            ),
        ),
        (
            {"start": "2025-01-31"},
            '5: pipelines.orders.source.start: a date is not a time: write "2025-01-31T00:00:00Z"',
        ),
        (
            {"start": "2025-01-31T00:00:00"},
            (
                '5: pipelines.orders.source.start: the time "2025-01-31T00:00:00" needs a zone: '
                '"2025-01-31T00:00:00Z" is UTC'
            ),
        ),
        (
            {"start": "'2025-13-31T00:00:00Z'"},
            '5: pipelines.orders.source.start: "2025-13-31T00:00:00Z" is not a time: month must be in 1..12',
        ),
        ({"start": "{}"}, '5: pipelines.orders.source.start: names no partition: { "<topic>-partition-0" = "12:34" }'),
        (
            {"start": "{ other = '1:2' }"},
            "5: pipelines.orders.source.start.other: is not a partition of a topic of this pipeline",
        ),
        (
            {"topics_pattern": "'a.*'"},
            "6: pipelines.orders.source.topics_pattern: topics is given too: use one of them",
        ),
        (
            {"metadata_max_age": "'1m'"},
            "6: pipelines.orders.source.metadata_max_age: is not supported for pulsar: it is a key for kafka and tank",
        ),
        (
            {"auth": "{ user = 'a', password = 'c', token = 'b' }"},
            "6: pipelines.orders.source.auth.user: token is given too: use one of them",
        ),
        ({"auth": "{ user = 'a' }"}, "6: pipelines.orders.source.auth.user: needs password or password_file"),
        (
            {"auth": "{ password_file = 'a' }"},
            "6: pipelines.orders.source.auth.password_file: needs user",
        ),
        (
            {"auth": "{ user = 'a', password = 'b', password_file = 'c' }"},
            "6: pipelines.orders.source.auth.password_file: password is given too: use one of them",
        ),
        (
            {"auth": "{ user = 'a:b', password = 'c' }"},
            "6: pipelines.orders.source.auth.user: contains a character that is not allowed in a user name",
        ),
        (
            {"auth": "{ user = 'a', password = 'b:c' }"},
            "6: pipelines.orders.source.auth.password: holds a colon: Pulsar takes user:password apart there",
        ),
        (
            {"auth": "{}"},
            "6: pipelines.orders.source.auth: is empty: remove it, or add token, token_file, user, oauth2 or provider",
        ),
        ({"auth": "{ oauth2 = 'x' }"}, "6: pipelines.orders.source.auth.oauth2: must be a table, not a string"),
        (
            {"auth": "{ oauth2 = { key_file = 'a', client_secret = 'c' } }"},
            "6: pipelines.orders.source.auth.oauth2.client_secret: is already in key_file, which is given too",
        ),
        (
            {"auth": "{ oauth2 = { issuer_url = 'https://a', client_id = 'b' } }"},
            "6: pipelines.orders.source.auth.oauth2.client_id: needs client_secret or client_secret_file",
        ),
        (
            {"auth": "{ oauth2 = { key_file = 'a', issuer_url = 'http://login.example.com' } }"},
            (
                "6: pipelines.orders.source.auth.oauth2.issuer_url: must be https://: the secret would cross the "
                "network unencrypted"
            ),
        ),
        (
            {"auth": "{ oauth2 = { key_file = 'a', issuer_url = 'https://me:secret@a' } }"},
            '6: pipelines.orders.source.auth.oauth2.issuer_url: must be a URL such as "https://login.example.com"',
        ),
        (
            {"auth": "{ oauth2 = { key_fil = 'a', issuer_url = 'https://a', client_id = 'b', client_secret = 'c' } }"},
            '6: pipelines.orders.source.auth.oauth2.key_fil: unknown key, did you mean "key_file"?',
        ),
        ({"tls": "{}"}, "6: pipelines.orders.source.tls: needs an encrypted connection: pulsar+ssl:// in url"),
        (
            {"url": "'pulsar+ssl://a'", "tls": "{ verify = false, server_name = 'b' }"},
            "6: pipelines.orders.source.tls.server_name: has no effect with verify = false",
        ),
        (
            {"url": "'pulsar+ssl://a'", "tls": "{ verify = 'no' }"},
            "6: pipelines.orders.source.tls.verify: must be true or false, not a string",
        ),
        ({"incarnation": "-1"}, "6: pipelines.orders.source.incarnation: must be at least 0, not -1"),
        ({"incarnation": "true"}, "6: pipelines.orders.source.incarnation: must be a whole number, not a boolean"),
        (
            {"on_corrupt": "'skip'"},
            '6: pipelines.orders.source.on_corrupt: must be "dead_letter" or "stop", not "skip"',
        ),
        ({"subscripton": "'x'"}, '6: pipelines.orders.source.subscripton: unknown key, did you mean "subscription"?'),
        ({"grop": "'x'"}, '6: pipelines.orders.source.grop: unknown key, did you mean "group"?'),
        ({"qqq": "'x'"}, "6: pipelines.orders.source.qqq: unknown key"),
        # A key that one table has, in another one.
        ({"roll": "{}"}, "6: pipelines.orders.source.roll: unknown key here: it is a key of [pipelines.orders.sink]"),
        (
            {"idle": "'1s'"},
            "6: pipelines.orders.source.idle: unknown key here: it is a key of [pipelines.orders.sink.roll]",
        ),
        ({"memory": "'1GiB'"}, "6: pipelines.orders.source.memory: unknown key here: it is a key of [daemon]"),
        (
            {"compression": "'zstd'"},
            "6: pipelines.orders.source.compression: unknown key here: it is a key of [pipelines.orders.sink]",
        ),
    ],
)
def test_mistakes_in_a_source(keys: dict[str, str], message: str) -> None:
    assert problem(source(**keys)) == f"f.toml:{message}"


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        ({"path": ""}, "6: pipelines.orders.sink.path: is required: the folder for the files"),
        ({"path": "''"}, "8: pipelines.orders.sink.path: is empty"),
        (
            {"type": ""},
            (
                "6: pipelines.orders.sink.type: is required: parquet, arrow, jsonl, delta, iceberg, postgresql, "
                "stdout, discard, the name of a system or of a plug-in"
            ),
        ),
        (
            {"type": "'elsewhere'"},
            (
                '7: pipelines.orders.sink.type: no sink is called "elsewhere": known are parquet, arrow, jsonl, '
                "delta, iceberg, postgresql, stdout, discard, pulsar, kafka, tank, tubemq"
            ),
        ),
        (
            {"compression": "'zip'"},
            '9: pipelines.orders.sink.compression: parquet has no compression "zip", did you mean "gzip"?',
        ),
        (
            {"compression": "'xyz'", "type": "'arrow'"},
            '9: pipelines.orders.sink.compression: arrow has no compression "xyz": known are zstd, lz4, none',
        ),
        ({"compression": "'zstd:23'"}, '9: pipelines.orders.sink.compression: "zstd:23": the level of zstd is 1 to 22'),
        ({"compression": "'zstd:'"}, '9: pipelines.orders.sink.compression: "zstd:": the level of zstd is 1 to 22'),
        ({"compression": "'lz4:1'"}, '9: pipelines.orders.sink.compression: lz4 has no levels: write "lz4"'),
        ({"columns": "[]"}, "9: pipelines.orders.sink.columns: names no column: remove it to keep all columns"),
        (
            {"columns": "['x']"},
            '9: pipelines.orders.sink.columns[0]: "x" is not a column: known are ' + ", ".join(COLUMNS),
        ),
        (
            {"split": "'partitions'"},
            (
                '9: pipelines.orders.sink.split: must be "none", "topic" or "partition", not "partitions", did you '
                "mean "
                '"partition"?'
            ),
        ),
        (
            {"partition_by": "1"},
            (
                '9: pipelines.orders.sink.partition_by: must be "none", "day", "hour" or a column such as '
                '{ column = "country" }, not a number'
            ),
        ),
        ({"writers": "0"}, "9: pipelines.orders.sink.writers: must be at least 1, not 0"),
        ({"roll": "5"}, "9: pipelines.orders.sink.roll: must be a table, not a number"),
        ({"roll": "{ age = '0s' }"}, "9: pipelines.orders.sink.roll.age: must be greater than zero"),
        ({"options": "{}"}, '9: pipelines.orders.sink.options: unknown key, did you mean "positions"?'),
        ({"create": "1"}, "9: pipelines.orders.sink.create: must be true or false, not a number"),
    ],
)
def test_mistakes_in_a_sink(keys: dict[str, str], message: str) -> None:
    assert problem(sink(**keys)) == f"f.toml:{message}"


@pytest.mark.parametrize("key", ["path", "compression", "split", "partition_by", "create"])
def test_keys_that_only_files_have(key: str) -> None:
    values = {"path": "'/x'", "compression": "'none'", "split": "'topic'", "partition_by": "'day'", "create": "true"}
    told = problem(sink(type="'discard'", **({"path": ""} | {key: values[key]})))
    assert told == f"f.toml:8: pipelines.orders.sink.{key}: is for files: discard writes no files"


def test_two_shapes_in_one_folder() -> None:
    text = MINIMAL + MINIMAL.replace(".orders.", ".other.").replace('"/data/orders"', '"/data/../data/orders"')
    assert set(parse_config(text, {}).pipelines) == {"orders", "other"}
    assert problem(text + 'split = "topic"\ncolumns = ["key"]\n') == (
        "f.toml:18: pipelines.other.sink.path: is also the folder of pipeline orders, but with another columns and "
        "another split"
    )


_KAFKA = {"url": "'kafka://a'", "topics": "['orders']"}
_TUBEMQ = {"url": "'tubemq://a'", "topics": "['orders']", "start": "'earliest'"}


@pytest.mark.parametrize(
    ("table", "keys", "message"),
    [
        (sink, {"roll": "{ bytes = '17TiB' }"}, "sink.roll.bytes: is too large: at most 16TiB"),
        (
            sink,
            {"roll": "{ rows = 1000000000001 }"},
            "sink.roll.rows: must be at most 1000000000000, not 1000000000001",
        ),
        (sink, {"roll": "{ age = '36501d' }"}, 'sink.roll.age: "36501d" is too long: at most 36500d'),
        (
            sink,
            {"roll": "{ idle = '10000000000000000000s' }"},
            'sink.roll.idle: "10000000000000000000s" is too long: at most 36500d',
        ),
        (sink, {"writers": "2147483648"}, "sink.writers: must be at most 2147483647, not 2147483648"),
        (source, {"priority_level": "2147483648"}, "source.priority_level: must be at most 2147483647, not 2147483648"),
        (
            source,
            {"incarnation": "9223372036854775808"},
            "source.incarnation: must be at most 9223372036854775807, not 9223372036854775808",
        ),
        (
            source,
            _TUBEMQ | {"incarnation": "{ orders = 10001 }"},
            "source.incarnation.orders: must be at most 10000, not 10001",
        ),
        *(
            (
                source,
                _KAFKA | {key: "'25d'"},
                f"source.{key}: is too long: at most 24d, which is all that the protocol can say",
            )
            for key in ("session_timeout", "rebalance_timeout", "fetch_max_wait")
        ),
        *(
            (
                source,
                _KAFKA | {key: "'2GiB'"},
                f"source.{key}: is too large: at most 2147483647 bytes, which is all that the protocol can say",
            )
            for key in ("fetch_max_bytes", "fetch_partition_bytes")
        ),
        (
            source,
            _KAFKA | {"fetch_min_bytes": "2147483648"},
            "source.fetch_min_bytes: must be at most 2147483647, not 2147483648",
        ),
        (
            source,
            _KAFKA | {"metadata_max_age": "'36501d'"},
            'source.metadata_max_age: "36501d" is too long: at most 36500d',
        ),
    ],
)
def test_numbers_that_cannot_be(table: Callable[..., str], keys: dict[str, str], message: str) -> None:
    place, _, told = problem(table(**keys)).partition(" ")
    assert place.startswith("f.toml:")
    assert told == f"pipelines.orders.{message}"


def test_memory_that_cannot_be() -> None:
    assert problem("daemon.memory = '999TiB'\ndaemon.drain_timeout = '1d'\n" + MINIMAL) == (
        "f.toml:1: daemon.memory: is too large: at most 16TiB"
    )
    assert problem("daemon.drain_timeout = '36501d'\n" + MINIMAL) == (
        'f.toml:1: daemon.drain_timeout: "36501d" is too long: at most 36500d'
    )


def test_a_start_far_behind_is_earliest() -> None:
    config = parse_config(source(start="'-40000d'"), {})
    assert config.pipelines["orders"].source.start.kind == "earliest"


def test_memory_that_cannot_do() -> None:
    assert problem('daemon.memory = "47MiB"\n' + sink(writers="2")) == (
        "f.toml:1: daemon.memory: 47MiB is too little: 1 pipeline with 2 writers in all needs at least 48MiB"
    )
    two = MINIMAL + MINIMAL.replace(".orders.", ".other.")
    assert problem('daemon.memory = "63MiB"\n' + two) == (
        "f.toml:1: daemon.memory: 63MiB is too little: 2 pipelines with 2 writers in all need at least 64MiB"
    )
    assert parse_config('daemon.memory = "64MiB"\n' + two, {}).daemon.memory == 64 * 2**20


def test_keys_of_what_a_system_does_not_have() -> None:
    """A key for a group, a login or TLS is one mistake, which names the systems that have it and the way out."""
    keys = {"url": "'toy://h'", "topics": "['t']", "auth": "{ user = 'a', tokn = 'b' }", "tls": "{ key = 'x' }"}
    told = "is not supported for toy: it is a key for pulsar, kafka and tubemq"
    rest = [
        f"f.toml:6: pipelines.orders.source.auth: {told}",
        f"f.toml:7: pipelines.orders.source.tls: {told}; the protocol has no TLS, use a tunnel",
    ]
    text = source(**keys)
    assert problems(text) == [f"f.toml:4: pipelines.orders.source.subscription: {told}", *rest]
    text = text.replace("subscription =", "group =")
    assert problems(text) == [f"f.toml:4: pipelines.orders.source.group: {told}", *rest]
    (encrypted, *_) = problems(source(url="'toy+ssl://h'"))
    assert encrypted == 'f.toml:2: pipelines.orders.source.url: "toy+ssl://": Toy has no TLS, use toy://'


@pytest.mark.parametrize(("url", "word"), [("pulsar", "subscription"), ("kafka", "group"), ("tubemq", "group")])
def test_a_group_is_named_as_the_file_or_the_system_does(url: str, word: str) -> None:
    text = source(url=f"'{url}://h'", topics="['t']")
    lines = [line for line in text.splitlines() if not line.startswith("subscription")]
    (missing,) = problems("\n".join(lines))
    assert missing.endswith(f".source.{word}: is required: the name under which the brokers keep the progress")
    for written in ("subscription", "group"):
        (wrong,) = problems("\n".join([*lines[:3], f"{written} = 5", *lines[3:]]))
        assert wrong == f"f.toml:4: pipelines.orders.source.{written}: must be a string, not a number"


def test_a_connection_without_tls() -> None:
    with pytest.raises(ConfigError, match="tls: is not supported for toy: it is a key for pulsar, kafka and tubemq"):
        parse_connection({"url": "toy://h", "tls": {"ca": "x"}})


def test_an_unknown_system_is_told_of_the_positions_of_no_system() -> None:
    """The key ``start`` of a source whose URL is wrong: an example of positions would be that of another system."""
    text = MINIMAL.replace("pulsar://", "rabbit://").replace('start = "earliest"\n', "")
    (found,) = [each for each in problems(text) if "start" in each]
    assert "or a table of positions by partition (what follows that position)" in found


@pytest.mark.parametrize(
    "url", ["landing-2:8650", "ftp://landing-2", "http://me:x@landing-2:8650", "javascript:alert(1)"]
)
def test_peers_are_urls_of_pages(url: str) -> None:
    text = f'[daemon]\npeers = ["http://landing-1:8650", "{url}"]\n'
    assert any('daemon.peers[1]: must be a URL such as "http://landing-2:8650"' in each for each in problems(text))
