"""Discovery of topics: named topics with their partitions, and topics that match a pattern."""

import asyncio
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from itertools import count

from fastwire.errors import FastwireError
from fastwire.pulsar import pulsar_pb2 as pb
from fastwire.pulsar.names.namespace import list_topics, topics_hash, watch
from fastwire.pulsar.names.pattern import TopicPattern
from fastwire.pulsar.names.topic import ServiceUrl, Topic
from fastwire.pulsar.protocol.event import Reply, TopicsChanged
from fastwire.pulsar.protocol.request import BrokerError, Kind

from ...runtime.logs import get_logger
from .cluster import Cluster
from .link import Link
from .refusal import about, is_missing, is_of_login

log = get_logger("topics")


@dataclass(frozen=True, slots=True)
class Found:
    """New partitions, ``first`` to ``partitions``, of a topic; without partitions the topic itself is new."""

    topic: Topic
    first: int
    partitions: int

    @property
    def indexes(self) -> Iterable[int]:
        """The partition numbers that are new, -1 for a topic that has no partitions."""
        return range(self.first, self.partitions) if self.partitions else (self.topic.partition,)


@dataclass(slots=True)
class News:
    """Changes since the last look; changes that a ``failure`` has hidden come with a later one."""

    found: list[Found] = field(default_factory=list)
    gone: list[Topic] = field(default_factory=list)
    failure: FastwireError | None = None


