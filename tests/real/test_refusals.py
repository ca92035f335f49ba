"""What a user reads when a broker cannot or will not serve, and the exit code that scripts see."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.brokers.ports import free_ports
from tests.brokers.pulsar import PulsarBroker
from tests.real.daemon import Daemon, Job

pytestmark = pytest.mark.broker


def refused(job: Job, folder: Path, *arguments: str, limit: float = 60.0) -> str:
    """Run, expect exit code 1 and no dataset; return what was said."""
    with Daemon("run", str(job.write(folder)), *arguments, log=folder / "run.log") as daemon:
        assert daemon.wait(limit) == 1, daemon.tail()
    assert not (job.path / "_fastwire").exists()
    return daemon.output


def guarded_job(broker: PulsarBroker, topic: str, folder: Path, **source: Any) -> Job:
    """A job on the guarded broker's TLS address."""
    return Job(broker.tls_url, topic, folder / "data", source=source)


def test_unreachable_broker(tmp_path: Path) -> None:
    (port,) = free_ports(1)
    job = Job(f"pulsar://127.0.0.1:{port}", "t", tmp_path / "data")
    said = refused(job, tmp_path, "--until-end")
    assert f"127.0.0.1:{port}" in said
    assert "Connection refused" in said


def test_missing_token(guarded_pulsar: PulsarBroker, fresh_name: Callable[[str], str], tmp_path: Path) -> None:
    assert guarded_pulsar.certificates is not None
    job = guarded_job(guarded_pulsar, fresh_name("t"), tmp_path, tls={"ca": guarded_pulsar.certificates.ca})
    assert "AuthenticationError" in refused(job, tmp_path)


def test_wrong_token_is_refused_and_not_shown(
    guarded_pulsar: PulsarBroker, fresh_name: Callable[[str], str], tmp_path: Path
) -> None:
    assert guarded_pulsar.certificates is not None
    token = PulsarBroker(tmp_path / "elsewhere").token("admin")
    tls = {"ca": guarded_pulsar.certificates.ca}
    job = guarded_job(guarded_pulsar, fresh_name("t"), tmp_path, tls=tls, auth={"token": token})
    said = refused(job, tmp_path)
    assert "AuthenticationError" in said
    assert token not in said


def test_role_without_permission(
    guarded_pulsar: PulsarBroker, fresh_name: Callable[[str], str], tmp_path: Path
) -> None:
    assert guarded_pulsar.certificates is not None
    topic = fresh_name("t")
    guarded_pulsar.admin.create_topic(topic)
    token = guarded_pulsar.token("nobody")
    tls = {"ca": guarded_pulsar.certificates.ca}
    job = guarded_job(guarded_pulsar, topic, tmp_path, tls=tls, auth={"token": token})
    said = refused(job, tmp_path)
    assert "AuthorizationError" in said
    assert token not in said


def test_certificate_of_an_unknown_authority(
    guarded_pulsar: PulsarBroker, fresh_name: Callable[[str], str], tmp_path: Path
) -> None:
    assert guarded_pulsar.certificates is not None
    tls = {"ca": guarded_pulsar.certificates.other_ca}
    job = guarded_job(guarded_pulsar, fresh_name("t"), tmp_path, tls=tls)
    assert "certificate" in refused(job, tmp_path, "--until-end")


def test_certificate_with_another_name(
    guarded_pulsar: PulsarBroker, fresh_name: Callable[[str], str], tmp_path: Path
) -> None:
    assert guarded_pulsar.certificates is not None
    tls = {"ca": guarded_pulsar.certificates.ca, "server_name": "broker.example.com"}
    job = guarded_job(guarded_pulsar, fresh_name("t"), tmp_path, tls=tls)
    assert "broker.example.com" in refused(job, tmp_path, "--until-end")


def test_missing_topic(plain_pulsar: PulsarBroker, fresh_name: Callable[[str], str], tmp_path: Path) -> None:
    topic = fresh_name("nowhere")
    job = Job(plain_pulsar.service_url, topic, tmp_path / "data")
    said = refused(job, tmp_path)
    assert topic in said
    assert "TopicNotFound" in said


def test_subscription_in_use_by_another_type(
    plain_pulsar: PulsarBroker, fresh_name: Callable[[str], str], tmp_path: Path
) -> None:
    """Somebody consumes exclusively: that may end, so it is not final, but --until-end does not wait for ever."""
    topic = fresh_name("busy")
    plain_pulsar.admin.create_topic(topic)
    first = Job(plain_pulsar.service_url, topic, tmp_path / "first", kind="exclusive")
    second = Job(plain_pulsar.service_url, topic, tmp_path / "second", kind="exclusive")
    with Daemon("run", str(first.write(tmp_path)), log=tmp_path / "first.log") as holder:
        holder.wait_for("subscribed")
        with Daemon("run", str(second.write(tmp_path)), "--until-end", log=tmp_path / "second.log") as daemon:
            assert daemon.wait(60) == 1, daemon.tail()
        assert "ConsumerBusy" in daemon.output
