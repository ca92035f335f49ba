"""The configuration: what is read, what is refused, and the exact words of it."""

import datetime as dt
import tomllib
from collections.abc import Mapping
from importlib.metadata import EntryPoint
from importlib.resources import files
from pathlib import Path
from typing import Any

import pytest

from fastwire.columns.schema import column_names
from fastwire.position import Position
from fastwire.pulsar.topic import parse_service_url
from fastwire_daemon.config import (
    Config,
    ConfigError,
    EncryptionConfig,
    HttpAddress,
    available_memory,
    cores,
    json_schema,
    load_config,
    parse_config,
    parse_start,
)
from fastwire_daemon.config import fields as fields_module
from fastwire_daemon.config import reading as reading_module
from fastwire_daemon.pulsar.settings import decryptor
from tests.keys import key_pair

MINIMAL = """\
[pipelines.orders.source]
url = "pulsar://127.0.0.1:6650"
topics = ["persistent://public/default/orders"]
subscription = "fastwire-orders"
start = "earliest"

[pipelines.orders.sink]
type = "parquet"
path = "/data/orders"
"""


def problems(text: str, environ: Mapping[str, str] | None = None) -> list[str]:
    with pytest.raises(ConfigError) as caught:
        parse_config(text, environ or {}, name="f.toml")
    assert str(caught.value) == "\n".join(map(str, caught.value.problems))
    return [str(problem) for problem in caught.value.problems]


def problem(text: str, environ: Mapping[str, str] | None = None) -> str:
    (only,) = problems(text, environ)
    return only


def source(**keys: str) -> str:
    """The minimal file with more keys in its source, or others than usual."""
    return _table("source", {**_keys("source"), **keys}) + _table("sink", _keys("sink"))


def sink(**keys: str) -> str:
    return _table("source", _keys("source")) + _table("sink", {**_keys("sink"), **keys})


def _keys(table: str) -> dict[str, str]:
    values: dict[str, Any] = tomllib.loads(MINIMAL)["pipelines"]["orders"][table]
    return {key: repr(value) for key, value in values.items()}


def _table(name: str, keys: Mapping[str, str]) -> str:
    return f"[pipelines.orders.{name}]\n" + "".join(f"{key} = {value}\n" for key, value in keys.items() if value)


def one(text: str, environ: Mapping[str, str] | None = None) -> Any:
    return parse_config(text, environ or {}).pipelines["orders"]


# -- what is read ----------------------------------------------------------------------------------------------------


def test_a_minimal_file_and_its_defaults() -> None:
    config = parse_config(MINIMAL, {})
    assert config.daemon.memory == available_memory() // 4
    assert config.daemon.http == HttpAddress("127.0.0.1", 8650)
    assert config.daemon.drain_timeout == 30.0
    assert list(config.pipelines) == ["orders"]
    orders = config.pipelines["orders"]
    assert orders.source.url == parse_service_url("pulsar://127.0.0.1:6650")
    assert orders.source.topics == ("persistent://public/default/orders",)
    assert orders.source.subscription == "fastwire-orders"
    assert orders.source.subscription_type == "failover"
    assert orders.source.start.kind == "earliest"
    assert orders.source.auth.token is None
    assert orders.source.auth.token_file is None
    assert not orders.source.auth.given
    assert orders.source.tls.verify is True
    assert orders.source.cluster_name == "127.0.0.1:6650"
    assert orders.source.incarnation == 0
    assert orders.source.on_truncation == "stop"
    assert orders.source.on_corrupt == "divert"
    assert orders.sink.type == "parquet"
    assert orders.sink.is_dataset
    assert orders.sink.path == Path("/data/orders")
    assert orders.sink.compression == "zstd:1"
    assert orders.sink.columns is None
    assert orders.sink.split == orders.sink.partition_by == "none"
    assert (orders.sink.roll.bytes, orders.sink.roll.rows) == (128 * 2**20, 5_000_000)
    assert (orders.sink.roll.age, orders.sink.roll.idle) == (60.0, 10.0)
    assert orders.sink.writers == min(2, cores())
    assert orders.sink.create is False


