"""Imports point down only, and each outside thing is touched by those modules alone that exist to touch it.

The tables here are the layers that DESIGN.md draws. A new module gets its line; a new arrow gets a reason.
"""

import ast
import re
import sys
import tomllib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cache
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

from fastwire.systems import SYSTEMS, grammars
from tests.support.source_tree import ROOT, Source, sources

# Each unit (a module, or a package with all that is in it) and the units that it may import. Nothing else of ours.
_BYTES = {"errors", "reason", "address", "position", "grammar", "wire", "columns", "connection", "event", "producer"}
FASTWIRE = {
    "reason": set[str](),  # the list of the reasons of dead letters
    "errors": {"reason"},
    "address": set[str](),  # hosts and ports, the same in the URLs of all systems
    "position": {"errors"},
    "coverage": {"position"},  # what has landed, for the daemon
    "wire": {"errors", "reason"},
    "columns": {"errors", "reason", "position", "wire"},
    "grammar": {"position"},  # how systems write addresses, topics and positions
    "decode": {"errors", "reason", "columns", "wire"},  # values of records into columns
    "parquet": {"columns"},  # columns into files
    "systems": {"grammar", "position", "columns"},  # the list of them; it imports them by name
    "producer": {"errors", "columns"},  # batches of rows
    "connection": {"errors", "columns"},  # what the state machines of all systems have in common
    "event": set[str](),  # of the state machines that request records
    # Four siblings of one shape, never each other.
    "pulsar": _BYTES,
    "kafka": _BYTES,
    "tank": _BYTES,
    "tubemq": _BYTES,
}

# The rooms of the daemon, from the top. A room may import fastwire and what lies in a lower layer; rooms of one layer
# never import each other.
DAEMON = (
    {"cli"},
    {"service"},
    {"pipeline"},
    {"systems", "sinks"},
    {"dataset", "encoders"},
    {"net"},
    {"config"},
    {"runtime"},
)
# Beside the layers: what commands import, and nothing that is in a layer but them.
BESIDE = {
    "devbroker": {"runtime"},  # the clock
    # Tasks write files as the sinks do and read brokers by the connections of the daemon, and the job tells of its
    # batches as the daemon does.
    "spark": {"systems", "dataset", "encoders", "net", "config", "runtime"},
    "testing": {"pipeline", "systems", "sinks", "dataset", "encoders", "config", "runtime", "devbroker", "client"},
    "pulsar": {"systems"},  # the name under which users import the asyncio client of Pulsar
    "client": {"systems", "config"},  # the asyncio client of all systems
    "": {"prompt"},  # the package itself has their names
    "prompt": {"client", "systems", "sinks", "config", "runtime"},  # blocking calls for scripts and notebooks
}
COMMANDS = {"cli"}
# The only modules in ``daemon/`` itself.
ENTRY_POINTS = {"client", "pulsar"}

