"""Text forms inside of messages, names, URLs and positions."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fastwire.errors import ProtocolError
from fastwire.position import Position
from fastwire.tubemq.format.text import (
    Broker,
    BrokerPartition,
    TopicMeta,
    group_by_topic,
    read_broker,
    read_failure,
    read_partition,
    read_producer_topic,
    read_subscription,
    read_topic_meta,
    write_conditions,
)
from fastwire.tubemq.grammar import GRAMMAR
from fastwire.tubemq.position import POSITIONS

BROKER = Broker(1, "127.0.0.1", 18123)
GOLD = BrokerPartition(BROKER, "gold", 1)
READERS = [read_broker, read_failure, read_partition, read_producer_topic, read_subscription, read_topic_meta]


def test_a_subscription_is_written_and_read() -> None:
    text = "fw_127.0.0.1-100-1-1-Pull-fw@fw#1:127.0.0.1:18123#gold:1"
    assert GOLD.subscription("fw_127.0.0.1-100-1-1-Pull-fw", "fw") == text
    assert read_subscription(text) == GOLD
    assert read_partition(str(GOLD)) == GOLD
    assert (GOLD.key, GOLD.name) == ("1:gold:1", "1:1")


def test_a_blank_port_is_the_default_one() -> None:
    assert read_broker("2:127.0.0.2: ") == Broker(2, "127.0.0.2", 8123)
    assert read_broker("2:127.0.0.2: ", tls=True) == Broker(2, "127.0.0.2", 8124)


def test_a_failure_names_its_partition() -> None:
    assert read_failure("411:1:127.0.0.1:18123#gold:9") == (411, BrokerPartition(BROKER, "gold", 9))


def test_consumers_and_producers_have_their_numbers_in_different_order() -> None:
    assert read_topic_meta("perf#1:2:4:1,2:1:3:0") == [
        TopicMeta("perf", 1, stores=2, partitions=4, open=True),
        TopicMeta("perf", 2, stores=1, partitions=3, open=False),
    ]
    assert read_producer_topic("perf#1:4:2#") == ([TopicMeta("perf", 1, 2, 4, True)], None)
    assert read_producer_topic("perf#1:4:2#2048") == ([TopicMeta("perf", 1, 2, 4, True)], 2048)
    assert TopicMeta("perf", 1, 2, 3, True).numbers() == [0, 1, 2, 10000, 10001, 10002]


def test_filters_are_sorted_and_topics_without_any_left_out() -> None:
    assert write_conditions({"gold": ["bbb", "aaa", "bbb"], "all": []}) == ["gold#aaa,bbb"]


def test_partitions_are_reported_by_topic() -> None:
    assert group_by_topic([BrokerPartition(BROKER, "gold", 0), GOLD]) == ["gold#1:0,1:1"]


@pytest.mark.parametrize("text", ["", "1", "1:h", "x:h:1", "1::1", "1:h:65536", "1:h:-1", "99999999999:h:1"])
def test_a_broker_of_another_form_is_a_protocol_error(text: str) -> None:
    with pytest.raises(ProtocolError):
        read_broker(text)


@pytest.mark.parametrize("text", ["t#1:1001:1:1", "t#1:1:101:1", "t#1:1:1", "#1:1:1:1", "t"])
def test_metadata_that_would_make_too_many_partitions_is_a_protocol_error(text: str) -> None:
    with pytest.raises(ProtocolError):
        read_topic_meta(text)


@given(st.sampled_from(READERS), st.text("0123456789:#,@ atx²", max_size=30))
def test_any_text_is_read_or_a_protocol_error(read, text: str) -> None:  # type: ignore[no-untyped-def]
    try:
        read(text)
    except ProtocolError:
        pass


def test_a_url_lists_masters() -> None:
    url = GRAMMAR.url("tubemq://master1:8715,master2")
    assert (str(url), url.tls) == ("tubemq://master1:8715,master2:8715", False)
    assert str(GRAMMAR.url("tubemq+ssl://m")) == "tubemq+ssl://m:8716"
    for wrong in ("tubemq:/m", "kafka://m", "tubemq://u:p@m", "tubemq://m,m", "tubemq://"):
        with pytest.raises(ValueError) as refused:
            GRAMMAR.url(wrong)
        assert "u:p" not in str(refused.value)


def test_a_partition_has_the_name_of_its_topic_and_its_broker() -> None:
    assert GRAMMAR.partition("orders/1:10002") == ("orders/1:10002", "orders")
    for wrong in ("orders", "orders/1", "orders/1:01", "1a/1:1", "o@x/1:1"):
        with pytest.raises(ValueError):
            GRAMMAR.partition(wrong)


def test_positions_count_messages_from_the_start_of_a_get() -> None:
    assert [POSITIONS.format(Position(84, rows)) for rows in (0, 17)] == ["84", "84+17"]
    assert [POSITIONS.parse(text) for text in ("84", "84+17")] == [Position(84, 0), Position(84, 17)]
    assert POSITIONS.precedes(Position(84, 1), Position(84, 2))
    assert not POSITIONS.precedes(Position(84, 1), Position(112, 2))
    assert not POSITIONS.precedes(Position(112, 0), Position(84, 2))


@given(st.integers(0, 2**63 - 1), st.integers(0, 2**63 - 1))
def test_each_position_has_one_text(a: int, b: int) -> None:
    assert POSITIONS.parse(POSITIONS.format(Position(a, b))) == Position(a, b)
