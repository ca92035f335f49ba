"""Comments that cite docs/specs cite sections that exist, in one form: ``(spec: kafka 12.2)``."""

import re
from functools import cache
from pathlib import Path

import pytest

from tests.support.source_tree import ROOT

SUFFIXES = {".py", ".pyx", ".pxd", ".pyi", ".h", ".proto"}
FOLDERS = ("fastwire", "daemon", "pyspark_fastwire", "bench", "tests", "proto")
SPECS = "pulsar-fields|pulsar|kafka|tank|tubemq"
CITATION = re.compile(rf"\bspec: ({SPECS}) ((?:\d+(?:\.\d+)?(?:-\d+)?)(?:, \d+(?:\.\d+)?(?:-\d+)?)*)")
# What reads like a release of the product, or cites in another way.
OTHER_FORMS = re.compile(rf"(?:\(|\bspecs: )(?:{SPECS}) \d+(?:\.\d+)?[),]")


def code() -> list[Path]:
    """Every file whose comments may cite."""
    paths = (path for folder in FOLDERS for path in (ROOT / folder).rglob("*") if path.suffix in SUFFIXES)
    return sorted(path for path in paths if path != Path(__file__).resolve())


@cache
def numbered(name: str) -> frozenset[str]:
    """The numbers of a specification's sections."""
    text = (ROOT / "docs" / "specs" / f"{name}.md").read_text(encoding="utf-8")
    return frozenset(re.findall(r"^#{2,3} (\d+(?:\.\d+)?)\.? ", text, re.MULTILINE))


def missing(text: str) -> list[str]:
    """Citations in a text whose section does not exist."""
    found = []
    for name, places in CITATION.findall(text):
        for place in places.split(", "):
            first, _, last = place.partition("-")
            cited = [str(number) for number in range(int(first), int(last) + 1)] if last else [first]
            found += [f"{name} {one}" for one in cited if one not in numbered(name)]
    return found


def test_each_cited_section_exists() -> None:
    texts = {path: path.read_text(encoding="utf-8") for path in code()}
    assert {str(path): gone for path, text in texts.items() if (gone := missing(text))} == {}
    assert sum(len(CITATION.findall(text)) for text in texts.values()) > 100


def test_citations_have_one_form() -> None:
    odd = {str(path): found for path in code() if (found := OTHER_FORMS.findall(path.read_text(encoding="utf-8")))}
    assert odd == {}, "cite as (spec: kafka 12.2)"


@pytest.mark.parametrize(
    ("text", "gone"),
    [
        ("(spec: kafka 12.2)", []),
        ("(spec: kafka 1-4, 15; KIP-848)", []),
        ("(spec: kafka 12.9)", ["kafka 12.9"]),
        ("(spec: pulsar 7, 29-31)", ["pulsar 31"]),
        ("(spec: pulsar-fields 4, 99)", ["pulsar-fields 99"]),
    ],
)
def test_a_citation_of_nothing_is_found(text: str, gone: list[str]) -> None:
    assert missing(text) == gone
