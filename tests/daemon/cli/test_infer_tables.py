"""Tables of pipelines with ``schema = "infer"``, whose catalogs take not each name."""

import json
from pathlib import Path

from fastwire_daemon.devbroker.kafka import KafkaDevBroker
from fastwire_daemon.devbroker.pulsar import running
from tests.daemon.cli.test_decode import command
from tests.daemon.cli.test_infer_pipeline import TEXT, letters, produce, rows, run
from tests.support import icebergs


def test_an_iceberg_table_gets_the_columns_and_grows(tmp_path: Path) -> None:
    config, data = tmp_path / "c.toml", tmp_path / "data"
    data.mkdir()
    settings = {name: value for name, value in icebergs.catalog(data).items() if name != "table"}
    catalog = "".join(f"{name} = {json.dumps(value)}\n" for name, value in settings.items())
    with running(KafkaDevBroker()) as broker:
        broker.create_topic("orders", 1)
        text = TEXT.format(url=broker.url, path=data).replace('type = "parquet"', 'type = "iceberg"')
        config.write_text(f'{text}table = "{icebergs.NAME}"\n[pipelines.orders.sink.catalog]\n{catalog}')
        produce(broker, [{"id": 1, "big": 1 << 70, "who": {"name": "Ada"}}, {"id": 2, "list": [{"a": 1}]}])
        run(config)
        produce(broker, [{"id": 3, "who": {"name": "Bob", "age": 7}, "list": [{"b": True}], "first-name": "B"}])
        produce(broker, [{"id": 4, "who.name": "x"}, {"id": 5, "a.b": 1}, {"id": 6, "a b": 1}, {"id": 7, "ID": 1}])
        run(config)
        report = json.loads(command("verify", data, "--json").stdout)
    found = icebergs.loaded(data).scan().to_arrow().to_pylist()
    # The library shows a null list of structs as an empty one.
    table = {row["id"]: {name: cell for name, cell in row.items() if cell not in (None, [])} for row in found}
    assert table == {
        1: {"id": 1, "_offset": 0, "big": 1 << 70, "who": {"name": "Ada", "age": None}},
        2: {"id": 2, "_offset": 1, "list": [{"a": 1, "b": None}]},
        3: {
            "id": 3, "_offset": 2, "who": {"name": "Bob", "age": 7}, "list": [{"a": None, "b": True}], "first-name": "B"
        },
        5: {"id": 5, "_offset": 4, "a.b": 1},
    }  # fmt: skip
    assert ["list" in row for row in rows(data)] == [False, True, True, False]
    assert [each.rpartition(", in ")[2] for each in letters(data)] == ["who.name", "a b", "ID"]
    assert (report["ok"], report["rows"], report["dead_letters"]) == (True, 4, 3)
