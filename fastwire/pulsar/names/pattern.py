"""Patterns of topics, and the text of a pattern for the broker (spec: pulsar 6.2)."""

import re
from collections.abc import Iterable
from dataclasses import dataclass, field

from fastwire.grammar import compile_pattern
from fastwire.pulsar.names.topic import Topic, parse_topic

MOST_WIRE_LENGTH = 50  # a broker's default limit for a pattern; it refuses a longer watch
EVERYTHING = ".*"
# Syntax with the same meaning in Python, Java and RE2; with any other, broker and client might match differently.
_COMMON = re.compile(r"(?:[A-Za-z0-9_=:.*+?|()-]|\\[.-]|\[\^?[A-Za-z0-9_.-]+\])*")
_UNCOMMON = re.compile(r"\(\?|[*+?][+?]")


@dataclass(frozen=True, slots=True)
class TopicPattern:
    """Persistent topics of one namespace whose whole local name a regular expression matches."""

    namespace: str  # TENANT/NAMESPACE
    local: str  # a regular expression
    _matcher: re.Pattern[str] = field(repr=False, compare=False)

    def __str__(self) -> str:
        return f"persistent://{self.namespace}/{self.local}"

    def matches(self, topic: Topic) -> bool:
        """Return whether ``topic``, or its partitioned topic, matches; system topics never do."""
        return (
            topic.persistent
            and f"{topic.tenant}/{topic.namespace}" == self.namespace
            and self._matcher.fullmatch(topic.base.local) is not None
            and not is_system_topic(topic)
        )

    def chosen(self, names: Iterable[str]) -> set[Topic]:
        """Return the matching topics of a broker's list, partitions by their own names."""
        return {topic for topic in map(_parsed, names) if topic is not None and self.matches(topic)}

    @property
    def wire(self) -> str:
        """The pattern for the broker: it matches a superset, and everything if the broker might read it differently."""
        local = f"(?:{self.local})" if "|" in self.local else self.local
        common = _COMMON.fullmatch(self.local) and not _UNCOMMON.search(self.local)
        whole = f"{self.namespace}/{local}"
        return whole if common and len(whole) <= MOST_WIRE_LENGTH else f"{self.namespace}/{EVERYTHING}"


def parse_pattern(text: str) -> TopicPattern:
    """Parse ``[persistent://]TENANT/NAMESPACE/REGEX`` or a lone ``REGEX``, which applies to ``public/default``.

    Raises ValueError with a message for the author of the pattern.
    """
    shown = f'"{text}"'
    domain, mark, rest = text.partition("://")
    if not mark:
        rest = text
    elif domain != "persistent":
        raise ValueError(f"{shown}: only persistent topics keep positions, so a pattern begins with persistent://")
    parts = rest.split("/")
    if len(parts) == 1 and not mark:
        parts = ["public", "default", *parts]
    if len(parts) != 3:
        raise ValueError(f"{shown}: a pattern is TENANT/NAMESPACE/REGEX or REGEX, and no name of a topic holds a /")
    tenant, namespace, local = parts
    try:
        parse_topic(f"{tenant}/{namespace}/t")
    except ValueError:
        raise ValueError(
            f"{shown}: tenant and namespace are names, not patterns: letters, digits and _ - = : . only"
        ) from None
    if not local:
        raise ValueError(f'{shown}: the regular expression is empty; "{rest}.*" means all topics')
    try:
        matcher = compile_pattern(local)
    except ValueError as exc:
        raise ValueError(f"{shown}: {exc}") from None
    return TopicPattern(f"{tenant}/{namespace}", local, matcher)


def is_system_topic(topic: Topic) -> bool:
    """Return whether ``topic`` is an internal topic of the broker."""
    local = topic.base.local
    return local.startswith(("__change_events", "__transaction_buffer_snapshot", "__transaction_log_")) or (
        local.endswith("__transaction_pending_ack")
    )


def _parsed(name: str) -> Topic | None:
    try:
        return parse_topic(name)
    except ValueError:
        return None  # a name of Pulsar 1, which contains a cluster; not supported
