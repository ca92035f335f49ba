"""Sinks and encoders of others in a configuration."""

from importlib.metadata import EntryPoint

import pytest

from tests.support.config_file import one, problem, sink


@pytest.fixture
def plugins(monkeypatch: pytest.MonkeyPatch) -> None:
    def entry_points(*, group: str) -> list[EntryPoint]:
        names = {"fastwire.sinks": ["stdout", "postgres"], "fastwire.encoders": ["parquet", "orc"]}
        return [EntryPoint(name, "x:y", group) for name in names.get(group, ())]

    monkeypatch.setattr("importlib.metadata.entry_points", entry_points)


@pytest.mark.usefixtures("plugins")
def test_a_plugin_sink_gets_what_is_not_ours() -> None:
    keys = {"path": "", "type": "'postgres'", "table": "'t'", "password": "'hunter2'", "columns": "['key']"}
    made = one(sink(**keys, roll="{ rows = 5 }", options="{ a = 1 }")).sink
    assert made.options == {"table": "t", "password": "hunter2", "options": {"a": 1}}
    assert (made.columns, made.roll.rows, made.writers, made.is_dataset) == (("key",), 5, 1, False)
    assert "hunter2" not in repr(made) + made.model_dump_json() + str(made.model_dump())


@pytest.mark.usefixtures("plugins")
def test_a_plugin_encoder_makes_a_dataset() -> None:
    made = one(sink(type="'orc'", compression="'zlib'")).sink
    assert made.is_dataset
    assert (made.compression, made.options) == ("zlib", {})
    assert one(sink(type="'orc'")).sink.compression is None
    assert problem(sink(type="'orc'", path="")).endswith("sink.path: is required: the folder for the files")
    assert problem(sink(type="'orc'", bloom="1")).endswith("sink.bloom: unknown key")


@pytest.mark.usefixtures("plugins")
def test_an_unknown_type_lists_plugins_too() -> None:
    assert problem(sink(type="'postgre'")).endswith('no sink is called "postgre", did you mean "postgres"?')
    assert problem(sink(type="'x'")).endswith(
        "known are parquet, arrow, jsonl, delta, iceberg, postgresql, stdout, discard, pulsar, kafka, tank, tubemq, "
        "orc, postgres"
    )
