"""The command ``demo``: lands records of a broker that it starts."""

from pathlib import Path
from typing import Annotated, Literal

import typer

from ..options import System

FIRST = next(iter(System))


def demo(
    records: Annotated[
        int, typer.Option("--records", metavar="N", min=1, help="Number of records to produce.")
    ] = 1_000_000,
    path: Annotated[Path, typer.Option("--path", help="Folder of the new dataset.")] = Path("demo-data"),
    system: Annotated[System, typer.Option("--system", help="Message system to use.")] = FIRST,
    broker: Annotated[
        Literal["embedded", "real"],
        typer.Option(
            "--broker", help="real: a real broker, where the source tree can start one (needs Java and Maven)."
        ),
    ] = "embedded",
) -> None:
    """Produce, land as Parquet, verify, and print the figures."""
    from ...systems.registry import system_named
    from .demo import demo as run_demo

    if broker == "real" and not system_named(system.value).real_demo:
        title = system_named(system.value).grammar.title
        raise typer.BadParameter(f"{title} has only the embedded broker", param_hint="--broker")
    run_demo(records=records, path=path, system=system.value, broker=broker)
