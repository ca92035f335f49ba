"""The base of the conformance tests of a system: the system under test, its scene, and common checks."""

import asyncio
import functools
import tomllib
from collections.abc import Callable, Coroutine, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, ClassVar, Literal, ParamSpec

import pytest
import uvloop

from fastwire.grammar import Grammar
from fastwire.position import Positions
from fastwire.systems import grammar_of

from ...devbroker.base import DevBroker, dev_broker
from ...devbroker.server import running
from ...systems.base import System
from ...systems.registry import system_named
from .scene import GROUP, TOPIC, MemorySink, Scene, until

Ability = Literal[
    "groups",
    "takeover",
    "growth",
    "recreation",
    "start positions",
    "ends",
    "exact ends",
    "keys",
    "headers",
    "null values",
    "partial confirmation",
]

P = ParamSpec("P")


def on_a_loop(test: Callable[P, Coroutine[Any, Any, None]]) -> Callable[P, None]:
    """Make a test of a coroutine, which runs on an event loop of asyncio, as in the commands."""
    return _on(asyncio.new_event_loop, test)


def on_uvloop(test: Callable[P, Coroutine[Any, Any, None]]) -> Callable[P, None]:
    """Make a test of a coroutine, which runs on an event loop of uvloop, as in the daemon."""
    return _on(uvloop.new_event_loop, test)


def _on(
    make_loop: Callable[[], asyncio.AbstractEventLoop], test: Callable[P, Coroutine[Any, Any, None]]
) -> Callable[P, None]:
    @functools.wraps(test)
    def run(*args: P.args, **kwargs: P.kwargs) -> None:
        with asyncio.Runner(loop_factory=make_loop) as runner:
            runner.run(test(*args, **kwargs))

    return run


class SystemSuite:
    """The attributes that a subclass sets, and what the tests share."""

    system: ClassVar[str]
    """The name of the system."""

    source: ClassVar[Mapping[str, Any]] = {}
    """More keys of ``[pipelines.X.source]``: a type of subscription, or intervals that a test can wait for."""

    lacks: ClassVar[Mapping[Ability, str]] = {}
    """The abilities that the system lacks, with the reasons. Tests that need one are skipped and show the reason.

    * ``groups``: the broker keeps the progress of a group, so that a backlog can be counted. Without groups the
      dataset is the only cursor.
    * ``takeover``: a pipeline goes on with the partitions of another one that has left.
    * ``growth``: partitions can be added to a topic.
    * ``recreation``: a topic that was deleted and created again is read on.
    * ``start positions``: the key ``start`` takes positions of partitions.
    * ``ends``: the key ``end`` of a source: a run that lands nothing behind it.
    * ``exact ends``: without it some records behind an end land, because the broker does not say where each lies.
    * ``keys``, ``headers``, ``null values``: records may have them.
    * ``partial confirmation``: the broker's cursor can stand behind any record.
    """

    ordered: ClassVar[bool] = True
    """True if the records of a partition arrive in order."""

    def make_broker(self) -> DevBroker:
        """Return a new embedded broker of the system, not started."""
        return dev_broker(self.system)

    @pytest.fixture
    def scene(self) -> Iterator[Scene]:
        """A running embedded broker with a topic of two partitions; it has recorded no violation in the end."""
        with self.serving() as scene:
            yield scene

    @contextmanager
    def serving(self) -> Iterator[Scene]:
        """Run a new embedded broker with the topic. Raises AssertionError if it has recorded violations."""
        with running(self.make_broker()) as broker:
            try:
                yield Scene(broker, self.source)
            except BaseException as exc:
                for violation in broker.violations:
                    exc.add_note(f"the embedded broker has recorded a violation: {violation}")
                raise
        assert broker.violations == [], "the embedded broker has recorded violations of the protocol"

    # --- parts of the tests

    @property
    def _grammar(self) -> Grammar:
        grammar = grammar_of(f"{self.system}://host")
        assert grammar is not None, f"no system has the scheme {self.system}://"
        return grammar

    @property
    def _positions(self) -> Positions:
        return self._grammar.positions

    @property
    def _system(self) -> System:
        return system_named(self.system)

    def _start_example(self) -> tuple[str, str]:
        """Return the partition and the position of the example of ``start``, for the topic of the scene."""
        text = self._grammar.start_example.replace("<topic>", self._grammar.topic(TOPIC))
        ((partition, position),) = tomllib.loads(f"start = {text}")["start"].items()
        return partition, position

    def _needs(self, *abilities: Ability) -> None:
        for ability in abilities:
            if ability in self.lacks:
                pytest.skip(f"{self.system} lacks {ability}: {self.lacks[ability]}")

    def _check(self, scene: Scene, sink: MemorySink) -> None:
        """Check that all produced records have landed, each once and in the order of its partition."""
        assert sorted(sink.values) == sorted(scene.produced)
        if self.ordered:
            for partition in {row.partition for row in sink.rows}:
                values = [row.value for row in sink.rows if row.partition == partition]
                found = set(values)
                assert values == [value for value in scene.produced if value in found]

    def _backlog(self, scene: Scene) -> int:
        try:
            return scene.broker.backlog(TOPIC, GROUP)
        except KeyError:
            return len(scene.produced)  # the group has acknowledged nothing yet

    async def _check_backlog(self, scene: Scene, rows: int) -> None:
        """Check that the group has all but ``rows`` records acknowledged."""
        if "groups" not in self.lacks:
            await until(lambda: self._backlog(scene) == rows, f"a backlog of {rows}", lambda: self._backlog(scene))
