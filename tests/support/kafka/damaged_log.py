"""Logs of Kafka with damaged bytes in several places, drawn by chance, and an audit of what is read of them."""

import random
from collections import Counter
from collections.abc import Iterable

from fastwire.kafka.producing.payload import Compression, Record, encode_batch
from fastwire.position import Position
from tests.support.kafka.golden import Reading, StoredLog, fetch_response

# Bytes of a batch that its checksum does not cover (spec: kafka 6): first offset, size, leader epoch, magic, checksum.
UNCOVERED = range(21)
FIRST = range(8)
SIZE = range(8, 12)
EPOCH = range(12, 16)

Batch = tuple[int, int, bytes]


class IndexedLog(StoredLog):
    """A broker that finds offsets as Kafka does: from an index of every ``stride``-th batch on, by what heads say."""

    def __init__(self, batches: Iterable[Batch], stride: int) -> None:
        super().__init__(batches)
        self.stride = stride

    def answer(self, offset: int, room: int) -> bytes:
        def last(body: bytes) -> int:
            return int.from_bytes(body[:8], signed=True) + int.from_bytes(body[23:27], signed=True)

        indexed = [place for place, one in enumerate(self.batches) if place % self.stride == 0 and one[0] <= offset]
        begin = indexed[-1] if indexed else 0
        found = [body for _, _, body in self.batches[begin:]]
        while found and last(found[0]) < offset:
            del found[0]
        return b"".join(found)[: max(room, len(found[0]))] if found else b""


class Drawn:
    """A log, the batches of it that are damaged, and the ends of the answers.

    ``holes``: compaction has removed batches. ``believing``: the broker looks for offsets in damaged heads.
    """

    def __init__(self, seed: int, *, most_damage: int = 2) -> None:
        self.chance = chance = random.Random(seed)
        self.holes = chance.random() < 0.25
        self.believing = chance.random() < 0.25
        self.obliging = self.believing or chance.random() < 0.8  # an answer gets the room that was asked for
        self.restarts = chance.random() < 0.3
        self.sound = list(self._batches())
        self.batches = list(self.sound)
        self.harmed: dict[int, set[int]] = {}  # batch -> its damaged bytes
        self.sent: set[bytes] = set()  # batches that were whole in an answer
        near = chance.randrange(len(self.sound))
        for _ in range(chance.randint(1, most_damage)):
            which = near if chance.random() < 0.7 else chance.randrange(len(self.sound))
            self._harm(which)
            near = min(which + chance.randint(0, 2), len(self.sound) - 1)

    def _batches(self) -> Iterable[Batch]:
        chance, base = self.chance, 0
        rows = chance.choice((1, 5, 0))
        compression = chance.choice((Compression.NONE, Compression.NONE, Compression.GZIP))
        for _ in range(chance.randint(2, 40)):
            if self.holes and chance.random() < 0.5:
                base += chance.choice((1, 3, 10, 100))
            count = rows or chance.randint(1, 12)
            records = [Record(value=b"row %d" % (base + row), timestamp=1_700_000_000_000) for row in range(count)]
            yield base, base + count, encode_batch(records, base_offset=base, compression=compression)
            base += count

    def _harm(self, which: int) -> None:
        first, end, body = self.batches[which]
        at = self.chance.choice(UNCOVERED) if self.chance.random() < 0.8 else self.chance.randrange(len(body))
        if self.believing and at in SIZE:
            at = FIRST[at - SIZE[0]]  # such a broker does not get beyond a size that lies
        mask = 1 << self.chance.randrange(8) if self.chance.random() < 0.7 else self.chance.randrange(1, 256)
        changed = bytearray(body)
        changed[at] ^= mask
        self.batches[which] = first, end, bytes(changed)
        self.harmed.setdefault(which, set()).add(at)

    def is_claimed(self, first: int, behind: int) -> bool:
        """Return True if the head of a damaged batch claims some of these offsets."""
        heads = (self.batches[which][2] for which in self.harmed)
        claims = ((int.from_bytes(head[:8], signed=True), int.from_bytes(head[23:27], signed=True)) for head in heads)
        return any(base < behind and first <= base + more for base, more in claims)

    def moved(self, which: int) -> int:
        """Return by how much a batch lies about its first offset."""
        first, _, body = self.batches[which]
        return int.from_bytes(body[:8], signed=True) - first

    def may_move(self, which: int) -> bool:
        """Return True if a batch claims other offsets in the hole around it: no sound batch contradicts that."""
        first, behind, _ = self.batches[which]
        sound = [one for number, one in enumerate(self.batches) if number not in self.harmed]
        before = max((one[1] for one in sound if one[1] <= first), default=0)
        after = min((one[0] for one in sound if one[0] >= behind), default=self.batches[-1][1])
        return before <= first + self.moved(which) and behind + self.moved(which) <= after

    @property
    def rises(self) -> bool:
        """True if three neighbours lie about their first offsets, and claim ones that rise within the log."""
        for which in range(len(self.batches) - 2):
            moved = [self.moved(each) for each in range(which, which + 3)]
            edges = [(first + by, end + by) for (first, end, _), by in zip(self.batches[which:], moved, strict=False)]
            places = [0, *(place for edge in edges for place in edge), self.batches[-1][1]]
            if all(moved) and places == sorted(places):
                return True
        return False

    def read(self, *, on_corrupt: str = "dead_letter", grows: bool = False) -> Reading:
        """Read the log to its end, by answers that end anywhere, some of them after a restart.

        With ``grows`` it has its last batches only while it is read.
        """
        chance = self.chance
        log = IndexedLog(self.batches, chance.randint(1, 8)) if self.believing else StoredLog(self.batches)
        reading = Reading(on_corrupt=on_corrupt)
        most = chance.choice((300, 1000, 4000, 1 << 20))
        size = chance.randint(1, len(self.batches)) if grows else len(self.batches)
        for number in range(1, 1500):
            at = reading.slots.position(0)
            if grows and (at.a >= self.batches[size - 1][1] or chance.random() < 0.3):
                size = min(size + chance.randint(1, 3), len(self.batches))
            log.batches, log.end = self.batches[:size], self.batches[size - 1][1]
            if at.a >= self.batches[-1][1] or reading.corrupt:
                return reading
            room = chance.randint(1, most)
            if self.obliging or chance.random() < 0.5:
                room = reading.slots.fetch_bytes(0, room)
            records = log.answer(reading.slots.fetch_offset(0), room)
            self.sent.update(body for _, _, body in self.batches if body in records)
            if not records and at.a == reading.slots.fetch_offset(0) and size == len(self.batches):
                assert self.believing
                return reading  # by what the last batches say, they are before it
            reading.read(fetch_response(records, correlation_id=number, high_watermark=log.end))
            if self.restarts and chance.random() < 0.1:
                last = reading.spans[-1] if reading.spans else None  # a daemon begins behind what has landed last
                reading.slots.attach(0, reading.slots.position(0), 1, last.witness if last else None)
        raise AssertionError(f"reading does not end: it is at {reading.slots.position(0)} of {log.end}")


