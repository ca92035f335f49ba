"""Makes the sink of a pipeline that writes to a topic: with or without positions of its own, or exactly once."""

from collections.abc import Callable
from functools import partial
from secrets import token_hex

from fastwire.position import positions_of
from fastwire.systems import grammar_named, row_of

from ..config import ConfigError, PipelineConfig, Problem
from ..dataset.place import bucket_of
from ..dataset.writer import DatasetWriter
from ..runtime.logs import get_logger
from ..sinks.registry import dataset_options
from ..systems.ledger import LedgerOptions
from ..systems.registry import system_named
from ..systems.writer import WriteOptions
from .topicdefault import DefaultTopicSink
from .topicledger import LedgerTopicSink
from .topicoutlet import TopicOutlet
from .topicrows import needed_columns
from .topicsequence import SequencedTopicSink
from .topicsink import MakeMemory, RememberingTopicSink, TopicSink

BATCH_RECORDS = 1000
LEAST_TRANSACTION_S, MOST_TRANSACTION_S = 60.0, 900.0  # brokers allow no more by default

_log = get_logger("sink")


def topic_sink(config: PipelineConfig) -> TopicSink:
    """Return the sink of a pipeline that writes to a topic; it is not opened yet. Raises ConfigError."""
    sink = config.sink
    assert sink.connection is not None, "the configuration was checked"
    assert sink.topic is not None
    system = sink.connection.system
    options = WriteOptions(
        compression=None if sink.compression is None else sink.compression.upper(),
        batch=BATCH_RECORDS,
        batching=sink.batching,
        hashing=sink.key_hash,
    )
    make_writer = partial(system_named(system).open_writer, sink.connection, sink.topic, options)
    try:
        make_writer()  # raises now what is wrong with the options; it connects only when it is entered
    except ValueError as exc:
        raise ConfigError([Problem("", "sink.compression", str(exc))]) from None
    what = f"{sink.topic} at {sink.connection.url}"
    ordering_keys = "orderingKey" in row_of(system).names
    needed = needed_columns(config.source.system, row_of(config.source.system).names)
    outlet = TopicOutlet(make_writer, what)
    if config.brokers_decide:
        plain = TopicSink(outlet, ordering_keys=ordering_keys)
        make = partial(DefaultTopicSink, plain)
        return _in_transactions(config, options, what, needed, make, ordering_keys=ordering_keys)
    if sink.delivery == "exactly-once":
        if config.source.shared:
            why = "needs a source whose partitions have one reader each, which a shared subscription has not"
            raise ConfigError([Problem("", "sink.delivery", why)])
        if grammar_named(system).exactly_once == "deduplication":
            return _sequenced(config, options, what, needed, ordering_keys=ordering_keys)
        return _in_transactions(config, options, what, needed, ordering_keys=ordering_keys)
    if sink.delivery is None:
        _log.info("delivery is at least once", because=config.at_least_once_because)
    if sink.path is None:
        return TopicSink(outlet, ordering_keys=ordering_keys)
    return RememberingTopicSink(
        outlet,
        _memory(config),
        needed,
        ordering_keys=ordering_keys,
        keeps=sink.on_error == "dead_letter",
    )


def ledger_options(config: PipelineConfig) -> LedgerOptions:
    """Return the options of a transactional writer with a new name."""
    sink = config.sink
    return LedgerOptions(
        name=f"fastwire-{pipeline_name(config)}-{token_hex(8)}",
        topic=sink.positions,
        timeout_s=transaction_s(sink.roll.age),
        dead_letters=sink.dead_letters or "",
    )


def _in_transactions(
    config: PipelineConfig,
    options: WriteOptions,
    what: str,
    needed: frozenset[str],
    make: Callable[..., LedgerTopicSink] = LedgerTopicSink,
    *,
    ordering_keys: bool,
) -> LedgerTopicSink:
    sink = config.sink
    assert sink.connection is not None, "the configuration was checked"
    assert sink.topic is not None
    open_ledger = partial(
        system_named(sink.connection.system).open_ledger, sink.connection, sink.topic, options, ledger_options(config)
    )
    try:
        open_ledger()
    except ValueError as exc:
        raise ConfigError([Problem("", "sink.delivery", str(exc))]) from None
    return make(
        open_ledger,
        what,
        pipeline_name(config),
        dataset_options(config),
        needed,
        ordering_keys=ordering_keys,
        keeps=sink.dead_letters is not None and sink.on_error == "dead_letter",
    )


def _sequenced(
    config: PipelineConfig, options: WriteOptions, what: str, needed: frozenset[str], *, ordering_keys: bool
) -> SequencedTopicSink:
    source, sink = config.source, config.sink
    assert sink.connection is not None, "the configuration was checked"
    assert sink.topic is not None
    if not positions_of(source.system).sequence_columns:
        why = f"needs a source whose records have the same numbers whenever they are read: {source.system} has none"
        raise ConfigError([Problem("", "sink.delivery", why)])
    open_writer = partial(system_named(sink.connection.system).open_sequenced, sink.connection, sink.topic, options)
    try:
        open_writer()
    except ValueError as exc:
        raise ConfigError([Problem("", "sink.delivery", str(exc))]) from None
    keeps = sink.on_error == "dead_letter"
    return SequencedTopicSink(open_writer, what, _memory(config), needed, ordering_keys=ordering_keys, keeps=keeps)


def _memory(config: PipelineConfig) -> MakeMemory:
    assert config.sink.path is not None, "the configuration was checked"
    make = partial(DatasetWriter, config.sink.path, dataset_options(config), bucket_of(config.sink))
    return lambda on_full, stop: make(on_full=on_full, stop=stop)


def pipeline_name(config: PipelineConfig) -> str:
    """Return the name of the positions of a pipeline: the same for all daemons that share its work."""
    source, sink = config.source, config.sink
    assert sink.connection is not None, "it is a topic"
    assert sink.topic is not None
    topic = grammar_named(sink.connection.system).topic(sink.topic)
    return f"{source.system}/{getattr(source, 'subscription', '')}/{topic}"  # topics of Kafka have no slash


def transaction_s(age_s: float) -> float:
    """Return how many seconds a transaction may take whose roll ends at an age of ``age_s``."""
    return min(max(2 * age_s + LEAST_TRANSACTION_S, LEAST_TRANSACTION_S), MOST_TRANSACTION_S)
