"""Answers of brokers about the topics of a transactional writer."""

from typing import Any

from fastwire.kafka.format.error import Code
from fastwire_daemon.systems.kafka.ledgercheck import _described


async def test_a_topic_that_the_brokers_leave_out_is_unknown() -> None:
    there = {"name": "there", "error_code": 0, "partitions": []}

    class Cluster:
        async def any(self) -> Any:
            return self

        async def ask(self, key: int, asked: Any) -> Any:
            return {"topics": [there]}

    found: Any = Cluster()
    one, other = await _described(found, "there", "left out")
    assert one == there
    assert (other["name"], other["error_code"]) == ("left out", Code.UNKNOWN_TOPIC_OR_PARTITION)
