"""The words of the options for Pulsar."""

from fastwire.pulsar.grammar import GRAMMAR

from ..dialects import Dialect
from ..values import text, whole

DIALECT = Dialect(
    grammar=GRAMMAR,
    places_example='{"topic":{"0":"12:34","1":-2}}',
    least_partition=-1,
    in_range=frozenset({"ledger", "offset"}),
    truncates=True,
    unheld=(
        "without the option subscription the brokers do not know what this query has still to read: "
        "retention alone decides how long they keep it"
    ),
    group="subscription",
    prefix="subscriptionPrefix",
    only={"subscription": text, "subscriptionPrefix": text, "receiverQueueSize": whole(1), "listener": text},
    options={"listener": "listener"},
    ahead="receiverQueueSize",
    instead={
        # As in StreamNative's connector.
        "service.url": "servers",
        "admin.url": "servers",
        "topic": "subscribe",
        "topics": "subscribe",
        "topicsPattern": "subscribePattern",
        "predefinedSubscription": "subscription",
        "pulsar.client.": "auth.token_file, tls.ca_file … (docs/spark.md)",
        "pulsar.reader.": "",
    },
)
