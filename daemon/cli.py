"""``fastwire-consume``: the command line.

Modules are imported by the command that needs them, for everybody waits for ``--help`` and nobody for pyarrow.
"""

import errno
import sys
from collections.abc import Callable, Mapping, Sequence
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NoReturn

import typer

from fastwire import __version__
from fastwire.errors import FastwireError

from .options import BrokerOptions, refuse, with_broker_options

if TYPE_CHECKING:
    from .config import Config, ConfigError, SparkConfig

__all__ = ["EXIT_CONFIG", "EXIT_DONE", "EXIT_FAILED", "EXIT_USAGE", "app", "main"]

EXIT_DONE = 0
EXIT_FAILED = 1
EXIT_USAGE = 2
EXIT_CONFIG = 78

app = typer.Typer(
    name="fastwire-consume",
    help="Moves records from message brokers into files, exactly once.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,  # they show local variables, and so secrets
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
)

ConfigPath = Annotated[Path, typer.Argument(metavar="CONFIG", help="Configuration file (TOML).", show_default=False)]


def main() -> NoReturn:
    """Run the command that was typed; always ends the process, with one of the four exit codes."""
    try:
        app(prog_name="fastwire-consume")  # also for `python -m`
    except Exception as exc:
        sys.exit(_explain(exc))
    sys.exit(EXIT_DONE)


def _explain(exc: Exception) -> int:
    """Say what went wrong in words that help; return the exit code of that kind of failure."""
    from .config import ConfigError
    from .errors import DatasetMismatchError

    if isinstance(exc, ConfigError):
        _say_problems(exc)
        return EXIT_CONFIG
    if isinstance(exc, FastwireError):
        _say(str(exc))
        hopeless = isinstance(exc, DatasetMismatchError) or getattr(exc, "configuration", False)
        return EXIT_CONFIG if hopeless else EXIT_FAILED
    if isinstance(exc, OSError) and exc.strerror:
        _say(f"{exc.filename}: {exc.strerror}" if exc.filename is not None else exc.strerror)
        return EXIT_FAILED
    from .logs import configure, get_logger

    configure()
    get_logger("cli").exception("failed by a fault of this program", error=f"{type(exc).__name__}: {exc}")
    return EXIT_FAILED


def _say(text: str) -> None:
    typer.echo(text, err=True)


def _say_problems(exc: "ConfigError") -> None:
    for problem in exc.problems:
        _say(str(problem))
    count = len(exc.problems)
    if count > 1:
        _say(f"{count} mistakes in the configuration")


def _version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"fastwire-consume {__version__}")
        raise typer.Exit


@app.callback()
def _common(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Show the version and exit.")
    ] = False,
) -> None:
    pass


# -- run, check ------------------------------------------------------------------------------------------------------


@app.command()
def run(
    config: ConfigPath,
    pipeline: Annotated[
        list[str] | None, typer.Option("--pipeline", "-p", metavar="NAME", help="Only this pipeline; may be repeated.")
    ] = None,
    until_end: Annotated[
        bool, typer.Option("--until-end", help="Read up to where the topics end now, commit, and exit.")
    ] = False,
    max_records: Annotated[
        int | None, typer.Option("--max-records", metavar="N", min=1, help="Stop after about N records a pipeline.")
    ] = None,
    verbose: Annotated[bool, typer.Option("--verbose", "-v", help="Log what only a hunt for a fault needs.")] = False,
) -> None:
    """Run pipelines until they are stopped: the first SIGTERM or Ctrl-C commits what has been read, a second aborts."""
    from .config import load_config
    from .logs import configure

    loaded = load_config(config)
    _require_pipelines(loaded, pipeline)
    configure(level="debug" if verbose else "info")
    from .service import run_service

    code = run_service(loaded, pipelines=pipeline, until_end=until_end, max_records=max_records)
    raise typer.Exit(code)


def _require_pipelines(config: "Config", names: Sequence[str] | None) -> None:
    from .config import ConfigError, Problem
    from .config.text import nearest

    if not config.pipelines:
        missing = "is required: at least one; `fastwire-consume spark` is what runs jobs on Spark"
        raise ConfigError([Problem(str(config.path), "pipelines", missing)])
    for name in names or ():
        if name not in config.pipelines:
            hint = nearest(name, config.pipelines) or f": there are {', '.join(config.pipelines)}"
            raise typer.BadParameter(f'no pipeline is called "{name}"{hint}', param_hint="--pipeline")


