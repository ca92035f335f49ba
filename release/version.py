"""The version of a distribution: the one in the source at a release tag, a development version anywhere else.

``fastwire.__version__`` is written by hand, and the tag has to agree with it. A tool that writes the version from the
tag (setuptools-scm) would need git wherever the package is built, also from a downloaded archive; an installation in
place would carry the version of an older commit; and the source would no longer say what it is.
"""

import re
from typing import NamedTuple

_LITERAL = re.compile(r'^__version__ = "([^"]+)"$', re.MULTILINE)
_DESCRIBED = re.compile(r"v(?P<tag>\d[^-]*)-(?P<commits>\d+)-g(?P<commit>[0-9a-f]+)")


class VersionError(Exception):
    """The version in the source and the tags of the repository contradict each other."""


class Described(NamedTuple):
    """The position of a commit among the release tags."""

    tag: str
    """Version that the nearest release tag names, without its ``v``; "" if there is no such tag."""
    commits: int
    """Commits since that tag, or since the first commit."""
    commit: str
    """Abbreviated hash."""


def parse_described(text: str) -> Described:
    """Parse the output of ``git describe --tags --long --match 'v[0-9]*'``. Raises VersionError."""
    match = _DESCRIBED.fullmatch(text.strip())
    if match is None:
        raise VersionError(f"{text.strip()!r} is not a release tag: tags of releases are v1.2.3, without dashes")
    return Described(match["tag"], int(match["commits"]), match["commit"])


def version_of(source: str, described: Described) -> str:
    """Return the version (PEP 440) of the commit whose ``fastwire/__init__.py`` is ``source``.

    At a tag it is the tag's. After a tag it is ``X.devN+gHASH``, where X is the next release, so that it sorts between
    the two. Raises VersionError if the tag names another version, or if X was released already.
    """
    literal = _literal(source)
    if described.commits == 0 and described.tag:
        if literal != described.tag:
            raise VersionError(f"the tag is v{described.tag}, but fastwire.__version__ is {literal}")
        return literal
    if literal == described.tag:
        raise VersionError(f"fastwire.__version__ is {literal}, which is released: raise it to the next release")
    return f"{literal}.dev{described.commits}+g{described.commit}"


def with_version(source: str, version: str) -> str:
    """Return the text of ``fastwire/__init__.py`` with another version."""
    return source.replace(f'__version__ = "{_literal(source)}"', f'__version__ = "{version}"')


def _literal(source: str) -> str:
    found: list[str] = _LITERAL.findall(source)
    if len(found) != 1:
        raise VersionError("fastwire/__init__.py must set __version__ once, to a string")
    return found[0]
