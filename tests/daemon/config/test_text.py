"""Text in a configuration: sizes, times, addresses, placeholders, and the place of every key."""

import tomllib
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fastwire_daemon.config import (
    HttpAddress,
    format_duration,
    format_size,
    parse_duration,
    parse_size,
)
from fastwire_daemon.config.values.address import parse_http_address, parse_url
from fastwire_daemon.config.values.text import interpolate, key_lines


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("0", 0), ("17", 17), (17, 17), ("17B", 17), ("1kB", 1000), ("1 KiB", 1024), ("128MiB", 2**27),
        ("1.5GiB", 3 * 2**29), ("2GB", 2 * 10**9), ("1TiB", 2**40), ("128mib", 2**27), (" 1 MB ", 10**6),
    ],
)  # fmt: skip
def test_sizes(text: object, size: int) -> None:
    assert parse_size(text) == size


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", 'must be a size such as "128MiB", not ""'),
        ("lots", 'must be a size such as "128MiB", not "lots"'),
        ("-1MiB", 'must be a size such as "128MiB", not "-1MiB"'),
        ("128M", '"128M" can be read in two ways: write "128MiB" or "128MB"'),
        ("1PiB", '"1PiB" has an unknown unit: the units are B, KB, MB, GB, TB, KiB, MiB, GiB or TiB'),
        (-1, "a size cannot be negative, not -1"),
        (1.5, 'must be a size such as "128MiB", not a number'),
        (True, 'must be a size such as "128MiB", not a boolean'),
        ([1], 'must be a size such as "128MiB", not an array'),
    ],
)
def test_bad_sizes(text: object, message: str) -> None:
    with pytest.raises(ValueError) as caught:
        parse_size(text)
    assert str(caught.value) == message


@given(st.integers(0, 2**50))
def test_a_size_that_is_shown_exactly_can_be_read_again(size: int) -> None:
    text = format_size(size)
    if "." not in text:
        assert parse_size(text) == size
    else:
        assert abs(parse_size(text) - size) <= 2**20 / 10


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("30s", 30),
        ("500ms", 0.5),
        ("5m", 300),
        ("5min", 300),
        ("1h30m", 5400),
        ("1h 30m", 5400),
        ("2d", 172_800),
        ("0s", 0),
    ],
)
def test_times(text: str, seconds: float) -> None:
    assert parse_duration(text) == seconds
    assert parse_duration(format_duration(seconds)) == seconds


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (60, 'needs a unit: write "60s" for seconds'),
        ("60", '"60" needs a unit: write "60s" for seconds'),
        ("", 'must be a time such as "30s", not ""'),
        ("soon", 'must be a time such as "30s", not "soon"'),
        ("1h soon", 'must be a time such as "30s", not "1h soon"'),
        ("3 weeks", '"3 weeks" has an unknown unit: the units are ms, s, m, h or d'),
        (True, 'must be a time such as "30s", not a boolean'),
        ("36500d 1s", '"36500d 1s" is too long: at most 36500d'),
    ],
)
def test_bad_times(text: object, message: str) -> None:
    with pytest.raises(ValueError) as caught:
        parse_duration(text)
    assert str(caught.value) == message


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("pulsar://h", "pulsar://h:6650"),
        ("pulsar+ssl://h", "pulsar+ssl://h:6651"),
        ("PULSAR://h:1/path?x", "pulsar://h:1"),
        ("pulsar://h1:1,h2,[fe80::1%eth0]:3", "pulsar://h1:1,h2:6650,[fe80::1%eth0]:3"),
        ("pulsar://a;b", "pulsar://a:6650,b:6650"),
        ("pulsar+ssl://[::1]", "pulsar+ssl://[::1]:6651"),
    ],
)
def test_service_urls(text: str, shown: str) -> None:
    url = parse_url(text)
    assert str(url) == shown
    assert parse_url(str(url)) == url
    assert url.tls == ("+ssl" in shown)


EXAMPLES = (
    '"pulsar://127.0.0.1:6650" or "kafka://127.0.0.1:9092" or "tank://127.0.0.1:11011" or "tubemq://127.0.0.1:8715"'
)
SCHEMES = "pulsar://, pulsar+ssl://, kafka://, kafka+ssl://, tank://, tubemq://, tubemq+ssl://"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            "localhost:6650",
            f'must be a URL such as {EXAMPLES}, not "localhost:6650"',
        ),
        ("pulsar://", "has no host"),
        ("pulsar://a,,b", "has no host"),
        ("pulsar://:6650", '":6650" has no host before the port'),
        ("pulsar://a b", '"a b" is not a host name'),
        ("pulsar://a:0", '"0" is not a port: 1 to 65535'),
        ("pulsar://a:65536", '"65536" is not a port: 1 to 65535'),
        ("pulsar://a:x", '"x" is not a port: 1 to 65535'),
        ("pulsar://::1", 'put an IPv6 address into brackets: "[::1]"'),
        ("pulsar://[::1", '"[::1" is not an IPv6 address in brackets'),
        ("pulsar://[::1]6650", '"[::1]6650" is not an IPv6 address in brackets'),
        ("pulsar://a,a:6650", "names the same host twice"),
        ("pulsar://a,pulsar://b", 'put several hosts after one scheme: "pulsar://host1:6650,host2:6650"'),
        ("pulsr://a", '"pulsr://" is not a known kind of broker, did you mean "pulsar"?'),
        (
            "amqp://a",
            f'"amqp://" is not a known kind of broker: known are {SCHEMES}',
        ),
        (
            "nats://a",
            f'"nats://" is not a known kind of broker: known are {SCHEMES}',
        ),
        ("http://a:8080", 'lookup by http:// is not supported: use the broker\'s own port, "pulsar://host:6650"'),
        ("https://a", 'lookup by https:// is not supported: use the broker\'s own port, "pulsar+ssl://host:6651"'),
        ("pulsar://me:hunter2@a", "a user or password does not belong into the URL: use the key auth"),
        (
            "me:hunter2@a",
            f"must be a URL such as {EXAMPLES}",
        ),
    ],
)
def test_bad_service_urls(text: str, message: str) -> None:
    with pytest.raises(ValueError) as caught:
        parse_url(text)
    assert str(caught.value) == message


