"""Writers that commit to one dataset at the same instants: a real store lets one of them have each number."""

from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from fastwire_daemon.dataset.proof.verify import verify
from fastwire_daemon.runtime.errors import Superseded
from tests.stores.place import AzurePlace, BucketPlace
from tests.stores.proxy import FAULTS, InTurn, StoreProxy
from tests.stores.servers import S3Server, VersityGateway
from tests.support import rolls

pytestmark = pytest.mark.store

CHANGES = ("create", "put", "copy", "delete")
WRITERS = 6
ROLLS = 8


def race(place: BucketPlace | AzurePlace, judged: BucketPlace | None = None) -> None:
    """Each writer has a partition, so that all of what they write fits; only the numbers are contended.

    ``judged`` is another way to the same place.
    """

    def write(partition: int) -> None:
        writer = rolls.writer(Path(place.prefix), place.bucket())
        writer.open()
        try:
            writer.commit([], [rolls.begun(partition)])
        except Superseded:  # another one has created the dataset since, and committed to it
            writer.open()
            writer.commit([], [rolls.begun(partition)])
        for number in range(ROLLS):
            rolls.land(writer, number - 1, number, partition)
        writer.close()

    with ThreadPoolExecutor(WRITERS) as threads:
        list(threads.map(write, range(WRITERS)))
    place = judged or place
    report = verify(place.url, medium=place.bucket(), deep=True)
    assert report.ok, report.to_json()
    assert Counter(rolls.rows(place.local())) == dict.fromkeys(range(ROLLS), WRITERS)


def test_versitygw(versity: VersityGateway, place_on: Callable[[S3Server], BucketPlace]) -> None:
    race(place_on(versity))


def test_versitygw_with_faults(versity: VersityGateway, place_on: Callable[[S3Server], BucketPlace]) -> None:
    """Each kind of request is lost, loses its answer, or is carried out late now and then."""
    place = place_on(versity)
    with StoreProxy(versity.port) as proxy:
        proxy.fault = InTurn([*FAULTS.values()], CHANGES, between=6)
        race(place.through(proxy.endpoint), place)
    assert [kind for kind in CHANGES if not proxy.happened[kind]] == []


def test_azurite(azure_place: AzurePlace) -> None:
    race(azure_place)
