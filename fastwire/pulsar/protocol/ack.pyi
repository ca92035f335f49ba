from collections.abc import Iterable, Iterator

__all__ = ["encode_ack_cumulative", "encode_ack_elements", "encode_ack_runs", "encode_flow"]

def encode_flow(consumer_id: int, permits: int) -> bytes: ...
def encode_ack_cumulative(consumer_id: int, ledger: int, entry: int, request_id: int | None = None) -> bytes: ...
def encode_ack_elements(
    consumer_id: int,
    elements: Iterable[tuple[int, int, bytes]],
    max_ids: int = 1000,
    request_ids: Iterator[int] | None = None,
) -> list[bytes]: ...
def encode_ack_runs(
    consumer_id: int,
    runs: Iterable[tuple[int, int, int]],
    max_ids: int = 1000,
    request_ids: Iterator[int] | None = None,
) -> list[bytes]: ...
