"""The table that gets the rows: what it is in the database, how it is made, and how it grows."""

import json
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import pyarrow as pa

from .columns import Held, misfit, sql_type
from .session import Session, quoted

_COLUMNS = """
SELECT json_agg(json_build_object(
    'name', a.attname, 'text', format_type(a.atttypid, a.atttypmod), 'type', CASE WHEN b.typelem <> 0 AND b.typlen = -1
    THEN e.typname ELSE b.typname END, 'array', b.typelem <> 0 AND b.typlen = -1, 'enum', b.typtype = 'e',
    'mod', CASE WHEN a.atttypmod <> -1 THEN a.atttypmod ELSE t.typtypmod END, 'required', a.attnotnull AND NOT
    a.atthasdef AND a.attidentity = '', 'always', a.attgenerated <> '' OR a.attidentity = 'a') ORDER BY a.attnum)::text
FROM pg_catalog.pg_attribute a JOIN pg_catalog.pg_type t ON t.oid = a.atttypid
JOIN pg_catalog.pg_type b ON b.oid = CASE WHEN t.typbasetype <> 0 THEN t.typbasetype ELSE t.oid END
LEFT JOIN pg_catalog.pg_type e ON e.oid = b.typelem
WHERE a.attrelid = to_regclass($1) AND a.attnum > 0 AND NOT a.attisdropped
"""
_KIND = "SELECT relkind::text, row_security_active(oid) FROM pg_catalog.pg_class WHERE oid = to_regclass($1)"
_UNIQUE = """
SELECT json_agg(names)::text FROM (SELECT (SELECT json_agg(a.attname ORDER BY a.attname) FROM pg_catalog.pg_attribute a
WHERE a.attrelid = i.indrelid AND a.attnum = ANY (i.indkey::int2[])) AS names FROM pg_catalog.pg_index i
WHERE i.indrelid = to_regclass($1) AND i.indisunique AND i.indisvalid AND i.indimmediate AND i.indpred IS NULL
AND i.indexprs IS NULL AND i.indnkeyatts = i.indnatts) AS every
"""
_DIGITS_OF_TIME = ("time", "timestamp", "timestamptz")


class Found(NamedTuple):
    """A table as it is in the database."""

    columns: Mapping[str, Held]
    required: frozenset[str]
    """Columns that take no nulls and have no default."""
    always: frozenset[str]
    """Columns whose values the server makes."""
    kind: str
    unique: frozenset[frozenset[str]]
    """The columns of each index that tells which row has a key."""
    guarded: bool
    """True if policies say which rows the user may write."""


class Target:
    """The table ``table`` of ``schema``; ``key`` are the columns of its key, for rows that replace others.

    ``types`` are SQL types for columns that are made, by name. The bytes of the columns ``of_bytes`` may be text.
    """

    def __init__(
        self, schema: str, table: str, key: Sequence[str], types: Mapping[str, str], of_bytes: frozenset[str]
    ) -> None:
        self.schema, self.table, self.key, self._types, self.of_bytes = schema, table, tuple(key), types, of_bytes
        self.name = quoted(schema, table)

    def look(self, session: Session) -> Found | None:
        """Return what the table is; None if it does not exist."""
        kind = session.rows(_KIND, self.name)
        if not kind:
            return None
        columns = json.loads(session.rows(_COLUMNS, self.name)[0][0] or "[]")
        unique = json.loads(session.rows(_UNIQUE, self.name)[0][0] or "[]")
        return Found(
            {each["name"]: _held(each) for each in columns},
            frozenset(each["name"] for each in columns if each["required"]),
            frozenset(each["name"] for each in columns if each["always"]),
            str(kind[0][0]),
            frozenset(frozenset(names) for names in unique),
            bool(kind[0][1]),
        )

    def differences(self, found: Found, wanted: pa.Schema) -> list[str]:
        """Return why the table cannot have rows with the columns ``wanted``, each with what helps."""
        if found.kind not in ("r", "p"):
            return [f"{self.name} is not a table"]
        wrong = []
        for field in wanted:
            held = found.columns.get(field.name)
            if field.name in found.always:
                wrong.append(f"the server makes the values of {field.name}")
            elif held is not None and misfit(field.type, held, field.name in self.of_bytes):
                wrong.append(f"{field.name} is {held.text}, and the records have values for {sql_type(field.type)}")
        for name in sorted(found.required.difference(wanted.names)):
            wrong.append(f"{name} takes no nulls and has no default, and the records do not have it")
        if found.guarded and not self.key:
            wrong.append("COPY takes no table with row-level security from this user, who lacks BYPASSRLS")
        if self.key and frozenset(self.key) not in found.unique:
            wrong.append(f"no primary key or unique index has the columns {', '.join(self.key)}")
        return wrong

    def make(self, session: Session, wanted: pa.Schema) -> None:
        """Make the table. For a transaction."""
        columns = [f"{quoted(field.name)} {self._sql(field)}" for field in wanted]
        if self.key:
            columns.append(f"PRIMARY KEY ({', '.join(map(quoted, self.key))})")
        session.run(f"CREATE TABLE {self.name} ({', '.join(columns)})")

    def add(self, session: Session, fields: Sequence[pa.Field]) -> None:
        """Add columns that take nulls."""
        added = ", ".join(f"ADD COLUMN IF NOT EXISTS {quoted(field.name)} {self._sql(field)}" for field in fields)
        session.run(f"ALTER TABLE {self.name} {added}")

    def _sql(self, field: pa.Field) -> str:
        return self._types.get(field.name) or sql_type(field.type)


def _held(column: Mapping[str, object]) -> Held:
    name, mod = str(column["type"]), column["mod"]
    assert isinstance(mod, int)
    digits = scale = None
    if name == "numeric" and mod >= 4:
        digits, scale = (mod - 4) >> 16, (mod - 4) & 0x7FF
        if scale >= 0x400:
            scale -= 0x800
    elif name == "varchar" and mod >= 4:
        digits = mod - 4
    elif name in _DIGITS_OF_TIME and mod >= 0:
        scale = mod
    return Held(name, str(column["text"]), bool(column["array"]), bool(column["enum"]), digits, scale)
