"""Rules for every test: its kind, its longest time, and a summary that hides no skip."""

import gc
import logging
import os
import time
from collections import Counter
from collections.abc import Iterator

import pytest
from hypothesis import settings
from xdist.remote import Producer

from fastwire_daemon.runtime import logs
from tests.brokers.ports import free_ports
from tests.support.abilities import marked, read, written
from tests.support.loops import Loops, loops_of
from tests.support.sharing import ByBroker, turn
from tests.support.soaked import Part, Soaked, commit
from tests.support.soaked import settings as soak_settings

pytest_plugins = ["tests.brokers.fixtures", "tests.databases.fixtures", "tests.stores.fixtures"]

# A kind of test, and the seconds after which one of them is taken to hang (fixtures count: a broker may have to be
# downloaded first). A test without any of these marks is a unit test, with the limit of pyproject.toml.
KINDS = {
    "packaging": 600,
    "model": 900,
    "crash": 600,
    "spark": 600,
    "broker": 900,
    "store": 1800,  # the first time a program is compiled
    "database": 600,
    "soak": 4 * 3600,
    "bench": 900,
    "instructions": 900,
}

DONE = "done"  # the property by which a test says in the closing summary how much it has done
EVERYTHING = "not soak and not bench"  # the choice of `make test`
SOAK = "soak"  # the choice of `make soak`
BEGAN = time.monotonic()
PART = Part.parse(os.environ.get("FASTWIRE_SOAK_PART", ""))
OUTCOMES = ("passed", "failed", "error", "skipped")
FAILURE_CHARS = 6000  # of a failure, where it is shown at once

# No test is timed. A build server has the same cases every time; whoever works on the code gets new ones.
settings.register_profile("fastwire", deadline=None, print_blob=True, derandomize="CI" in os.environ)
settings.load_profile("fastwire")


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Before -m chooses: mark what is a unit test, give the slow kinds their time; with workers the slow go first."""
    for item in items:
        limits = [seconds for kind, seconds in KINDS.items() if item.get_closest_marker(kind)]
        if not limits:
            item.add_marker(pytest.mark.unit)
        elif item.get_closest_marker("timeout") is None:
            item.add_marker(pytest.mark.timeout(max(limits)))
    if config.option.markexpr == SOAK:
        soak = [item.nodeid for item in items if item.get_closest_marker(SOAK)]
        others = set(soak) - PART.of(soak)
        config.hook.pytest_deselected(items=[item for item in items if item.nodeid in others])
        items[:] = [item for item in items if item.nodeid not in others]
    if "PYTEST_XDIST_WORKER" in os.environ:
        items.sort(key=lambda item: turn(item.nodeid))


@pytest.hookimpl(trylast=True)
def pytest_collection_finish() -> None:
    """Modules and tests stay to the end: the many looks for garbage need not pass them each time."""
    gc.collect()
    gc.freeze()


def pytest_sessionfinish() -> None:
    """Let compiled libraries release their objects as always, or they would report leaks."""
    gc.unfreeze()


def pytest_asyncio_loop_factories(item: pytest.Item) -> Loops:
    """The loop of coroutine tests: uvloop's, as in the daemon."""
    return loops_of(item, "uvloop")


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Producer) -> ByBroker:
    """Under -n: which worker gets which tests."""
    return ByBroker(config, log)


@pytest.fixture
def unused_tcp_port() -> int:
    """As pytest-asyncio's, but no other process is given the port before the test listens there."""
    return free_ports(1)[0]


@pytest.fixture(autouse=True)
def _logs_as_before() -> Iterator[None]:
    """Commands that run within a test say what is logged from there on: the next test knows nothing of it."""
    root, ours = logging.getLogger(), logging.getLogger("fastwire")
    before = root.handlers[:], root.level, ours.level
    yield
    root.handlers[:], level, ours_level = before
    root.setLevel(level)
    ours.setLevel(ours_level)
    logging.captureWarnings(False)
    logs._console = None


