"""Options of the embedded Pulsar broker."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from fastwire.pulsar import pulsar_pb2 as pb

from .logins import Authenticate


@dataclass(frozen=True)
class PulsarOptions:
    """Behaviour of the broker; the defaults are those of a real one, without its delays."""

    server_version: str = "fastwire-dev-broker"
    protocol_version: int = 21
    max_message_size: int = 5 * 1024 * 1024  # 0: not announced to clients
    feature_flags: pb.FeatureFlags = field(
        default_factory=lambda: pb.FeatureFlags(
            supports_auth_refresh=True,
            supports_broker_entry_metadata=True,
            supports_topic_watchers=True,
            supports_get_partitioned_metadata_without_auto_creation=True,
        )
    )
    token: str = ""  # required of clients; "": none is needed
    authenticate: Authenticate | None = None  # checks credentials, instead of that one token
    refresh_check_s: float = 1.0  # interval of checks for expired credentials
    auto_create: bool = True
    auto_create_partitions: int = 0
    watchable: bool = True  # topic lists; a real broker may refuse it in spite of its features
    proxy_through_service_url: bool = False  # a proxy: producers and consumers name the broker that they connect to
    listeners: Mapping[str, str] = field(default_factory=dict)  # URLs by listener name; "" is the URL of this broker
    lookup_delay_s: float = 0.0
    most_lookups: int = 50_000  # delayed lookups at a time; more are refused
    deduplication: bool = False  # entries that a producer repeats are not stored again
    forgetful_s: float = 0.0  # after an unload, the numbers of what is stored meanwhile are forgotten
    topic_max_message_size: int = 0  # a policy of topics, which clients are not told; 0: none
    ledger_entries: int = 50_000  # entries after which a new ledger begins
    broker_entry_metadata: bool = False  # precedes entries, for clients that support it
    batch_index_acks: bool = True
    max_unacked: int = 50_000  # messages per consumer of a shared type; 0: no limit
    read_ahead: int = 1  # entries read at once on Exclusive and Failover; a real broker overshoots a window by 100
    takeover_delay_s: float = 0.0  # before a Failover consumer becomes active; 1 s on a real broker
    tell_mark_delete: bool = True  # in GET_LAST_MESSAGE_ID_RESPONSE; brokers before 2.9 do not
    subscribe_delay_s: float = 0.0  # before the response to SUBSCRIBE
    keep_alive_s: float = 30.0  # 0: the broker sends no PING
    enforce_window: bool = True
    window: int = 0  # permits that a consumer may hold at most; 0: those of its first FLOW
