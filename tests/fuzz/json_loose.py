"""Mutated texts for the parser of JSON that reads as Spark does, by drawn schemas.

What orjson refuses is bad, and what the strict parser takes becomes the same row.
"""

import json
import sys
from collections import Counter
from collections.abc import Iterator

import pyarrow as pa

from fastwire.decode.json.schema import compile_json
from fastwire.decode.json.walk import JsonDecoder
from fastwire.wire.pool import Pool
from tests.fuzz.drawn import case_of, drawn, numbers_of, parted, spoilt
from tests.fuzz.hunt import Case, Subject, counting, main
from tests.fuzz.json_values import NOT_JSON, PIECES, column
from tests.support.json import documents, is_json, written

BLOCK = 3000
MOST_MEMORY = 32 << 20


def cases(seed: int) -> Iterator[Case]:
    """The bytes of changed texts of a seed, without end."""
    for number, chance in numbers_of(seed):
        _, sound = drawn(documents, number)
        yield case_of(number, spoilt(written(chance.choice(sound), chance), chance, PIECES))


def run_case(words: Case) -> Counter[str]:
    """Decode one text between two sound ones, and at the end of a column."""
    number, text = parted(words)
    schema, sound = drawn(documents, number)
    neighbour = json.dumps(sound[0]).encode()
    program, pool = compile_json(json.dumps(schema)), Pool(1 << 28)
    decoder = JsonDecoder(program, pool, loose=True)
    decoded = decoder.decode(column([neighbour, text, neighbour]))
    batch = pa.record_batch(decoded)
    batch.validate(full=True)
    alone = decoder.decode(column([text]))
    assert [each[1:] for each in alone.bad] == [each[1:] for each in decoded.bad]
    assert pool.peak <= MOST_MEMORY, f"{pool.peak} bytes were out at once"
    strict = JsonDecoder(program, pool).decode(column([text]))
    if not decoded.bad:
        assert is_json(text), "orjson refuses the text"
        assert batch.num_rows == 3
        assert strict.bad or pa.record_batch(strict).equals(pa.record_batch(alone)), "strictly it is another row"
        return Counter(["row"])
    [bad] = decoded.bad
    assert bad.row == 1, bad
    assert 0 <= bad.offset <= len(text), bad
    assert batch.num_rows == 2
    assert strict.bad, f"strictly it is a row: {bad}"
    assert bad.reason not in NOT_JSON or not is_json(text), bad
    return Counter([bad.reason])


run_block = counting(cases, run_case)
"""Run so many cases of a seed from one on; returns how often what came of them."""


SUBJECT = Subject("tests.fuzz.json_loose", "loose", BLOCK, run_block, cases, run_case)


if __name__ == "__main__":
    sys.exit(main(SUBJECT, __doc__))
