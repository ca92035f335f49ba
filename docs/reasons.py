"""Write the table of reasons in docs/dead-letters.md, from the enum that names them.

python -m docs.reasons
"""

from pathlib import Path

from fastwire.reason import Reason

PAGE = Path(__file__).with_name("dead-letters.md")
_HEAD = "| reason | when | what to do |\n|---|---|---|\n"


def page() -> str:
    """Return the page with the table of today's reasons."""
    before, head, rest = PAGE.read_text(encoding="utf-8").partition(_HEAD)
    if not head:
        raise ValueError(f"{PAGE} has no table of reasons")
    after = rest.partition("\n\n")[2]
    rows = "\n".join(f"| `{reason}` | {reason.when} | {reason.todo} |" for reason in Reason)
    return f"{before}{head}{rows}\n\n{after}"


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