# What only some modules may import.
ONLY_IN = {
    "pyarrow": {
        "encoders",
        "dataset.erasure",
        "dataset.proof.content",
        "dataset.tables.delta",
        "dataset.tables.icebergworker",
        "dataset.levelvalues",
        "dataset.tables.statistics",
        "dataset.commitlog.deadletterfile",
        "dataset.commitlog.ipcfile",
        "dataset.proof.verify",
        "sinks.dataset",
        "sinks.decodedstdout",
        "sinks.evolvingdecoder",
        "sinks.keydecoder",
        "sinks.postgresql",
        "sinks.recordrows",
        "sinks.recordschemas",
        "sinks.schemaversions",
        "sinks.valuedecoder",
        "sinks.transform",
        "pipeline.topicsink",
        "pipeline.fanout.dealing",
        "pipeline.topicletters",
        "pipeline.firstcolumns",
        "pipeline.topicrows",
        "pipeline.topicsequence",
        "systems.kafka.ledger",
        "config.sql",  # a query is bound to columns, also by `check`
        "spark",
        "testing",
        "prompt",
        "cli",
    },
    "adbc_driver_postgresql": {"sinks.postgresql.session"},
    "duckdb": {"config.sql", "prompt"},
    "polars": {"prompt"},
    "pyspark": {"spark"},
    "uvloop": {"service", "prompt.loopthread", "spark.source.connections", "testing.system.suite"},
    "socket": {
        "net.endpoint",
        "net.transport",
        "devbroker",
        "service.client",
        "service.http",
        "service.systemd",
    },
    "aiohttp": {"service.http", "net.auth", "net.httpget"},
    "prometheus_client": {"runtime.metrics"},
    "obstore": {"dataset.storage.bucket"},
    "deltalake": {"dataset.tables.delta"},
    "pyiceberg": {"dataset.tables.icebergfiles", "dataset.tables.icebergworker"},
    "botocore": {"net.auth.aws_msk_iam", "dataset.storage.awsprofile", "dataset.storage.lifecycle"},
    "pydantic": {"config", *(f"systems.{name}.config" for name in SYSTEMS)},
    "typer": {"cli"},
    "rich": {"runtime.logs", "service.progress", "prompt.progress", "cli"},
}
# Opening a connection to a broker, or a listener for one, whoever does it.
OPENS_SOCKETS = {
    "create_connection",
    "create_server",
    "create_unix_connection",
    "create_unix_server",
    "create_datagram_endpoint",
    "open_connection",
    "open_unix_connection",
    "start_server",
    "start_unix_server",
}
SOCKET_OPENERS = {"service.http", "net.transport", "devbroker"}

# fastwire computes: of the standard library it may use what has no effect outside its own memory.
PURE = {
    "__future__", "abc", "array", "base64", "bisect", "collections", "contextlib", "copy", "dataclasses", "datetime",
    "decimal", "enum", "functools", "hashlib", "heapq", "hmac", "importlib", "itertools", "json", "math", "operator",
    "re", "string", "struct", "types", "typing", "typing_extensions", "urllib.parse", "uuid", "warnings", "weakref",
    "zlib",
}  # fmt: skip
PURE_C = {"cython", "cpython", "libc.stdint", "libc.string", "libc.stdlib", "libc.limits", "libc.math", "libc.stddef"}
PURE_PACKAGES = {"cramjam", "crc32c", "cryptography", "google.protobuf", "lz4", "snappy", "zstandard"}
IMPURE_CALLS = {"open", "input", "print", "now", "utcnow", "today", "uuid1", "uuid4"}
IMPURE_HEADERS = re.compile(r"<(sys/|stdio|time|unistd|fcntl|pthread|threads|signal|poll|errno|netinet/|arpa/)")


@dataclass(frozen=True)
class Import:
    """One imported name; ``name`` is empty where a whole module is imported."""

    module: str
    name: str
    line: int
    relative: bool = False

    @property
    def full(self) -> str:
        return f"{self.module}.{self.name}" if self.name else self.module

    def is_of(self, modules: Iterable[str]) -> bool:
        """Return whether this imports one of the modules, or something out of it."""
        return any(inside(self.full, module) for module in modules)


def inside(name: str, module: str) -> bool:
    return name == module or name.startswith(module + ".")


def resolve(source: Source, level: int, module: str) -> str:
    """The absolute name of what a ``from`` import with this many dots names."""
    if level == 0:
        return module
    package = source.package.split(".")
    assert level <= len(package), f"{source}: a relative import leaves the package"
    return ".".join([*package[: len(package) - level + 1], *filter(None, [module])])


def python_imports(source: Source) -> Iterator[Import]:
    tree = ast.parse(source.path.read_text(), source.path.name)
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield Import(alias.name, "", node.lineno)
        elif isinstance(node, ast.ImportFrom):
            module = resolve(source, node.level, node.module or "")
            for alias in node.names:
                yield Import(module, alias.name, node.lineno, node.level > 0)


FROM = re.compile(r"^[ \t]*from[ \t]+(\.*)([\w.]*)[ \t]+c?import[ \t]+(\([^)]*\)|[^\n]*)", re.MULTILINE)
PLAIN = re.compile(r"^[ \t]*c?import[ \t]+([^\n]*)", re.MULTILINE)


