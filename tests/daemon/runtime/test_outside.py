"""Declared waits for services: when they are told, when they no longer explain anything, and questions asked once."""

import threading
from collections.abc import Callable
from contextlib import suppress

import pytest

from fastwire_daemon.runtime import outside
from fastwire_daemon.runtime.outside import Answers, waiting, waits_for
from tests.support.waiting import eventually

HERE = threading.get_ident


@pytest.fixture
def at(monkeypatch: pytest.MonkeyPatch) -> Callable[[float], None]:
    """Sets the clock."""
    now = [0.0]
    monkeypatch.setattr(outside, "monotonic", lambda: now[0])
    return lambda seconds: now.__setitem__(0, seconds)


def test_a_wait_is_told_after_a_second_and_until_its_deadline(at: Callable[[float], None]) -> None:
    with waits_for("the registry", 30):
        at(0.9)
        assert waiting([HERE()]) is None
        assert waiting([HERE()], 0.0) == "waits for the registry, for 1 of at most 30 s"
        at(29.4)
        assert waiting([None, 1, HERE()]) == "waits for the registry, for 29 of at most 30 s"
        at(30)
        assert waiting([HERE()]) is None  # it hangs
    assert waiting([HERE()], 0.0) is None


def test_the_inner_wait_counts(at: Callable[[float], None]) -> None:
    with waits_for("the store", 600):
        at(5)
        with suppress(OSError), waits_for("the issuer", 10):
            at(7)
            assert waiting([HERE()]) == "waits for the issuer, for 2 of at most 10 s"
            raise OSError
        assert waiting([HERE()]) == "waits for the store, for 7 of at most 600 s"


def test_a_slow_question_holds_up_no_other() -> None:
    answers = Answers[str, int]("the registry", 60)
    assert answers.get("known", lambda: 1) == 1
    asked, answered, seen = threading.Event(), threading.Event(), []

    def slowly() -> int:
        asked.set()
        answered.wait(60)
        return 2

    threads = [threading.Thread(target=lambda: seen.append(answers.get("slow", slowly))) for _ in range(3)]
    for thread in threads:
        thread.start()
    asked.wait(60)
    assert answers.get("known", lambda: 9) == 1
    assert answers.get("other", lambda: 3) == 3
    eventually(lambda: all(waiting([thread.ident], 0.0) for thread in threads), "all are told to wait")
    answered.set()
    for thread in threads:
        thread.join()
    assert seen == [2, 2, 2]


def test_a_failed_question_is_asked_again_and_leaves_nothing() -> None:
    answers = Answers[str, int]("the registry", 60)
    for _ in range(2):
        with pytest.raises(ZeroDivisionError):
            answers.get("a", lambda: 1 // 0)
    assert not answers._asking
    assert answers.get("a", lambda: 4) == 4