def test_every_key() -> None:
    config = parse_config(
        """
        [daemon]
        memory = "1GiB"
        http = "unix:/run/fastwire/http.sock"
        drain_timeout = "1m30s"

        [pipelines.orders.source]
        url = "pulsar+ssl://a,b:7000;[::1]"
        topics = ["orders", "t/n/refunds"]
        group = "g"
        subscription_type = "key_shared"
        start = { "orders-partition-0" = "12:34", "persistent://t/n/refunds" = "-1:-1" }
        auth = { token_file = "/etc/fastwire/token" }
        tls = { ca = "ca.pem", cert = "cert.pem", key = "key.pem", verify = false }
        cluster = "eu"
        incarnation = 3
        on_truncation = "continue"
        on_corrupt = "stop"

        [pipelines.orders.sink]
        type = "jsonl"
        path = "data"
        compression = "gzip:9"
        columns = ["value", "key"]
        split = "partition"
        partition_by = "hour"
        roll = { bytes = "1MB", rows = 7, age = "2h", idle = "500ms" }
        writers = 3
        create = true
        """,
        {},
    )
    assert config.daemon.memory == 2**30
    assert config.daemon.http == HttpAddress(path="/run/fastwire/http.sock")
    assert config.daemon.drain_timeout == 90.0
    got = config.pipelines["orders"].source
    assert got.url == parse_service_url("pulsar+ssl://a:6651,b:7000,[::1]:6651")
    assert got.topics == ("persistent://public/default/orders", "persistent://t/n/refunds")
    assert (got.subscription, got.subscription_type) == ("g", "key_shared")
    assert got.start.kind == "positions"
    assert got.start.positions == {
        "persistent://public/default/orders-partition-0": Position(12, 34),
        "persistent://t/n/refunds": Position(-1, -1),
    }
    assert got.auth.token_file == Path("/etc/fastwire/token")
    assert (got.tls.ca, got.tls.cert, got.tls.key) == (Path("ca.pem"), Path("cert.pem"), Path("key.pem"))
    assert got.tls.verify is False
    assert (got.cluster_name, got.incarnation) == ("eu", 3)
    assert (got.on_truncation, got.on_corrupt) == ("continue", "stop")
    out = config.pipelines["orders"].sink
    assert (out.type, out.path, out.compression) == ("jsonl", Path("data"), "gzip:9")
    assert out.columns == ("value", "key")
    assert (out.split, out.partition_by, out.writers, out.create) == ("partition", "hour", 3, True)
    assert (out.roll.bytes, out.roll.rows, out.roll.age, out.roll.idle) == (1_000_000, 7, 7200.0, 0.5)


def test_models_are_frozen() -> None:
    config = parse_config(MINIMAL, {})
    with pytest.raises(ValueError, match="frozen"):
        config.daemon.memory = 1  # type: ignore[misc]


@pytest.mark.parametrize("name", sorted(file.name for file in files("fastwire_daemon.conf").iterdir()))
def test_the_samples_are_good(name: str) -> None:
    if name.endswith(".toml"):
        text = (files("fastwire_daemon.conf") / name).read_text()
        environ = {"PULSAR_TOKEN": "x", "CREDENTIALS_DIRECTORY": "/run/credentials"}
        assert parse_config(text, environ).pipelines


def test_a_config_knows_its_file(tmp_path: Path) -> None:
    path = tmp_path / "c.toml"
    path.write_text(MINIMAL)
    assert load_config(path, {}).path == path
    assert parse_config(MINIMAL, {}).path is None


@pytest.mark.parametrize(
    ("memory", "writers"), [("128MiB", 1), ("255MiB", 1), ("256MiB", min(2, cores())), ("1GiB", min(2, cores()))]
)
def test_writers_follow_memory(memory: str, writers: int) -> None:
    assert parse_config(f'daemon.memory = "{memory}"\n' + MINIMAL, {}).pipelines["orders"].sink.writers == writers


@pytest.mark.parametrize(
    ("sink_type", "compression"), [("parquet", "zstd:1"), ("arrow", "zstd:1"), ("jsonl", "none"), ("stdout", None)]
)
def test_compression_follows_the_type(sink_type: str, compression: str | None) -> None:
    path = "" if sink_type == "stdout" else "'/data'"
    made = one(sink(type=f"'{sink_type}'", path=path)).sink
    assert made.compression == compression
    assert made.is_dataset == (sink_type != "stdout")