@app.command()
def check(
    config: ConfigPath,
    connect: Annotated[
        bool, typer.Option("--connect", help="Also ask the brokers, and try in the folders what a commit does.")
    ] = False,
) -> None:
    """Check a configuration and say what each pipeline promises. Exit code 78: wrong; 1: a check has failed."""
    from .checks import folder_checks, spark_checks, static_checks
    from .config import load_config
    from .printed import show_job, show_pipeline

    loaded = load_config(config)
    results = static_checks(loaded)
    if connect:
        from .connect import check_connections
        from .logs import configure

        configure(level="error")
        results += folder_checks(loaded) + spark_checks(loaded) + check_connections(loaded)
    for name, pipeline in loaded.pipelines.items():
        show_pipeline(name, pipeline, [result for result in results if result.pipeline == name])
    for name, job in loaded.spark.items():
        show_job(name, job, [result for result in results if result.pipeline == f"spark.{name}"])
    failed = sum(not result.ok for result in results)
    if failed:
        typer.echo(f"{failed} of {len(results)} checks failed")
        raise typer.Exit(EXIT_FAILED)
    typer.echo("all is well" if connect else "the configuration is good (--connect asks the brokers, too)")


@app.command()
def spark(
    config: ConfigPath,
    job: Annotated[
        list[str] | None, typer.Option("--job", "-j", metavar="NAME", help="Only this job; may be repeated.")
    ] = None,
    dry_run: Annotated[
        int | None,
        typer.Option("--dry-run", metavar="ROWS", min=1, help="Try this many rows, and write nothing."),
    ] = None,
    master: Annotated[str | None, typer.Option("--master", help="Where Spark runs; local[*] by default.")] = None,
    conf: Annotated[
        list[str] | None, typer.Option("--conf", metavar="KEY=VALUE", help="A setting of Spark's; may be repeated.")
    ] = None,
    verbose: Annotated[bool, typer.Option("--verbose", "-v", help="Let Spark say what it does.")] = False,
) -> None:
    """Run the jobs on Spark: records decoded, bad ones put aside, duplicates dropped, into a table."""
    from .config import load_config
    from .logs import configure
    from .spark.job import chosen_jobs, open_session, run_jobs

    loaded = load_config(config)
    jobs = chosen_jobs(loaded, job or ())
    settings = {}
    for text in conf or ():
        key, equals, value = text.partition("=")
        if not equals or not key:
            raise typer.BadParameter(f'"{text}" is not KEY=VALUE', param_hint="--conf")
        settings[key] = value
    configure(level="debug" if verbose else "info")
    session = open_session(settings, master)
    session.sparkContext.setLogLevel("INFO" if verbose else "ERROR")
    try:
        if dry_run is None:
            raise typer.Exit(run_jobs(session, loaded, list(jobs)))
        _try_jobs(session, jobs, dry_run)
    finally:
        session.stop()


def _try_jobs(session: object, jobs: "Mapping[str, SparkConfig]", rows: int) -> None:
    from .printed import origin
    from .spark.trial import try_job

    for name, job in jobs.items():
        trial = try_job(session, name, job, rows)
        typer.echo(f"{name}")
        typer.echo(f"  tried    {trial.rows:,} rows of {origin(job.source)}: {trial.bad:,} are bad")
        for reason, count in trial.reasons:
            typer.echo(f"           {count:,} times: {reason}")
        typer.echo(f"  table    {', '.join(f'{column} {kind}' for column, kind in trial.columns)}")
    typer.echo("nothing was written")


# -- looking at data -------------------------------------------------------------------------------------------------


@app.command()
def verify(
    path: Annotated[Path, typer.Argument(metavar="PATH", help="Folder of a dataset.", show_default=False)],
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
    strict: Annotated[
        bool, typer.Option("--strict", help="Files that were taken away later are failures, too.")
    ] = False,
) -> None:
    """Prove from the files and the log of a dataset that every record is there once. Exit code 1: it is not so."""
    from .dataset.verify import verify as verify_dataset
    from .printed import show_report

    report = verify_dataset(path, strict)
    if as_json:
        import json

        typer.echo(json.dumps(report.to_json()))
    else:
        show_report(report)
    raise typer.Exit(EXIT_DONE if report.ok else EXIT_FAILED)


class Format(StrEnum):
    """How ``tail`` shows a record."""

    PRETTY = "pretty"
    JSONL = "jsonl"
    RAW = "raw"


