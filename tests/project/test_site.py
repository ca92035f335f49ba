"""The documents build as a site without a warning, and the site has all pages and commands."""

import html
import re
import shutil
from pathlib import Path

import pytest
from mkdocs.commands.build import build
from mkdocs.config import load_config
from mkdocs.exceptions import Abort
from typer.main import get_command

from fastwire_daemon.cli.app import app
from tests.project.test_docs import PAGES, of
from tests.support.source_tree import ROOT


def build_site(into: Path, docs: Path = ROOT / "docs") -> None:
    """Build the site from a folder of documents. Raises Abort for a warning."""
    build(load_config(str(ROOT / "mkdocs.yml"), docs_dir=str(docs), site_dir=str(into), strict=True))


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("site")
    build_site(folder)
    return folder


def text_of(page: Path) -> str:
    return html.unescape(re.sub(r"<[^>]+>", "", page.read_text(encoding="utf-8")))


def test_the_site_has_all_pages(site: Path) -> None:
    built = {str(page.relative_to(site)) for page in site.rglob("*.html")}
    named = {"README.md": "index", "DESIGN.md": "design/index", "docs/specs/README.md": "specs/index"}
    wanted = [named.get(of(page), of(page).removeprefix("docs/").removesuffix(".md")) for page in PAGES]
    assert built == {*(f"{name}.html" for name in wanted), "commands.html", "404.html"}


def test_the_site_loads_nothing_from_elsewhere(site: Path) -> None:
    """Pages are read without a network; they may link other sites."""
    loads = re.compile(
        r'<(?:script|img|iframe)[^>]* src="?https?:|<link[^>]* rel="?(?:stylesheet|preconnect)[^>]*https?:'
    )
    assert [page.name for page in site.rglob("*.html") if loads.search(page.read_text(encoding="utf-8"))] == []


def test_blocks_are_laid_out(site: Path) -> None:
    """A block whose first line mkdocs does not know stays text, and takes the headings after it along."""
    assert [page.name for page in site.rglob("*.html") if "```" in text_of(page)] == []


def test_the_site_has_all_commands_and_options(site: Path) -> None:
    text = text_of(site / "commands.html")
    for name, command in vars(get_command(app))["commands"].items():
        assert f"fastwire-consume {name}" in text
        for parameter in command.params:
            if "--help" not in parameter.opts and not getattr(parameter, "hidden", False):
                assert [option for option in parameter.opts if option[0] == "-" and option not in text] == [], name


def test_files_that_pages_link_are_in_the_site(site: Path) -> None:
    for name in ("conf/complete.toml", "conf/spark_notebook.py", "tests/toy/fastwire_toy/__init__.py"):
        assert (site / name).read_bytes() == (ROOT / name).read_bytes()


def test_links_to_nowhere_fail_the_build(tmp_path: Path) -> None:
    shutil.copytree(ROOT / "docs", tmp_path / "docs")
    links = ("nowhere.md", "delivery.md#nowhere", "../conf/nowhere.toml")
    with (tmp_path / "docs" / "python.md").open("a", encoding="utf-8") as page:
        page.write("".join(f"\n[a link]({link})\n" for link in links))
    with pytest.raises(Abort, match=f"{len(links)} warnings"):
        build_site(tmp_path / "site", tmp_path / "docs")