def test_plain_sinks_have_one_writer() -> None:
    for sink_type in ("stdout", "discard"):
        assert one(sink(type=f"'{sink_type}'", path="")).sink.writers == 1


@pytest.mark.parametrize(
    ("text", "moment"),
    [
        ('"2025-01-31T00:00:00Z"', dt.datetime(2025, 1, 31, tzinfo=dt.UTC)),
        ('"2025-01-31t02:00:00.250+02:00"', dt.datetime(2025, 1, 31, 0, 0, 0, 250_000, tzinfo=dt.UTC)),
        ("2025-01-31T00:00:00Z", dt.datetime(2025, 1, 31, tzinfo=dt.UTC)),
        ("2025-01-31 01:00:00+01:00", dt.datetime(2025, 1, 31, tzinfo=dt.UTC)),
    ],
)
def test_start_at_a_time(text: str, moment: dt.datetime) -> None:
    start = one(source(start=text)).source.start
    assert (start.kind, start.time) == ("time", moment)
    assert start.time.utcoffset() == dt.timedelta(0)


def test_start_has_a_text() -> None:
    assert str(parse_start("latest")) == "latest"
    assert str(parse_start("2025-01-31T02:00:00+02:00")) == "2025-01-31T00:00:00Z"
    assert str(parse_start({"a-partition-0": "1:2", "a-partition-1": "1:2"})) == "positions of 2 partitions"


# -- ${…} ------------------------------------------------------------------------------------------------------------


def test_environment_and_files_go_into_strings(tmp_path: Path) -> None:
    (tmp_path / "name").write_text("from-file\n")
    text = source(
        url="'pulsar://${HOST}:${PORT:-7000}'",
        subscription="'${EMPTY:-default}-$${plain}-$x-${file:" + str(tmp_path / "name") + "}'",
        incarnation="'${N}'",
    )
    got = one(text, {"HOST": "broker", "EMPTY": "", "N": "4"}).source
    assert str(got.url) == "pulsar://broker:7000"
    assert got.subscription == "default-${plain}-$x-from-file"
    assert got.incarnation == 4


def test_text_cannot_become_structure() -> None:
    """The file is parsed first: a variable cannot smuggle in keys."""
    assert one(source(subscription="'${X}'"), {"X": 'a"\nstart = "latest'}).source.start.kind == "earliest"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("${NO_SUCH}", 'environment variable NO_SUCH is not set (a default is written "${NO_SUCH:-default}")'),
        ("${file:/no/such}", "cannot read /no/such: No such file or directory"),
        ("${}", '"${}" is none of ${NAME}, ${NAME:-default}, ${file:/path}'),
        ("${1A}", '"${1A}" is none of ${NAME}, ${NAME:-default}, ${file:/path}'),
        ("${A", '"${" without a "}" behind it: write "$${" for a plain "${"'),
    ],
)
def test_bad_placeholders(text: str, message: str) -> None:
    assert problem(source(subscription=f"'{text}'")) == f"f.toml:4: pipelines.orders.source.subscription: {message}"


# -- secrets ---------------------------------------------------------------------------------------------------------


def test_a_token_is_shown_nowhere() -> None:
    config = parse_config(source(auth="{ token = '${TOKEN}' }"), {"TOKEN": " token:hunter2\n"})
    auth = config.pipelines["orders"].source.auth
    assert auth.token is not None and auth.token.get_secret_value() == "hunter2"
    for shown in (repr(config), str(config), config.model_dump_json(), repr(config.model_dump()), repr(auth)):
        assert "hunter2" not in shown


def test_a_token_is_not_in_errors() -> None:
    text = source(auth="{ token = '${TOKEN}', tokn = '${TOKEN}' }", subscription_type="'${TOKEN}'", url="'${TOKEN}'")
    told = "\n".join(problems(text, {"TOKEN": "hunter2"}))
    assert "hunter2" not in told
    assert told.splitlines() == [
        'f.toml:2: pipelines.orders.source.url: must be a URL such as "pulsar://127.0.0.1:6650", not "${TOKEN}"',
        'f.toml:6: pipelines.orders.source.auth.tokn: unknown key, did you mean "token"?',
        (
            'f.toml:7: pipelines.orders.source.subscription_type: must be "exclusive", "failover", "shared" or '
            '"key_shared", not "${TOKEN}"'
        ),
    ]


