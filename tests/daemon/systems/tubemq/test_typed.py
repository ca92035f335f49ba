"""Values of TubeMQ as typed columns: those that do not match become dead letters at their positions."""

import io
from pathlib import Path

import pyarrow.parquet as pq

from fastwire.decode.avro.schema import compile_avro
from fastwire_daemon.config.decode import chosen_columns
from fastwire_daemon.dataset.commitlog.deadletterfile import read_dead_letters
from fastwire_daemon.dataset.description import DatasetOptions
from fastwire_daemon.dataset.proof.verify import verify
from fastwire_daemon.devbroker.server import running
from fastwire_daemon.devbroker.tubemq import TubeMQDevBroker
from fastwire_daemon.encoders.parquet import ParquetEncoder
from fastwire_daemon.sinks.dataset import DatasetSink
from fastwire_daemon.sinks.valuedecoder import ValueDecoder
from fastwire_daemon.testing.system.scene import TOPIC, MemorySink, Scene

SCHEMA = (
    """{"type": "record", "name": "T", "fields": [{"name": "n", "type": {"type": "fixed", "name": "F", "size": 3}}]}"""
)


async def test_fields_land_as_columns_and_bad_values_as_dead_letters(tmp_path: Path) -> None:
    program = compile_avro(SCHEMA)
    decoder = ValueDecoder(program, chosen_columns(("*", "_partition"), program, "tubemq"), "tubemq")
    assert {"offset", "row"} <= decoder.needed
    options = DatasetOptions(system="tubemq", cluster=MemorySink.cluster, columns=decoder.columns, types=decoder.types)
    sink = DatasetSink(tmp_path / "data", options, ParquetEncoder, decoder=decoder)
    with running(TubeMQDevBroker()) as broker:
        scene = Scene(broker, {"heartbeat": "50ms"})
        broker.produce(TOPIC, [b"100", b"too long", b"102", b"no"])
        await scene.land(sink)
    sink.close()
    (file,) = (tmp_path / "data").glob("*.parquet")
    assert pq.read_table(file, partitioning=None)["n"].to_pylist() == [b"100", b"102"]
    (dead_letters,) = (tmp_path / "data").glob("_fastwire/diverted/*")
    found = read_dead_letters(io.BytesIO(dead_letters.read_bytes())).to_pylist()
    assert [(one["position"], one["payload"]) for one in found] == [("0+2", b"too long"), ("0+4", b"no")]
    report = verify(tmp_path / "data", deep=True)
    assert (report.problems, report.rows, report.dead_letters) == ([], 2, 2)