def cython_imports(source: Source) -> Iterator[Import]:
    """Yield the imports of a Cython source, read by patterns. ``cimport`` counts like ``import``."""
    text = re.sub(r"#[^\n]*", "", source.path.read_text())
    text = re.sub(r'"""(?:.|\n)*?"""', lambda quoted: "\n" * quoted[0].count("\n"), text).replace("\\\n", " ")
    for found in FROM.finditer(text):
        module = resolve(source, len(found[1]), found[2])
        for name in found[3].strip("() \n").split(","):
            if name.strip():
                yield Import(module, name.split()[0], text.count("\n", 0, found.start()) + 1, found[1] != "")
    for found in PLAIN.finditer(text):
        for name in found[1].split(","):
            yield Import(name.split()[0], "", text.count("\n", 0, found.start()) + 1)


@cache
def imports(source: Source) -> tuple[Import, ...]:
    return tuple(cython_imports(source) if source.path.suffix in (".pyx", ".pxd") else python_imports(source))


ALL = sources(".py", ".pyi", ".pyx", ".pxd")
PYTHON = sources(".py")


def package(source: Source) -> str:
    return source.module.partition(".")[0]


def local(name: str) -> str:
    """The name inside its package: ``fastwire.wire.reader`` -> ``wire.reader``."""
    return name.partition(".")[2]


def unit(name: str) -> str:
    """``fastwire.wire.reader`` -> ``wire``; the package itself is the empty unit."""
    return local(name).partition(".")[0]


def layers(package: str) -> dict[str, set[str]]:
    """Each unit of a package, and which others it may import."""
    if package == "fastwire":
        return FASTWIRE
    table = dict(BESIDE)
    below = set[str]()
    for layer in reversed(DAEMON):
        table.update({name: set(below) for name in layer})
        below |= layer
    return table | {command: table[command] | BESIDE.keys() for command in COMMANDS}


def test_imports_are_read_in_each_form(tmp_path: Path) -> None:
    """Everything below rests on the two readers."""
    text = '''"""from nowhere import nothing"""
cimport cython  # import this
from libc.string cimport memcpy, memset as clear
from fastwire.errors import (
    ProtocolError,
    CorruptEntryError,  # both
)
from . cimport reader
    from ..columns.chunk import Chunk
'''
    source = Source(tmp_path / "scan.pyx", "fastwire.pulsar.scan")
    source.path.write_text(text)
    assert sorted((each.line, each.full, each.relative) for each in cython_imports(source)) == [
        (2, "cython", False),
        (3, "libc.string.memcpy", False),
        (3, "libc.string.memset", False),
        (4, "fastwire.errors.CorruptEntryError", False),
        (4, "fastwire.errors.ProtocolError", False),
        (8, "fastwire.pulsar.reader", True),
        (9, "fastwire.columns.chunk.Chunk", True),
    ]
    source = Source(tmp_path / "__init__.py", "fastwire_daemon.sinks")
    source.path.write_text(
        "if TYPE_CHECKING:\n    import os.path\nfrom . import base\nfrom ..config import Config as C\n"
    )
    assert sorted((each.line, each.full, each.relative) for each in python_imports(source)) == [
        (2, "os.path", False),
        (3, "fastwire_daemon.sinks.base", True),
        (4, "fastwire_daemon.config.Config", True),
    ]


def test_every_module_has_its_layer() -> None:
    homeless = {str(each) for each in ALL if unit(each.module) and unit(each.module) not in layers(package(each))}
    assert homeless == set(), "DESIGN.md and the tables above say where a module stands"


def test_rooms_hold_all_modules() -> None:
    """A module that stands loose in ``daemon/`` is found by nobody who does not know it."""
    ours = [each for each in ALL if package(each) == "fastwire_daemon"]
    loose = {unit(each.module) for each in ours if each.path.parent.name == "daemon"}
    assert loose - {""} == ENTRY_POINTS


def test_imports_point_down() -> None:
    wrong = []
    for source in ALL:
        table = layers(package(source))
        here = unit(source.module)
        for each in imports(source):
            there = unit(each.full)
            if inside(each.full, package(source)) and there in table and there not in {here, *table.get(here, ())}:
                wrong.append(f"{source}:{each.line}: {here or package(source)} must not import {there}")
    assert not wrong, "\n".join(sorted(set(wrong)))


