"""The command ``dead``: shows the dead letters of a dataset, and writes them out as files."""

from pathlib import Path
from typing import Annotated

import typer

from fastwire.errors import FastwireError
from fastwire.systems import grammars

from ...runtime.amounts import counted
from ..options import BrokerOptions, DatasetPlace, StoreAccess, argument, with_broker_options
from ..say import say

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
        typer.Option(
            metavar="FOLDER", help="Write the raw bytes of each into a file, and dead-letters.jsonl beside them."
        ),
    ] = None,
    replay: Annotated[
        tuple[str, str] | None,
        typer.Option(
            "--replay",
            metavar="URL TOPIC",
            help=f"Write the values to a topic ({_SYSTEMS}) and mark them: exactly once where there are properties. "
            "{topic} in TOPIC is the topic of the dataset.",
        ),
    ] = None,
    again: Annotated[
        bool,
        typer.Option(
            "--again",
            help="With --replay: write anew what a killed command may have written, where that cannot be found out.",
        ),
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object, with --list one for each.")] = False,
    config: StoreAccess = None,
    *,
    broker: BrokerOptions,
) -> None:
    """Show the dead letters of a dataset. They are records that could not be decoded, with reasons and positions.

    For a folder of many datasets they are those of all. Without --replay nothing in the dataset is changed. Daemons may
    write meanwhile.
    """
    if replay is not None:
        if each or write is not None:
            raise typer.BadParameter("stands alone, or with --reason", param_hint="--replay")
        _replay(path, config, replay, reason, broker, again=again, as_json=as_json)
        return
    if again:
        raise typer.BadParameter("stands with --replay", param_hint="--again")
    from ...dataset.deadletters.reader import dead_letters
    from ..roots import Each
    from ..stores import datasets_at
    from .deadletters import DeadLetterFolder, DeadLetterReasons, dead_letter_line, show_dead_letter

    sums = DeadLetterReasons(path)
    folder = None if write is None else DeadLetterFolder(write)
    datasets = Each(datasets_at(path, config))
    for letter in datasets.results(dead_letters):
        if reason is not None and letter.kind != reason:
            continue
        sums.add(letter)
        if folder is not None:
            folder.add(letter)
        if each:
            typer.echo(dead_letter_line(letter)) if as_json else show_dead_letter(letter)
    if folder is not None:
        folder.close()
    if not each or not as_json:
        sums.show(as_json=as_json)
    datasets.end(as_json=as_json)


def _replay(
    path: str,
    config: Path | None,
    target: tuple[str, str],
    reason: str | None,
    broker: BrokerOptions,
    *,
    again: bool,
    as_json: bool,
) -> None:
    """Write the dead letters of a dataset, or of all in a folder, to a topic or each to its own, and print how many."""
    import asyncio
    import json

    from ...config.values.fields import TOPIC
    from ...dataset.deadletters.replay import Replay
    from ...dataset.storage.bucket import Bucket
    from ...runtime.logs import configure
    from ...systems.registry import recall_of, system_named
    from ...systems.writer import WriteOptions
    from ..retry import is_refused
    from ..roots import Each
    from ..stores import datasets_at
    from .replay import DeadLetterReplay, Replayed, topic_in, waits_for_replay

    url, wanted = target
    connection = broker.connection(url)
    system = system_named(connection.system)
    with argument("--replay"):
        system.grammar.topic(wanted.replace(TOPIC, "topic"))
    configure(level="warning")
    counts, away = Replayed(), list[FastwireError]()
    datasets = Each(datasets_at(path, config))

    def tell(line: str) -> None:
        say(line, err=True)

    async def run(source: Replay, topic: str) -> None:
        recall = recall_of(connection, topic)
        if recall is None:
            tell(
                f"{system.grammar.title} stores no properties: dead letters of a command that is killed are "
                "written again"
            )
        replay = DeadLetterReplay(
            source,
            str(connection.url),
            topic,
            lambda name: system.open_writer(connection, topic, WriteOptions(batch=1000, name=name, resend=False)),
            recall,
            counts,
            tell=tell,
        )
        await replay.run(reason, again=again)

    def act(place: str, bucket: Bucket | None) -> list[str]:
        if len(datasets.places) > 1 and not waits_for_replay(place, bucket):
            return []
        before = counts.written
        name = wanted.replace(TOPIC, topic_in(place, bucket)) if TOPIC in wanted else wanted
        try:
            topic = system.grammar.topic(name)
        except ValueError as exc:
            raise FastwireError(f"the dead letters have no topic to go to: {exc}") from None
        if away:
            raise away[0]  # each would wait for it again
        try:
            with Replay(place, bucket) as source:
                asyncio.run(run(source, topic))
        except FastwireError as exc:
            away[:] = [exc] if is_refused(exc) else []
            raise
        return [place] if counts.written > before else []

    done = False
    try:
        those = list(datasets.results(act))
        done = True
    finally:
        if not (done or counts.written or counts.found):
            pass  # the error says it all
        elif as_json:
            typer.echo(json.dumps({"path": path} | counts.to_json()))
        else:
            of = f" of {len(those):,} of {counted(len(datasets.places), 'dataset')}" if len(datasets.places) > 1 else ""
            say(f"{path}: {counted(counts.written, 'dead letter')}{of} written to {wanted} and marked")
            for line in counts.lines():
                say(f"  {line}")
    datasets.end(as_json=as_json)
