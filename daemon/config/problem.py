"""Mistakes in a configuration, and the error that carries them."""

from typing import NamedTuple

from fastwire.errors import FastwireError


class Problem(NamedTuple):
    """One mistake: its place (``file:line``), its key, and the message."""

    place: str
    key: str
    message: str

    def __str__(self) -> str:
        return ": ".join(part for part in self if part)


class ConfigError(FastwireError):
    """The configuration cannot be used. ``problems`` holds all mistakes, in the order of the file."""

    def __init__(self, problems: list[Problem]) -> None:
        self.problems = tuple(problems)
        super().__init__("\n".join(str(problem) for problem in problems))