@pytest.mark.parametrize(
    ("text", "address"),
    [
        ("", None),
        ("127.0.0.1:8650", HttpAddress("127.0.0.1", 8650)),
        ("[::1]:0", HttpAddress("::1", 0)),
        ("unix:/run/x", HttpAddress(path="/run/x")),
    ],
)
def test_http_addresses(text: str, address: HttpAddress | None) -> None:
    assert parse_http_address(text) == address
    assert address is None or str(address) == text


# -- ${…} ----------------------------------------------------------------------------------------------------


def test_what_comes_in_is_not_looked_at_again() -> None:
    made = interpolate({"a": ["${A}"], "b": {"c": "${A}${A}"}, "n": 1}, {"A": "${B}", "B": "no"})
    assert made.tree == {"a": ["${B}"], "b": {"c": "${B}${B}"}, "n": 1}
    assert not made.problems


# -- places ----------------------------------------------------------------------------------------------------------


def test_places_of_every_form_of_key() -> None:
    text = '''\
# a comment with = and [x]
top = 1
dotted."quo.ted".'lit' = """
several [lines]
= """
[table]  # comment
"esc\\u0041\\n" = "a # no comment \\" ]"
array = [
  1, # one
  [ "two", 'thr]ee' ],
  { in = "line", deep.er = 2 },
]
date = 2025-01-31 00:00:00Z
inline = { a = 1, b = [ { c = 1 } ] }
literal = \'\'\'
x\'\'\'
after = true

[[many]]
x = 1
[[many]]
x = 2
[many.sub]
y = 3
'''
    lines = key_lines(text)
    assert lines == {
        ("top",): 2,
        ("dotted",): 3,
        ("dotted", "quo.ted"): 3,
        ("dotted", "quo.ted", "lit"): 3,
        ("table",): 6,
        ("table", "escA\n"): 7,
        ("table", "array"): 8,
        ("table", "array", 0): 9,
        ("table", "array", 1): 10,
        ("table", "array", 1, 0): 10,
        ("table", "array", 1, 1): 10,
        ("table", "array", 2): 11,
        ("table", "array", 2, "in"): 11,
        ("table", "array", 2, "deep"): 11,
        ("table", "array", 2, "deep", "er"): 11,
        ("table", "date"): 13,
        ("table", "inline"): 14,
        ("table", "inline", "a"): 14,
        ("table", "inline", "b"): 14,
        ("table", "inline", "b", 0): 14,
        ("table", "inline", "b", 0, "c"): 14,
        ("table", "literal"): 15,
        ("table", "after"): 17,
        ("many",): 19,
        ("many", 0): 19,
        ("many", 0, "x"): 20,
        ("many", 1): 21,
        ("many", 1, "x"): 22,
        ("many", 1, "sub"): 23,
        ("many", 1, "sub", "y"): 24,
    }
    assert _paths(tomllib.loads(text)) == set(lines)


def _paths(tree: Any, path: tuple[Any, ...] = ()) -> set[tuple[Any, ...]]:
    found = {path} - {()}
    for key, value in tree.items() if isinstance(tree, dict) else enumerate(tree) if isinstance(tree, list) else ():
        found |= _paths(value, (*path, key))
    return found


_names = st.text("ab'\"#=[]{}, .\\\n", min_size=1, max_size=4)
_trees = st.recursive(
    st.integers() | st.booleans() | st.text("ab'\"#=[]{}, .\\\n$", max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(_names, inner, max_size=3),
    max_leaves=10,
)


def _toml(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, int):
        return str(value)
    if isinstance(value, str):
        return '"' + value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n") + '"'
    if isinstance(value, list):
        return "[\n" + "".join(f"{_toml(item)} , # ] }} \n" for item in value) + "]"
    return "{" + ", ".join(f"{_toml(key)} = {_toml(item)}" for key, item in value.items()) + "}"


@given(st.dictionaries(_names, _trees, max_size=4))
def test_every_key_of_any_document_has_a_place(tree: dict[str, Any]) -> None:
    text = "".join(f"{_toml(key)} = {_toml(value)}\n" for key, value in tree.items())
    assert tomllib.loads(text) == tree
    assert set(key_lines(text)) == _paths(tree)


@given(st.text("[]{}\"'=.,#ab\n \\", max_size=30))
def test_places_of_nonsense_end(text: str) -> None:
    key_lines(text)