class Topics:
    """The topics of one source, polled repeatedly. Either ``names`` are given or a ``pattern``.

    A named topic that the broker does not have is a failure, unless ``create`` lets brokers create it; with a pattern
    topics may come and go.
    """

    def __init__(
        self,
        cluster: Cluster,
        service: ServiceUrl,
        names: Iterable[Topic],
        pattern: TopicPattern | None = None,
        *,
        create: bool = False,
    ) -> None:
        self._cluster = cluster
        self._service = service
        self._pattern = pattern
        self._create = create
        self._names = {name: frozenset((name,)) for name in names}
        self._reported: dict[Topic, int] = {}  # partitions of each topic that was reported
        self._seen: dict[Topic, frozenset[Topic]] = {}  # the listed names behind each base topic at its last request
        self._listed: set[str] = set()
        self._hash = ""
        self._watching: Link | None = None
        self._unwatchable = 0  # the link whose broker refuses watchers
        self._watcher_ids = count(1)
        self._changed = asyncio.Event()

    def __len__(self) -> int:
        return len(self._reported)

    async def wait(self, timeout_s: float) -> bool:
        """Wait for a possible change; returns False if there is none within ``timeout_s`` seconds."""
        try:
            async with asyncio.timeout(timeout_s):
                await self._changed.wait()
        except TimeoutError:
            return False
        self._changed.clear()
        return True

    def doubt(self) -> None:
        """Look again soon, because a broker has reported something newer."""
        self._changed.set()

    async def look(self, *, everything: bool = True) -> News:
        """Ask the broker for changes; without ``everything`` only for topics with a reason."""
        news = News()
        try:
            groups = await self._groups(everything)
        except FastwireError as exc:
            news.failure = exc
            return news
        for base in self._seen.keys() - groups.keys():
            news.gone += self._keys_of(self._seen.pop(base))
        # A topic without partitions gets none during its life.
        asked = [
            (base, names)
            for base, names in groups.items()
            if self._seen.get(base) != names or (everything and self._reported.get(base))
        ]
        answers = await asyncio.gather(*(self._ask(base, names) for base, names in asked))
        for (base, names), answer in zip(asked, answers, strict=True):
            if isinstance(answer, FastwireError):
                news.failure = news.failure or answer
                continue
            before = self._keys_of(self._seen.get(base, frozenset()))
            self._compare(before, answer, news)
            self._seen[base] = names
        for topic in news.gone:
            self._reported.pop(topic, None)
        for found in news.found:
            self._reported[found.topic] = found.partitions
        return news

    def _keys_of(self, names: Iterable[Topic]) -> list[Topic]:
        """Return the reported topics of these names: a partitioned topic by its base, another by its name."""
        return sorted({key for name in names for key in (name, name.base) if key in self._reported}, key=str)

    def _compare(self, before: Iterable[Topic], now: Mapping[Topic, int], news: News) -> None:
        news.gone += [topic for topic in before if topic not in now]
        for topic, partitions in now.items():
            known = self._reported.get(topic)
            if known is None:
                news.found.append(Found(topic, 0, partitions))
            elif known == 0 and partitions:
                news.gone.append(topic)  # deleted and recreated with another number of partitions
                news.found.append(Found(topic, 0, partitions))
            elif partitions > known:
                news.found.append(Found(topic, known, partitions))
            elif partitions < known:
                log.error("topic has fewer partitions than before", topic=str(topic), before=known, now=partitions)

    async def _ask(self, base: Topic, names: frozenset[Topic]) -> dict[Topic, int] | FastwireError:
        """Return the partitions of a topic; 0 for each name that is a topic of its own."""
        partitions = 0
        # A partition's own name is a topic like any other, and its metadata must not be requested.
        if base.partition < 0:
            try:
                partitions = await self._cluster.partitions(str(base), self._service, create=self._create)
            except FastwireError as exc:
                if not is_missing(exc):
                    return exc if is_of_login(exc) else about(str(base), exc)
                if self._pattern is None:
                    return BrokerError(
                        pb.TopicNotFound, f"{base} does not exist; fastwire reads topics and creates none"
                    )
        return {base: partitions} if partitions else dict.fromkeys(sorted(names, key=str), 0)

    # --- the list behind a pattern

    async def _groups(self, everything: bool) -> dict[Topic, frozenset[Topic]]:
        """Return the names that match, by the topic that they belong to."""
        if self._pattern is None:
            return self._names
        await self._list(self._pattern, everything)
        groups: dict[Topic, set[Topic]] = {}
        for topic in self._pattern.chosen(self._listed):
            groups.setdefault(topic.base, set()).add(topic)
        return {base: frozenset(names) for base, names in groups.items()}

    async def _list(self, pattern: TopicPattern, everything: bool) -> None:
        link = self._watching
        if link is None or not link.ready:
            self._watching = None
            link, _ = await self._cluster.service_link(self._service)
            watchable = link.connection.features.supports_topic_watchers and link.link_id != self._unwatchable
            if watchable and await self._watch(pattern, link):
                return
        elif self._hash and not everything:
            return  # the broker has sent the list
        await link.ask(
            lambda connection, now: connection.request(Kind.LIST_TOPICS, list_topics(pattern, self._hash), now),
            self._on_list,
        )

    async def _watch(self, pattern: TopicPattern, link: Link) -> bool:
        watcher_id = next(self._watcher_ids)
        link.watchers[watcher_id] = self._on_change
        try:
            await link.ask(
                lambda connection, now: connection.request(
                    Kind.WATCH_TOPICS, watch(pattern, watcher_id, self._hash), now
                ),
                self._on_watched,
            )
        except BrokerError as exc:
            link.watchers.pop(watcher_id, None)
            self._unwatchable = link.link_id
            log.info("the broker lists topics only when asked", pattern=str(pattern), reason=str(exc))
            return False
        except BaseException:
            link.watchers.pop(watcher_id, None)
            raise
        self._watching = link
        link.lost.add_done_callback(lambda _: self._changed.set())
        return True

    # These are called in wire order, so that no change is taken for older than a list.

    def _on_list(self, reply: Reply) -> None:
        answer = reply.command.getTopicsOfNamespaceResponse
        # Brokers before 2.11 leave all but the topics out.
        if reply.error is None and (answer.changed or not answer.HasField("changed")):
            self._listed, self._hash = set(answer.topics), answer.topics_hash

    def _on_watched(self, reply: Reply) -> None:
        answer = reply.command.watchTopicListSuccess
        if reply.error is None and (answer.topics_hash != self._hash or answer.topic):
            self._listed, self._hash = set(answer.topic), answer.topics_hash

    def _on_change(self, event: TopicsChanged) -> None:
        self._listed.update(event.new)
        self._listed.difference_update(event.deleted)
        # A list that differs from the broker's is requested again.
        self._hash = event.topics_hash if topics_hash(self._listed) == event.topics_hash else ""
        self._changed.set()
