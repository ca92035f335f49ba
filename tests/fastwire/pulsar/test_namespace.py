"""Patterns of topics, the hash of a list, the commands about both, and what helps against which error."""

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from fastwire.grammar import parse_name_pattern
from fastwire.pulsar import pulsar_pb2 as pb
from fastwire.pulsar.format.command import decode_command, encode_command
from fastwire.pulsar.format.server_error import Remedy, remedy
from fastwire.pulsar.names.namespace import list_topics, topics_hash, unwatch, watch
from fastwire.pulsar.names.pattern import is_system_topic, parse_pattern
from fastwire.pulsar.names.topic import parse_topic
from fastwire.pulsar.protocol.request import BrokerError


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("orders-.*", "persistent://public/default/orders-.*"),
        ("acme/sales/(a|b)", "persistent://acme/sales/(a|b)"),
        ("persistent://acme/sales.eu/.*", "persistent://acme/sales.eu/.*"),
    ],
)
def test_patterns_have_a_full_form_like_topics(text: str, shown: str) -> None:
    assert str(parse_pattern(text)) == shown
    assert parse_pattern(shown) == parse_pattern(text)


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("non-persistent://a/b/.*", "only persistent topics keep positions"),
        ("persistent://a/.*", "a pattern is TENANT/NAMESPACE/REGEX"),
        ("persistent://.*", "a pattern is TENANT/NAMESPACE/REGEX"),
        ("a/b/c/.*", "no name of a topic holds a /"),
        ("a/b*/.*", "tenant and namespace are names, not patterns"),
        ("a/b/", 'the regular expression is empty; "a/b/[.][*]" means all topics'),
        ("a/b/(x", "not a regular expression: missing [)]"),
        ("", "is empty"),
    ],
)
def test_bad_patterns_say_what_is_wrong(text: str, what: str) -> None:
    with pytest.raises(ValueError, match=what):
        parse_pattern(text)


def test_the_whole_local_name_must_match() -> None:
    pattern = parse_pattern("a/b/x.y|z")
    names = ["x.y", "xay", "z", "zz", "x.y-partition-3", "z-partition-03", "__change_events"]
    assert [name for name in names if pattern.matches(parse_topic(f"a/b/{name}"))] == [
        "x.y", "xay", "z", "x.y-partition-3"
    ]  # fmt: skip
    assert not pattern.matches(parse_topic("a/c/z"))
    assert not pattern.matches(parse_topic("non-persistent://a/b/z"))


def test_topics_of_the_broker_itself_are_never_meant() -> None:
    everything = parse_pattern(".*")
    for name in (
        "__change_events",
        "__change_events-partition-1",
        "__transaction_buffer_snapshot",
        "__transaction_buffer_snapshot_segments-partition-0",
        "__transaction_log_0",
        "orders-sub__transaction_pending_ack",
    ):
        assert is_system_topic(parse_topic(name))
        assert not everything.matches(parse_topic(name))
    assert everything.matches(parse_topic("__mine"))


def test_what_is_chosen_of_a_list() -> None:
    names = ["persistent://a/b/x", "persistent://a/b/x-partition-0", "persistent://a/cluster/b/x", "persistent://a/b/y"]
    assert parse_pattern("a/b/x").chosen(names) == {parse_topic(names[0]), parse_topic(names[1])}


@pytest.mark.parametrize(
    ("local", "asked"),
    [
        ("orders-.*", "orders-.*"),
        (r"a\.b[0-9x]+", r"a\.b[0-9x]+"),
        ("a|b", "(?:a|b)"),
        # Where the broker might understand something else, or does not look at all, it is asked for everything.
        ("(?!x).*", ".*"),
        ("a++", ".*"),
        (r"\d+", ".*"),
        ("[a[b]]", ".*"),
        ("x{2}", ".*"),
        ("o" * 45 + ".*", ".*"),
    ],
)
def test_the_broker_is_asked_for_no_less_than_what_is_meant(local: str, asked: str) -> None:
    assert parse_pattern(f"t/n/{local}").wire == f"t/n/{asked}"


@pytest.mark.parametrize("local", ["[[", "[[a]b", "[a--b]", "[a&&b]"])
def test_a_set_that_may_be_nested_is_refused(local: str) -> None:
    with pytest.raises(ValueError, match=r"not a regular expression: Possible \w+ \w+"):
        parse_pattern(f"t/n/{local}.*")
    with pytest.raises(ValueError, match=r"not a regular expression: "):
        parse_name_pattern(local)


@given(st.text(max_size=30))
@example("[[")
def test_any_pattern_is_understood_or_refused(text: str) -> None:
    try:
        pattern = parse_pattern(text)
    except ValueError:
        return
    assert parse_pattern(str(pattern)) == pattern
    assert len(pattern.wire) <= 50 or pattern.wire.endswith("/.*")


def test_the_hash_of_the_specification() -> None:
    assert topics_hash(["persistent://public/default/b", "persistent://public/default/a"]) == "c7559e98"
    assert topics_hash([]) == "00000000"
    # Code units of UTF-16, not code points: a surrogate sorts before U+FFFD.
    grin, other = "\N{GRINNING FACE}", "\N{REPLACEMENT CHARACTER}"
    assert topics_hash([other, grin]) == topics_hash([f"{grin},{other}"])


def test_the_commands_about_topic_lists() -> None:
    pattern = parse_pattern("a/b/x.*")
    listed = decode_command(encode_command(list_topics(pattern, "abcd")(7))[8:]).getTopicsOfNamespace
    assert (listed.request_id, listed.namespace, listed.mode) == (7, "a/b", pb.CommandGetTopicsOfNamespace.PERSISTENT)
    assert (listed.topics_pattern, listed.topics_hash) == ("a/b/x.*", "abcd")
    assert not list_topics(pattern, "")(7).getTopicsOfNamespace.HasField("topics_hash")
    watched = decode_command(encode_command(watch(pattern, 3, "abcd")(8))[8:]).watchTopicList
    assert (watched.request_id, watched.watcher_id, watched.namespace) == (8, 3, "a/b")
    assert (watched.topics_pattern, watched.topics_hash) == ("a/b/x.*", "abcd")
    assert not watch(pattern, 3, "")(8).watchTopicList.HasField("topics_hash")
    closed = decode_command(encode_command(unwatch(3)(9))[8:]).watchTopicListClose
    assert (closed.request_id, closed.watcher_id) == (9, 3)


def test_every_error_has_its_remedy() -> None:
    # The codes of the table in the specification, section 21.
    persons = {3, 4, 10, 11, 12, 15, 17, 18, 19, 21, 22, 24, 25}
    turns = {5, 16}
    codes = pb.ServerError.values()
    assert {code for code in codes if remedy(code) is Remedy.PERSON} == persons
    assert {code for code in codes if remedy(code) is Remedy.TURN} == turns
    assert remedy(999) is Remedy.PATIENCE
    assert BrokerError(pb.TopicNotFound, "").remedy is Remedy.PERSON
