"""``check --connect`` reads the lifecycle rules of real servers."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import botocore.session
import pytest

from fastwire_daemon.devbroker.kafka import KafkaDevBroker
from fastwire_daemon.devbroker.pulsar import running
from tests.stores.place import BucketPlace
from tests.stores.servers import BUCKET, KEY, REGION, SECRET, Moto, S3Server, VersityGateway
from tests.support.nursery import shared

pytestmark = pytest.mark.store

CONFIG = """\
daemon.http = ""
[pipelines.orders.source]
url = "{url}"
topics = ["orders"]
group = "landing"
start = "earliest"
[pipelines.orders.sink]
type = "parquet"
{place}
"""

PlaceOn = Callable[[S3Server], BucketPlace]


def checked(place: BucketPlace, folder: Path) -> tuple[int, list[str]]:
    """The exit code of ``check --connect``, and what it says of rules."""
    keys = [
        f"store.{name} = {str(value).lower() if value is True else repr(value)}"
        for name, value in place.sink["store"].items()
    ]
    config = folder / "check.toml"
    with running(KafkaDevBroker()) as broker:
        broker.create_topic("orders", 1)
        config.write_text(CONFIG.format(url=broker.url, place="\n".join([f"path = '{place.url}'", *keys])))
        done = shared().run("check", config, "--connect")
    lines = [" ".join(line.split()[1:]) for line in done.stdout.splitlines() if line.startswith("  rules ")]
    assert lines, done.stdout + done.stderr
    return done.returncode, lines


def test_a_rule_that_would_delete_the_log_is_told(moto: Moto, place_on: PlaceOn, tmp_path: Path) -> None:
    place = place_on(moto)
    client: Any = botocore.session.get_session().create_client(
        "s3", REGION, endpoint_url=moto.endpoint, aws_access_key_id=KEY, aws_secret_access_key=SECRET
    )
    assert checked(place, tmp_path) == (0, ["no lifecycle rule of the bucket (0) takes what is needed"])
    rule = {"ID": "tidy", "Status": "Enabled", "Filter": {"Prefix": ""}, "Expiration": {"Days": 7}}
    client.put_bucket_lifecycle_configuration(Bucket=BUCKET, LifecycleConfiguration={"Rules": [rule]})
    try:
        told = checked(place, tmp_path)
    finally:
        client.delete_bucket_lifecycle(Bucket=BUCKET)
    why = "deletes the commit log (after 7 days): leave out what is below _fastwire/"
    assert told == (1, [f'FAILED: the lifecycle rule "tidy" {why}'])


def test_a_store_without_such_rules_is_no_failure(versity: VersityGateway, place_on: PlaceOn, tmp_path: Path) -> None:
    code, [told] = checked(place_on(versity), tmp_path)
    assert code == 0
    assert told.startswith("the store does not tell its lifecycle rules: "), told
