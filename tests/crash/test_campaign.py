"""Accidents of every kind, one after the other and over each other, with two daemons: nothing is lost or doubled."""

import gc
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from tests.crash.campaign import KINDS, SCHEMAS, Campaign
from tests.crash.typed import FORMATS
from tests.support.nursery import Nursery
from tests.support.sequence_audit import visible_files
from tests.support.soaklength import part_of

pytestmark = pytest.mark.crash

CYCLES = part_of(340)  # a kind of subscription; a system has three

Say = Callable[[str, object], None]


def conduct(kind: str, folder: Path, nursery: Nursery, cycles: int, record_property: Say, **typed: Any) -> None:
    """Run one campaign, audit it, and say in the closing summary what has happened in it."""
    with Campaign(kind, folder, nursery, seed=cycles, **typed) as campaign:
        campaign.run(cycles)
        campaign.audit()
    gc.collect()  # now, and not in the next test
    assert campaign.happened.total() == cycles
    happened = ", ".join(f"{what} {times}" for what, times in campaign.happened.most_common())
    record_property(
        "done",
        f"campaign {kind}: {cycles} cycles ({happened}), {campaign.records} records and {campaign.dead_letters} dead "
        "letters: 0 lost, 0 doubled",
    )


@pytest.mark.parametrize("kind", ["shared", "consumer", "tank", "tubemq"])
def test_fifty_accidents(kind: str, tmp_path: Path, tampered_nursery: Nursery, record_property: Say) -> None:
    conduct(kind, tmp_path, tampered_nursery, 50, record_property)


@pytest.mark.parametrize(
    ("kind", "form", "transform"),
    [
        ("shared", "json", "SELECT *, length(value) AS size FROM batch WHERE value <> ''"),
        ("none", "avro", None),
        ("tank", "protobuf", None),
        ("shared", "inferred", None),
    ],
)
def test_accidents_of_typed_pipelines(
    kind: str, form: str, transform: str | None, tmp_path: Path, tampered_nursery: Nursery, record_property: Say
) -> None:
    conduct(kind, tmp_path, tampered_nursery, 8, record_property, format=FORMATS[form], transform=transform)
    visible = visible_files(tmp_path / "data")
    landed = {name for file in visible for name in pq.read_schema(file).names}
    computed = {"size"} if transform else {"deep"} if FORMATS[form].inferred else set()
    assert {"value", *computed} < landed
    assert landed - {"value", *computed} <= {f"c{number}" for number in range(SCHEMAS)}


@pytest.mark.soak
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("kind", KINDS)
def test_a_thousand_accidents_a_system(
    kind: str, tmp_path: Path, tampered_nursery: Nursery, record_property: Say
) -> None:
    conduct(kind, tmp_path, tampered_nursery, CYCLES, record_property)
