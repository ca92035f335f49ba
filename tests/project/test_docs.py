"""The documents are current: generated pages, links, configurations, commands, names of metrics and settings."""

import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from types import ModuleType

import pytest

from docs import architecture, configuration, exactly_once, reasons
from fastwire_daemon.config import ConfigError, parse_config
from fastwire_daemon.runtime.metrics import DaemonMetrics
from fastwire_daemon.spark.sink.options import _KNOWN as _SINK_KNOWN
from fastwire_daemon.spark.sink.options import _OF_CONNECTION, parse_sink_options
from fastwire_daemon.spark.sink.records import _TYPES as _COLUMNS
from fastwire_daemon.spark.source.dialects import dialect_of
from fastwire_daemon.spark.source.options import _KNOWN, parse_options
from tests.support.source_tree import ROOT

README, DESIGN = ROOT / "README.md", ROOT / "DESIGN.md"
PAGES = sorted([README, DESIGN, ROOT / "CHANGELOG.md", *(ROOT / "docs").rglob("*.md")])
LINK = re.compile(r"(?<!!)\[[^\]]*\]\(([^)\s]+)\)|!\[[^\]]*\]\(([^)\s]+)\)")
FENCE = re.compile(r"^( *)```([^\n]*)\n(.*?)^ *```$", re.DOTALL | re.MULTILINE)


def of(page: Path) -> str:
    """The name of a page in a test's id."""
    return str(page.relative_to(ROOT))


@cache
def text_of(page: Path) -> str:
    return page.read_text(encoding="utf-8")


def blocks(page: Path, language: str) -> Iterator[tuple[str, str]]:
    """Yield the words after the language in a block's first line, and the block."""
    for _, head, body in FENCE.findall(text_of(page)):
        name, _, rest = head.partition(" ")
        if name == language:
            yield rest, body


@cache
def anchors(page: Path) -> frozenset[str]:
    """The anchors of a page's headings, as GitHub makes them."""
    plain = FENCE.sub("", text_of(page))
    found: set[str] = set()
    for heading in re.findall(r"^#+ (.*)$", plain, re.MULTILINE):
        words = re.sub(r"[^\w\- ]", "", heading.replace("`", "").lower()).strip()
        found.add(words.replace(" ", "-"))
    return frozenset(found)


# -- generated --------------------------------------------------------------------------------------------------------


def test_the_page_of_keys_is_what_the_models_say() -> None:
    assert configuration.PAGE.read_text(encoding="utf-8") == configuration.page(), "make docs"


def test_a_page_fits_a_task() -> None:
    pages = {page.name: page.stat().st_size for page in (ROOT / "docs").glob("*.md") if page != configuration.PAGE}
    assert {name: size for name, size in pages.items() if size > 12 << 10} == {}


def test_the_table_of_reasons_is_that_of_the_code() -> None:
    assert reasons.PAGE.read_text(encoding="utf-8") == reasons.page(), "make docs"


def test_each_key_of_the_page_has_a_meaning() -> None:
    rows = [line for line in configuration.page().splitlines() if line.startswith("| `")]
    assert len(rows) > 90
    assert [row for row in rows if not row.rsplit("|", 2)[1].strip()] == []


@pytest.mark.parametrize("script", [architecture, exactly_once])
def test_a_picture_is_what_its_script_draws(script: ModuleType) -> None:
    assert script.PICTURE.read_text(encoding="utf-8") == script.picture(), "make docs"


# -- names ------------------------------------------------------------------------------------------------------------


def test_the_metrics_of_the_page_are_those_that_there_are() -> None:
    metrics = DaemonMetrics("1")
    metrics.pipeline("it").lag(1, 1, 0)
    there = set(re.findall(r"^# TYPE (fastwire_\w+)", metrics.render().decode(), re.MULTILINE))
    told = set(re.findall(r"\bfastwire_(?!daemon\b|consume\b)\w+", text_of(ROOT / "docs" / "monitoring.md")))
    assert told == there


def first_cells(text: str) -> set[str]:
    """The names in the first cells of the rows of tables."""
    return set(re.findall(r"`([\w.]+)`", "".join(re.findall(r"^\| `.*?\|", text, re.MULTILINE))))


def test_the_options_of_the_page_are_those_that_there_are() -> None:
    reading, _, rest = text_of(ROOT / "docs/spark.md").partition("### Writing\n")
    writing = rest.partition("\n### ")[0]
    assert first_cells(writing) == {*_SINK_KNOWN, *_OF_CONNECTION, *_COLUMNS}
    told = first_cells(reading)
    there = set(_KNOWN) | {"subscribe", "subscribePattern", "assign"}
    there |= {f"{edge}Offsets{how}" for edge in ("starting", "ending") for how in ("", "ByTimestamp")}
    for url in ("pulsar://a", "kafka://a"):
        there |= set(dialect_of(url).only)
    assert told == there


