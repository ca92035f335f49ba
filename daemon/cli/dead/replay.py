"""``fastwire-consume dead --replay``: writes dead letters back to a topic, each once, and marks them in the dataset."""

import asyncio
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack, aclosing, suppress
from typing import TYPE_CHECKING, Any

from fastwire.columns.chunk import Chunk
from fastwire.errors import FastwireError
from fastwire.position import Log, Position, format_position, nest, parse_position, unnest

from ...net.backoff import Backoff
from ...runtime.amounts import counted
from ...runtime.errors import DatasetError, SinkFailedError
from ...systems.produced import ProduceError
from ...systems.recall import Recall, RecordsGone
from ...systems.writer import Put, Writer
from ..retry import open_when_up

if TYPE_CHECKING:
    import os

    from ...dataset.deadletters.intents import Intent
    from ...dataset.deadletters.reader import DeadLetterName, KeptDeadLetter
    from ...dataset.deadletters.replay import Replay
    from ...dataset.storage.bucket import Bucket

# Letters are sent and marked in groups of so many, or of so many bytes.
_GROUP_RECORDS, _GROUP_BYTES = 1000, 8 << 20

PATIENCE_S = 120.0  # without a group that is written
RETRY_S = 10.0  # at most between two tries

PROPERTY = "fastwire-letter"

MakeWriter = Callable[[str], AbstractAsyncContextManager[Writer]]
"""Opens the topic for a writer of a name, which sends nothing again that the brokers would not recognize."""


def waits_for_replay(path: "str | os.PathLike[str]", medium: "Bucket | None" = None) -> bool:
    """Return True if a dataset has dead letters without a mark. Raises like ``dead_letters``."""
    from ...dataset.deadletters.reader import dead_letters

    return any(not letter.replayed for letter in dead_letters(path, medium))


def topic_in(path: str, medium: "Bucket | None" = None) -> str:
    """Return the topic of the records in a dataset. Raises FastwireError unless it is one."""
    from ...dataset.place import storage_at
    from ...dataset.roots import landed_in

    topics = {log.topic for log in landed_in(storage_at(path, medium)).coverage.logs()}
    if len(topics) != 1:
        raise FastwireError(f"{path} has records of {len(topics)} topics: name the one to write to")
    return topics.pop()


class Replayed:
    """Counts of a replay: dead letters that are written and marked, those that an earlier command has written, that are
    no values, that the system cannot store, and that another command has in hand.
    """

    def __init__(self) -> None:
        self.written = 0
        self.found = 0
        self.entries = 0
        self.unfit = 0
        self.others = 0

    def to_json(self) -> dict[str, int]:
        """Return them as plain values."""
        return {
            "replayed": self.written,
            "found": self.found,
            "not_values": self.entries,
            "not_writable": self.unfit,
            "in_hand": self.others,
        }

    def lines(self) -> Iterator[str]:
        """Yield a line for each count but the first that is not 0."""
        if self.found:
            yield f"{self.found:,} were written by a command that has ended: found there, and marked"
        if self.entries:
            yield f"{self.entries:,} left out: whole entries of a broker, which are no values"
        if self.unfit:
            yield f"{self.unfit:,} left out: the system cannot store them"
        if self.others:
            yield f"{self.others:,} left out: another command has them in hand"


