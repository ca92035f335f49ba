"""The contract of writers whose records and positions are one transaction of the brokers of the topic."""

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import NamedTuple, Protocol

from .produced import ProduceError
from .writer import Writer


class LedgerRefused(ProduceError):  # noqa: N818 - what the brokers do
    """The brokers have no transactions, or let this client have none, whatever it tries again."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LedgerOptions:
    """``name`` is unique to a writer, ``topic`` keeps the entries, a transaction may take ``timeout_s`` seconds.

    ``dead_letters`` is the topic of the dead letters; "" if there is none.
    """

    name: str
    topic: str
    timeout_s: float
    dead_letters: str = ""


class LedgerFinding(NamedTuple):
    """The result of a check: ``detail`` is a sentence for the user.

    ``refused`` is true if ``System.open_ledger`` would raise LedgerRefused.
    """

    ok: bool
    detail: str
    refused: bool = False


class LedgerWriter(Writer, Protocol):
    """A writer whose records become visible with entries: a key has its last committed value.

    Records belong to the transaction that the first of them begins. An error means that it is lost: close the writer,
    open another one of the same name, and read the entries, which tell what was committed. Methods raise
    TransactionLost if another writer has fenced this one, LedgerRefused, and FastwireError.
    """

    @property
    def name(self) -> str:
        """The name by which others can fence this writer."""

    @property
    def dead_letters(self) -> Writer | None:
        """The writer of dead letters, whose records belong to the same transaction; None if they have no topic."""

    async def settle(self, rivals: Callable[[Iterable[bytes]], Collection[str]]) -> None:
        """Return when the commits of all writers that had begun before the call have ended, so that none hides others.

        One that takes more than a few seconds may be that of a killed process, which the brokers end after its
        ``timeout_s`` only. Then ``rivals`` gets the keys of all entries, also of those that are not committed, and
        the writers that it names are fenced. Raises ProduceError if a commit has not ended in 15 minutes.
        """

    async def entries(self) -> dict[bytes, bytes]:
        """Return the committed entries of all writers, in the order of their commits.

        Without ``settle`` the last ones may be hidden behind a commit that is open.
        """

    async def fence(self, name: str) -> None:
        """Abort the transaction of another writer; on return it can commit nothing more before it is opened again."""

    async def commit(self, entries: Mapping[bytes, bytes | None]) -> None:
        """Commit the records since the last commit together with ``entries``; None deletes one."""
