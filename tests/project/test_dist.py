"""The packages that `make dist` builds have the version of their commit, and are built from what is committed."""

import os
import subprocess
from pathlib import Path

import pytest

import fastwire
from release.dist import export
from release.version import Described, VersionError, parse_described, version_of
from tests.support.source_tree import ROOT

SOURCE = '"""A package."""\n\n__version__ = "1.2.0"\n'


@pytest.mark.parametrize(
    ("described", "version"),
    [
        (Described("1.2.0", 0, "abc"), "1.2.0"),
        (Described("1.1.3", 7, "abc"), "1.2.0.dev7+gabc"),
        (Described("", 12, "abc"), "1.2.0.dev12+gabc"),
    ],
)
def test_the_version_of_a_commit(described: Described, version: str) -> None:
    assert version_of(SOURCE, described) == version


@pytest.mark.parametrize(
    ("described", "why"),
    [
        (Described("1.3.0", 0, "abc"), "the tag is v1.3.0, but fastwire.__version__ is 1.2.0"),
        (Described("1.2.0", 1, "abc"), "raise it to the next release"),
    ],
)
def test_source_and_tag_contradict_each_other(described: Described, why: str) -> None:
    with pytest.raises(VersionError, match=why):
        version_of(SOURCE, described)


def test_two_versions_in_the_source() -> None:
    with pytest.raises(VersionError, match="once"):
        version_of(SOURCE * 2, Described("", 1, "abc"))


def test_the_name_of_a_tag() -> None:
    assert parse_described("v1.2.0-3-gabc\n") == Described("1.2.0", 3, "abc")
    with pytest.raises(VersionError, match="is not a release tag"):
        parse_described("v1-rc-3-gabc")


def test_the_source_has_a_version_that_tags_can_name() -> None:
    source = (ROOT / "fastwire" / "__init__.py").read_text(encoding="utf-8")
    assert version_of(source, Described(fastwire.__version__, 0, "abc")) == fastwire.__version__


def git(root: Path, *arguments: str) -> None:
    own = {"GIT_CONFIG_GLOBAL": os.devnull, "GIT_CONFIG_SYSTEM": os.devnull}
    names = ("-c", "user.name=A", "-c", "user.email=a@example.org", "-c", "init.defaultBranch=main")
    subprocess.run(("git", *names, *arguments), cwd=root, env={**os.environ, **own}, check=True, capture_output=True)


def test_a_package_is_built_from_the_commit(tmp_path: Path) -> None:
    root = tmp_path / "root"
    (root / "fastwire").mkdir(parents=True)
    init = root / "fastwire" / "__init__.py"
    init.write_text(SOURCE)
    git(root, "init")
    git(root, "add", ".")
    git(root, "commit", "--date", "2020-02-02T00:00:00Z", "-m", "One.")
    git(root, "tag", "v1.1.0")
    git(root, "commit", "--allow-empty", "-m", "Two.")
    (root / "fetched.jar").touch()
    init.write_text("changed")
    epoch = export("HEAD", tmp_path / "tree", root=root)
    assert sorted(os.listdir(tmp_path / "tree")) == ["fastwire"]
    assert '__version__ = "1.2.0.dev1+g' in (tmp_path / "tree" / "fastwire" / "__init__.py").read_text()
    assert epoch > 1_600_000_000
    git(root, "checkout", "-f", "v1.1.0")
    with pytest.raises(VersionError, match=r"the tag is v1\.1\.0"):
        export("HEAD", tmp_path / "tagged", root=root)