class DeadLetterReplay:
    """One replay of dead letters of ``source`` to the topic at ``url``.

    ``recall`` finds them again after an accident; None if the system cannot: then some may be written again.
    """

    def __init__(
        self,
        source: "Replay",
        url: str,
        topic: str,
        make_writer: MakeWriter,
        recall: Recall | None,
        counts: Replayed,
        *,
        tell: Callable[[str], None] = lambda line: None,
    ) -> None:
        self._source = source
        self._url = url
        self._topic = topic
        self._make_writer = make_writer
        self._recall = recall
        self._counts = counts
        self._tell = tell
        self._writer: _Target | None = None
        self._stack = AsyncExitStack()
        self._unfit: set[DeadLetterName] = set()
        self._worked = False  # the topic could be looked at, so that an error may pass

    async def run(self, reason: str | None, *, again: bool = False) -> None:
        """Write the dead letters, or those with one ``reason``, and mark them when the brokers have confirmed them.

        First the intents of commands that have ended are settled: with ``again`` without a look at the topic, so that
        some of their dead letters may be written twice. Raises FastwireError; dead letters that were marked before stay
        so.
        """
        async with self._stack:
            await self._open()
            for intent in self._source.abandoned():
                await self._settle_abandoned(intent, again=again)
            for group in self._groups(reason):
                await self._write(group)

    # --- groups

    def _groups(self, reason: str | None) -> "Iterator[list[KeptDeadLetter]]":
        """Yield the dead letters that are values, in groups."""
        group: list[KeptDeadLetter] = []
        size = 0
        for letter in self._source.dead_letters(reason):
            if not letter.is_value:
                self._counts.entries += 1
                continue
            group.append(letter)
            size += len(letter.payload)
            if len(group) >= _GROUP_RECORDS or size >= _GROUP_BYTES:
                yield group
                group, size = [], 0
        yield group

    async def _write(self, dead_letters: "Sequence[KeptDeadLetter]") -> None:
        """Write a group; what fails on the way is looked for in the topic, and the rest is written again."""
        backoff = Backoff(most_s=RETRY_S)
        now = asyncio.get_running_loop().time
        give_up_at = now() + PATIENCE_S
        left = list(dead_letters)
        intent: Intent | None = None
        while left:
            try:
                if intent is not None:
                    self._mark(intent, await self._find(intent))
                    intent = None
                left = self._free(left)
                if not left:
                    break
                await self._open()
                intent = await self._take(left)
                if intent is not None:
                    self._mark(intent, await self._send(left))
                    break
            except RecordsGone as exc:
                raise _gone(exc, self._topic) from exc
            except (DatasetError, SinkFailedError):
                raise
            except FastwireError as exc:
                await self._drop_writer(exc)
                if not self._worked or now() >= give_up_at:
                    raise
                if not backoff.failures:
                    self._tell(f"{exc}; retrying after a look for what was written")
                await asyncio.sleep(backoff.next())

    def _free(self, dead_letters: "list[KeptDeadLetter]") -> "list[KeptDeadLetter]":
        free, held = self._source.free(dead_letters)
        self._counts.others += held
        return [letter for letter in free if letter.name not in self._unfit]

    async def _take(self, dead_letters: "list[KeptDeadLetter]") -> "Intent | None":
        """Take dead letters in hand; None if another command was faster with some of them."""
        ends = {} if self._recall is None else await self._recall.ends()
        self._worked = self._recall is not None
        intent = self._source.take(dead_letters, self._url, self._topic, _ends_to_json(ends))
        if intent is not None:
            self._source.reached("intent-recorded")
        return intent

    async def _send(self, dead_letters: "list[KeptDeadLetter]") -> "list[DeadLetterName]":
        """Write dead letters, and return those that the system can store, when the brokers have confirmed them."""
        assert self._writer is not None
        sent: list[DeadLetterName] = []
        for letter in dead_letters:
            try:
                await self._writer.write(letter)
            except ValueError as exc:
                self._unfit.add(letter.name)
                self._counts.unfit += 1
                self._tell(f"dead letter {letter.entry}-{letter.number} cannot be written: {exc}")
            else:
                sent.append(letter.name)
                self._source.reached("letter-written")
        await self._writer.confirm(len(sent))
        self._source.reached("letters-confirmed")
        return sent

    def _mark(self, intent: "Intent", written: "Sequence[DeadLetterName]") -> None:
        self._close(intent, written)
        self._counts.written += len(written)

    # --- after an accident

    async def _settle_abandoned(self, intent: "Intent", *, again: bool) -> None:
        """Find what a command has written that has ended, and mark it; the rest is free again."""
        facts = intent.facts
        if again or not facts.ends:
            self._tell(f"{_count(intent)} of a command that has ended may be written again")
            self._close(intent, ())
            return
        if (facts.url, facts.topic) != (self._url, self._topic):
            raise FastwireError(
                f"a command has ended while it wrote {_count(intent)} to {facts.topic} at {facts.url}: give that "
                "target, so that they are looked for there, or --again to write them anew"
            )
        taken = self._source.take_over(intent)
        if taken is None:
            return  # by another command
        self._source.reached("intent-taken-over")
        self._tell(f"looking in {self._topic} for {_count(intent)} of a command that has ended")
        try:
            written = await self._find(taken)
        except RecordsGone as exc:
            raise _gone(exc, self._topic) from exc
        self._source.reached("letters-found")
        self._close(taken, written)
        self._counts.found += len(written)

    async def _find(self, intent: "Intent") -> "list[DeadLetterName]":
        """Return the dead letters of an intent that are in the topic. Raises RecordsGone if that cannot be known."""
        assert self._recall is not None
        await self._recall.fence(intent.facts.sender)
        self._source.reached("sender-fenced")
        wanted = {_property(self._source.id, name): name for name in self._source.unmarked(intent)}
        found: set[DeadLetterName] = set()
        unread = 0
        try:
            async with aclosing(self._recall.behind(_ends_from_json(intent.facts.ends))) as chunks:
                async for chunk in chunks:
                    unread += len(chunk.dead_letters)
                    if chunk.rows:
                        found.update(wanted[name] for name in _names_in(chunk) if name in wanted)
                    chunk.release()
                    if len(found) == len(wanted):
                        break
            if unread and len(found) < len(wanted):
                raise RecordsGone(f"{unread} records cannot be decoded")
        except RecordsGone:
            if len(found) < len(wanted):
                raise
        return sorted(found)

    def _close(self, intent: "Intent", written: "Sequence[DeadLetterName]") -> None:
        self._source.close(intent, written)
        self._source.reached("letters-marked")

    # --- the writer

    async def _drop_writer(self, error: FastwireError) -> None:
        """Close the writer without waiting for receipts."""
        self._writer = None
        with suppress(FastwireError):
            await self._stack.__aexit__(type(error), error, error.__traceback__)

    async def _open(self) -> None:
        if self._writer is None:
            opened = await open_when_up(lambda: self._stack.enter_async_context(self._make_writer(self._source.sender)))
            self._writer = _Target(opened, self._source.id, named=self._recall is not None)


