"""Drawings in SVG: boxes with a title, and arrows with labels."""

from collections.abc import Sequence
from xml.sax.saxutils import escape, quoteattr

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


def drawing(width: int, height: int, about: str, parts: Sequence[str]) -> str:
    """The text of an SVG file with these parts; ``about`` says in words what it shows."""
    heads = "".join(
        f'<marker id="{name}" viewBox="0 0 10 10" refX="9" refY="5" markerWidth="7" markerHeight="7" orient="auto">'
        f'<path d="M0 0 L10 5 L0 10 z" fill="{colour}"/></marker>'
        for name, colour in (("forth", INK), ("back", BACK))
    )
    lines = [
        (
            f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" viewBox="0 0 {width} {height}" '
            f'role="img" aria-label={quoteattr(about)}>'
        ),
        f"<defs>{heads}</defs>",
        (
            "<style>text{font-family:Helvetica,Arial,sans-serif;text-anchor:middle}"
            f".title{{font-size:15px;font-weight:bold;fill:{INK}}}.line{{font-size:12px;fill:{MUTED}}}"
            f".label{{font-size:12px}}.group{{font-size:13px;fill:{MUTED};text-anchor:start}}</style>"
        ),
        f'<rect width="{width}" height="{height}" fill="#ffffff"/>',
        *parts,
        "</svg>",
    ]
    return "\n".join(lines) + "\n"
