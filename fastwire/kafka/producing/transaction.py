"""State machine of a transactional id: its producer id and epoch, and the partitions of the open transaction.

Both protocols of brokers are spoken (spec: kafka 14.2). By the older one the coordinator is told of each partition
before its first batch of a transaction. By the newer one (KIP-890) the leaders tell the coordinator, and each
transaction has an epoch of its own, which the end of the one before returns.
"""

from collections.abc import Iterable, Mapping

from fastwire.errors import FastwireError
from fastwire.kafka.format.error import BrokerError, Code
from fastwire.kafka.format.message import Body
from fastwire.kafka.names import TopicPartition
from fastwire.producer import TransactionLost

ADDING_PRODUCE = 11
"""The highest version of Produce in the older protocol."""
IMPLICIT_PRODUCE, IMPLICIT_END = 12, 5
"""The versions of Produce and EndTxn from which on requests are those of the newer protocol."""
FEATURE, IMPLICIT_LEVEL = "transaction.version", 2
"""The feature of a cluster, and the level from which on it has the newer protocol."""

_LOST = frozenset(
    {
        Code.INVALID_PRODUCER_EPOCH,
        Code.PRODUCER_FENCED,
        Code.INVALID_PRODUCER_ID_MAPPING,
        Code.INVALID_TXN_STATE,
        Code.UNKNOWN_PRODUCER_ID,
        Code.OUT_OF_ORDER_SEQUENCE_NUMBER,
        Code.TRANSACTION_ABORTABLE,
        Code.TRANSACTION_COORDINATOR_FENCED,
    }
)


def is_implicit(features: Mapping[str, int], produce: int, end: int) -> bool:
    """Return True if a broker speaks the newer protocol: its finalized ``features``, its highest versions."""
    return features.get(FEATURE, 0) >= IMPLICIT_LEVEL and produce >= IMPLICIT_PRODUCE and end >= IMPLICIT_END


class Transaction:
    """The transactions of one transactional id, one after the other. ``name`` is the id.

    The driver sends the requests, one at a time, and passes each answer back. Answers raise TransactionLost, or
    BrokerError for other errors: those of ``RETRY`` may be sent again.
    """

    def __init__(self, name: str, timeout_ms: int) -> None:
        self.name = name
        self.implicit = False
        """True if the brokers speak the newer protocol."""
        self.identity = (-1, -1)
        """Producer id and epoch."""
        self._timeout_ms = timeout_ms
        self._places: set[TopicPartition] = set()
        self._failure: TransactionLost | None = None

    @property
    def failure(self) -> TransactionLost | None:
        """Why the transaction is lost; None while it is not. ``identified`` begins anew."""
        return self._failure

    @property
    def is_open(self) -> bool:
        """True if partitions are part of the transaction, so that it must be ended."""
        return bool(self._places)

    def lose(self, error: FastwireError) -> TransactionLost:
        """Note that the transaction cannot be committed; return the error for later calls."""
        if self._failure is None:
            self._failure = error if isinstance(error, TransactionLost) else TransactionLost(str(error))
            self._failure.__cause__ = error
        return self._failure

    # --- requests and answers

    def identify_request(self) -> Body:
        """Return the InitProducerId that fences a former producer of this id and aborts its transaction."""
        return {"transactional_id": self.name, "transaction_timeout_ms": self._timeout_ms}

    def identified(self, answer: Body) -> None:
        """Begin with the producer id and epoch of an answer to InitProducerId. Raises BrokerError."""
        if answer["error_code"]:
            raise BrokerError(answer["error_code"], f"transactional id {self.name}")
        self.identity = (answer["producer_id"], answer["producer_epoch"])
        self._places.clear()
        self._failure = None

    def wants(self, places: Iterable[TopicPartition]) -> bool:
        """Return True if the coordinator must be told of one of ``places`` before they get records."""
        if self._failure is not None:
            raise self._failure.with_traceback(None)
        if self.implicit:
            self._places.update(places)
            return False
        return not self._places.issuperset(places)

    def add_request(self, places: Iterable[TopicPartition]) -> Body:
        """Return the AddPartitionsToTxn for those of ``places`` that the coordinator does not know."""
        topics: dict[str, list[int]] = {}
        for topic, partition in sorted(set(places) - self._places):
            topics.setdefault(topic, []).append(partition)
        return {
            "transactional_id": self.name,
            "producer_id": self.identity[0],
            "producer_epoch": self.identity[1],
            "topics": [{"name": topic, "partitions": partitions} for topic, partitions in topics.items()],
        }

    def added(self, answer: Body) -> None:
        """Handle an answer to AddPartitionsToTxn: all partitions of the request are added, or none."""
        results = [
            (topic["name"], one["partition_index"], one["error_code"])
            for topic in answer["results"]
            for one in topic["partitions"]
        ]
        for topic, _, code in results:
            if code not in (Code.NONE, Code.OPERATION_NOT_ATTEMPTED):
                raise self._error(code, f"transactional id {self.name}: {topic}")
        if any(code for _, _, code in results):
            raise BrokerError(Code.OPERATION_NOT_ATTEMPTED, f"transactional id {self.name}")
        self._places.update((topic, partition) for topic, partition, _ in results)

    def commit_request(self) -> Body:
        """Return the EndTxn that commits. An abort is an InitProducerId: late batches have an old epoch then."""
        return {
            "transactional_id": self.name,
            "producer_id": self.identity[0],
            "producer_epoch": self.identity[1],
            "committed": True,
        }

    def committed(self, answer: Body) -> None:
        """Handle an answer to EndTxn, in the newer protocol with the epoch of the next transaction."""
        if answer["error_code"]:
            raise self._error(answer["error_code"], f"the end of a transaction of {self.name}")
        self._places.clear()
        if self.implicit and answer.get("producer_id", -1) >= 0:
            self.identity = (answer["producer_id"], answer["producer_epoch"])

    def _error(self, code: int, what: str) -> FastwireError:
        error = BrokerError(code, what)
        return self.lose(error) if code in _LOST else error
