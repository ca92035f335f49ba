"""Pipelines with a dataset for each topic that lack one rule each: see ``weakened``."""

from fastwire.coverage import Coverage
from fastwire.position import Span
from fastwire_daemon.pipeline.fanout.landing import Landing

from .fanout import Daemon, SteppedFanOut
from .fanrun import FAN_SCENARIOS
from .weakened import Weakened


class AnyCommitAcks(SteppedFanOut):
    """A commit of one dataset acknowledges what was received for all that are open."""

    def landed(self, landing: Landing, coverage: Coverage) -> None:
        super().landed(landing, coverage)
        together = self.coverage.copy()
        for index, log in enumerate(self.source.logs):
            end, received = together.end(log), self.source.position(index)
            if end is not None and received is not None and received > end:
                together.add(Span(log, end, received, 0))
        self.source.landed(together)


class NotAskedForAgain(SteppedFanOut):
    """The records of a void roll are not asked for again: they would come with the next start."""

    def let_go(self, landing: Landing) -> None:
        pass


class OneFailureEndsAll(SteppedFanOut):
    """A dataset that refuses ends the pipeline."""

    def _note_failure(self, landing: Landing, error: Exception, *, again: bool = True) -> None:
        super()._note_failure(landing, error, again=again)
        self._fail(error)


class NeverTriedAgain(SteppedFanOut):
    """A dataset that has refused waits for a new start."""

    def _note_failure(self, landing: Landing, error: Exception, *, again: bool = True) -> None:
        super()._note_failure(landing, error, again=False)


class RefusedBelieved(SteppedFanOut):
    """The records of a dataset that refuses are dropped, and acknowledged: nobody asks for them again."""

    def _note_failure(self, landing: Landing, error: Exception, *, again: bool = True) -> None:
        super()._note_failure(landing, error, again=again)
        for index in landing.indexes:
            broker, partition = self.source._of[index]  # type: ignore[attr-defined]
            broker.ack(partition, 0)


def _with(fanout: type[SteppedFanOut]) -> type[Daemon]:
    return type(f"{fanout.__name__}Daemon", (Daemon,), {"fanout_class": fanout})


WEAKENED_FANOUT = tuple(
    Weakened(name, _with(fanout), scenarios=FAN_SCENARIOS, fate=fate)
    for name, fanout, fate in (
        ("acks that follow the commit of any dataset", AnyCommitAcks, "kill"),
        ("acks of what was refused", RefusedBelieved, "kill"),
        ("a void roll that is not asked for again", NotAskedForAgain, "fail"),
        ("a dataset that refuses ends all", OneFailureEndsAll, "kill"),
        ("a dataset that refuses is not tried again", NeverTriedAgain, "kill"),
    )
)
