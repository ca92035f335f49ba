"""From the socket of a replaying server in another process to columns, which are thrown away: the daemon's ``discard``.

    python -m bench.discard [--json] [--all]

Beside it, in the same run, a bare socket that is read without a look into the frames, and pulsar-client by ``receive``
and by ``batch_receive``, and the clients for Java and Rust where Maven and Cargo are, looking at no more than the
payload. CPU is that of the consumer's process, kernel included, from the first record to the last acknowledgement.
"""

from .child import Case, cases, show
from .pipeline import consume
from .programs import pulsar_peers

SINKS = {"fastwire": 'type = "discard"'}


def ways(case: Case) -> tuple[str, ...]:
    """Return the methods of pulsar-client to measure; few cases, because the codec does not change its cost."""
    return ("receive", "batch_receive") if case.codec == "none" or case == Case(100, 1000, "lz4") else ()


def how_many(case: Case) -> tuple[int, int]:
    """Messages for us and for pulsar-client: a second or two each."""
    if case.batch > 1:
        return (24_000_000, 250_000) if case.size == 100 else (3_000_000, 150_000)
    return (2_000_000, 100_000) if case.size == 100 else (400_000, 100_000)


def main() -> None:
    """Measure and print."""
    peers = pulsar_peers()
    rows = []
    for case in cases():
        beside = peers if ways(case) else {}
        rows += consume("discard", case, *how_many(case), ways(case), SINKS, floor=True, peers=beside)
    show(rows)


if __name__ == "__main__":
    main()
