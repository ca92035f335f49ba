"""Decoders whose columns are inferred from the values."""

import json
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from threading import Event
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from fastwire.columns.chunk import Chunk
from fastwire.decode.evolution import Column
from fastwire.position import Log
from fastwire_daemon.config.decode import parse_decode
from fastwire_daemon.dataset.description import DatasetOptions, Description
from fastwire_daemon.encoders.parquet import ParquetEncoder
from fastwire_daemon.runtime.errors import DatasetMismatchError, LogRefusedError, Superseded
from fastwire_daemon.sinks.dataset import DatasetSink
from fastwire_daemon.sinks.registry import decoder_of
from fastwire_daemon.sinks.valuedecoder import ValueDecoder
from fastwire_daemon.testing import Feed

IDS = Column("id", "l", True)


def decoder(**more: Any) -> ValueDecoder:
    options = {name: more.pop(name) for name in ("for_table",) if name in more}
    return decoder_of(parse_decode({"format": "json", "schema": "infer"} | more), "kafka", **options)


def landed(
    made: ValueDecoder, *values: Any, keys: Sequence[bytes | None] | None = None
) -> tuple[list[pa.RecordBatch], list[str]]:
    """Return the rows of ``values``, and the reasons of the dead letters."""
    encoded = [None if value is None else json.dumps(value).encode() for value in values]
    batch = pa.record_batch(
        {
            "value": pa.array(encoded, pa.binary()),
            "key": pa.array(keys or [None] * len(values), pa.binary()),
            "offset": pa.array(range(len(values)), pa.int64()),
            "timestamp": pa.array([0] * len(values), pa.timestamp("us", "UTC")),
        }
    )
    runs = [(Log("kafka", "c", "t", "0"), 0, len(values))]
    parts = [*made.decode(batch, runs, lambda why, seconds: None)]
    return [part.batch for part in parts], [each.reason for part in parts for each in part.dead_letters]


def rows(batches: list[pa.RecordBatch]) -> list[dict[str, Any]]:
    return [
        {name: cell for name, cell in row.items() if cell is not None} for each in batches for row in each.to_pylist()
    ]


def test_values_may_lack_each_column_of_the_dataset_also_where_null_values_are_rows() -> None:
    made = decoder(columns=["*", "_deleted"])
    made.adopt([IDS, Column("price", "l", True)])
    batches, bad = landed(made, {"id": 1, "price": 2}, None, {"id": 2}, {"id": None, "new": True})
    assert bad == []
    assert rows(batches) == [
        {"_deleted": False, "id": 1, "price": 2}, {"_deleted": True}, {"_deleted": False, "id": 2},
        {"_deleted": False, "new": True},
    ]  # fmt: skip


def test_objects_without_a_value_are_rows_before_there_are_columns() -> None:
    made = decoder()
    batches, bad = landed(made, {}, {"a": None}, [])
    assert (sum(each.num_rows for each in batches), len(bad)) == (2, 1)
    batches, _ = landed(made, {}, {"a": 1})
    assert rows(batches) == [{}, {"a": 1}]


def test_decoded_keys_stand_beside_inferred_columns(tmp_path: Path) -> None:
    schema = tmp_path / "key.avsc"
    schema.write_text(json.dumps({"type": "record", "name": "K", "fields": [{"name": "k", "type": "long"}]}))
    made = decoder(columns=["*", "_key"], keys={"format": "json", "schema": str(schema)})
    keys = [b'{"k": 1}', b'{"k": 2}', b'{"j": 3}']
    batches, bad = landed(made, {"id": 1}, {"id": 2, "_key": 5}, {"id": 3}, keys=keys)
    made.adopt(made.types)
    later, none = landed(made, {"id": 4, "new": 1}, keys=keys[:1])
    assert rows(batches) + rows(later) == [{"_key": {"k": 1}, "id": 1}, {"_key": {"k": 1}, "id": 4, "new": 1}]
    assert none == [] and bad == [
        "NewColumns at byte 10 of the value, in _key",
        "MissingField at byte 7 of the key 0x7b226a223a20337d, in _key.k",
    ]


def test_a_new_field_stops_its_log_if_columns_are_strict() -> None:
    made = decoder(evolve="strict")
    made.adopt([IDS])
    assert rows(landed(made, {"id": 1}, {}, {"id": None, "n": [None]})[0]) == [{"id": 1}, {}, {}]
    with pytest.raises(LogRefusedError, match="NewColumns at byte 10 of the value, in n"):
        landed(made, {"id": 1}, {"id": 2, "n": 1})