@pytest.mark.parametrize("token", ["hunter2\nhunter2", "hünter2", "", "   "])
def test_a_bad_token_is_refused_without_repeating_it(token: str) -> None:
    told = problem(source(auth="{ token = '${TOKEN}' }"), {"TOKEN": token})
    what = "holds characters that no token has" if token.strip() else "is empty"
    assert told == f"f.toml:6: pipelines.orders.source.auth.token: {what}"
    assert "unter2" not in told


def test_no_traceback_holds_a_secret() -> None:
    import traceback

    try:
        parse_config(source(auth="{ token = 'hunter2', token = 1 }"), {})
    except ConfigError as exc:
        told = "".join(traceback.format_exception(exc))
    try:
        parse_config(source(auth="'hunter2'"), {})
    except ConfigError as exc:
        told += "".join(traceback.format_exception(exc))
    assert "auth: must be a table, not a string" in told
    assert "hunter2" not in told.replace("hunter2', token = 1", "").replace("auth=\"'hunter2'\"", "")


def test_models_do_not_repeat_what_they_refuse() -> None:
    with pytest.raises(ValueError) as caught:
        Config.model_validate({"pipelines": {"hunter1": "hunter2"}})
    assert "hunter1" in str(caught.value)
    assert "hunter2" not in str(caught.value)


def test_no_secret_of_a_user_or_client_is_shown() -> None:
    config = parse_config(source(auth="{ user = 'me', password = 'hunter2' }"), {})
    oauth2 = "{ issuer_url = 'https://a', client_id = 'b', client_secret = 'hunter2' }"
    for shown in (config, parse_config(source(auth=f"{{ oauth2 = {oauth2} }}"), {})):
        assert "hunter2" not in f"{shown!r}{shown}{shown.model_dump_json()}{shown.model_dump()!r}"


# -- what is refused -------------------------------------------------------------------------------------------------


