"""The state machine of a transactional id, and a producer whose batches are part of its transactions."""

from typing import Any

import pytest

from fastwire.kafka.format.error import BrokerError, Code
from fastwire.kafka.producing.payload import Record, split_batches
from fastwire.kafka.producing.producer import Producer, ProducerSettings, Sending
from fastwire.kafka.producing.transaction import Transaction, is_implicit
from fastwire.producer import BatchLimits, TransactionLost

A, B = ("orders", 0), ("orders", 3)


def begun(*, implicit: bool = False) -> Transaction:
    transaction = Transaction("t", 60_000)
    transaction.implicit = implicit
    transaction.identified({"error_code": 0, "producer_id": 7, "producer_epoch": 2})
    return transaction


def results(code: int, *partitions: int) -> dict[str, Any]:
    return {
        "results": [{"name": "orders", "partitions": [{"partition_index": n, "error_code": code} for n in partitions]}]
    }


def test_the_older_protocol_adds_partitions_and_keeps_its_epoch() -> None:
    transaction = begun()
    assert not transaction.is_open
    assert transaction.wants((A, B))
    asked = transaction.add_request((A, B))
    assert (asked["transactional_id"], asked["producer_id"], asked["producer_epoch"]) == ("t", 7, 2)
    assert asked["topics"] == [{"name": "orders", "partitions": [0, 3]}]
    transaction.added(results(0, 0, 3))
    assert transaction.is_open and not transaction.wants((A, B))
    assert transaction.commit_request()["committed"] is True
    transaction.committed({"error_code": 0})
    assert not transaction.is_open
    assert transaction.wants((A,))  # the next transaction has them anew
    assert transaction.identity == (7, 2)


def test_the_newer_protocol_adds_none_and_has_an_epoch_for_each_transaction() -> None:
    transaction = begun(implicit=True)
    assert not transaction.wants((A,))
    assert transaction.is_open
    transaction.committed({"error_code": 0, "producer_id": 8, "producer_epoch": 0})
    assert transaction.identity == (8, 0)
    assert not transaction.is_open


def test_partitions_are_added_all_or_none() -> None:
    transaction = begun()
    answer = results(Code.OPERATION_NOT_ATTEMPTED, 0)
    answer["results"] += results(Code.CONCURRENT_TRANSACTIONS, 3)["results"]
    with pytest.raises(BrokerError, match="CONCURRENT_TRANSACTIONS"):
        transaction.added(answer)
    assert transaction.failure is None and transaction.wants((A,))


@pytest.mark.parametrize("code", [Code.INVALID_PRODUCER_EPOCH, Code.PRODUCER_FENCED, Code.INVALID_TXN_STATE])
def test_a_transaction_that_is_lost_stays_lost_until_it_begins_anew(code: Code) -> None:
    transaction = begun()
    transaction.added(results(0, 0))
    with pytest.raises(TransactionLost, match=code.name):
        transaction.committed({"error_code": code})
    with pytest.raises(TransactionLost):
        transaction.wants((A,))
    transaction.identified({"error_code": 0, "producer_id": 7, "producer_epoch": 3})
    assert transaction.failure is None and not transaction.is_open


def test_a_coordinator_that_moves_is_no_loss() -> None:
    transaction = begun()
    transaction.added(results(0, 0))
    with pytest.raises(BrokerError, match="NOT_COORDINATOR"):
        transaction.committed({"error_code": Code.NOT_COORDINATOR})
    assert transaction.failure is None and transaction.is_open


@pytest.mark.parametrize(
    ("features", "produce", "end", "found"),
    [({"transaction.version": 2}, 12, 5, True), ({"transaction.version": 1}, 12, 5, False), ({}, 12, 5, False),
     ({"transaction.version": 2}, 11, 5, False), ({"transaction.version": 2}, 12, 4, False)],
)  # fmt: skip
def test_the_newer_protocol_needs_the_feature_and_the_versions(
    features: dict[str, int], produce: int, end: int, found: bool
) -> None:
    assert is_implicit(features, produce, end) is found


# --- the producer


class Scene:
    def __init__(self) -> None:
        self.machine = Producer(ProducerSettings(batching=BatchLimits(records=1)), transaction="t")
        self.machine._known_at = 100.0
        self.sent = 0

    def put(self, count: int) -> list[Sending]:
        for _ in range(count):
            self.machine.send(Record(value=b"%d" % self.sent), self.sent, 100.0)
            self.sent += 1
        if self.machine.needs_identity:
            self.machine.identify(7, 2)
        return self.sendings()

    def sendings(self) -> list[Sending]:
        found = []
        while (sending := self.machine.take(100.0)) is not None:
            found.append(sending)
        return found

    def answer(self, sending: Sending, code: int) -> None:
        self.machine.answered(sending, code, 0, 100.0)


def heads(sendings: list[Sending]) -> list[tuple[int, int, int]]:
    found = [next(split_batches(one.data)) for one in sendings]
    assert all(one.transactional for one in found)
    return [(one.producer_id, one.producer_epoch, one.base_sequence) for one in found]


def test_batches_and_requests_carry_the_transaction() -> None:
    sent = Scene().put(2)
    assert heads(sent) == [(7, 2, 0), (7, 2, 1)]
    assert sent[0].request("orders", 0, 1)["transactional_id"] == "t"


def test_a_refused_record_leaves_its_sequence_to_the_next_one() -> None:
    scene = Scene()
    first, second, third, fourth = scene.put(4)
    scene.answer(first, Code.NONE)
    scene.answer(second, Code.INVALID_RECORD)
    for behind in (third, fourth):
        scene.answer(behind, Code.OUT_OF_ORDER_SEQUENCE_NUMBER)
    assert scene.machine.failure is None
    assert [outcome.error is None for outcome in scene.machine.take_outcomes()] == [True, False]
    (again,) = scene.sendings()
    assert heads([again]) == [(7, 2, 1)]
    scene.answer(again, Code.NONE)
    assert heads(scene.sendings()) == [(7, 2, 2)]


@pytest.mark.parametrize(
    "code",
    [Code.OUT_OF_ORDER_SEQUENCE_NUMBER, Code.UNKNOWN_PRODUCER_ID, Code.INVALID_TXN_STATE, Code.INVALID_PRODUCER_EPOCH,
     Code.PRODUCER_FENCED, Code.TRANSACTION_ABORTABLE],
)  # fmt: skip
def test_what_another_producer_would_start_over_for_loses_the_transaction(code: Code) -> None:
    scene = Scene()
    first, _ = scene.put(2)
    scene.answer(first, code)
    assert isinstance(scene.machine.failure, TransactionLost)
    assert scene.sendings() == []


def test_a_batch_without_an_answer_is_sent_again_under_its_sequence() -> None:
    scene = Scene()
    (first,) = scene.put(1)
    scene.machine.unanswered(100.0)
    (again,) = scene.sendings()
    assert again.data == first.data
    scene.answer(again, Code.DUPLICATE_SEQUENCE_NUMBER)
    assert scene.machine.idle