def test_fastwire_never_imports_the_daemon() -> None:
    bytes_only = [source for source in ALL if package(source) == "fastwire"]
    assert [str(each) for each in bytes_only if any(it.is_of(["fastwire_daemon"]) for it in imports(each))] == []


def code(source: Source) -> str:
    """The text of a source without comments and docstrings, on the same lines."""
    text = re.sub(r'"""(?:.|\n)*?"""', lambda quoted: "\n" * quoted[0].count("\n"), source.path.read_text())
    return re.sub(r"#[^\n]*", "", text)


# Modules outside the folders of systems that name one, each with its reason.
NAMES_A_SYSTEM = {
    "fastwire.systems": "the list of them",
    "fastwire.reason": "for people: some reasons arise in one system alone",
    "fastwire_daemon.pulsar": "the name under which users import the asyncio client",
    "fastwire_daemon.testing.feed": "chunks for plug-ins are made of entries of one system",
    "fastwire_daemon.testing.sink": "chunks for plug-ins are made of entries of one system",
    "fastwire_daemon.testing.encoder": "chunks for plug-ins are made of entries of one system",
}


def test_only_the_folder_of_a_system_names_it() -> None:
    """Code that all systems share compares with none of them, and imports none: a new one is a new folder."""
    name = "|".join(SYSTEMS)
    titles = "|".join(grammar.title for grammar in grammars())
    # A string that is the name, a module of it, or the name for people in a text.
    names = re.compile(rf"""["'](?:{name})["']|\b(?:from|import)\b[^"']*\b(?:{name})\b|\b(?:{titles})\b""")
    wrong = []
    for source in ALL:
        if source.module not in NAMES_A_SYSTEM and not set(source.module.split(".")) & set(SYSTEMS):
            lines = enumerate(code(source).splitlines(), 1)
            wrong += [f"{source}:{number}: {line.strip()}" for number, line in lines if names.search(line)]
    assert not wrong, "\n".join(wrong)


def test_systems_do_not_name_each_other() -> None:
    wrong = []
    for source in ALL:
        here = unit(source.module)
        if package(source) == "fastwire" and here in SYSTEMS:
            names = re.compile(rf"""["'](?:{"|".join(set(SYSTEMS) - {here})})["']""")
            wrong += [f"{source}: {found[0]}" for found in names.finditer(code(source))]
    assert not wrong, "\n".join(wrong)


def test_nothing_imports_in_a_circle() -> None:
    """Imports for types alone count, too: modules that name each other cannot be read one after the other."""
    modules = {source.module for source in ALL}
    graph: dict[str, set[str]] = {module: set() for module in modules}
    for source in ALL:
        for each in imports(source):
            target = each.full if each.full in modules else each.module
            if target in modules and target != source.module:
                graph[source.module].add(target)
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as cycle:
        pytest.fail(" is imported by ".join(cycle.args[1]))


def test_rooms_of_a_folder_import_in_one_direction() -> None:
    """The folders inside a folder have floors, too: what they share lies in the folder itself, or in a lower one."""
    modules = {source.module for source in ALL}
    floors: dict[str, dict[str, set[str]]] = {}
    for source in ALL:
        for each in imports(source):
            target = each.full if each.full in modules else each.module
            here, there = source.module.split("."), target.split(".")
            shared = next((n for n, (a, b) in enumerate(zip(here, there, strict=False)) if a != b), 0)
            if shared and target in modules and shared < min(len(here), len(there)) - 1:
                rooms = floors.setdefault(".".join(here[:shared]), {})
                rooms.setdefault(here[shared], set()).add(there[shared])
    assert len(floors) >= 8
    for folder, rooms in floors.items():
        try:
            TopologicalSorter(rooms).prepare()
        except CycleError as cycle:
            pytest.fail(f"{folder}: " + " is imported by ".join(cycle.args[1]))