def audit(drawn: Drawn, reading: Reading) -> Counter[str]:
    """Compare what was read with the log that was written: nothing is lost, moved or read twice in silence."""
    rows = [(row["offset"], row["value"]) for row in reading.rows]
    if drawn.rises:
        return Counter(unseen=1)  # docs/design/kafka.md
    end = reading.slots.position(0).a
    kept = Counter(letter.payload for letter in reading.dead_letters)
    # Damage that changes no row: the leader epoch is the broker's own.
    hidden = {which for which, bytes_ in drawn.harmed.items() if bytes_ <= {*EPOCH}}
    for which, (first, behind, body) in enumerate(drawn.batches):
        written = [(offset, b"row %d" % offset) for offset in range(first, behind)]
        landed = [row for row in rows if row[1] in {value for _, value in written}]
        assert len(landed) <= len(written), f"batch {which} landed twice"
        if which not in drawn.harmed or which in hidden:
            if end >= behind:
                within = any(body in payload for payload in kept)  # as a size that lies takes in what follows
                # Another batch claims its offsets, and a restart has forgotten the doubt.
                taken = drawn.believing and drawn.restarts and drawn.is_claimed(first, behind)
                assert landed == written or within or taken, f"batch {which} of offsets {first} to {behind - 1} is lost"
            elif reading.corrupt:
                assert landed == written[: len(landed)]
            # A broker that believes heads may send all of a log again for a head that claims more than it has.
            assert not landed or body not in kept or drawn.believing, f"batch {which} has landed, and is a dead letter"
            if landed != written and end >= behind:
                reached = "sound batch kept as a dead letter"
                kept[reached.encode()] += 1
        else:
            moved = [(row[0] + drawn.moved(which), row[1]) for row in written] if drawn.may_move(which) else written
            assert landed in ([], written, moved), f"batch {which} landed at other offsets"
            # A broker that believes heads may never send a batch; and a restart forgets what was sent.
            if end >= behind and body in drawn.sent and not (drawn.believing and drawn.restarts):
                assert landed or any(body.startswith(one[:17]) or one.startswith(body[:17]) for one in kept), (
                    f"damaged batch {which} is lost"
                )
    at = Position(0, -1)
    for span in reading.spans:
        assert span.start.a == at.a, f"a span begins at {span.start}, the one before it ends at {at}"
        at = span.end
    assert at.a == end or not reading.spans
    assert sum(span.rows for span in reading.spans) == len(rows)
    return Counter(
        {
            "rows": len(rows),
            "letters": len(reading.dead_letters),
            "stops": len(reading.corrupt),
            "sound letters": kept[b"sound batch kept as a dead letter"],
        }
    )
