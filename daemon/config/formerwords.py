"""Keys and values of a configuration under their former names, and keys that are gone, which stay readable."""

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from .brokers.connection import Tell
from .values.text import KeyPath

_KEYS: Mapping[tuple[str, ...], str] = {
    ("pipelines", "*", "decode", "on_bad"): "on_error",
    ("spark", "*", "output", "quarantine"): "dead_letters",
}
_GONE: Mapping[tuple[str, ...], str] = {
    ("pipelines", "*", "source", "initial_schema"): (
        "has no effect: no schema is sent with a subscription; decode.registry reads values by that of the topic"
    ),
}
_VALUES: Mapping[tuple[str, ...], Mapping[str, str]] = {
    ("pipelines", "*", "source", "on_corrupt"): {"divert": "dead_letter"},
    ("pipelines", "*", "decode", "on_error"): {"divert": "dead_letter"},
    ("pipelines", "*", "decode", "evolve"): {"divert": "dead_letter"},
}


def renew(tree: dict[str, Any], moved: Callable[[KeyPath, KeyPath], None], tell: Tell) -> Iterator[tuple[KeyPath, str]]:
    """Rename former keys and values in ``tree``, drop keys that are gone, and yield the place and a note for each.

    ``moved`` is called with the former and the present path of a key, before it is yielded, and ``tell`` for a key that
    is given under both names.
    """
    for (*tables, former), key in _KEYS.items():
        for path, table in _tables(tree, tables):
            if former not in table:
                continue
            if key in table:
                tell((*path, former), f"is the former name of {key}, which is given too")
            table.setdefault(key, table.pop(former))
            moved((*path, former), (*path, key))
            yield (*path, former), f"is named {key} now"
    for (*tables, key), why in _GONE.items():
        for path, table in _tables(tree, tables):
            if table.pop(key, None) is not None:
                yield (*path, key), why
    for (*tables, key), words in _VALUES.items():
        for path, table in _tables(tree, tables):
            word = table.get(key)
            if isinstance(word, str) and word in words:
                table[key] = words[word]
                yield (*path, key), f'"{word}" is named "{words[word]}" now'


def _tables(tree: Any, keys: list[str], path: KeyPath = ()) -> Iterator[tuple[KeyPath, dict[str, Any]]]:
    """Yield the tables at a path, in which * stands for every key."""
    if not isinstance(tree, dict):
        return
    if not keys:
        yield path, tree
        return
    key, *rest = keys
    for each in list(tree) if key == "*" else [key]:
        yield from _tables(tree.get(each), rest, (*path, each))
