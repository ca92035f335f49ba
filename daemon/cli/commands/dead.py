"""The command ``dead``: shows the dead letters of a dataset, and writes them out as files."""

from pathlib import Path
from typing import Annotated

import typer

from fastwire.systems import grammars

from ..options import BrokerOptions, DatasetPlace, StoreAccess, argument, refuse, with_broker_options

__all__ = ["dead"]


_SYSTEMS = ", ".join(grammar.title for grammar in grammars())


@with_broker_options(reading=False)
def dead(
    path: DatasetPlace,
    reason: Annotated[
        str | None, typer.Option(metavar="NAME", help="Only those with this reason, such as Truncated.")
    ] = None,
    each: Annotated[bool, typer.Option("--list", help="Show each one, with its first bytes.")] = False,
    write: Annotated[
        Path | None,
        typer.Option(metavar="FOLDER", help="Write the raw bytes of each into a file, and letters.jsonl beside them."),
    ] = None,
    replay: Annotated[
        tuple[str, str] | None,
        typer.Option(
            "--replay",
            metavar="URL TOPIC",
            help=f"Write the values to a topic ({_SYSTEMS}), each once: those that were written are marked.",
        ),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object, with --list one a letter.")] = False,
    config: StoreAccess = None,
    *,
    broker: BrokerOptions,
) -> None:
    """Show the dead letters of a dataset: records that could not be decoded, with reasons and positions.

    Without --replay nothing in the dataset is changed. Daemons may write meanwhile.
    """
    if replay is not None:
        if each or write is not None:
            raise typer.BadParameter("stands alone, or with --reason", param_hint="--replay")
        _replay(path, config, replay, reason, broker, as_json=as_json)
        return
    from ...dataset.letters import dead_letters
    from ..letters import LetterFolder, LetterSums, letter_line, show_letter
    from ..stores import bucket_at

    sums = LetterSums(path)
    folder = None if write is None else LetterFolder(write)
    for letter in dead_letters(path, bucket_at(path, config)):
        if reason is not None and letter.kind != reason:
            continue
        sums.add(letter)
        if folder is not None:
            folder.add(letter)
        if each:
            typer.echo(letter_line(letter)) if as_json else show_letter(letter)
    if folder is not None:
        folder.close()
    if not each or not as_json:
        sums.show(as_json=as_json)


def _replay(
    path: str, config: Path | None, target: tuple[str, str], reason: str | None, broker: BrokerOptions, *, as_json: bool
) -> None:
    """Write the dead letters of a dataset to a topic, and print how many."""
    import asyncio
    import json
    from functools import partial

    from ...config import ConfigError, parse_connection
    from ...dataset.letters import Replay
    from ...dataset.report import counted
    from ...runtime.logs import configure
    from ...systems.registry import system_named
    from ...systems.writer import WriteOptions
    from ..replay import Replayed, replay
    from ..stores import bucket_at

    url, topic = target
    try:
        connection = parse_connection({"url": url} | broker.keys())
        system = system_named(connection.system)
        with argument("--replay"):
            system.grammar.topic(topic)
    except ConfigError as exc:
        refuse(exc, broker)
    configure(level="warning")
    make_writer = partial(system.open_writer, connection, topic, WriteOptions(batch=1000))
    counts = Replayed()
    try:
        with Replay(path, bucket_at(path, config)) as source:
            asyncio.run(replay(source, make_writer, reason, counts))
    finally:
        if as_json:
            typer.echo(json.dumps({"path": path, "replayed": counts.written, "not_values": counts.entries}))
        else:
            typer.echo(f"{path}: {counted(counts.written, 'dead letter')} written to {topic} and marked")
            if counts.entries:
                typer.echo(f"  {counts.entries:,} left out: whole entries of a broker, which are no values")
