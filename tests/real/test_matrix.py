"""Every kind of message, produced by the official client to a real broker, landed and compared column by column."""

from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pulsar
import pyarrow.dataset
import pytest

from tests.brokers.pulsar import PulsarBroker
from tests.real.compare import assert_landed, assert_readers_agree
from tests.real.daemon import Daemon, Job, verify
from tests.real.matrix import produce_matrix, quiet_client
from tests.real.official import confirmed, read_topic
from tests.support.sequence_audit import assert_in_order, landed_numbers, numbered

pytestmark = pytest.mark.broker


def land(job: Job, folder: Path) -> None:
    """Run the daemon up to the end of the topic and verify the dataset."""
    with Daemon("run", str(job.write(folder)), "--until-end", log=folder / "run.log") as daemon:
        daemon.wait_done()
    said = verify(job.path)
    assert said.returncode == 0, said.stdout + said.stderr


@pytest.mark.parametrize(
    ("partitions", "kind", "sink"),
    [
        (0, "exclusive", {"compression": "none"}),
        (3, "failover", {"compression": "zstd:1", "writers": 2}),
        (2, "shared", {"compression": "lz4"}),
        (2, "key_shared", {}),
    ],
)
def test_every_column_of_every_row(
    plain_pulsar: PulsarBroker,
    fresh_name: Callable[[str], str],
    tmp_path: Path,
    partitions: int,
    kind: str,
    sink: dict[str, Any],
) -> None:
    topic = f"persistent://public/default/{fresh_name('matrix')}"
    plain_pulsar.admin.create_topic(topic, partitions)
    sent = produce_matrix(plain_pulsar.service_url, topic, partitions)
    witness = quiet_client(plain_pulsar.service_url)
    sent = confirmed(sent, read_topic(witness, topic, partitions))
    witness.close()
    job = Job(plain_pulsar.service_url, topic, tmp_path / "data", kind=kind, sink=sink)
    land(job, tmp_path)
    assert_landed(job.path, sent)
    assert_readers_agree(job.path)
    if kind in ("exclusive", "failover"):
        assert_in_order(job.path)
    assert plain_pulsar.admin.backlog(topic, job.subscription, partitions) == 0


def test_over_tls_with_a_token_and_a_limit_on_unacknowledged_messages(
    guarded_pulsar: PulsarBroker, fresh_name: Callable[[str], str], tmp_path: Path
) -> None:
    """The limit of 200 is far below a roll: with ``--until-end`` what has come is committed when nothing more comes."""
    assert guarded_pulsar.certificates is not None
    topic = f"persistent://public/default/{fresh_name('guarded')}"
    guarded_pulsar.admin.create_topic(topic, 2)
    token = guarded_pulsar.token("admin")
    client = quiet_client(guarded_pulsar.service_url, authentication=pulsar.AuthenticationToken(token))
    sent = produce_matrix(
        guarded_pulsar.service_url, topic, 2, client=client, token=token, cases=("single zstd", "batched lz4")
    )
    client.close()
    witness = quiet_client(guarded_pulsar.service_url, authentication=pulsar.AuthenticationToken(token))
    sent = confirmed(sent, read_topic(witness, topic, 2))
    witness.close()
    secret = tmp_path / "token"
    secret.write_text(token + "\n")
    job = Job(
        guarded_pulsar.tls_url,
        topic,
        tmp_path / "data",
        kind="shared",
        source={"auth": {"token_file": secret}, "tls": {"ca": guarded_pulsar.certificates.ca}},
        roll={"idle": "30s"},
    )
    land(job, tmp_path)
    assert_landed(job.path, sent)
    assert guarded_pulsar.admin.backlog(topic, job.subscription, 2) == 0
    assert token not in (tmp_path / "run.log").read_text()


def positions(path: Path) -> Iterator[tuple[int, int]]:
    """Ledger and entry of each row, for messages that stand alone."""
    rows = pyarrow.dataset.dataset(path, format="parquet", ignore_prefixes=["_"]).to_table(["ledger", "offset"])
    return zip(*rows.to_pydict().values(), strict=True)


def test_a_limit_on_unacknowledged_messages_commits_early(
    guarded_pulsar: PulsarBroker, fresh_name: Callable[[str], str], tmp_path: Path
) -> None:
    """No other event commits: rolls have no limit, and the daemon runs on."""
    topic = fresh_name("limited")
    guarded_pulsar.admin.create_topic(topic)
    token = guarded_pulsar.token("admin")
    client = quiet_client(guarded_pulsar.service_url, authentication=pulsar.AuthenticationToken(token))
    producer = client.create_producer(topic, batching_enabled=False, block_if_queue_full=True)
    for number in range(600):
        producer.send_async(numbered(number), lambda *_: None)
    producer.flush()
    client.close()
    job = Job(
        guarded_pulsar.service_url,
        topic,
        tmp_path / "data",
        kind="shared",
        source={"auth": {"token": token}},
        roll={"rows": 100_000, "idle": "1h", "age": "1h"},
    )
    with Daemon("run", str(job.write(tmp_path)), log=tmp_path / "run.log") as daemon:
        daemon.wait_for_rows(400)
        stalls = [event for event in daemon.events() if event.get("setting") == "maxUnackedMessagesPerConsumer"]
        assert stalls, daemon.tail()
        reasons = {event["reason"] for event in daemon.events() if event["event"] == "committed" and event["rows"]}
        assert reasons <= {"unacknowledged limit", "rows"}, reasons
        daemon.end()
    land(job, tmp_path)
    # Here the ledger changes every 100 entries. A broker may then write an entry into both ledgers (seen once: one
    # message as 51:99 and 52:0): two records, each of which lands once.
    assert set(landed_numbers(job.path)) == set(range(600))
    assert max(Counter(positions(job.path)).values()) == 1