@app.command()
@with_broker_options
def tail(
    url: Annotated[
        str,
        typer.Argument(metavar="URL", help="The broker: pulsar://host:port or kafka://host:port", show_default=False),
    ],
    topic: Annotated[str, typer.Argument(metavar="TOPIC", help="The topic, or one partition.", show_default=False)],
    count: Annotated[int | None, typer.Option("-n", metavar="N", min=1, help="End after N records.")] = None,
    start: Annotated[
        str,
        typer.Option("--from", help="earliest, latest, -5m (ago), an RFC 3339 time, or of one partition a position."),
    ] = "latest",
    until_end: Annotated[bool, typer.Option("--until-end", help="End where the topic ends now.")] = False,
    pattern: Annotated[
        bool,
        typer.Option("--pattern", help="TOPIC is a REGEX (Pulsar: TENANT/NAMESPACE/REGEX): all topics that match."),
    ] = False,
    form: Annotated[
        Format | None,
        typer.Option("--format", help="raw: values alone, a line each. By default pretty on a terminal, else jsonl."),
    ] = None,
    schemas: Annotated[
        bool, typer.Option("--schemas", help="Show the schemas of the records, too, on standard error.")
    ] = False,
    *,
    broker: BrokerOptions,
) -> None:
    """Look at the records of a topic as they come. Moves no cursor, acknowledges nothing.

    A token may also stand in the environment variable FASTWIRE_TOKEN, a password in FASTWIRE_PASSWORD.
    """
    import asyncio

    from .config import ConfigError, parse_source
    from .tail import tail as tail_topic

    keys = {
        "url": url,
        **({"topics_pattern": topic} if pattern else {"topics": [topic]}),
        "subscription": "fastwire-tail",
        "start": {topic: start} if _is_position(start) else _time_of(start),
    }
    try:
        source = parse_source(keys | broker.keys())
    except ConfigError as exc:
        refuse(exc, {"url": "URL", "topics": "TOPIC", "topics_pattern": "TOPIC", "start": "--from", "tls": "URL"})
    chosen = form or (Format.PRETTY if sys.stdout.isatty() else Format.JSONL)
    asyncio.run(
        tail_topic(
            source,
            count=count,
            until_end=until_end,
            form=chosen.value,
            schemas=schemas,
        )
    )


def _time_of(text: str) -> str:
    """So long ago, ``-5m``, as a time; anything else as it stands."""
    from datetime import UTC, datetime, timedelta

    from .config import parse_duration

    if not text.startswith("-"):
        return text
    try:
        ago = timedelta(seconds=parse_duration(text[1:]))
        return (datetime.now(UTC) - ago).isoformat()
    except (ValueError, OverflowError):
        return text


def _is_position(text: str) -> bool:
    ledger, colon, entry = text.partition(":")
    if not colon:
        return text.isdecimal()  # of Kafka
    return ledger.removeprefix("-").isdecimal() and entry.removeprefix("-").isdecimal()


class Input(StrEnum):
    """How ``produce`` reads its input."""

    LINES = "lines"
    JSONL = "jsonl"


class Codec(StrEnum):
    """How entries are compressed."""

    NONE = "none"
    LZ4 = "lz4"
    ZLIB = "zlib"  # Pulsar
    GZIP = "gzip"  # Kafka
    ZSTD = "zstd"
    SNAPPY = "snappy"


class KeyHash(StrEnum):
    """How a key chooses its partition."""

    JAVA = "java"
    MURMUR3 = "murmur3"