def test_imports_inside_the_daemon_are_relative() -> None:
    """The folder and the package have different names: only relative imports mean the same under both."""
    absolute = ("fastwire_daemon", "daemon", "conf")
    assert [
        f"{source}:{each.line}: {each.full}"
        for source in ALL
        for each in imports(source)
        if package(source) != "pyspark_fastwire" and each.is_of(absolute) and not each.relative
    ] == []


def test_fastwire_only_computes() -> None:
    wrong = []
    pure = PURE | PURE_C | PURE_PACKAGES | {"fastwire"}
    for source in ALL:
        if package(source) != "fastwire":
            continue
        wrong += [f"{source}:{each.line}: {each.full}" for each in imports(source) if not each.is_of(pure)]
        text = source.path.read_text()
        wrong += [f"{source}: {found[0]}" for found in IMPURE_HEADERS.finditer(text)]
        if source.path.suffix == ".py":
            wrong += [f"{source}:{line}: {name}()" for name, line in calls(text) if name in IMPURE_CALLS]
    assert not wrong, "\n".join(sorted(set(wrong)))


def calls(text: str) -> Iterator[tuple[str, int]]:
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Call):
            yield ast.unparse(node.func).rpartition(".")[2], node.lineno


def test_outside_things_stay_in_their_place() -> None:
    wrong = []
    for source in ALL:
        for each in imports(source):
            for thing, places in ONLY_IN.items():
                if each.is_of([thing]) and not any(inside(local(source.module), place) for place in places):
                    wrong.append(f"{source}:{each.line}: {thing} is only for {', '.join(sorted(places))}")
    assert not wrong, "\n".join(sorted(set(wrong)))


def test_sockets_are_opened_in_few_places() -> None:
    assert [
        f"{source}:{line}: {name}()"
        for source in PYTHON
        if not any(inside(local(source.module), place) for place in SOCKET_OPENERS)
        for name, line in calls(source.path.read_text())
        if name in OPENS_SOCKETS
    ] == []


def test_every_import_from_outside_is_declared() -> None:
    """A wheel that needs what it does not ask for works on the machine of whoever wrote it."""
    distributions = {"google": "protobuf", "snappy": "python-snappy", "pydantic_core": "pydantic"}
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    requirements = project["dependencies"]
    # Who runs the conformance suite for plug-ins has pytest.
    ours = sys.stdlib_module_names | PURE_C | {"fastwire", "fastwire_daemon", "libc"}
    running = [source for source in sources(".py", ".pyx") if unit(source.module) != "testing"]
    with_database = [each for each in running if unit(each.module) != "spark"]
    with_stores = [each for each in with_database if local(each.module) not in ONLY_IN["adbc_driver_postgresql"]]
    with_lake = [each for each in with_stores if not local(each.module).startswith("dataset.tables.iceberg")]
    with_sql = [
        each for each in with_lake if local(each.module) not in ("dataset.storage.bucket", "dataset.tables.delta")
    ]
    with_aws = [each for each in with_sql if not local(each.module).startswith("config.sql.")]
    at_prompt = [each for each in with_aws if local(each.module) not in ONLY_IN["botocore"]]
    always = [each for each in at_prompt if unit(each.module) != "prompt"]
    for extra, inside_extra in (
        (None, always),
        ("prompt", at_prompt),
        ("aws", with_aws),
        ("sql", with_sql),
        ("lake", with_lake),
        ("iceberg", with_stores),
        ("postgresql", with_database),
        ("spark", running),
    ):
        if extra is not None:
            requirements = [*requirements, *project["optional-dependencies"][extra]]
        declared = {re.split(r"[<>=~! \[]", each)[0] for each in requirements}
        roots = {each.module.partition(".")[0] for source in inside_extra for each in imports(source)} - ours
        assert {distributions.get(root, root.replace("_", "-")) for root in roots} <= declared


def test_every_folder_is_a_package() -> None:
    """Without it the folder works in the tree and is missing from the wheel."""
    folders = {source.path.parent for source in sources(".py", ".pyx", ".pxd")}
    assert [str(folder) for folder in folders if not (folder / "__init__.py").exists()] == []