def test_all_mistakes_at_once_each_with_its_place() -> None:
    text = """\
sparks = {}
[daemon]
memory = "5M"
htp = ""
http = "127.0.0.1"

[pipelines.orders.source]
url = "tank://127.0.0.1:6650"
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
            "f.toml:7: pipelines.orders.source.start: is required, because no choice suits everybody: "
            '"earliest" (everything the topic holds), "latest" (only what is produced from the first start on), '
            'an RFC 3339 time such as "2025-01-31T00:00:00Z" (what was published since), '
            'or { "<topic>-partition-0" = "12:34" } (what follows that position)'
        ),
        (
            "f.toml:8: pipelines.orders.source.url: tank:// is not supported by this version, which reads "
            "pulsar:// and kafka://"
        ),
        "f.toml:11: pipelines.orders.source.topics[1]: topic 'a/b': a short name is TOPIC or TENANT/NAMESPACE/TOPIC",
        'f.toml:12: pipelines.orders.source.topics[2]: "orders" stands here twice',
        "f.toml:12: pipelines.orders.source.topics[3]: must be a string, not a number",
        (
            'f.toml:15: pipelines.orders.source.subscription_type: must be "exclusive", "failover", "shared" or '
            '"key_shared", not "failovr", did you mean "failover"?'
        ),
        "f.toml:16: pipelines.orders.source.auth.token_file: token stands here too: use one of them",
        "f.toml:16: pipelines.orders.source.auth.oauth2: token stands here too: use one of them",
        "f.toml:16: pipelines.orders.source.auth.oauth2.client_id: is required without key_file",
        "f.toml:16: pipelines.orders.source.auth.oauth2.issuer_url: is required without a key file that names it",
        "f.toml:17: pipelines.orders.source.tls.key: is the key of a certificate: cert is missing",
        'f.toml:17: pipelines.orders.source.tls.kye: unknown key, did you mean "key"?',
        'f.toml:20: pipelines.orders.sink.type: no sink is called "parqet", did you mean "parquet"?',
        "f.toml:21: pipelines.orders.sink.roll.bytes: must be more than nothing",
        "f.toml:21: pipelines.orders.sink.roll.rows: must be a whole number, not a string",
        'f.toml:21: pipelines.orders.sink.roll.age: needs a unit: write "60s" for seconds',
        'f.toml:21: pipelines.orders.sink.roll.idel: unknown key, did you mean "idle"?',
        "f.toml:23: pipelines.b.source: is required: a table [pipelines.NAME.source]",
        "f.toml:23: pipelines.b.sink: is required: a table [pipelines.NAME.sink]",
        'f.toml:25: pipelines."b c": a name holds letters, digits and _ . - only',
        'f.toml:25: pipelines."b c".source.url: is required: the broker, such as "pulsar://127.0.0.1:6650"',
        (
            'f.toml:25: pipelines."b c".source.subscription: is required: the name under which the broker keeps '
            "the progress"
        ),
        'f.toml:26: pipelines."b c".source.topics: must be an array such as ["x"]',
        (
            "f.toml:27: pipelines.\"b c\".source.start.b: '12' is not a position of pulsar: expected ledger:entry, for "
            "example 12:34, or -1:-1"
        ),
        'f.toml:31: pipelines."b c".sink.path: is for files: stdout has none',
        'f.toml:32: pipelines."b c".sink.columns[2]: "key" stands here twice',
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
        ({"subscription": "''"}, "4: pipelines.orders.source.subscription: is empty"),
        ({"subscription": "5"}, "4: pipelines.orders.source.subscription: must be a string, not a number"),
        ({"group": "'x'"}, "6: pipelines.orders.source.group: is an alias of subscription, which stands here too"),
        (
            {"start": "'erliest'"},
            (
                '5: pipelines.orders.source.start: must be "earliest" (everything the topic holds), "latest" (only '
                "what is "
                'produced from the first start on), an RFC 3339 time such as "2025-01-31T00:00:00Z" (what was '
                "published "
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
            "5: pipelines.orders.source.start.other: is no partition of a topic of this pipeline",
        ),
        (
            {"topics_pattern": "'a.*'"},
            "6: pipelines.orders.source.topics_pattern: topics stands here too: use one of them",
        ),
        (
            {"auth": "{ user = 'a', password = 'c', token = 'b' }"},
            "6: pipelines.orders.source.auth.user: token stands here too: use one of them",
        ),
        ({"auth": "{ user = 'a' }"}, "6: pipelines.orders.source.auth.user: needs password or password_file"),
        (
            {"auth": "{ password_file = 'a' }"},
            "6: pipelines.orders.source.auth.password_file: is of no use without user",
        ),
        (
            {"auth": "{ user = 'a', password = 'b', password_file = 'c' }"},
            "6: pipelines.orders.source.auth.password_file: password stands here too: use one of them",
        ),
        (
            {"auth": "{ user = 'a:b', password = 'c' }"},
            "6: pipelines.orders.source.auth.user: holds a character that no user has",
        ),
        (
            {"auth": "{ user = 'a', password = 'b:c' }"},
            "6: pipelines.orders.source.auth.password: holds a colon: Pulsar takes user:password apart there",
        ),
        (
            {"auth": "{}"},
            "6: pipelines.orders.source.auth: is empty: leave it out, or give token, token_file, user or oauth2",
        ),
        ({"auth": "{ oauth2 = 'x' }"}, "6: pipelines.orders.source.auth.oauth2: must be a table, not a string"),
        (
            {"auth": "{ oauth2 = { key_file = 'a', client_secret = 'c' } }"},
            "6: pipelines.orders.source.auth.oauth2.client_secret: key_file stands here too, and holds it",
        ),
        (
            {"auth": "{ oauth2 = { issuer_url = 'https://a', client_id = 'b' } }"},
            "6: pipelines.orders.source.auth.oauth2.client_id: needs client_secret or client_secret_file",
        ),
        (
            {"auth": "{ oauth2 = { key_file = 'a', issuer_url = 'http://login.example.com' } }"},
            (
                "6: pipelines.orders.source.auth.oauth2.issuer_url: must be https://: the secret would go over the "
                "network in the clear"
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
            "6: pipelines.orders.source.tls.server_name: is not looked at with verify = false",
        ),
        (
            {"url": "'pulsar+ssl://a'", "tls": "{ verify = 'no' }"},
            "6: pipelines.orders.source.tls.verify: must be true or false, not a string",
        ),
        ({"incarnation": "-1"}, "6: pipelines.orders.source.incarnation: must be at least 0, not -1"),
        ({"incarnation": "true"}, "6: pipelines.orders.source.incarnation: must be a whole number, not a boolean"),
        (
            {"on_corrupt": "'skip'"},
            '6: pipelines.orders.source.on_corrupt: must be "divert" or "stop", not "skip"',
        ),
        ({"subscripton": "'x'"}, '6: pipelines.orders.source.subscripton: unknown key, did you mean "subscription"?'),
        ({"grop": "'x'"}, '6: pipelines.orders.source.grop: unknown key, did you mean "group"?'),
        ({"qqq": "'x'"}, "6: pipelines.orders.source.qqq: unknown key"),
    ],
)
def test_mistakes_in_a_source(keys: dict[str, str], message: str) -> None:
    assert problem(source(**keys)) == f"f.toml:{message}"


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        ({"path": ""}, "6: pipelines.orders.sink.path: is required: the folder that the files go to"),
        ({"path": "''"}, "8: pipelines.orders.sink.path: is empty"),
        (
            {"type": ""},
            (
                "6: pipelines.orders.sink.type: is required: parquet, arrow, jsonl, stdout, discard or the name of a "
                "plug-in"
            ),
        ),
        (
            {"type": "'elsewhere'"},
            (
                '7: pipelines.orders.sink.type: no sink is called "elsewhere": known are parquet, arrow, jsonl, '
                "stdout, "
                "discard"
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
        ({"columns": "[]"}, "9: pipelines.orders.sink.columns: names no column: leave it out for all of them"),
        (
            {"columns": "['x']"},
            '9: pipelines.orders.sink.columns[0]: "x" is not a column: known are ' + ", ".join(column_names("pulsar")),
        ),
        (
            {"split": "'partitions'"},
            (
                '9: pipelines.orders.sink.split: must be "none", "topic" or "partition", not "partitions", did you '
                "mean "
                '"partition"?'
            ),
        ),
        ({"partition_by": "1"}, '9: pipelines.orders.sink.partition_by: must be "none", "day" or "hour", not a number'),
        ({"writers": "0"}, "9: pipelines.orders.sink.writers: must be at least 1, not 0"),
        ({"roll": "5"}, "9: pipelines.orders.sink.roll: must be a table, not a number"),
        ({"roll": "{ age = '0s' }"}, "9: pipelines.orders.sink.roll.age: must be more than nothing"),
        ({"options": "{}"}, "9: pipelines.orders.sink.options: unknown key"),
        ({"create": "1"}, "9: pipelines.orders.sink.create: must be true or false, not a number"),
    ],
)
def test_mistakes_in_a_sink(keys: dict[str, str], message: str) -> None:
    assert problem(sink(**keys)) == f"f.toml:{message}"


@pytest.mark.parametrize("key", ["path", "compression", "split", "partition_by", "create"])
def test_keys_that_only_files_have(key: str) -> None:
    values = {"path": "'/x'", "compression": "'none'", "split": "'topic'", "partition_by": "'day'", "create": "true"}
    told = problem(sink(type="'discard'", **({"path": ""} | {key: values[key]})))
    assert told == f"f.toml:8: pipelines.orders.sink.{key}: is for files: discard has none"


def test_two_shapes_in_one_folder() -> None:
    text = MINIMAL + MINIMAL.replace(".orders.", ".other.").replace('"/data/orders"', '"/data/../data/orders"')
    assert set(parse_config(text, {}).pipelines) == {"orders", "other"}
    assert problem(text + 'split = "topic"\ncolumns = ["key"]\n') == (
        "f.toml:18: pipelines.other.sink.path: is also the folder of pipeline orders, but with another columns and "
        "another split"
    )


def test_memory_that_cannot_do() -> None:
    assert problem('daemon.memory = "47MiB"\n' + sink(writers="2")) == (
        "f.toml:1: daemon.memory: 47MiB is too little: 1 pipeline with 2 writers in all needs at least 48MiB"
    )
    two = MINIMAL + MINIMAL.replace(".orders.", ".other.")
    assert problem('daemon.memory = "63MiB"\n' + two) == (
        "f.toml:1: daemon.memory: 63MiB is too little: 2 pipelines with 2 writers in all need at least 64MiB"
    )
    assert parse_config('daemon.memory = "64MiB"\n' + two, {}).daemon.memory == 64 * 2**20


# -- plug-ins --------------------------------------------------------------------------------------------------------


@pytest.fixture
def plugins(monkeypatch: pytest.MonkeyPatch) -> None:
    def entry_points(*, group: str) -> list[EntryPoint]:
        names = {"fastwire.sinks": ["stdout", "postgres"], "fastwire.encoders": ["parquet", "orc"]}
        return [EntryPoint(name, "x:y", group) for name in names[group]]

    monkeypatch.setattr("importlib.metadata.entry_points", entry_points)


@pytest.mark.usefixtures("plugins")
def test_a_plugin_sink_gets_what_is_not_ours() -> None:
    keys = {"path": "", "type": "'postgres'", "table": "'t'", "password": "'hunter2'", "columns": "['key']"}
    made = one(sink(**keys, roll="{ rows = 5 }", options="{ a = 1 }")).sink
    assert made.options == {"table": "t", "password": "hunter2", "options": {"a": 1}}
    assert (made.columns, made.roll.rows, made.writers, made.is_dataset) == (("key",), 5, 1, False)
    assert "hunter2" not in repr(made) + made.model_dump_json() + str(made.model_dump())


@pytest.mark.usefixtures("plugins")
def test_a_plugin_encoder_makes_a_dataset() -> None:
    made = one(sink(type="'orc'", compression="'zlib'")).sink
    assert made.is_dataset
    assert (made.compression, made.options) == ("zlib", {})
    assert one(sink(type="'orc'")).sink.compression is None
    assert problem(sink(type="'orc'", path="")).endswith("sink.path: is required: the folder that the files go to")
    assert problem(sink(type="'orc'", stripes="1")).endswith("sink.stripes: unknown key")


@pytest.mark.usefixtures("plugins")
def test_an_unknown_type_lists_plugins_too() -> None:
    assert problem(sink(type="'postgre'")).endswith('no sink is called "postgre", did you mean "postgres"?')
    assert problem(sink(type="'x'")).endswith("known are parquet, arrow, jsonl, stdout, discard, orc, postgres")


def test_compressions_are_those_of_the_encoders() -> None:
    from fastwire_daemon.encoders.arrow import ArrowEncoder
    from fastwire_daemon.encoders.base import Encoder, parse_compression
    from fastwire_daemon.encoders.jsonl import JsonlEncoder
    from fastwire_daemon.encoders.parquet import ParquetEncoder

    encoders: dict[str, type[Encoder]] = {"parquet": ParquetEncoder, "arrow": ArrowEncoder, "jsonl": JsonlEncoder}
    assert set(fields_module._CODECS) == set(encoders)
    for name, encoder in encoders.items():
        assert list(fields_module._CODECS[name]) == list(encoder.compressions)
        default = fields_module.default_compression(name)
        assert parse_compression(default, encoder.compressions) == parse_compression(None, encoder.compressions)
        for codec, span in fields_module._CODECS[name].items():
            levels = [""] if span is None else ["", f":{span[0]}", f":{span[1]}"]
            for level in levels:
                parse_compression(codec + level, encoder.compressions)
            for level in [":1"] if span is None else [f":{span[0] - 1}", f":{span[1] + 1}"]:
                with pytest.raises(ValueError):
                    parse_compression(codec + level, encoder.compressions)


# -- machine, schema -------------------------------------------------------------------------------------------------


def _group(root: Path, lines: str, limits: Mapping[str, str]) -> None:
    (root / "proc/self").mkdir(parents=True)
    (root / "proc/self/cgroup").write_text(lines)
    for name, text in limits.items():
        file = root / "sys/fs/cgroup" / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)


@pytest.mark.parametrize(
    ("lines", "limits", "expected"),
    [
        ("0::/a/b\n", {"a/b/memory.max": "max\n", "a/memory.max": "1048576\n"}, 2**20),
        ("0::/a/b\n", {"a/b/memory.max": "4096\n", "a/memory.max": "1048576\n"}, 4096),
        ("0::/outside/of/container\n", {"memory.max": "8192\n"}, 8192),
        ("4:memory,x:/a\n0::/\n", {"memory/a/memory.limit_in_bytes": "5000\n"}, 5000),
        ("0::/\n", {"memory.max": "max\n"}, None),
        ("4:memory:/\n", {"memory/memory.limit_in_bytes": "9223372036854771712\n"}, None),
    ],
)
def test_memory_of_the_control_group(
    tmp_path: Path, lines: str, limits: Mapping[str, str], expected: int | None
) -> None:
    _group(tmp_path, lines, limits)
    machine = available_memory(tmp_path / "nothing")
    assert available_memory(tmp_path) == (expected if expected is not None else machine)


def test_the_schema_knows_every_key() -> None:
    schema = json_schema()
    definitions = schema["$defs"]
    for name, model in _models().items():
        keys = set(definitions[name]["properties"]) - {"group"}
        assert keys == set(model.model_fields) - {"options"}, name
    assert set(definitions["SourceConfig"]["required"]) == {"url", "start"}
    assert definitions["SourceConfig"]["allOf"] == [
        {"oneOf": [{"required": ["subscription"]}, {"required": ["group"]}]},
        {"oneOf": [{"required": ["topics"]}, {"required": ["topics_pattern"]}]},
    ]
    assert definitions["SinkConfig"]["properties"]["columns"]["anyOf"][0]["items"]["enum"] == list(
        column_names("pulsar")
    )
    for name in _models():
        described = [key for key, value in definitions[name]["properties"].items() if "description" in value]
        assert described or name == "PipelineConfig"


def _models() -> dict[str, Any]:
    models = [reading_module._table_of(path) for path in _TABLES]
    return {model.__name__: model for model in models if model is not None}


_TABLES: tuple[tuple[str | int, ...], ...] = (
    ("daemon",),
    ("pipelines", "x"),
    ("pipelines", "x", "source"),
    ("pipelines", "x", "source", "auth"),
    ("pipelines", "x", "source", "tls"),
    ("pipelines", "x", "sink"),
    ("pipelines", "x", "sink", "roll"),
)


def test_encryption() -> None:
    keys = '{ private_keys = { "orders-key" = "/k.pem" }, on_failure = "consume" }'
    found = one(source(encryption=keys)).source.encryption
    assert (found.private_keys, found.on_failure) == ({"orders-key": Path("/k.pem")}, "consume")
    assert one(source()).source.encryption.on_failure == "fail"
    wrong = '{ private_key = {}, private_keys = { "k" = 5 }, on_failure = "ignore" }'
    found_problems = "\n".join(problems(source(encryption=wrong)))
    assert 'source.encryption.private_key: unknown key, did you mean "private_keys"?' in found_problems
    assert "source.encryption.private_keys.k" in found_problems
    assert 'must be "fail", "discard" or "consume"' in found_problems


def keys_from(**paths: Path) -> EncryptionConfig:
    return EncryptionConfig.model_validate({"private_keys": {name: str(path) for name, path in paths.items()}})


def test_private_key_files(tmp_path: Path) -> None:
    keys = key_pair("orders")
    good, bad = tmp_path / "good.pem", tmp_path / "bad.pem"
    good.write_bytes(keys.private)
    bad.write_bytes(keys.public)
    assert repr(decryptor(keys_from(orders=good))) == "Decryptor(orders)"
    assert decryptor(EncryptionConfig()) is None
    with pytest.raises(ConfigError) as caught:
        decryptor(keys_from(a=bad, b=tmp_path / "none.pem", orders=good))
    assert [problem.key for problem in caught.value.problems] == [
        "encryption.private_keys.a",
        "encryption.private_keys.b",
    ]
    assert "BEGIN" not in str(caught.value)
