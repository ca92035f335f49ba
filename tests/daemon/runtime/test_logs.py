"""Log lines as machines and people read them, and what must not be in them."""

import io
import json
import logging
import warnings
from pathlib import Path
from typing import Any

import pytest
from pydantic import SecretStr

from fastwire_daemon.runtime.logs import configure, console, get_logger, recent_warnings, redact


def lines(stream: io.StringIO) -> list[dict[str, Any]]:
    return [json.loads(line) for line in stream.getvalue().splitlines()]


def test_a_line_is_one_object() -> None:
    stream = io.StringIO()
    configure(stream=stream)
    get_logger("pipeline").info("committed", pipeline="orders", rows=3, seconds=0.5, done=True, none=None)
    (line,) = lines(stream)
    assert list(line) == ["ts", "level", "logger", "event", "pipeline", "rows", "seconds", "done", "none"]
    assert line["ts"].endswith("Z")
    assert len(line["ts"]) == len("2025-01-31T00:00:00.000Z")
    del line["ts"]
    assert line == {
        "level": "info",
        "logger": "pipeline",
        "event": "committed",
        "pipeline": "orders",
        "rows": 3,
        "seconds": 0.5,
        "done": True,
        "none": None,
    }
    assert stream.getvalue().endswith("}\n")
    assert console() is None


def test_the_last_warning_of_each_kind_is_remembered() -> None:
    configure(stream=io.StringIO())
    log = get_logger("remembered")
    log.info("not this one")
    for pipeline in ("a", "b"):
        log.warning("bad", pipeline=pipeline)
    for number in range(30):  # one that repeats pushes no other one out
        log.warning("worse", number=number, password="hunter2")
        log.warning("worse", number=number, password="hunter2")  # of a burst only the first
    try:
        raise ValueError
    except ValueError:
        log.exception("worst")
    worst, worse, *bad = recent_warnings()[:4]
    assert (worst["level"], worst["logger"], worst["event"]) == ("error", "remembered", "worst")
    assert "traceback" not in worst
    assert (worse["number"], worse["count"], worse["password"]) == (29, 30, "***")
    assert [line["pipeline"] for line in bad] == ["b", "a"] and "count" not in bad[0]
    for number in range(30):
        log.warning(f"kind {number}")
    assert [line["event"] for line in recent_warnings()] == [f"kind {number}" for number in range(29, 9, -1)]


def test_any_value_finds_a_form() -> None:
    stream = io.StringIO()
    configure(stream=stream)
    get_logger("x").info("odd", path=Path("/a"), raw=b"a\xff", names={"b", "a"}, by={1: (2, 3)}, error=OSError(2, "no"))
    get_logger("x").info("odder", big=2**70, name="a\udcff", by={(1, 2): 3})
    line, odder = lines(stream)
    assert (odder["big"], odder["name"], odder["by"]) == (2**70, "a\udcff", {"(1, 2)": 3})
    assert line["path"] == "/a"
    assert line["raw"] == "a\\xff"
    assert line["names"] == ["a", "b"]
    assert line["by"] == {"1": [2, 3]}
    assert line["error"] == "[Errno 2] no"


def test_line_breaks_stay_inside_a_line() -> None:
    stream = io.StringIO()
    configure(stream=stream)
    get_logger("x").warning("one\ntwo", reason="a\nb")
    assert stream.getvalue().count("\n") == 1


def test_fields_do_not_take_our_names() -> None:
    stream = io.StringIO()
    configure(stream=stream)
    get_logger("x").info("told", level="high", logger="l", ts=1, traceback="t")
    (line,) = lines(stream)
    assert (line["event"], line["level"], line["level_"], line["ts_"]) == ("told", "info", "high", 1)
    assert (line["logger"], line["logger_"], line["traceback_"]) == ("x", "l", "t")


def test_percent_signs_mean_nothing() -> None:
    stream = io.StringIO()
    configure(stream=stream)
    get_logger("x").info("100 %s done %d")
    assert lines(stream)[0]["event"] == "100 %s done %d"


