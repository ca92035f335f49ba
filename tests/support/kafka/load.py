"""Generated records as record batches of Kafka."""

from collections.abc import Callable, Iterator

from fastwire.kafka.producing.payload import Compression, encode_block_batch, encode_values
from fastwire_daemon.systems.load import Load


def batches(load: Load, now_ms: Callable[[], int]) -> Iterator[tuple[int, bytes, int]]:
    """Yield the partition, the record batch and the number of its records, round the partitions.

    All records of a batch have the time that ``now_ms`` returns for it, in milliseconds.
    """
    codec = Compression[load.compression]
    for partition, numbers in load.parts():
        keys = [load.key(number).encode() for number in numbers] if load.keys else None
        block = encode_values(list(map(load.record, numbers)), keys)
        yield (
            partition,
            encode_block_batch(block, len(numbers), base_timestamp=now_ms(), compression=codec),
            len(numbers),
        )
