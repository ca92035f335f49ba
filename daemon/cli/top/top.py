"""The screen of ``top``: the pipelines of several daemons as tables, drawn again and again."""

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.table import Table
from rich.text import Text

from ...config import HttpAddress
from ...runtime.amounts import format_bytes
from ...runtime.health import Health
from ...runtime.terminal import printable
from ..daemons import PLACES, Daemon, dataset_facts, look_at, number_of, summed, table_of, texts_of

_WARNINGS = 3  # of each daemon
_BEHIND = 3  # partitions of each pipeline, those with the largest backlog
_BLOCKS = "▁▂▃▄▅▆▇█"
NARROW = 70  # below this width the columns that matter least are left out
_NUMBERS = ("rows/s", "bytes/s", "lag", "open roll", "dead")
_WIDE = ("state", *_NUMBERS, "limited by")
_NARROW = ("state", "lag", "dead")
_STATES = {"running": "green", "failed": "bold red"}
_HEALTHS: dict[str, str] = {Health.HEALTHY: "green", Health.DEGRADED: "bold yellow"}


def watch(
    addresses: Sequence[HttpAddress],
    interval_s: float,
    timeout_s: float,
    console: Console,
    pause: Callable[[float], object] = time.sleep,
) -> None:
    """Draw the daemons every ``interval_s`` seconds until KeyboardInterrupt, which ends it without an error."""
    with ThreadPoolExecutor(len(addresses), "top") as threads:

        def look() -> RenderableType:
            seen = list(threads.map(lambda address: look_at(address, timeout_s), addresses))
            return screen(seen, narrow=console.width < NARROW)

        try:
            with Live(look(), console=console, screen=True, auto_refresh=False) as live:
                while True:
                    live.update(look(), refresh=True)
                    pause(interval_s)
        except KeyboardInterrupt:
            return


def screen(daemons: Sequence[Daemon], *, narrow: bool = False) -> RenderableType:
    """Return all daemons, one below the other; ``narrow``: for a terminal of 40 columns."""
    return Group(*(part for daemon in daemons for part in _daemon(daemon, narrow)))


def _daemon(daemon: Daemon, narrow: bool) -> Iterator[RenderableType]:
    head = Text(no_wrap=True, overflow="ellipsis")
    head.append(str(daemon.address), "bold")
    head.append(f"  {daemon.health}", _HEALTHS.get(daemon.health, "bold red"))
    if daemon.error:
        head.append(f"  {printable(daemon.error)}")
    else:
        memory = table_of(daemon.status, "memory")
        used, limit = (format_bytes(int(number_of(memory, name))) for name in ("used", "limit"))
        head.append(f"  memory {used} of {limit}", "dim")
    yield head
    pipelines = daemon.status.get("pipelines", {})
    if pipelines:
        yield _pipelines(pipelines, narrow)
    for name, pipeline in pipelines.items() if not narrow else ():
        for line in _behind(pipeline):
            yield Text(printable(f"  {name}: {line}"), "dim", no_wrap=True, overflow="ellipsis")
    for name, pipeline in pipelines.items():
        for trouble in _troubles(pipeline):
            yield Text(printable(f"  {name}: {trouble}"), "bold red", no_wrap=True, overflow="ellipsis")
    warnings = daemon.status.get("warnings")
    for line in warnings[:_WARNINGS] if isinstance(warnings, list) else ():
        yield Text(printable(f"  {_warning(line)}"), "yellow", no_wrap=True, overflow="ellipsis")
    yield Text()


def _pipelines(pipelines: Mapping[str, Mapping[str, Any]], narrow: bool) -> Table:
    table = Table(box=None, padding=(0, 1), pad_edge=False, header_style="dim")
    table.add_column("  pipeline", no_wrap=True, overflow="ellipsis", ratio=1, min_width=10)
    for title in _NARROW if narrow else _WIDE:
        table.add_column(title, justify="right" if title in _NUMBERS else "left", no_wrap=True, overflow="ellipsis")
    for name, pipeline in pipelines.items():
        state = str(pipeline.get("state", "?"))
        if state == "running" and pipeline.get("health") == Health.DEGRADED:
            state = Health.DEGRADED
        dead_letters = int(number_of(pipeline, "dead_letters"))
        lag = table_of(table_of(pipeline, "source"), "lag")
        cells: dict[str, str | Text] = {
            "state": Text(printable(state), _STATES.get(state, "yellow")),
            "rows/s": f"{number_of(pipeline, 'rows_per_s'):,.0f}",
            "bytes/s": format_bytes(int(number_of(pipeline, "bytes_per_s"))),
            "lag": f"{int(number_of(lag, 'backlog_entries')):,}" if lag else "?",
            "open roll": f"{int(number_of(table_of(pipeline, 'roll'), 'rows')):,}",
            "dead": Text(f"{dead_letters:,}", "bold red" if dead_letters else ""),
            "limited by": Text(printable(str(table_of(pipeline, "stages").get("limit", "")))),
        }
        table.add_row(Text(f"  {printable(name)}"), *(cells[title] for title in (_NARROW if narrow else _WIDE)))
    return table


def _behind(pipeline: Mapping[str, Any]) -> Iterator[str]:
    """Yield the partitions with the largest backlog, each with that of the last hour by minute."""
    logs = table_of(table_of(table_of(pipeline, "source"), "lag"), "logs")
    for log in list(logs)[:_BEHIND]:  # they are in this order
        if backlog := int(number_of(table_of(logs, log), "backlog_entries")):
            yield f"{log} {_drawn(table_of(logs, log).get('lag_history'))} {backlog:,} behind"


def _drawn(history: object) -> str:
    """Return a block for each minute, as high as its share of the largest; a blank where nothing is known."""
    values = [value if isinstance(value, int) else None for value in history] if isinstance(history, list) else []
    most = max((value for value in values if value is not None), default=0) or 1
    return "".join(" " if value is None else _BLOCKS[value * (len(_BLOCKS) - 1) // most] for value in values)


def _troubles(pipeline: Mapping[str, Any]) -> Iterator[str]:
    if pipeline.get("error"):
        yield str(pipeline["error"])
    yield from texts_of(pipeline, "degraded")
    for fact in dataset_facts(pipeline):
        if fact.style:
            yield f"{fact.label} {fact.text}".strip()
    for word, name in PLACES.items():
        for partitions, why in summed(table_of(pipeline, name)):
            yield f"{partitions} {word}: {why}"


def _warning(line: object) -> str:
    if not isinstance(line, dict):
        return ""
    at = str(line.get("ts", "")).partition("T")[2].partition(".")[0]
    fields = " ".join(
        f"{name}={value}" for name, value in line.items() if name not in ("ts", "level", "logger", "event")
    )
    return f"{at} {line.get('level', '')}: {line.get('event', '')} {fields}"