def skip_reason(report: pytest.TestReport | pytest.CollectReport) -> str:
    """Why a test was skipped, in the words of whoever skipped it."""
    if isinstance(report.longrepr, tuple):
        return report.longrepr[2].removeprefix("Skipped: ")
    return str(report.longrepr)


def show_abilities(terminalreporter: pytest.TerminalReporter) -> None:
    """Print what is shown to work, by witness, with the outcomes of this run."""
    outcomes: dict[str, set[str]] = {}
    for outcome in OUTCOMES:
        for report in terminalreporter.stats.get(outcome, []):
            outcomes.setdefault(report.nodeid.partition("::")[0], set()).add(outcome)
    terminalreporter.section("abilities", sep="-")
    for line in written(list(read()), lambda modules: marked(modules, outcomes)):
        terminalreporter.write_line(line)


class FailuresAtOnce:
    """Shows each failure when it happens: the end of a soak is hours away."""

    def __init__(self, config: pytest.Config) -> None:
        self._config = config

    @pytest.hookimpl(trylast=True)
    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed:
            terminal: pytest.TerminalReporter = self._config.pluginmanager.getplugin("terminalreporter")
            terminal.write_line(f"\n{report.nodeid}:\n{report.longreprtext[-FAILURE_CHARS:]}")


def pytest_configure(config: pytest.Config) -> None:
    """Choose what a soak shows."""
    if config.option.markexpr == SOAK and not hasattr(config, "workerinput"):
        config.pluginmanager.register(FailuresAtOnce(config))


def show_tests(terminalreporter: pytest.TerminalReporter) -> tuple[dict[str, dict[str, int]], dict[str, float]]:
    """A line a test function: how its cases ended, and how long they took, their fixtures included. Return both."""
    ended: dict[str, Counter[str]] = {}
    seconds: dict[str, float] = {}
    for outcome in ("", *OUTCOMES):  # "": fixtures that were set up and taken down
        for report in terminalreporter.stats.get(outcome, []):
            name = report.nodeid.partition("[")[0]
            seconds[name] = seconds.get(name, 0.0) + report.duration
            if outcome:
                ended.setdefault(name, Counter())[outcome] += 1
    terminalreporter.section("tests", sep="-")
    for name, outcomes in sorted(ended.items()):
        counts = ", ".join(f"{times} {outcome}" for outcome, times in sorted(outcomes.items()))
        terminalreporter.write_line(f"{seconds[name] / 60:6.1f} min  {name}: {counts}")
    return {name: dict(outcomes) for name, outcomes in ended.items()}, seconds


@pytest.hookimpl(trylast=True)
def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    """Say what did not run and why, grouped, right above the closing line."""
    if config.option.markexpr == EVERYTHING and not config.option.collectonly:
        show_abilities(terminalreporter)
    soaks = config.option.markexpr == SOAK and not config.option.collectonly
    ended, seconds = show_tests(terminalreporter) if soaks else ({}, {})
    done = [
        value
        for report in terminalreporter.getreports("passed")
        for name, value in report.user_properties
        if name == DONE
    ]
    if done:
        terminalreporter.section("done", sep="-")
        for line in done:
            terminalreporter.write_line(str(line))
    reasons = Counter(skip_reason(report) for report in terminalreporter.stats.get("skipped", []))
    if soaks:
        ran = {report.nodeid for outcome in OUTCOMES for report in terminalreporter.stats.get(outcome, [])}
        took = {name: round(seconds[name], 1) for name in ended}
        lines = tuple(map(str, done))
        whole = time.monotonic() - BEGAN
        soaked = Soaked(commit(), PART, tuple(sorted(ran)), ended, whole, lines, dict(reasons), took, soak_settings())
        soaked.write()
        terminalreporter.write_line(f"part {PART.number} of {PART.parts}: {PART.file}")
    if not reasons:
        return
    terminalreporter.section(f"{reasons.total()} skipped", sep="-")
    for reason, count in reasons.most_common():
        terminalreporter.write_line(f"{count:6}  {reason}")
