"""The health of pipelines and daemons: one function for all that show it."""

import pytest

from fastwire_daemon.runtime.health import READY, Health, health_of, worst


@pytest.mark.parametrize(
    ("hung", "ready", "impaired", "health"),
    [
        (False, True, False, "healthy"),
        (False, True, True, "degraded"),
        (False, False, False, "not ready"),
        (False, False, True, "not ready"),
        (True, True, False, "stuck"),
        (True, False, True, "stuck"),
    ],
)
def test_the_worst_sight_is_the_health(hung: bool, ready: bool, impaired: bool, health: str) -> None:
    assert health_of(hung=hung, ready=ready, impaired=impaired) == health


def test_one_pipeline_of_a_thousand_is_enough() -> None:
    assert worst([Health.HEALTHY] * 999 + [Health.DEGRADED]) is Health.DEGRADED
    assert worst([Health.DEGRADED, Health.STUCK, Health.NOT_READY]) is Health.STUCK
    assert worst([]) is Health.NOT_READY


def test_records_land_in_two_of_them() -> None:
    assert {Health.HEALTHY, Health.DEGRADED} == READY