class _Target:
    """A topic for the dead letters of a dataset."""

    def __init__(self, writer: Writer, dataset: str, *, named: bool) -> None:
        self._writer = writer
        self._dataset = dataset
        self._named = named
        self._confirmed = writer.produced.records

    async def write(self, letter: "KeptDeadLetter") -> None:
        """Write a letter with its name and its reason as properties, or without where the system stores none of them.

        Raises ValueError for a letter that the system cannot store.
        """
        name = (PROPERTY, _property(self._dataset, letter.name))
        choices = [(name, ("fastwire-reason", letter.reason)), (name,), ()]
        for properties in choices if not self._named else choices[:2]:
            try:
                await self._writer.write(Put(letter.value, properties=properties))
                return
            except ValueError as exc:
                error = exc
        raise error

    async def confirm(self, count: int) -> None:
        """Wait until the ``count`` dead letters since the last call are confirmed."""
        await self._writer.flush()
        confirmed = self._writer.produced.records - self._confirmed
        self._confirmed += confirmed
        if confirmed != count:
            raise ProduceError(f"{self._writer.topic} has confirmed {confirmed} of {count} dead letters")


def _property(dataset: str, name: "DeadLetterName") -> str:
    return f"{dataset}/{name[0]}-{name[1]}"


def _names_in(chunk: Chunk) -> "Iterator[str]":
    """Yield the names of the dead letters among the records of a chunk."""
    import pyarrow as pa
    import pyarrow.compute as pc

    properties = pa.record_batch(chunk)["headers"].flatten()
    chosen = properties.filter(pc.equal(properties.field("key"), PROPERTY))
    for value in chosen.field("value").to_pylist():
        yield "" if value is None else value.decode(errors="replace")


def _ends_to_json(ends: Mapping[Log, Position]) -> dict[str, Any]:
    return nest((log, format_position(log.system, position)) for log, position in ends.items())


def _ends_from_json(tree: Mapping[str, Any]) -> dict[Log, Position]:
    return {log: parse_position(log.system, text) for log, text in unnest(tree)}


def _count(intent: "Intent") -> str:

    return counted(sum(each.last - each.first + 1 for each in intent.facts.dead_letters), "dead letter")


def _gone(error: RecordsGone, topic: str) -> FastwireError:
    return FastwireError(
        f"it cannot be found out which dead letters a command has written to {topic}: {error}. With --again those "
        "without a mark are written anew"
    )
