"""Draw docs/architecture.svg: the path of the records, and what flows back.

python -m docs.architecture
"""

from collections.abc import Sequence
from pathlib import Path
from xml.sax.saxutils import escape

__all__ = ["PICTURE", "picture"]

PICTURE = Path(__file__).with_suffix(".svg")
WIDTH, HEIGHT = 1060, 384

INK, MUTED, LINE = "#1f2933", "#52606d", "#7b8794"
PLAIN, OURS, DISK = "#f5f7fa", "#e3f0fb", "#eef7e8"
BACK = "#b7472a"


def box(x: int, y: int, width: int, height: int, title: str, lines: Sequence[str], fill: str) -> list[str]:
    """A box with a title and lines of smaller text."""
    middle = x + width // 2
    parts = [
        f'<rect x="{x}" y="{y}" width="{width}" height="{height}" rx="6" fill="{fill}" stroke="{LINE}"/>',
        f'<text x="{middle}" y="{y + 24}" class="title">{escape(title)}</text>',
    ]
    parts += [
        f'<text x="{middle}" y="{y + 44 + 17 * row}" class="line">{escape(line)}</text>'
        for row, line in enumerate(lines)
    ]
    return parts


def arrow(points: Sequence[tuple[int, int]], colour: str, label: str, at: tuple[int, int]) -> list[str]:
    """A line through ``points`` that ends with a head, and its label."""
    path = " ".join(f"{'L' if index else 'M'}{x} {y}" for index, (x, y) in enumerate(points))
    head = "back" if colour == BACK else "forth"
    parts = [f'<path d="{path}" fill="none" stroke="{colour}" stroke-width="2" marker-end="url(#{head})"/>']
    if label:
        parts.append(f'<text x="{at[0]}" y="{at[1]}" class="label" fill="{colour}">{escape(label)}</text>')
    return parts


def picture() -> str:
    """The text of docs/architecture.svg, the same at each call."""
    heads = "".join(
        f'<marker id="{name}" viewBox="0 0 10 10" refX="9" refY="5" markerWidth="7" markerHeight="7" orient="auto">'
        f'<path d="M0 0 L10 5 L0 10 z" fill="{colour}"/></marker>'
        for name, colour in (("forth", INK), ("back", BACK))
    )
    parts = [
        (
            f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{HEIGHT}" viewBox="0 0 {WIDTH} {HEIGHT}" '
            'role="img" aria-label="Records flow from broker through scanner, chunks and encoders into the dataset; '
            'acknowledgements and permits flow back">'
        ),
        f"<defs>{heads}</defs>",
        (
            "<style>text{font-family:Helvetica,Arial,sans-serif;text-anchor:middle}"
            f".title{{font-size:15px;font-weight:bold;fill:{INK}}}.line{{font-size:12px;fill:{MUTED}}}"
            f".label{{font-size:12px}}.group{{font-size:13px;fill:{MUTED};text-anchor:start}}</style>"
        ),
        f'<rect width="{WIDTH}" height="{HEIGHT}" fill="#ffffff"/>',
        f'<rect x="232" y="30" width="546" height="338" rx="8" fill="none" stroke="{LINE}" stroke-dasharray="5 4"/>',
        '<text x="246" y="54" class="group">one process: fastwire-consume run</text>',
    ]
    parts += box(20, 90, 120, 120, "Broker", ["Apache Pulsar", "or", "Apache Kafka"], PLAIN)
    scanned = ["receive buffer", "scan and decode", "in C, no object", "per record"]
    parts += box(256, 90, 140, 120, "Connection", scanned, OURS)
    parts += box(436, 90, 130, 120, "Chunk", ["Arrow columns", "with the spans", "of positions"], OURS)
    encoded = ["encoders write", "staged files", "(Parquet, Arrow,", "JSON lines)"]
    parts += box(606, 90, 150, 120, "Sink thread", encoded, OURS)
    parts += box(840, 30, 180, 78, "Dataset folder", ["visible files", "000000000002-0.parquet"], DISK)
    parts += box(840, 142, 180, 68, "Log of commits", ["_fastwire/log: 1, 2, 3 …"], DISK)
    parts += box(840, 262, 180, 72, "Readers", ["Spark, DuckDB, Polars,", "pyarrow, verify"], PLAIN)
    parts += box(436, 262, 130, 72, "Coverage", ["positions that", "have landed"], OURS)
    parts += box(256, 262, 140, 72, "Byte budget", ["daemon.memory"], OURS)
    parts += arrow([(140, 150), (254, 150)], INK, "records", (184, 143))
    parts += arrow([(396, 150), (434, 150)], INK, "", (0, 0))
    parts += arrow([(566, 150), (604, 150)], INK, "", (0, 0))
    parts += arrow([(756, 166), (838, 166)], INK, "1 link", (808, 159))
    parts += arrow([(930, 142), (930, 110)], INK, "2 rename", (970, 130))
    parts += arrow([(1020, 70), (1040, 70), (1040, 298), (1022, 298)], INK, "", (0, 0))
    parts += arrow([(840, 196), (800, 196), (800, 298), (568, 298)], BACK, "3 what is durable", (672, 291))
    parts += arrow([(500, 334), (500, 352), (60, 352), (60, 212)], BACK, "4 acknowledge", (150, 345))
    parts += arrow([(480, 210), (480, 236), (326, 236), (326, 260)], INK, "bytes in use", (404, 230))
    parts += arrow([(256, 298), (100, 298), (100, 212)], BACK, "permits, or pause", (166, 291))
    parts.append("</svg>")
    return "\n".join(parts) + "\n"


def main() -> None:
    """Write the picture."""
    PICTURE.write_text(picture(), encoding="utf-8")


if __name__ == "__main__":
    main()
