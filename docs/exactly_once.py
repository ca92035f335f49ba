"""Draw docs/exactly-once.svg: the steps of a commit, and what a kill in each of them leaves behind.

python -m docs.exactly_once
"""

from pathlib import Path

from docs.drawing import BACK, DISK, INK, MUTED, OURS, PLAIN, arrow, box, drawing

PICTURE = Path(__file__).with_name("exactly-once.svg")
ABOUT = (
    "Five steps: receive, write hidden files, create the log entry, rename the files, acknowledge; and kills in between"
)

STEPS = (
    ("Receive", ("records, each", "with its position"), OURS),
    ("Write", ("hidden files in", "_fastwire/staging"), DISK),
    ("Commit", ("create log entry N:", "files and positions"), DISK),
    ("Publish", ("rename to the", "visible names"), DISK),
    ("Acknowledge", ("the broker moves", "its cursor"), PLAIN),
)
KILLS = (
    ("nothing is written:", "the broker sends again"),
    ("no entry: files are deleted,", "the broker sends again"),
    ("entry: the next start", "renames the files"),
    ("entry: what comes again", "is dropped"),
)
BOX, GAP, TOP = 150, 46, 40


def picture() -> str:
    """The text of docs/exactly-once.svg, the same at each call."""
    parts: list[str] = []
    for number, (title, lines, fill) in enumerate(STEPS):
        left = 20 + number * (BOX + GAP)
        parts += box(left, TOP, BOX, 78, f"{number + 1} {title}", lines, fill)
        if number:
            parts += arrow([(left - GAP, TOP + 39), (left - 2, TOP + 39)], INK, "", (0, 0))
            middle = left - GAP // 2
            parts += arrow([(middle, 190), (middle, TOP + 92)], BACK, "killed here", (middle, 206))
            for row, text in enumerate(KILLS[number - 1]):
                parts.append(f'<text x="{middle}" y="{226 + 17 * row}" class="line">{text}</text>')
    committed = 20 + 2 * (BOX + GAP) + BOX // 2
    parts.append(
        f'<text x="{committed}" y="24" class="label" fill="{MUTED}">from here on the records have landed</text>'
    )
    return drawing(40 + 5 * BOX + 4 * GAP, 262, ABOUT, parts)


def main() -> None:
    """Write the picture."""
    PICTURE.write_text(picture(), encoding="utf-8")


if __name__ == "__main__":
    main()
