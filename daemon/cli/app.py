"""``fastwire-consume``: the command line.

Each command imports the modules that it needs when it runs, so that ``--help`` does not wait for pyarrow.
"""

import errno
import sys
from collections.abc import Callable, Mapping, Sequence
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NoReturn

import typer

from fastwire import __version__
from fastwire.errors import FastwireError
from fastwire.systems import SYSTEMS

from .options import BrokerOptions, argument, refuse, with_broker_options

if TYPE_CHECKING:
    from ..config import Config, ConfigError, SparkConfig

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
    pretty_exceptions_enable=False,  # pretty exceptions show local variables, which may hold secrets
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
)

ConfigPath = Annotated[Path, typer.Argument(metavar="CONFIG", help="Configuration file (TOML).", show_default=False)]


def main() -> NoReturn:
    """Run the command line and end the process with one of the four exit codes."""
    try:
        app(prog_name="fastwire-consume")  # `python -m` shows the same name
    except Exception as exc:
        sys.exit(_explain(exc))
    sys.exit(EXIT_DONE)


def _explain(exc: Exception) -> int:
    """Print an explanation of the failure and return its exit code."""
    from ..config import ConfigError
    from ..runtime.errors import DatasetMismatchError

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
    from ..runtime.logs import configure, get_logger

    configure()
    get_logger("cli").exception("failed because of a fault of this program", error=f"{type(exc).__name__}: {exc}")
    return EXIT_FAILED


def _say(text: str) -> None:
    typer.echo(text, err=True)


def _say_problems(exc: "ConfigError") -> None:
    for problem in exc.problems:
        _say(str(problem))
    count = len(exc.problems)
    if count > 1:
        _say(f"the configuration has {count} mistakes")


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
        list[str] | None,
        typer.Option("--pipeline", "-p", metavar="NAME", help="Run only this pipeline; may be repeated."),
    ] = None,
    until_end: Annotated[
        bool, typer.Option("--until-end", help="Read up to the current end of the topics, commit, and exit.")
    ] = False,
    max_records: Annotated[
        int | None, typer.Option("--max-records", metavar="N", min=1, help="Stop each pipeline after about N records.")
    ] = None,
    verbose: Annotated[bool, typer.Option("--verbose", "-v", help="Log at level debug.")] = False,
) -> None:
    """Run pipelines until a signal: the first SIGTERM or Ctrl-C commits and exits, a second aborts."""
    from ..config import load_config
    from ..runtime.logs import configure

    loaded = load_config(config)
    _require_pipelines(loaded, pipeline)
    configure(level="debug" if verbose else "info")
    from ..service.service import run_service

    code = run_service(loaded, pipelines=pipeline, until_end=until_end, max_records=max_records)
    raise typer.Exit(code)


def _require_pipelines(config: "Config", names: Sequence[str] | None) -> None:
    from ..config import ConfigError, Problem
    from ..config.text import nearest

    if not config.pipelines:
        missing = "is required: at least one; use `fastwire-consume spark` to run jobs on Spark"
        raise ConfigError([Problem(str(config.path), "pipelines", missing)])
    for name in names or ():
        if name not in config.pipelines:
            hint = nearest(name, config.pipelines) or f": the pipelines are {', '.join(config.pipelines)}"
            raise typer.BadParameter(f'no pipeline is called "{name}"{hint}', param_hint="--pipeline")


@app.command()
def check(
    config: ConfigPath,
    connect: Annotated[
        bool,
        typer.Option(
            "--connect", help="Also connect to the brokers, and try the file operations of a commit in the folders."
        ),
    ] = False,
) -> None:
    """Check a configuration and print the guarantee of each pipeline.

    Exit code 78: the configuration is wrong; 1: another check has failed.
    """
    from ..config import load_config
    from .checks import folder_checks, spark_checks, static_checks
    from .printed import show_job, show_pipeline

    loaded = load_config(config)
    results = static_checks(loaded)
    if connect:
        from ..runtime.logs import configure
        from .connect import check_connections

        configure(level="error")
        results += folder_checks(loaded) + spark_checks(loaded) + check_connections(loaded)
    for name, pipeline in loaded.pipelines.items():
        show_pipeline(name, pipeline, [result for result in results if result.pipeline == name])
    for name, job in loaded.spark.items():
        show_job(name, job, [result for result in results if result.pipeline == f"spark.{name}"])
    failed = [result for result in results if not result.ok]
    if failed:
        typer.echo(f"{len(failed)} of {len(results)} checks failed")
        raise typer.Exit(EXIT_CONFIG if any(result.configuration for result in failed) else EXIT_FAILED)
    typer.echo("all checks passed" if connect else "the configuration is valid (--connect also checks the brokers)")


