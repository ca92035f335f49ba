"""Names of topics and addresses of brokers."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fastwire.pulsar.names.topic import Address, Topic, parse_address, parse_service_url, parse_topic, partition_index


@pytest.mark.parametrize(
    ("text", "full"),
    [
        ("orders", "persistent://public/default/orders"),
        ("acme/sales/orders", "persistent://acme/sales/orders"),
        ("persistent://acme/sales/orders", "persistent://acme/sales/orders"),
        ("non-persistent://a/b/c", "non-persistent://a/b/c"),
        ("persistent://a=b/c:d.e_f-g/ü$€", "persistent://a=b/c:d.e_f-g/ü$€"),
    ],
)
def test_short_and_full_names(text: str, full: str) -> None:
    assert str(parse_topic(text)) == full


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("a/b", "a short name is TOPIC or TENANT/NAMESPACE/TOPIC"),
        ("a/b/c/d", "a short name is TOPIC or TENANT/NAMESPACE/TOPIC"),
        ("persistent://a/b", "a full name is persistent://TENANT/NAMESPACE/TOPIC"),
        ("persistent://prop/cluster/ns/t", "old names with a cluster in them"),
        ("kafka://a/b/c", "unknown domain 'kafka'"),
        ("persistent://a b/c/d", "tenant 'a b'"),
        ("persistent://a/b!/d", "namespace 'b!'"),
        ("persistent://a/b/", "the name of the topic itself is empty"),
        ("", "the name of the topic itself is empty"),
        ("a\nb", "control characters"),
    ],
)
def test_bad_names_say_what_is_wrong(text: str, what: str) -> None:
    with pytest.raises(ValueError, match=what.replace("(", r"\(")):
        parse_topic(text)


@pytest.mark.parametrize(
    ("local", "index", "base"),
    [
        ("t", -1, "t"),
        ("t-partition-0", 0, "t"),
        ("t-partition-12", 12, "t"),
        ("t-partition-01", -1, "t-partition-01"),
        ("t-partition-", -1, "t-partition-"),
        ("t-partition--1", -1, "t-partition--1"),
        ("-partition-3", -1, "-partition-3"),
        ("t-partition-1-partition-2", 2, "t-partition-1"),
        ("t-partition-\N{ARABIC-INDIC DIGIT THREE}", -1, "t-partition-\N{ARABIC-INDIC DIGIT THREE}"),
    ],
)
def test_the_last_suffix_is_the_partition(local: str, index: int, base: str) -> None:
    topic = Topic("persistent", "a", "b", local)
    assert topic.partition == index == partition_index(local)
    assert topic.base.local == base


@given(st.integers(0, 100_000))
def test_a_partition_knows_where_it_belongs(index: int) -> None:
    topic = parse_topic("t")
    assert topic.of_partition(index).base == topic
    assert topic.of_partition(index).partition == index


def test_a_partition_has_no_partitions() -> None:
    with pytest.raises(ValueError):
        parse_topic("t-partition-1").of_partition(0)
    with pytest.raises(ValueError):
        parse_topic("t").of_partition(-1)


def test_service_urls() -> None:
    url = parse_service_url("pulsar://a,b:1;[::1]:7,[fe80::1%eth0]/path")
    assert [(one.host, one.port, one.tls) for one in url.addresses] == [
        ("a", 6650, False),
        ("b", 1, False),
        ("::1", 7, False),
        ("fe80::1%eth0", 6650, False),
    ]
    assert str(url) == "pulsar://a:6650,b:1,[::1]:7,[fe80::1%eth0]:6650"
    assert parse_service_url("pulsar+ssl://a").addresses == (Address("a", 6651, True),)


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("a:6650", "must be a URL such as"),
        ("kafka://a", "is not a known kind of broker"),
        ("http://a:8080", 'lookup by http:// is not supported: use .*"pulsar://host:6650"'),
        ("https://a", 'lookup by https:// is not supported: use .*"pulsar[+]ssl://host:6651"'),
        ("pulsar://", "has no host"),
        ("pulsar://a,,b", "has no host"),
        ("pulsar://a:0", '"0" is not a port'),
        ("pulsar://a:65536", "is not a port"),
        ("pulsar://a:+1", "is not a port"),
        ("pulsar://a:", '"" is not a port'),
        ("pulsar://::1:5", "put an IPv6 address into brackets"),
        ("pulsar://[::1", "is not an IPv6 address in brackets"),
        ("pulsar://[::1]x", "is not an IPv6 address in brackets"),
        ("pulsar://u@h", "a user or password does not belong"),
        ("pulsar://a,a:6650", "names the same host twice"),
    ],
)
def test_bad_urls_say_what_is_wrong(text: str, what: str) -> None:
    with pytest.raises(ValueError, match=what):
        parse_service_url(text)


def test_one_address() -> None:
    assert parse_address("pulsar+ssl://[::1]:9") == Address("::1", 9, True)
    assert Address("::1", 9, True).netloc == "[::1]:9"
    with pytest.raises(ValueError, match="one host is expected"):
        parse_address("pulsar://a,b")


@given(st.text(max_size=40))
def test_any_text_is_understood_or_refused(text: str) -> None:
    for parse in (parse_topic, parse_service_url, parse_address):
        try:
            parse(text)
        except ValueError:
            pass
