"""The origin of a dataset's records: hosts and cluster ids that are recorded after its creation."""

from pathlib import Path

import pytest

from fastwire_daemon.dataset.origin import CLUSTER_ID, HOSTS
from fastwire_daemon.dataset.writer import DatasetWriter
from fastwire_daemon.runtime.errors import DatasetDamagedError, DatasetMismatchError
from tests.support import rolls

OURS, OTHERS = ("a:9092", "b:9092"), ("c:9092",)


def old_dataset(path: Path) -> None:
    """As an older version leaves it: a cluster with a name of its own, and no hosts."""
    writer = rolls.writer(path, cluster="prod")
    writer.open()
    rolls.land(writer, -1, 0)
    writer.close()


def opened(path: Path, hosts: tuple[str, ...], cluster: str = "") -> DatasetWriter:
    writer = rolls.writer(path, cluster=cluster or ",".join(hosts), hosts=hosts)
    writer.open()
    return writer


def test_the_first_open_of_an_old_dataset_records_its_hosts(tmp_path: Path) -> None:
    old_dataset(tmp_path)
    opened(tmp_path, OURS).close()
    with pytest.raises(
        DatasetMismatchError, match=r'at a:9092, b:9092, but .* c:9092: .* set source\.cluster = "prod"'
    ):
        opened(tmp_path, OTHERS)
    opened(tmp_path, OURS[1:]).close()
    # After the cluster has moved: as the refusal advises.
    opened(tmp_path, OTHERS, "prod").close()
    with pytest.raises(DatasetMismatchError):
        opened(tmp_path, OTHERS)


def test_of_two_writers_of_an_old_dataset_the_first_records_its_hosts(tmp_path: Path) -> None:
    old_dataset(tmp_path)

    def reached(step: str) -> None:
        if step == "staging-made":
            opened(tmp_path, OTHERS).close()

    late = rolls.writer(tmp_path, reached=reached, cluster=OURS[0], hosts=OURS)
    with pytest.raises(DatasetMismatchError, match="holds records of the cluster at c:9092"):
        late.open()
    late.close()


def test_a_dataset_whose_name_is_its_hosts_needs_no_record(tmp_path: Path) -> None:
    opened(tmp_path, OURS).close()
    writer = rolls.writer(tmp_path, cluster="a:9092")
    writer.open()
    rolls.land(writer, -1, 0)
    writer.close()
    opened(tmp_path, OURS).close()
    assert not (tmp_path / HOSTS).exists()


def identified(path: Path, cluster_id: str, hosts: tuple[str, ...] = OURS) -> None:
    writer = opened(path, hosts)
    try:
        writer.identify(cluster_id)
        rolls.land(writer, rolls.end_of(writer.coverage), rolls.end_of(writer.coverage) + 1)
    finally:
        writer.close()


def test_a_cluster_with_another_id_is_refused(tmp_path: Path) -> None:
    identified(tmp_path, "first")
    assert (tmp_path / CLUSTER_ID).exists()
    identified(tmp_path, "first")
    before = rolls.entries(tmp_path)
    with pytest.raises(DatasetMismatchError, match="whose id is first, but that at a:9092, b:9092 has the id second"):
        identified(tmp_path, "second")
    assert rolls.entries(tmp_path) == before
    # As the refusal advises, for a cluster that has got another id.
    (tmp_path / CLUSTER_ID).unlink()
    identified(tmp_path, "second")


def test_the_id_counts_more_than_hosts(tmp_path: Path) -> None:
    """A cluster that has moved names itself as before; hosts decide where the brokers tell no id."""
    identified(tmp_path, "first")
    identified(tmp_path, "first", OTHERS)
    with pytest.raises(DatasetMismatchError, match="holds records of the cluster at a:9092, b:9092"):
        identified(tmp_path, "", OTHERS)
    identified(tmp_path, "")


def test_brokers_that_tell_no_id_leave_it_to_hosts(tmp_path: Path) -> None:
    identified(tmp_path, "")
    assert not (tmp_path / CLUSTER_ID).exists()
    with pytest.raises(DatasetMismatchError, match="holds records of the cluster at"):
        identified(tmp_path, "", OTHERS)


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b'{"format":1}', b'{"format":2,"values":[]}'])
def test_a_damaged_record_is_named(tmp_path: Path, content: bytes) -> None:
    identified(tmp_path, "first")
    (tmp_path / CLUSTER_ID).write_bytes(content)
    with pytest.raises(DatasetDamagedError, match=r"cluster_id\.json is damaged: .* remove it"):
        identified(tmp_path, "first")