@app.command()
def spark(
    config: ConfigPath,
    job: Annotated[
        list[str] | None, typer.Option("--job", "-j", metavar="NAME", help="Run only this job; may be repeated.")
    ] = None,
    dry_run: Annotated[
        int | None,
        typer.Option("--dry-run", metavar="ROWS", min=1, help="Process this many rows without writing anything."),
    ] = None,
    master: Annotated[str | None, typer.Option("--master", help="URL of the Spark master; default: local[*].")] = None,
    conf: Annotated[
        list[str] | None, typer.Option("--conf", metavar="KEY=VALUE", help="A Spark setting; may be repeated.")
    ] = None,
    verbose: Annotated[bool, typer.Option("--verbose", "-v", help="Show Spark's log at level INFO.")] = False,
) -> None:
    """Run the Spark jobs: decode records, quarantine dead letters, drop duplicates, write a table."""
    from ..config import load_config
    from ..runtime.logs import configure
    from ..spark.job.run import chosen_jobs, open_session, run_jobs

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
    from ..spark.job.trial import try_job
    from .printed import origin

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
        bool, typer.Option("--strict", help="Also fail for files that were removed after their commit.")
    ] = False,
    deep: Annotated[
        bool, typer.Option("--deep", help="Read every file whole and compare it with its checksum.")
    ] = False,
) -> None:
    """Prove from the files and the log of a dataset that it holds every record once. Exit code 1: it does not."""
    from ..dataset.verify import verify as verify_dataset
    from .printed import show_report

    report = verify_dataset(path, strict, deep=deep)
    if as_json:
        import json

        typer.echo(json.dumps(report.to_json()))
    else:
        show_report(report)
    raise typer.Exit(EXIT_DONE if report.ok else EXIT_FAILED)


class Format(StrEnum):
    """The output formats of ``tail``."""

    PRETTY = "pretty"
    JSONL = "jsonl"
    RAW = "raw"


URL_HELP = "URL of the brokers: " + " or ".join(f"{name}://host:port" for name in SYSTEMS)


class Undecryptable(StrEnum):
    """The reactions of ``tail`` to encrypted records that no key decrypts."""

    FAIL = "fail"
    DISCARD = "discard"
    CONSUME = "consume"


@app.command()
@with_broker_options
def tail(
    url: Annotated[
        str,
        typer.Argument(metavar="URL", help=URL_HELP, show_default=False),
    ],
    topic: Annotated[
        str, typer.Argument(metavar="TOPIC", help="Name of the topic, or of one partition.", show_default=False)
    ],
    count: Annotated[int | None, typer.Option("-n", metavar="N", min=1, help="Stop after N records.")] = None,
    start: Annotated[
        str,
        typer.Option(
            "--from",
            help="First position: earliest, latest, -5m (a time ago), an RFC 3339 time, or a position. Pulsar: "
            "LEDGER:ENTRY, for one partition (TOPIC-partition-0). Kafka: OFFSET for every partition (the nearest one "
            "that its log holds), or 0=OFFSET,2=OFFSET for these partitions; the others start at latest.",
        ),
    ] = "latest",
    until_end: Annotated[bool, typer.Option("--until-end", help="Stop at the current end of the topic.")] = False,
    pattern: Annotated[
        bool,
        typer.Option("--pattern", help="Read all topics that match TOPIC, a REGEX (Pulsar: TENANT/NAMESPACE/REGEX)."),
    ] = False,
    form: Annotated[
        Format | None,
        typer.Option("--format", help="raw prints one value per line. Default: pretty on a terminal, else jsonl."),
    ] = None,
    schemas: Annotated[
        bool, typer.Option("--schemas", help="Also print the schemas of the records, to standard error.")
    ] = False,
    private_keys: Annotated[
        list[str] | None,
        typer.Option("--private-key", metavar="NAME=FILE", help="A private key (PEM) for encrypted Pulsar records."),
    ] = None,
    undecryptable: Annotated[
        Undecryptable,
        typer.Option(
            "--on-undecryptable",
            help="Reaction to a record that no key decrypts: stop, skip it, or show its ciphertext.",
        ),
    ] = Undecryptable.FAIL,
    rack: Annotated[
        str | None,
        typer.Option(help="Read from Kafka replicas in this rack, if the brokers have a replica selector."),
    ] = None,
    *,
    broker: BrokerOptions,
) -> None:
    """Print the records of a topic as they arrive. Moves no cursor and acknowledges nothing.

    The environment variable FASTWIRE_TOKEN may hold a token, FASTWIRE_PASSWORD a password.
    """
    import asyncio

    from ..config import ConfigError, TopicChoice, parse_connection
    from ..systems.registry import system_named
    from .tail import tail as tail_topic

    keys: dict[str, Any] = {"url": url}
    if rack is not None:
        keys["rack"] = rack
    if private_keys:
        keys["encryption"] = {"private_keys": _files_by_name("--private-key", private_keys)}
    if undecryptable is not Undecryptable.FAIL:
        keys.setdefault("encryption", {})["on_failure"] = undecryptable.value
    try:
        connection = parse_connection(keys | broker.keys())
    except ConfigError as exc:
        arguments = {"url": "URL", "tls": "URL", "rack": "--rack"}
        refuse(exc, {**arguments, "encryption": "--private-key" if private_keys else "--on-undecryptable"})
    system = system_named(connection.system)
    with argument("TOPIC"):
        grammar = system.grammar
        topics = TopicChoice((), grammar.pattern(topic)) if pattern else TopicChoice((grammar.topic(topic),))
    with argument("--from"):
        begin = system.start_of(start, topics)
    chosen = form or (Format.PRETTY if sys.stdout.isatty() else Format.JSONL)
    asyncio.run(
        tail_topic(
            connection,
            topics,
            begin,
            count=count,
            until_end=until_end,
            form=chosen.value,
            schemas=schemas,
        )
    )