def test_the_options_of_examples_are_accepted() -> None:
    examples = [
        dict(re.findall(r'\.option\("([^"]+)", "?([^")]+)"?\)', block))
        for page in PAGES
        for _, block in blocks(page, "python")
        if 'format("fastwire")' in block
    ]
    assert len(examples) >= 3
    for given in examples:
        if "topic" in given:
            parse_sink_options(given)
        else:
            parse_options({name: value.replace("_", "") for name, value in given.items()}, streaming=True)


def modules(folder: str, words: str) -> list[str]:
    """The names of a row ("reader, pool; cold") that no file or folder of the folder has."""
    names = [name for name in re.split(r"[,;]\s*", words.strip().rstrip(".")) if re.fullmatch(r"\w+", name)]
    return [f"{folder}{name}" for name in names if not any((ROOT / folder).glob(f"{name}*"))]


def test_the_files_of_the_design_exist() -> None:
    gone = []
    for page in (DESIGN, *sorted((ROOT / "docs" / "design").glob("*.md")), ROOT / "docs" / "contributing.md"):
        for path in re.findall(r"`((?:fastwire|daemon|tests|bench|conf)/[\w./]*)`", text_of(page)):
            if not (ROOT / path).exists():
                gone.append(path)
    rows = re.findall(r"`((?:fastwire|daemon)/[\w/]*/)` ([a-z_][\w, ;]*)", text_of(DESIGN))
    assert len(rows) >= 10
    assert gone + [name for folder, words in rows for name in modules(folder, words)] == []
    assert modules("fastwire/wire/", "reader, nobody") == ["fastwire/wire/nobody"]


@pytest.mark.parametrize("page", PAGES, ids=of)
def test_excerpts_stand_in_the_files_they_name(page: Path) -> None:
    """A block whose first line names a file of the tree is an excerpt of it."""
    for _, head, body in FENCE.findall(text_of(page)):
        path = head.partition(" ")[2]
        if path.startswith("tests/"):
            assert body in (ROOT / path).read_text(encoding="utf-8"), f"not in {path}:\n{body}"


# -- links ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("page", PAGES, ids=of)
def test_links_lead_somewhere(page: Path) -> None:
    dead = []
    prose = re.sub(r"`[^`\n]*`", "", FENCE.sub("", text_of(page)))
    for pair in LINK.findall(prose):
        [target] = filter(None, pair)
        if re.match(r"[a-z]+:", target):
            continue
        path, _, anchor = target.partition("#")
        there = (page.parent / path).resolve() if path else page
        if not there.exists() or (anchor and anchor not in anchors(there)):
            dead.append(target)
    assert dead == []


# -- configurations ---------------------------------------------------------------------------------------------------

SOURCE = (
    '[pipelines.{name}.source]\nurl = "pulsar://127.0.0.1"\ntopics = ["t"]\nsubscription = "s"\nstart = "earliest"\n'
)
SINK = '[pipelines.{name}.sink]\ntype = "discard"\n'


def whole(block: str) -> str:
    """A configuration with what a block leaves out."""
    names = dict.fromkeys(re.findall(r"^\[pipelines\.(\w+)\.", block, re.MULTILINE))
    for name in names:
        for part, text in (("source", SOURCE), ("sink", SINK)):
            if f"[pipelines.{name}.{part}]" not in block:
                block += "\n" + text.format(name=name)
    jobs = dict.fromkeys(re.findall(r"^\[spark\.(\w+)[.\]]", block, re.MULTILINE))
    for name in jobs:
        if not re.search(rf"^output|^\[spark\.{name}\.output", block, re.MULTILINE):
            block += f'\n[spark.{name}.output]\npath = "a"\ndead_letters = "b"\ncheckpoint = "c"\n'
    if not names and not jobs:
        block += "\n" + SOURCE.format(name="other") + SINK.format(name="other")
    return block


@pytest.mark.parametrize("page", PAGES, ids=of)
def test_configurations_are_accepted(page: Path) -> None:
    for _, block in blocks(page, "toml"):
        try:
            parse_config(whole(block), {})
        except ConfigError as exc:
            pytest.fail("\n".join(str(problem) for problem in exc.problems) + f"\n\n{block}")
