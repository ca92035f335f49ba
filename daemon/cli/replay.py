"""``fastwire-consume dead --replay``: writes dead letters back to a topic, and marks them in the dataset."""

from collections.abc import Callable
from contextlib import AbstractAsyncContextManager, AsyncExitStack
from typing import TYPE_CHECKING

from fastwire.errors import FastwireError

from ..systems.writer import Put, Writer
from .retry import open_when_up

if TYPE_CHECKING:
    from ..dataset.letters import KeptLetter, Replay

__all__ = ["Replayed", "replay"]

# Letters are marked after so many, or so many bytes: what is sent again after a kill.
_MARKED_RECORDS, _MARKED_BYTES = 1000, 8 << 20


class Replayed:
    """Counts of a replay: letters that were written and marked, and those that are no values."""

    def __init__(self) -> None:
        self.written = 0
        self.entries = 0


async def replay(
    source: "Replay",
    make_writer: Callable[[], AbstractAsyncContextManager[Writer]],
    reason: str | None,
    counts: Replayed,
) -> None:
    """Write the letters of ``source``, or those with one reason, and mark them when the brokers have confirmed them.

    Raises FastwireError; letters that were marked before stay so.
    """
    sent: list[KeptLetter] = []
    size = 0
    async with AsyncExitStack() as stack:
        writer = await open_when_up(lambda: stack.enter_async_context(make_writer()))
        target = _Target(writer, source.id)
        for letter in source.letters(reason):
            try:
                value = letter.value
            except ValueError:
                counts.entries += 1
                continue
            await target.write(letter, value)
            sent.append(letter)
            size += len(letter.payload)
            if len(sent) >= _MARKED_RECORDS or size >= _MARKED_BYTES:
                await _mark(source, writer, sent, counts)
                sent, size = [], 0
        await _mark(source, writer, sent, counts)


async def _mark(source: "Replay", writer: Writer, sent: "list[KeptLetter]", counts: Replayed) -> None:
    if not sent:
        return
    await writer.flush()
    if (confirmed := writer.produced.records) != counts.written + len(sent):
        raise FastwireError(f"{writer.topic} has confirmed {confirmed - counts.written} of {len(sent)} dead letters")
    source.mark(sent)
    counts.written += len(sent)


class _Target:
    """A topic for the letters of a dataset."""

    def __init__(self, writer: Writer, dataset: str) -> None:
        self._writer = writer
        self._dataset = dataset
        self._has_properties = True

    async def write(self, letter: "KeptLetter", value: bytes | None) -> None:
        """Write a letter, with its name and its reason as properties where the system has them."""
        name = f"{self._dataset}/{letter.entry}-{letter.number}"
        put = Put(value, properties=(("fastwire-letter", name), ("fastwire-reason", letter.reason)))
        if self._has_properties:
            try:
                await self._writer.write(put)
                return
            except ValueError:
                self._has_properties = False
        try:
            await self._writer.write(put._replace(properties=()))
        except ValueError as exc:
            raise FastwireError(f"dead letter {letter.entry}-{letter.number} cannot be written: {exc}") from exc
