"""The words of the options for Kafka."""

from fastwire.kafka.grammar import GRAMMAR

from ..dialects import Dialect
from ..values import INT32, one_of, size, text

DIALECT = Dialect(
    grammar=GRAMMAR,
    places_example='{"topic":{"0":1234,"1":-2}}',
    least_partition=0,
    in_range=frozenset({"offset"}),
    truncates=True,  # by an unclean election
    unheld="",  # retention decides in any case
    group="groupId",
    prefix="groupIdPrefix",
    only={
        "groupId": text,
        "groupIdPrefix": text,
        "isolationLevel": one_of("read_committed", "read_uncommitted"),
        "fetchMaxBytes": size(INT32),
        "clientId": text,
        "clientRack": text,
    },
    options={"isolation": "isolationLevel", "client_id": "clientId", "rack": "clientRack"},
    ahead="fetchMaxBytes",
    instead={
        # As in Spark's own source, and as its settings are called elsewhere.
        "kafka.bootstrap.servers": "servers",
        "bootstrap.servers": "servers",
        "group.id": "groupId",
        "kafka.group.id": "groupId",
        "kafka.client.id": "clientId",
        "kafka.client.rack": "clientRack",
        "kafka.isolation.level": "isolationLevel",
        "kafka.security.protocol": "servers (kafka:// or kafka+ssl://)",
        "kafka.sasl.mechanism": "auth.mechanism",
        "kafka.sasl.": "auth.username, auth.password_file … (docs/spark.md)",
        "kafka.ssl.": "tls.ca_file … (docs/spark.md)",
        "kafka.": "",
        "kafkaConsumer.pollTimeoutMs": "pollTimeoutMs",
    },
)