def _files_by_name(option: str, given: list[str] | None) -> dict[str, str]:
    """Return the files of options of the form NAME=FILE, by name. Raises BadParameter."""
    found = {}
    for each in given or ():
        name, mark, path = each.partition("=")
        if not (name and mark and path):
            raise typer.BadParameter(f'"{each}" is not NAME=FILE', param_hint=option)
        found[name] = path
    return found


class Input(StrEnum):
    """The input formats of ``produce``."""

    LINES = "lines"
    JSONL = "jsonl"


class Codec(StrEnum):
    """The compression codecs of ``produce``."""

    NONE = "none"
    LZ4 = "lz4"
    ZLIB = "zlib"  # Pulsar
    GZIP = "gzip"  # Kafka
    ZSTD = "zstd"
    SNAPPY = "snappy"


class KeyHash(StrEnum):
    """The hash functions that map a key to a partition."""

    JAVA = "java"
    MURMUR3 = "murmur3"


@app.command()
@with_broker_options
def produce(
    url: Annotated[str, typer.Argument(metavar="URL", help=URL_HELP, show_default=False)],
    topic: Annotated[
        str,
        typer.Argument(
            metavar="TOPIC", help="Name of the topic; with Pulsar also of one partition.", show_default=False
        ),
    ],
    form: Annotated[
        Input,
        typer.Option(
            "--format",
            help="jsonl: one object per line with value, key, properties, event_time, ordering_key, partition.",
        ),
    ] = Input.LINES,
    load: Annotated[
        int | None, typer.Option("--load", metavar="N", min=1, help="Generate N records instead of reading input.")
    ] = None,
    size: Annotated[
        int,
        typer.Option("--size", metavar="BYTES", min=1, max=80_000, help="Size of each generated record, in bytes."),
    ] = 100,
    batch: Annotated[
        int, typer.Option("--batch", metavar="N", min=0, help="Most records in a batch; 0: no batches.")
    ] = 1000,
    compression: Annotated[Codec, typer.Option("--compression", help="Compression of the batches.")] = Codec.LZ4,
    rate: Annotated[
        int | None, typer.Option("--rate", metavar="N", min=1, help="Largest number of records per second.")
    ] = None,
    key_hash: Annotated[
        KeyHash,
        typer.Option("--key-hash", help="Hash of keys to partitions; use that of the topic's other producers."),
    ] = KeyHash.JAVA,
    public_keys: Annotated[
        list[str] | None,
        typer.Option(
            "--public-key", metavar="NAME=FILE", help="Encrypt the records for this public key (PEM); Pulsar only."
        ),
    ] = None,
    *,
    broker: BrokerOptions,
) -> None:
    """Write records to a topic: the lines of standard input, or generated ones. Ctrl-C flushes and ends.

    In JSON lines value, key and ordering_key are text, null or {"base64": "..."}; a null value is a tombstone.
    The environment variable FASTWIRE_TOKEN may hold a token, FASTWIRE_PASSWORD a password.
    """
    import asyncio
    from functools import partial

    from ..config import ConfigError, parse_connection
    from ..runtime.logs import configure
    from ..systems.load import Load
    from ..systems.registry import system_named
    from ..systems.writer import Put, WriteOptions
    from .feed import feed
    from .input import parse_json, parse_line

    sealed = _files_by_name("--public-key", public_keys)
    if sealed and load is not None:
        raise typer.BadParameter("generated records are not encrypted", param_hint="--public-key")
    try:
        connection = parse_connection({"url": url} | broker.keys())
        system = system_named(connection.system)
        with argument("TOPIC"):
            system.grammar.topic(topic)
        options = WriteOptions(compression=compression.name, batch=batch, hashing=key_hash.value, public_keys=sealed)
        make_writer = partial(system.open_writer, connection, topic, options)
        make_writer()  # raises now what is wrong with the options; it connects only when it is entered
    except ConfigError as exc:
        refuse(exc, {"url": "URL", "tls": "URL"})
    except ValueError as exc:
        raise typer.BadParameter(str(exc)) from None
    configure(level="warning")
    what: Load | Callable[[bytes], Put] = parse_json if form is Input.JSONL else parse_line
    if load is not None:
        together = batch and max(1, min(batch, _LOAD_BYTES // size))
        what = Load(records=load, batch=together, record_bytes=size)
    asyncio.run(feed(make_writer, what, rate=rate))


_LOAD_BYTES = 1 << 20  # largest size of a batch of generated records, before compression


# -- first tries --------------------------------------------------------------------------------------------


System = StrEnum("System", {name.upper(): name for name in SYSTEMS})  # type: ignore[misc]
FIRST = System(SYSTEMS[0])


@app.command("dev-broker")
def dev_broker(
    system: Annotated[System, typer.Argument(help="Protocol to serve.", show_default=False)],
    port: Annotated[
        int | None,
        typer.Option("--port", metavar="P", min=0, max=65535, help="Port; default: that of the system; 0: a free one."),
    ] = None,
    host: Annotated[str, typer.Option("--host", help="Address to listen on.")] = "127.0.0.1",
    partitions: Annotated[
        int,
        typer.Option(
            "--partitions", metavar="N", min=0, help="Number of partitions of an automatically created topic."
        ),
    ] = 0,
) -> None:
    """Serve an embedded in-memory broker, for tests and first tries, until Ctrl-C."""
    from ..devbroker.base import dev_broker as make
    from ..devbroker.server import serve

    broker = make(system.value, partitions=partitions)
    if port is None:
        port = broker.default_port
    try:
        serve(broker, port, host=host, ready=lambda url: typer.echo(f"listening at {url}"))
    except OSError as exc:
        reason = "the address is already in use" if exc.errno == errno.EADDRINUSE else exc.strerror
        _say(f"cannot listen at {host}:{port}: {reason}")
        raise typer.Exit(EXIT_FAILED) from None


class Broker(StrEnum):
    """The kinds of broker that ``demo`` can use."""

    EMBEDDED = "embedded"
    REAL = "real"


@app.command()
def demo(
    records: Annotated[
        int, typer.Option("--records", metavar="N", min=1, help="Number of records to produce.")
    ] = 1_000_000,
    path: Annotated[Path, typer.Option("--path", help="Folder of the new dataset.")] = Path("demo-data"),
    system: Annotated[System, typer.Option("--system", help="Message system to use.")] = FIRST,
    broker: Annotated[
        Broker,
        typer.Option("--broker", help="real: a Pulsar broker, started from the source tree (needs Java and Maven)."),
    ] = Broker.EMBEDDED,
) -> None:
    """Run a demo: produce records to a broker, land them as Parquet, verify the dataset, and print the figures."""
    from ..systems.registry import system_named
    from .demo import demo as run_demo

    if broker is Broker.REAL and not system_named(system.value).real_demo:
        title = system_named(system.value).grammar.title
        raise typer.BadParameter(f"{title} has only the embedded broker", param_hint="--broker")
    run_demo(records=records, path=path, system=system.value, broker=broker.value)


# -- printing --------------------------------------------------------------------------------------------------------


@app.command()
def unit(
    hardened: Annotated[bool, typer.Option("--hardened", help="Add systemd's sandboxing options.")] = False,
) -> None:
    """Print a systemd unit that runs this installation: > /etc/systemd/system/fastwire@.service."""
    from ..service.systemd import unit as unit_text

    typer.echo(unit_text(hardened), nl=False)


@app.command()
def schema() -> None:
    """Print the JSON Schema of configuration files, for editors and generators."""
    import json

    from ..config import json_schema

    typer.echo(json.dumps(json_schema(), indent=2))


if __name__ == "__main__":
    main()