def test_levels() -> None:
    stream = io.StringIO()
    configure(stream=stream)
    log = get_logger("x")
    for write in (log.debug, log.info, log.warning, log.error):
        write("e")
    assert [line["level"] for line in lines(stream)] == ["info", "warning", "error"]
    configure(stream=stream, level="debug")
    log.debug("more")
    assert lines(stream)[-1]["event"] == "more"


def test_exceptions_bring_their_traceback() -> None:
    stream = io.StringIO()
    configure(stream=stream)
    try:
        raise ValueError("boom")
    except ValueError:
        get_logger("x").exception("failed", pipeline="orders")
    (line,) = lines(stream)
    assert (line["level"], line["event"], line["pipeline"]) == ("error", "failed", "orders")
    assert line["traceback"].startswith("Traceback (most recent call last):")
    assert line["traceback"].endswith("ValueError: boom")


def test_other_libraries_are_heard_from_warnings_on() -> None:
    stream = io.StringIO()
    configure(stream=stream)
    logging.getLogger("aiohttp").info("chatter")
    logging.getLogger("aiohttp").warning("trouble %s", 7)
    with warnings.catch_warnings():
        warnings.simplefilter("always")
        warnings.warn("old", DeprecationWarning, stacklevel=1)
    first, second = lines(stream)
    assert (first["logger"], first["event"]) == ("aiohttp", "trouble 7")
    assert second["logger"] == "py.warnings"
    assert "old" in second["event"]


def test_the_last_configuration_wins() -> None:
    first, second = io.StringIO(), io.StringIO()
    configure(stream=first)
    configure(stream=second)
    get_logger("x").info("e")
    assert not first.getvalue()
    assert len(lines(second)) == 1


@pytest.mark.parametrize(
    "key",
    ["token", "auth_token", "TOKEN", "password", "db-password", "secret", "client_secret", "Authorization",
     "credentials", "private_key", "accessToken", "auth_data"],
)  # fmt: skip
def test_secrets_are_known_by_their_key(key: str) -> None:
    assert redact({key: "hunter2"}) == {key: "***"}
    assert redact({"outer": [{key: {"a": "hunter2"}}]}) == {"outer": [{key: "***"}]}


@pytest.mark.parametrize(
    "key", ["token_file", "password_file", "secret_path", "key", "pipeline", "token_type", "author"]
)
def test_what_is_no_secret_stays(key: str) -> None:
    assert redact({key: "/etc/x"}) == {key: "/etc/x"}


@pytest.mark.parametrize("human", [False, True])
def test_secrets_are_in_no_line(human: bool) -> None:
    stream = io.StringIO()
    configure(stream=stream, human=human)
    get_logger("x").info("connecting", token="hunter2", auth={"password": "hunter2"}, kept=SecretStr("hunter2"))
    assert "hunter2" not in stream.getvalue()
    assert "***" in stream.getvalue()


def test_lines_for_people() -> None:
    stream = io.StringIO()
    configure(stream=stream, human=True)
    log = get_logger("pipeline")
    log.info("committed [bold]", pipeline="orders", rows=131072, seconds=0.25)
    log.warning("disk full")
    first, second = stream.getvalue().splitlines()
    assert first[8:] == " info    committed [bold] pipeline=orders rows=131072 seconds=0.25"
    assert second[8:] == " warning disk full"
    assert console() is not None


def test_lines_for_people_are_not_broken_at_the_edge() -> None:
    stream = io.StringIO()
    configure(stream=stream, human=True)
    get_logger("x").info("long " * 60)
    assert stream.getvalue().count("\n") == 1


def test_an_exception_for_people() -> None:
    stream = io.StringIO()
    configure(stream=stream, human=True)
    try:
        raise ValueError("boom")
    except ValueError:
        get_logger("x").exception("failed")
    assert stream.getvalue().rstrip().endswith("ValueError: boom")
