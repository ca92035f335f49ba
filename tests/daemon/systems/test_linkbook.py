"""The connections to one cluster: shared by all callers while they are open, none opened once they are closed."""

import asyncio
from typing import Any

import pytest

from fastwire.errors import FastwireError
from fastwire_daemon.systems.links.linkbook import LinkBook


class Link:
    """A link that opens at once."""

    def __init__(self, book: "Book") -> None:
        self.book = book
        self.ready = False
        self.lost: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    async def open(self) -> None:
        await asyncio.sleep(0)
        self.ready = True

    def close(self) -> None:
        self.ready = False
        self.lost.set_result(None)
        self.book.on_closed()

    def abort(self, reason: str) -> None: ...


class Book(LinkBook[str, Any]):
    made = 0
    later: "asyncio.Task[Any] | None" = None

    def _make(self, key: str) -> Any:
        self.made += 1
        return Link(self)

    async def link(self, key: str) -> Any:
        return await self._link(key)

    def on_closed(self) -> None:
        """A user of a lost link asks for another one."""
        self.later = asyncio.get_running_loop().create_task(self.link("b"))


async def test_callers_share_the_link_of_a_broker() -> None:
    book = Book()
    one, other = await asyncio.gather(book.link("a"), book.link("a"))
    assert one is other is await book.link("a")
    assert book.made == 1


async def test_no_link_is_opened_after_or_during_the_close() -> None:
    book = Book()
    await book.link("a")
    await book.close()
    assert book.later is not None
    with pytest.raises(FastwireError, match="closed"):
        await book.later
    with pytest.raises(FastwireError, match="closed"):
        await book.link("a")
    assert (book.made, book.ready) == (1, False)