def test_numbers_stay_numbers_where_columns_widen() -> None:
    made = decoder(columns=["*", "_offset"], evolve="widen")
    made.adopt([IDS, Column("big", "l", True)])
    found, reasons = landed(made, {"id": 1.5}, {"id": 3}, {"id": (1 << 53) + 1}, {"big": 1 << 70}, {"big": 1 << 60})
    assert rows(found) == [{"id": 1.5, "_offset": 0}, {"id": 3.0, "_offset": 1}, {"big": 1 << 60, "_offset": 4}]
    assert reasons == ["Inexact at byte 7 of the value, in id", "OutOfRange at byte 8 of the value, in big"]


def test_a_value_of_another_type_makes_its_column_text_where_columns_widen() -> None:
    made = decoder(columns=["*"], evolve="widen")
    inner = Column("tags", "+l", True, (Column("item", "g", True),))
    made.adopt([IDS, Column("ok", "b", True), Column("who", "+s", True, (inner,))])
    values = [
        {"id": 1, "ok": True, "who": {"tags": [1.5, 2]}}, {"id": "x"}, {"id": 1.5}, {"id": [1, {"a": None}], "ok": 0},
        {"id": "", "who": {"tags": ["y", False]}}, {"ok": None, "id": {}}, {"who": "z"}, {"who": {"tags": {}}},
    ]  # fmt: skip
    found, reasons = landed(made, *values)
    assert rows(found) == [
        {"id": "1", "ok": "true", "who": {"tags": ["1.5", "2"]}}, {"id": "x"}, {"id": "1.5"},
        {"id": '[1, {"a": null}]', "ok": "0"}, {"id": "", "who": {"tags": ["y", "false"]}}, {"id": "{}"},
    ]  # fmt: skip
    assert reasons == ["WrongType at byte 8 of the value, in who", "WrongType at byte 17 of the value, in who.tags"]
    assert [str(each) for each in made.types] == [
        "id string", "ok string", "who struct<tags list<item string>>",
    ]  # fmt: skip


@pytest.mark.parametrize("first", [0, 1])
def test_a_writer_whose_column_is_text_and_one_whose_column_has_numbers_agree(tmp_path: Path, first: int) -> None:
    """Whichever of them commits first."""
    sinks, feed = [], Given(partitions=2)
    for _ in range(2):
        decode = {"format": "json", "schema": "infer", "columns": ["*", "_key"], "evolve": "widen"}
        made = decoder_of(parse_decode(decode), "pulsar")
        options = DatasetOptions(system="pulsar", cluster="feed", columns=made.columns, inferred=True, widens=True)
        sinks.append(DatasetSink(tmp_path, options, ParquetEncoder, decoder=made))
        sinks[-1].open()
        if len(sinks) == 1:
            sinks[0].write(feed.of({"n": 1}))
            sinks[0].commit()
    sinks[0].write(feed.of({"n": "x", "new": "y"}))
    sinks[1].write(feed.of({"n": 2.5, "new": False}))
    later = feed.of({"n": 3, "new": True})
    sinks[first].commit()
    sinks[1 - first].commit()
    sinks[1].write(later)
    sinks[1].commit()
    assert [str(column) for column in sinks[1].types] == ["n string", "new string"]
    tables = [pq.read_table(file, partitioning=None) for file in sorted(tmp_path.rglob("*.parquet"))]
    landed_in = [["1", "x", "2.5", "3"], ["1", "2.5", "x", "3.0"]]
    assert [str(table["n"][0].as_py()) for table in tables] == landed_in[first]
    for sink in sinks:
        sink.close()


def test_fields_of_structs_have_names_that_tables_can_have() -> None:
    made = decoder(for_table=True)
    made.adopt([IDS])
    batches, bad = landed(made, {"id": 1, "s": {"a b": 1}}, {"id": 2, "l": [{"c;": 1}]}, {"id": 3, "s": {"fine": 1}})
    assert rows(batches) == [{"id": 3, "s": {"fine": 1}}]
    assert bad == ["NewColumns at byte 16 of the value, in s.a b", "NewColumns at byte 10 of the value, in l"]


