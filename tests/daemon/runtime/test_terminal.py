"""Text of strangers that acts on a terminal."""

import io
import json

import pytest

from fastwire_daemon.runtime.logs import configure, get_logger
from fastwire_daemon.runtime.terminal import printable, printable_json


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("orders Zürich 訂單\u3000x", "orders Zürich 訂單\u3000x"),
        ("\x1b[2J\x1b]0;owned\x07", r"\x1b[2J\x1b]0;owned\x07"),
        ("\x9b2J \x85 \x7f \x00", r"\x9b2J \x85 \x7f \x00"),
        ('no\r\n{"level":"error"}\tx', r'no\r\n{"level":"error"}\tx'),
        ("a\u202eb\u2066c\u200fd\u2028e\ufeff", r"a\u202eb\u2066c\u200fd\u2028e\ufeff"),
        ("\udc80", r"\udc80"),
    ],
)
def test_text_becomes_one_line_without_effects(text: str, shown: str) -> None:
    assert printable(text) == shown
    assert printable(shown) == shown


def test_json_means_the_same() -> None:
    value = {"a": "\x9b2J\x7f\u202e\u2066 Zürich", "b\x85": ["\u2028"]}
    text = json.dumps(value, ensure_ascii=False).encode()
    shown = printable_json(text)
    assert json.loads(shown) == value
    assert all(char.isprintable() for char in shown.decode()) and "Zürich" in shown.decode()
    assert printable_json(b'{"a": "\\u001b"}') == b'{"a": "\\u001b"}'
    assert printable_json(b"\xff\xc2\x9b") == b"\xff\\u009b"


EVIL = '\x1b[2J\x9b1;1H no schema\r\n12:00:00 error   forged why="x"\u202e'


def test_lines_of_a_log_for_people_are_not_forged() -> None:
    stream = io.StringIO()
    configure(stream=stream, human=True)
    try:
        raise ValueError(EVIL)
    except ValueError:
        get_logger("x").exception(f"failed: {EVIL}", why=EVIL, **{f"key {EVIL}": 1})
    first, *rest = stream.getvalue().removesuffix("\n").split("\n")
    assert first.count("no schema") == 3
    assert all(line.startswith("  ") for line in rest)
    assert all(line.isprintable() for line in (first, *rest))


def test_lines_of_a_log_for_programs_are_exact() -> None:
    stream = io.StringIO()
    configure(stream=stream, human=False)
    get_logger("x").error(EVIL, why=EVIL)
    (line,) = stream.getvalue().removesuffix("\n").split("\n")
    assert (json.loads(line)["event"], json.loads(line)["why"]) == (EVIL, EVIL)
