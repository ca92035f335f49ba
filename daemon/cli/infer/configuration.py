"""The configuration that ``infer`` writes: it lands the topics as they were found."""

import json
import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from fastwire.systems import grammar_named

from ..options import PASSWORD, TOKEN, BrokerOptions

GROUP = "fastwire"


def sink_table(kind: str, name: str, catalog: str = "") -> dict[str, Any]:
    """Return the table ``sink`` of a configuration: a dataset of ``kind`` named ``name`` in the working folder.

    An Iceberg table is in the ``catalog``, a URL of its service or of a database; without one in a database of SQLite.
    """
    found: dict[str, Any] = {"type": kind, "path": name}
    if kind == "iceberg":
        uri = catalog or f"sqlite:///{Path('catalog.db').absolute()}"
        service = "rest" if uri.startswith(("http://", "https://")) else "sql"
        found |= {"table": f"default.{name}", "catalog": {"type": service, "uri": uri}}
    return found


def configuration(
    name: str,
    url: str,
    system: str,
    topics: Sequence[str],
    broker: BrokerOptions,
    decode: Mapping[str, Any],
    sink: Mapping[str, Any],
) -> str:
    """Return a configuration that lands ``topics`` from their beginning, whose secrets are in the environment."""
    secrets = {secret: f"${{{secret}}}" for secret in (TOKEN, PASSWORD) if os.environ.get(secret)}
    word = grammar_named(system).group_word
    plain = [each.replace("${", "$${") for each in (url, *topics)]
    source = {"url": plain[0], "topics": plain[1:], **({word: GROUP} if word else {}), "start": "earliest"}
    tables = {"source": source | broker.keys(secrets), "decode": decode, "sink": sink}
    return "\n".join(line for kind, keys in tables.items() for line in (*lines(f"pipelines.{name}.{kind}", keys), ""))


def lines(table: str, keys: Mapping[str, Any]) -> Iterator[str]:
    """Yield a table of TOML."""
    yield f"[{table}]"
    for key, value in keys.items():
        yield f"{key} = {_text(value)}"


def write_new(file: Path, content: bytes) -> None:
    """Write a file, all of it or none. Raises OSError with its name, also if it exists."""
    try:
        with file.open("xb") as made:
            made.write(content)
    except FileExistsError:
        raise
    except OSError as exc:
        file.unlink(missing_ok=True)
        raise OSError(exc.errno, exc.strerror, str(file)) from None


def _text(value: Any) -> str:
    if isinstance(value, Mapping):
        return f"{{ {', '.join(f'{key} = {_text(each)}' for key, each in value.items())} }}"
    if isinstance(value, list | tuple):
        return f"[{', '.join(map(_text, value))}]"
    return json.dumps(value, ensure_ascii=False)