def test_names_with_dots_are_not_the_places_of_other_columns_of_a_table() -> None:
    made = decoder(for_table=True)
    made.adopt([IDS, Column("who", "+s", True, (Column("name", "u", True),))])
    values = [{"who.name": "x"}, {"a.b": 1}, {"l": [1]}, {"l.element": 2}, {"a": {"c": 1, "b": 2}}]
    batches, bad = landed(made, *values)
    assert rows(batches) == [{"a.b": 1}, {"l": [1]}]
    assert bad == [
        "NewColumns at byte 1 of the value, in who.name",
        "NewColumns at byte 1 of the value, in l.element",
        "NewColumns at byte 15 of the value, in a.b",
    ]


class Given(Feed):
    """A feed of two partitions, one record after the other from each."""

    def of(self, value: Any) -> Chunk:
        self._rows, self._given = 1, value
        return self.chunk(1)

    def _values(self, partition: int, entry: int) -> list[bytes]:
        return [json.dumps(self._given).encode()]


def test_a_file_of_another_type_does_not_land_in_the_table_of_a_writer_that_was_first(tmp_path: Path) -> None:
    sinks, feed = [], Given(partitions=2)
    for _ in range(2):
        made = decoder_of(
            parse_decode({"format": "json", "schema": "infer", "columns": ["*", "_key"]}), "pulsar", for_table=True
        )
        options = DatasetOptions(system="pulsar", cluster="feed", columns=made.columns, types=made.types, table="delta")
        sinks.append(DatasetSink(tmp_path, options, ParquetEncoder, decoder=made))
        sinks[-1].open()
        if len(sinks) == 1:
            sinks[0].write(feed.of({"id": 1}))
            sinks[0].commit()
    one, other = sinks
    one.write(feed.of({"id": 2, "n": 1.5}))
    other.write(feed.of({"id": 3, "n": 2}))
    one.commit()
    with pytest.raises(Superseded, match="type of its column n from double to long"):
        other.commit()
    other.open()
    assert [str(column) for column in other.types] == ["id int64", "n double"]
    for sink in sinks:
        sink.close()


def infer(value: bytes, decoder: ValueDecoder, stop: Event) -> None:
    decoder.infer([value])


@pytest.mark.parametrize(("held", "why"), [("offset", 'with "" before the columns of the records'), ("_offset", "")])
def test_records_of_a_dataset_keep_the_names_of_their_columns(held: str, why: str) -> None:
    """A field of the values, too, may have the name of a column of records."""
    facts: dict[str, Any] = {"system": "kafka", "cluster": "c"}
    made = DatasetOptions(columns=(held, "id"), types=(IDS,), **facts)
    wanted = DatasetOptions(columns=("_offset", "offset"), types=(Column("offset", "l", True),), inferred=True, **facts)
    found = Description.of(made, id="i", created="now")
    if not why:
        found.check(wanted, "data")
        return
    with pytest.raises(DatasetMismatchError, match=why):
        found.check(wanted, "data")


def test_writers_whose_first_records_differ_agree_on_the_columns_of_the_one_that_creates_the_dataset(
    tmp_path: Path,
) -> None:
    sinks, feed = [], Given(partitions=2)
    for first in (b'{"id": 1, "a": 1}', b'{"id": "x", "b": 0.5}'):
        made = decoder_of(parse_decode({"format": "json", "schema": "infer", "columns": ["*", "_key"]}), "pulsar")
        options = DatasetOptions(system="pulsar", cluster="feed", columns=made.columns, inferred=True)
        found = partial(infer, first, made)
        sinks.append(DatasetSink(tmp_path, options, ParquetEncoder, decoder=made, first=found))
        sinks[-1].open()
    one, other = sinks
    assert not one.exists and not other.exists
    for sink in sinks:
        sink.create_dataset()  # both have looked, and found no dataset
    for sink in sinks:
        assert [str(column) for column in sink.types] == ["id int64", "a int64"]
    other.write(feed.of({"id": 2, "b": 0.5}))
    other.write(feed.of({"id": "x"}))
    other.commit()
    one.refresh()
    assert [str(column) for column in one.types] == ["id int64", "a int64", "b double"]
    assert other.decoded is not None and (other.decoded.values, other.decoded.dead_letters) == (1, 1)
    for sink in sinks:
        sink.close()