@app.command()
@with_broker_options
def produce(
    url: Annotated[
        str, typer.Argument(metavar="URL", help="pulsar://host:port or kafka://host:port", show_default=False)
    ],
    topic: Annotated[
        str, typer.Argument(metavar="TOPIC", help="The topic; of Pulsar also one partition.", show_default=False)
    ],
    form: Annotated[
        Input,
        typer.Option(
            "--format", help="jsonl: objects with value, key, properties, event_time, ordering_key, partition."
        ),
    ] = Input.LINES,
    load: Annotated[
        int | None, typer.Option("--load", metavar="N", min=1, help="Generate N records instead of reading any.")
    ] = None,
    size: Annotated[int, typer.Option("--size", metavar="BYTES", min=1, max=80_000, help="Of a generated one.")] = 100,
    batch: Annotated[int, typer.Option("--batch", metavar="N", min=0, help="Records a batch; 0: no batches.")] = 1000,
    compression: Annotated[Codec, typer.Option("--compression")] = Codec.LZ4,
    rate: Annotated[int | None, typer.Option("--rate", metavar="N", min=1, help="At most so many a second.")] = None,
    key_hash: Annotated[
        KeyHash, typer.Option("--key-hash", help="What makes a partition of a key, as the topic's other producers do.")
    ] = KeyHash.JAVA,
    *,
    broker: BrokerOptions,
) -> None:
    """Write records to a topic: the lines of standard input, or generated ones. Ctrl-C sends what was read and ends.

    In JSON lines value, key and ordering_key are text, null or {"base64": "..."}; a null value is a tombstone.
    A token may also stand in the environment variable FASTWIRE_TOKEN, a password in FASTWIRE_PASSWORD.
    """
    import asyncio

    from .config import ConfigError, parse_source
    from .feed import feed
    from .input import Put, parse_json, parse_line
    from .load import Load
    from .logs import configure
    from .writing import opening

    keys = {"url": url, "topics": [topic], "subscription": "fastwire-produce", "start": "latest"}  # the last two unused
    try:
        source = parse_source(keys | broker.keys())
        writer = opening(source, topic, compression=compression.name, batch=batch, hashing=key_hash.value)
    except ConfigError as exc:
        refuse(exc, {"url": "URL", "topics": "TOPIC", "tls": "URL"})
    except ValueError as exc:
        raise typer.BadParameter(str(exc), param_hint="--compression") from None
    configure(level="warning")
    what: Load | Callable[[bytes], Put] = parse_json if form is Input.JSONL else parse_line
    if load is not None:
        together = batch and max(1, min(batch, _LOAD_BYTES // size))
        what = Load(records=load, batch=together, record_bytes=size)
    asyncio.run(feed(writer, what, rate=rate))


_LOAD_BYTES = 1 << 20  # of a batch of generated records, before compression


# -- to play with -------------------------------------------------------------------------------------------


class System(StrEnum):
    """Whose protocol is spoken."""

    PULSAR = "pulsar"
    KAFKA = "kafka"


@app.command("dev-broker")
def dev_broker(
    system: Annotated[System, typer.Argument(help="Whose protocol it speaks.", show_default=False)],
    port: Annotated[
        int | None, typer.Option("--port", metavar="P", min=0, max=65535, help="The system's own; 0 takes a free one.")
    ] = None,
    host: Annotated[str, typer.Option("--host", help="The address to listen on.")] = "127.0.0.1",
    partitions: Annotated[
        int, typer.Option("--partitions", metavar="N", min=0, help="Partitions of a topic that comes into being.")
    ] = 0,
) -> None:
    """Serve an embedded broker that keeps everything in memory, for tests and first tries, until Ctrl-C."""
    if port is None:
        port = 9092 if system is System.KAFKA else 6650

    def ready(url: str) -> None:
        typer.echo(f"listening at {url}")

    try:
        if system is System.KAFKA:
            from .devbroker import kafka

            kafka.serve(port, host=host, partitions=partitions, ready=ready)
        else:
            from .devbroker import pulsar

            pulsar.serve(port, host=host, partitions=partitions, ready=ready)
    except OSError as exc:
        reason = "the address is taken" if exc.errno == errno.EADDRINUSE else exc.strerror
        _say(f"cannot listen at {host}:{port}: {reason}")
        raise typer.Exit(EXIT_FAILED) from None


class Broker(StrEnum):
    """Which broker the demo runs against."""

    EMBEDDED = "embedded"
    REAL = "real"


@app.command()
def demo(
    records: Annotated[int, typer.Option("--records", metavar="N", min=1, help="How many to produce.")] = 1_000_000,
    path: Annotated[Path, typer.Option("--path", help="Folder of the dataset that is made.")] = Path("demo-data"),
    system: Annotated[System, typer.Option("--system", help="Whose records are landed.")] = System.PULSAR,
    broker: Annotated[
        Broker,
        typer.Option("--broker", help="real: a Pulsar broker, started from the source tree (needs Java and Maven)."),
    ] = Broker.EMBEDDED,
) -> None:
    """Watch it work: a broker, records in lz4 batches, a pipeline into Parquet, the proof, and what it took."""
    from .demo import demo as run_demo

    if system is System.KAFKA and broker is Broker.REAL:
        raise typer.BadParameter("of Kafka there is the embedded broker only", param_hint="--broker")
    run_demo(records=records, path=path, system=system.value, broker=broker.value)


# -- printing --------------------------------------------------------------------------------------------------------


@app.command()
def unit(
    hardened: Annotated[bool, typer.Option("--hardened", help="With everything shut that is not needed.")] = False,
) -> None:
    """Print a systemd unit with the path of this very program: > /etc/systemd/system/fastwire@.service."""
    from .systemd import unit as unit_text

    typer.echo(unit_text(hardened), nl=False)


@app.command()
def schema() -> None:
    """Print the JSON Schema of configuration files, for editors and generators."""
    import json

    from .config import json_schema

    typer.echo(json.dumps(json_schema(), indent=2))


if __name__ == "__main__":
    main()
