"""The words of the options for TANK."""

from fastwire.tank.grammar import GRAMMAR

from ..dialects import Dialect
from ..values import INT32, size, text

DIALECT = Dialect(
    grammar=GRAMMAR,
    places_example='{"topic":{"0":1234,"1":-2}}',
    least_partition=0,
    in_range=frozenset({"offset"}),
    truncates=False,
    unheld="",  # retention decides in any case
    group="",  # a broker keeps no progress
    prefix="",
    only={"fetchMaxBytes": size(INT32), "clientId": text},
    options={"client_id": "clientId"},
    ahead="fetchMaxBytes",
    instead={
        **dict.fromkeys(("commitOffsets", "failOnCommitError"), ""),
        # A broker has no index of times, and does not look at the timestamps of messages.
        "startingTimestamp": "startingOffsets",
        "startingOffsetsByTimestamp": "startingOffsets",
        "startingOffsetsByTimestampStrategy": "startingOffsets",
        "endingTimestamp": "endingOffsets",
        "endingOffsetsByTimestamp": "endingOffsets",
    },
)
