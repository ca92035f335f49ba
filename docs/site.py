"""Hooks of mkdocs: pages that are not in docs/, the reference of the commands, and links that lead out of docs/.

README.md, DESIGN.md and CHANGELOG.md are pages of the site, and other files of the tree that a page links are copied.
The sources keep the links that work in a checkout.
"""

import posixpath
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page
from typer.core import TyperGroup
from typer.main import get_command

from fastwire_daemon.cli.app import app
from fastwire_daemon.cli.exits import EXITS
from fastwire_daemon.cli.manual import described

ROOT = Path(__file__).parent.parent
# Pages outside of docs/ by their path in the tree, and where the site has them.
OUTSIDE = {"README.md": "index.md", "DESIGN.md": "design/index.md", "CHANGELOG.md": "CHANGELOG.md"}
TREE = {there: here for here, there in OUTSIDE.items()}
FENCE = re.compile(r"^( *```\w*)[^\n]*(.*?^ *```)$", re.DOTALL | re.MULTILINE)
LINK = re.compile(r"(\]\()([^)\s#:]+)((?:#[^)\s]*)?\))")


def on_files(files: Files, *, config: MkDocsConfig) -> Files:
    """Add the pages from outside of docs/, the reference of the commands, and the files that pages link."""
    pages = [file for file in files if file.is_documentation_page()]
    for path, name in OUTSIDE.items():
        files.append(File.generated(config, name, content=(ROOT / path).read_text(encoding="utf-8")))
    files.append(File.generated(config, "commands.md", content=commands()))
    pages += [file for file in map(files.get_file_from_path, TREE) if file is not None]
    linked = {path for file in pages for path in _linked(file.content_string, file.src_uri)}
    for path in sorted(linked - OUTSIDE.keys()):
        if not path.startswith("docs/") and (ROOT / path).is_file():
            files.append(File.generated(config, path, abs_src_path=str(ROOT / path)))
    return files


def on_page_markdown(markdown: str, *, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Make the links of a page those of the site, and leave out what the first line of a block says to the tests."""
    name = page.file.src_uri

    def moved(found: re.Match[str]) -> str:
        target = _of_site(_of_tree(found[2], name))
        return found[1] + posixpath.relpath(target, posixpath.dirname(name)) + found[3]

    parts, end = [], 0
    for fence in FENCE.finditer(markdown):
        parts += [LINK.sub(moved, markdown[end : fence.start()]), fence[1] + fence[2]]
        end = fence.end()
    return "".join([*parts, LINK.sub(moved, markdown[end:])])


def commands() -> str:
    """Return the reference of the commands in Markdown, made from their help."""
    return "\n".join(_commands()) + "\n"


def _commands() -> Iterator[str]:
    group: Any = get_command(app)
    assert isinstance(group, TyperGroup)
    yield "# Commands\n"
    yield "This page is made from the help of the commands, which `fastwire-consume COMMAND --help` prints.\n"
    for each in described(group.make_context("fastwire-consume", [], resilient_parsing=True)):
        yield f"## {each.name}\n\n```text\nfastwire-consume {each.usage}\n```\n"
        yield "\n\n".join(map(_plain, each.paragraphs)) + "\n"
        if each.options:
            yield "| option | meaning |\n|---|---|"
            yield from (f"| <code>{_plain(label)}</code> | {_plain(text)} |" for label, text in each.options)
            yield ""
    yield "## Exit status\n\n| status | meaning |\n|---|---|"
    yield from (f"| {code} | {_plain(meaning)} |" for code, meaning in EXITS.items())


def _plain(text: str) -> str:
    """Return text in which Markdown and HTML find nothing to lay out, also in a cell of a table."""
    return re.sub(r"[\\`*_\[\]|<>&]", lambda found: f"&#{ord(found[0])};", text)


def _linked(markdown: str, name: str) -> Iterator[str]:
    """Yield the paths in the tree to which the page ``name`` of the site links."""
    for _, target, _ in LINK.findall(FENCE.sub("", markdown)):
        yield _of_tree(target, name)


def _of_tree(target: str, name: str) -> str:
    """Return the path in the tree of a relative link of the page ``name``, as its source has it."""
    source = TREE.get(name, f"docs/{name}")
    return posixpath.normpath(posixpath.join(posixpath.dirname(source), target))


def _of_site(path: str) -> str:
    """Return the path in the site of a file of the tree; the folder of the designs is their first page."""
    return "design/index.md" if path == "docs/design" else OUTSIDE.get(path, path.removeprefix("docs/"))
