"""Draw docs/architecture.svg: the path of the records, and what flows back.

python -m docs.architecture
"""

from pathlib import Path

from docs.drawing import BACK, DISK, INK, LINE, OURS, PLAIN, arrow, box, drawing

PICTURE = Path(__file__).with_suffix(".svg")
ABOUT = (
    "Records flow from broker through scanner, chunks and encoders to the dataset; "
    "acknowledgements and permits flow back"
)


def picture() -> str:
    """The text of docs/architecture.svg, the same at each call."""
    parts = [
        f'<rect x="232" y="30" width="546" height="338" rx="8" fill="none" stroke="{LINE}" stroke-dasharray="5 4"/>',
        '<text x="246" y="54" class="group">one process: fastwire-consume run</text>',
    ]
    parts += box(20, 90, 120, 120, "Broker", ["Apache Pulsar", "Apache Kafka", "TANK, TubeMQ"], PLAIN)
    scanned = ["receive buffer", "scan and decode", "in C, no object", "per record"]
    parts += box(256, 90, 140, 120, "Connection", scanned, OURS)
    parts += box(436, 90, 130, 120, "Chunk", ["Arrow columns", "with the spans", "of positions"], OURS)
    encoded = ["encoders write", "staged files", "(Parquet, Arrow,", "JSON lines)"]
    parts += box(606, 90, 150, 120, "Sink thread", encoded, OURS)
    parts += box(840, 30, 180, 78, "Dataset", ["visible files", "000000000002-0.parquet"], DISK)
    parts += box(840, 142, 180, 68, "Log of commits", ["_fastwire/log: 1, 2, 3 …"], DISK)
    parts += box(840, 262, 180, 72, "Readers", ["Spark, DuckDB, Polars,", "pyarrow, verify"], PLAIN)
    parts += box(436, 262, 130, 72, "Coverage", ["positions that", "have landed"], OURS)
    parts += box(256, 262, 140, 72, "Byte budget", ["daemon.memory"], OURS)
    parts += arrow([(140, 150), (254, 150)], INK, "records", (184, 143))
    parts += arrow([(396, 150), (434, 150)], INK, "", (0, 0))
    parts += arrow([(566, 150), (604, 150)], INK, "", (0, 0))
    parts += arrow([(756, 166), (838, 166)], INK, "1 link", (808, 159))
    parts += arrow([(930, 142), (930, 110)], INK, "2 rename", (970, 130))
    parts += arrow([(1020, 70), (1040, 70), (1040, 298), (1022, 298)], INK, "", (0, 0))
    parts += arrow([(840, 196), (800, 196), (800, 298), (568, 298)], BACK, "3 what is durable", (672, 291))
    parts += arrow([(500, 334), (500, 352), (60, 352), (60, 212)], BACK, "4 acknowledge", (150, 345))
    parts += arrow([(480, 210), (480, 236), (326, 236), (326, 260)], INK, "bytes in use", (404, 230))
    parts += arrow([(256, 298), (100, 298), (100, 212)], BACK, "permits, or pause", (166, 291))
    return drawing(1060, 384, ABOUT, parts)


def main() -> None:
    """Write the picture."""
    PICTURE.write_text(picture(), encoding="utf-8")


if __name__ == "__main__":
    main()
