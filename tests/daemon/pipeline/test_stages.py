"""The time of a pipeline by stages: the figures, and the scanner's clock."""

import pytest

from fastwire.columns.scan import Stop
from fastwire.pulsar.format.payload import Compression, Record, encode_batch_entry
from fastwire.pulsar.reading.scan import Scanner
from fastwire.pulsar.reading.slot import SlotTable
from fastwire.wire.pool import Pool
from fastwire_daemon.pipeline.stages import HELP, LOOP, SINK, STAGES, stage_figures
from fastwire_daemon.runtime.clock import CLOCK
from tests.support.pulsar.frames import message_frame, put, scanner

S = 1_000_000_000


def test_figures_are_by_record_and_by_share() -> None:
    figures = stage_figures({"receive": 2 * S, "decode": 6 * S, "encode": 0, "unheard of": S}, 1_000_000, 10.0)
    assert figures["ns_per_record"] == {"receive": 2000.0, "decode": 6000.0}
    assert figures["share"] == {"receive": 0.25, "decode": 0.75}


def test_nothing_is_said_before_the_first_record() -> None:
    assert stage_figures({"receive": S}, 0, 1.0) == {}
    assert stage_figures({"receive": S}, 1, 0.0) == {}


@pytest.mark.parametrize(
    ("times", "limit"),
    [
        ({"back_pressure": 5, "encode": 8, "write": 1, "decode": 3}, "encode"),
        ({"back_pressure": 5, "encode": 2, "write": 7}, "write"),
        ({"back_pressure": 5, "fsync": 4, "encode": 2}, "fsync"),
        ({"back_pressure": 5, "sink": 9}, "sink"),
        ({"back_pressure": 5, "encode": 2}, "processor"),
        ({"permits": 5, "encode": 9}, "permits"),
        ({"decode": 5, "receive": 4}, "decode"),
        ({"receive": 6, "decompress": 3}, "receive"),
        ({"decompress": 9}, "decompress"),
        ({"scan": 9}, "scan"),
        ({"decode": 5, "encode": 9}, "broker"),  # nobody waits for the encoder
        ({"back_pressure": 1, "encode": 9}, "broker"),
    ],
)
def test_the_stage_that_limits_is_named_with_what_helps(times: dict[str, int], limit: str) -> None:
    figures = stage_figures({stage: seconds * S for stage, seconds in times.items()}, 1, 10.0)
    assert (figures["limit"], figures["setting"]) == (limit, HELP[limit])


def test_a_sink_that_waits_is_the_limit_however_long_the_daemon_had_waited_for_records() -> None:
    figures = stage_figures({"encode": S}, 1, 1000.0, sink_waits=True)
    assert (figures["limit"], figures["setting"]) == ("sink", HELP["sink"])


def test_every_limit_has_its_help() -> None:
    assert set(HELP) == {*LOOP, *SINK, "permits", "processor", "broker"} <= {*STAGES, "processor", "broker"}


@pytest.mark.parametrize("codec", [Compression.NONE, Compression.LZ4])
def test_a_scanner_with_a_clock_tells_its_times(codec: Compression) -> None:
    timed, _ = scanner(clock=CLOCK)
    records = [Record(value=b"v" * 100, key=f"key-{number}") for number in range(100)]
    for number in range(130):
        entry = encode_batch_entry(
            records, producer_name="p", sequence_id=number * 100, publish_time=1, compression=codec
        )
        put(timed, message_frame(entry.body, entry=number))
        assert timed.scan() == Stop.NEED_BYTES
    receive, scan, decompress, decode = timed.times()
    assert receive > 0
    assert scan > 0
    assert decode > 0
    assert (decompress > 0) == (codec is not Compression.NONE)


def test_a_scanner_without_a_clock_measures_nothing() -> None:
    scanner = Scanner(SlotTable(), Pool(1 << 20), 1)
    scanner.scan()
    assert scanner.times() == (0, 0, 0, 0)


def test_a_clock_is_one_of_ours() -> None:
    with pytest.raises(ValueError, match="PyCapsule"):
        Scanner(SlotTable(), Pool(1 << 20), 1, clock="now")
