"""The connections to one cluster: shared by all callers while they are open, none opened once they are closed."""

import asyncio
from typing import Any

import pytest

from fastwire.errors import FastwireError
from fastwire_daemon.net.auth import AuthError
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


class Closed(Book):
    """A cluster of which broker "a" refuses every login until its account is mended."""

    mended = False

    def _make(self, key: str) -> Any:
        link = super()._make(key)
        if key == "a":
            link.open = self._open_a(link)
        return link

    def _open_a(self, link: Link) -> Any:
        async def open_or_refuse() -> None:
            if not self.mended:
                raise AuthError("wrong password")
            await Link.open(link)

        return open_or_refuse


async def test_a_refused_login_is_repeated_after_pauses_that_double(monkeypatch: pytest.MonkeyPatch) -> None:
    book, now = Closed(), [1000.0]
    monkeypatch.setattr(asyncio.get_running_loop(), "time", lambda: now[0])

    async def ask_for(seconds: float) -> int:
        """Ask for a link every 50 ms; return how many logins came of it."""
        before, until = book.made, now[0] + seconds
        while now[0] < until:
            with pytest.raises(AuthError, match="wrong password"):
                await book.link("a")
            now[0] += 0.05
        return book.made - before

    assert 5 <= await ask_for(10) <= 9
    assert await ask_for(600) <= 16  # 60 s each at most, shortened by a fifth
    assert "wrong password" in book.failure
    before = book.made
    assert (await book.link("b")).ready  # another broker's refusal is none of its own
    assert book.made == before + 1
    book.mended = True
    now[0] += 60
    assert (await book.link("a")).ready
    book.mended, book.links["a"].ready = False, False
    assert 5 <= await ask_for(10) <= 9  # a success has ended the long pauses
    await book.close()


async def test_links_to_one_peer_share_its_pause() -> None:
    class Shared(Closed):
        def _peer(self, key: str) -> str:
            return "one host"

    book = Shared()
    for key in ("a", "b"):
        with pytest.raises(AuthError):
            await book.link(key)
    assert book.made == 1
