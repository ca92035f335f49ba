"""Lifecycle rules of a bucket that would take what a dataset needs, and others."""

from datetime import UTC, datetime
from typing import Any

import pytest

from fastwire_daemon.dataset.storage.lifecycle import harmful

EXPIRES: dict[str, Any] = {"Expiration": {"Days": 30}}
DELETES = "deletes the commit log (after 30 days): leave out what is below _fastwire/"
DAY = {"AbortIncompleteMultipartUpload": {"DaysAfterInitiation": 1}}


def said(rule: dict[str, Any], prefix: str = "orders/", age_s: float = 60.0) -> list[str]:
    found = harmful([{"ID": "r", "Status": "Enabled", **rule}], prefix, age_s=age_s)
    assert all(each.startswith('the lifecycle rule "r" ') for each in found)
    return [each.removeprefix('the lifecycle rule "r" ') for each in found]


@pytest.mark.parametrize(
    ("rule", "harm"),
    [
        (EXPIRES, [DELETES]),
        (EXPIRES | {"Prefix": "orders/"}, [DELETES]),
        (EXPIRES | {"Filter": {"Prefix": "orders/_fastwire/staging/"}}, [DELETES]),
        (EXPIRES | {"Filter": {"And": {"Prefix": "ord", "ObjectSizeGreaterThan": 9}}}, [DELETES]),
        (EXPIRES | {"Filter": {"Prefix": "orders/date=2026-01-01/"}}, []),
        (EXPIRES | {"Filter": {"Prefix": "bills/"}}, []),
        (EXPIRES | {"Filter": {"Tag": {"Key": "old", "Value": "1"}}}, []),
        (EXPIRES | {"Filter": {"And": {"Prefix": "", "Tags": [{"Key": "old", "Value": "1"}]}}}, []),
        (EXPIRES | {"Status": "Disabled"}, []),
        ({"Expiration": {"ExpiredObjectDeleteMarker": True}}, []),
        ({"NoncurrentVersionExpiration": {"NoncurrentDays": 1}}, []),
        (
            {"Expiration": {"Date": datetime(2027, 1, 2, tzinfo=UTC)}},
            ["deletes the commit log (on 2027-01-02): leave out what is below _fastwire/"],
        ),
        (
            {"Transitions": [{"Days": 1, "StorageClass": "GLACIER"}, {"Days": 1, "StorageClass": "STANDARD_IA"}]},
            ["archives the commit log (after 1 day): leave out what is below _fastwire/"],
        ),
        (DAY, []),
    ],
)
def test_rules_that_reach_the_log_are_told(rule: dict[str, Any], harm: list[str]) -> None:
    assert said(rule) == harm


def test_a_dataset_that_is_the_whole_bucket_is_reached_by_its_own_rules() -> None:
    assert said(EXPIRES | {"Prefix": "_fastwire/log/"}, prefix="") == [DELETES]
    assert said(EXPIRES | {"Prefix": "orders/"}, prefix="") == []


def test_an_upload_must_live_as_long_as_a_roll() -> None:
    told = "aborts uploads after 1 day, and a roll may take 1.5 (roll.age)"
    assert said(DAY, age_s=1.5 * 86_400) == [told]
    assert said(DAY | {"Prefix": "bills/"}, age_s=1.5 * 86_400) == []
