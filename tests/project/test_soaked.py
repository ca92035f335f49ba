"""Parts of a soak are all of it, and their summary adds up."""

from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.soaked import BEGIN, END, FIGURES, PAGE, Part, Soaked, added_up


@given(st.sets(st.text(max_size=3)), st.integers(1, 9))
def test_each_test_is_in_one_part(names: set[str], parts: int) -> None:
    chosen = [Part(number, parts).of(names) for number in range(1, parts + 1)]
    assert sorted(name for part in chosen for name in part) == sorted(names)
    assert max(map(len, chosen)) - min(map(len, chosen)) <= 1


def test_cases_of_a_test_go_to_different_parts() -> None:
    cases = {f"tests/fuzz/test_fuzz.py::test[{case}]" for case in "abcd"}
    others = {f"tests/crash/test_{n}.py::test" for n in range(7)}
    assert [len(Part(number, 4).of(cases | others) & cases) for number in (1, 2, 3, 4)] == [1, 1, 1, 1]


def test_the_whole_is_a_part() -> None:
    assert Part.parse("") == Part(1, 1)
    assert Part.parse("2/4") == Part(2, 4)


@pytest.mark.parametrize("text", ["0/4", "5/4", "2", "2/", "a/b", "-1/4", "2/4/1"])
def test_what_is_no_part(text: str) -> None:
    with pytest.raises(ValueError, match="is no part, such as 2/4"):
        Part.parse(text)


def half(number: int) -> Soaked:
    return Soaked(
        "c" * 40,
        Part(number, 2),
        (f"tests/a.py::test[{number}]",),
        {"tests/a.py::test": {"passed": number}},
        60.0,
        (f"{number} kills (of a daemon {number}, a broker 0): none lost",),
        {"needs a broker": number},
        {"tests/a.py::test": 30.0 * number},
        {},
    )


TESTS = half(1).tests + half(2).tests


def test_parts_add_up() -> None:
    whole = added_up([half(2), half(1)], "c" * 40, TESTS)
    assert whole.outcomes == {"tests/a.py::test": {"passed": 3}}
    assert whole.tests == ("tests/a.py::test[2]", "tests/a.py::test[1]")
    assert whole.reasons == {"needs a broker": 3}
    assert whole.page() == (
        "Commit `cccccccccccc`: 3 passed, in 2 minutes.\n\n"
        "| tests | cases | minutes |\n|---|---|---|\n| `a.py::test` | 3 passed | 1.5 |\n\n"
        "What they did:\n\n* 1 kills: none lost\n* 2 kills: none lost\n\nSkipped:\n\n* 3: needs a broker"
    )


WRONG = {
    "of another commit": ([half(1), replace(half(2), commit="d")], "the parts are of 2 commits"),
    "changed meanwhile": ([half(1), replace(half(2), commit="c" * 40 + "+")], "the parts are of 2 commits"),
    "missing": ([half(2)], "parts are missing: 1 of 2"),
    "twice": ([half(1), half(2), half(2)], "a part stands there twice"),
    "of two divisions": ([half(1), replace(half(2), part=Part(2, 3))], "different divisions"),
    "a test in two parts": ([half(1), replace(half(2), tests=half(1).tests)], "a part stands there twice"),
}


@pytest.mark.parametrize("what", WRONG)
def test_parts_that_are_not_a_whole(what: str) -> None:
    parts, said = WRONG[what]
    with pytest.raises(ValueError, match=said):
        added_up(parts, "c" * 40, TESTS)


def test_a_choice_of_tests_is_not_the_whole() -> None:
    """By -k, or because the run was ended."""
    with pytest.raises(ValueError, match=r"1 tests have not run, the first of them is tests/b.py::other"):
        added_up([half(1), half(2)], "c" * 40, (*TESTS, "tests/b.py::other"))


@pytest.mark.parametrize("tree", ["d" * 40, "c" * 40 + "+"])
def test_the_parts_are_of_the_tree(tree: str) -> None:
    parts = [replace(half(number), commit=tree if tree.endswith("+") else "c" * 40) for number in (1, 2)]
    with pytest.raises(ValueError, match="take the tree of that commit, clean"):
        added_up(parts, tree, TESTS)


def test_a_shorter_soak_says_so() -> None:
    shorter = {"FASTWIRE_SOAK_SHARE": "0.1"}
    parts = [replace(half(number), settings=shorter) for number in (1, 2)]
    assert "FASTWIRE_SOAK_SHARE was 0.1.\n" in added_up(parts, "c" * 40, TESTS).page()
    with pytest.raises(ValueError, match="different settings"):
        added_up([half(1), parts[1]], "c" * 40, TESTS)


def test_a_part_is_read_as_it_was_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tests.support.soaked.FOLDER", tmp_path)
    half(2).write()
    assert Soaked.read(tmp_path / "2-of-2.json") == half(2)


@pytest.mark.parametrize("page", [PAGE, FIGURES], ids=lambda page: str(page.name))
def test_a_page_has_a_place_for_it(page: Path) -> None:
    text = page.read_text()
    assert text.index(BEGIN) < text.index(END)
