"""One word for one thing: code, samples and documents use the words of DESIGN's vocabulary."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.support.source_tree import ROOT

KINDS = {".py", ".pyx", ".pxd", ".pyi", ".md", ".toml", ".yml", ".html", ".service", ".json"}
PLACES = ("fastwire", "daemon", "pyspark_fastwire", "conf", "docs")


class Former(NamedTuple):
    """A word that is not used any more, and the word that stands for it."""

    pattern: str
    now: str
    allowed: tuple[str, ...] = ()
    """Texts of the lines that may have it: names in durable formats, and names that stay readable."""


_FORMAT = ("_fastwire/diverted", '"diverted"', "`diverted`")
_FORMER = ("formerly `fastwire_", '("fastwire_source_diverted_entries", ', '{"divert": "dead_letter"}')
WORDS = (
    Former(r"divert", "dead letter", _FORMAT + _FORMER),
    Former(r"quarantin", "dead letter", ('"quarantine"): "dead_letters"',)),
    Former(r"\bon_bad\b", "on_error", ('"on_bad"): "on_error"',)),
    Former(r"(?<!dead )\b(the|its|this|these|those|their|each|write|send|sends) letters?\b", "dead letters"),
    Former(r"(?<!commit )\blog of (the|a|its) dataset\b|\bdataset's log\b|\bdataset[./]log\b", "commit log"),
    Former(r"setback", "failure of a sink"),
    Former(r"\batoms?\b", "entry"),
    Former(r"\bcut_(landed|staged)\b|coverage\.cut\b", "deduplicated; uncovered"),
    Former(r"\[\"room\"\]|\(\"permits\", \"room\"", "back_pressure"),
    Former(r"\bon_settled\b|Coverage\.settle", "floor"),
    Former(
        r"confirmed (to the broker|by another)|fastwire has not confirmed|hold and that are not confirmed",
        "acknowledged: what a broker is told; it confirms",
    ),
    Former(r"\bmend(s|ed|ing)?\b", "fix"),
    Former(r"\b(nobody|somebody|whoever)\b", "the actor: the broker, the consumer, the caller"),
)


def files() -> Iterator[Path]:
    yield from sorted(ROOT.glob("*.md"))
    for place in PLACES:
        yield from (each for each in sorted((ROOT / place).rglob("*")) if each.suffix in KINDS)


def uses(word: Former, text: str) -> Iterator[tuple[int, str]]:
    """Yield the lines that use a former word, with their numbers."""
    found = re.compile(word.pattern, re.IGNORECASE)
    for number, line in enumerate(text.splitlines(), 1):
        if found.search(line) and not any(each in line for each in word.allowed):
            yield number, line.strip()


@pytest.mark.parametrize("word", WORDS, ids=[word.now for word in WORDS])
def test_a_thing_has_one_word(word: Former) -> None:
    found = [
        f"{file.relative_to(ROOT)}:{number}: {line}"
        for file in files()
        for number, line in uses(word, file.read_text(encoding="utf-8"))
    ]
    assert found == [], f"write: {word.now}"


def test_samples_say_group_where_the_system_does() -> None:
    wrong = re.compile(r'url = "(?:kafka|tubemq)[^\n]*\n(?:[^\[\n][^\n]*\n)*?subscription = ')
    assert wrong.search('url = "kafka://h"\ntopics = ["t"]\nsubscription = "s"\n')
    samples = [*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md"), *ROOT.glob("conf/**/*.toml")]
    assert [each.name for each in samples if wrong.search(each.read_text(encoding="utf-8"))] == []


def test_a_former_word_is_found_and_an_allowed_line_is_not() -> None:
    word = WORDS[0]
    assert list(uses(word, "kept\nis diverted by it\n")) == [(2, "is diverted by it")]
    assert list(uses(word, "<path>/_fastwire/diverted/<N>.dead")) == []
    assert len(list(files())) > 700
