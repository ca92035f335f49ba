"""Messages and exit codes when a real broker cannot or will not serve."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.brokers.ports import free_ports
from tests.brokers.pulsar import PulsarBroker
from tests.real.daemon import Daemon, Job
from tests.real.matrix import quiet_client
from tests.support.sequence_audit import assert_each_once

pytestmark = pytest.mark.broker


def refused(job: Job, folder: Path, *arguments: str, limit: float = 60.0) -> str:
    """Run, expect exit code 1 and no dataset; return what was said."""
    with Daemon("run", str(job.write(folder)), *arguments, log=folder / "run.log") as daemon:
        assert daemon.wait(limit) == 1, daemon.tail()
    assert not (job.path / "_fastwire").exists()
    return daemon.output


def denied(job: Job, folder: Path, why: str) -> str:
    """Run until a refused login is said and tried again; expect no dataset, and return what was said."""
    with Daemon("run", str(job.write(folder)), log=folder / "run.log") as daemon:
        daemon.wait_until(lambda: daemon.output.count(why) > 1, f"it said {why!r} twice")
    assert not (job.path / "_fastwire").exists()
    return daemon.output


def guarded_job(broker: PulsarBroker, topic: str, folder: Path, **source: Any) -> Job:
    """A job on the guarded broker's TLS address."""
    return Job(broker.tls_url, topic, folder / "data", source=source)


def test_nobody_to_talk_to(guarded_pulsar: PulsarBroker, tmp_path: Path) -> None:
    """--until-end gives up after 30 s without a broker, and a broker that cannot prove its name is none."""
    assert guarded_pulsar.certificates is not None
    (port,) = free_ports(1)
    strange = {"ca": guarded_pulsar.certificates.other_ca}
    renamed = {"ca": guarded_pulsar.certificates.ca, "server_name": "broker.example.com"}
    cases = {
        "unreachable": (Job(f"pulsar://127.0.0.1:{port}", "t", tmp_path / "a"), "Connection refused"),
        "unreachable too": (
            Job(f"kafka://127.0.0.1:{port}", "t", tmp_path / "k", source={"subscription_type": None}),
            "Connection refused",
        ),
        "stranger": (
            guarded_job(guarded_pulsar, "t", tmp_path / "b", tls=strange),
            "unable to get local issuer certificate",
        ),
        "renamed": (guarded_job(guarded_pulsar, "t", tmp_path / "c", tls=renamed), "broker.example.com"),
    }
    daemons = {
        name: Daemon("run", str(job.write(tmp_path)), "--until-end", log=tmp_path / f"{name}.log")
        for name, (job, _) in cases.items()
    }
    for name, (job, words) in cases.items():
        with daemons[name] as daemon:
            assert daemon.wait(60) == 1, daemon.tail()
        assert words in daemon.output
        assert job.url.partition("://")[2] in daemon.output
        assert not (job.path / "_fastwire").exists()


def test_missing_token(guarded_pulsar: PulsarBroker, fresh_name: Callable[[str], str], tmp_path: Path) -> None:
    assert guarded_pulsar.certificates is not None
    job = guarded_job(guarded_pulsar, fresh_name("t"), tmp_path, tls={"ca": guarded_pulsar.certificates.ca})
    denied(job, tmp_path, "AuthenticationError")


def test_wrong_token_is_refused_and_not_shown(
    guarded_pulsar: PulsarBroker, fresh_name: Callable[[str], str], tmp_path: Path
) -> None:
    assert guarded_pulsar.certificates is not None
    token = PulsarBroker(tmp_path / "elsewhere").token("admin")
    tls = {"ca": guarded_pulsar.certificates.ca}
    job = guarded_job(guarded_pulsar, fresh_name("t"), tmp_path, tls=tls, auth={"token": token})
    assert token not in denied(job, tmp_path, "AuthenticationError")


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


def test_missing_topic(plain_pulsar: PulsarBroker, fresh_name: Callable[[str], str], tmp_path: Path) -> None:
    topic = fresh_name("nowhere")
    job = Job(plain_pulsar.service_url, topic, tmp_path / "data")
    said = refused(job, tmp_path)
    assert topic in said
    assert "TopicNotFound" in said


def test_exclusive_subscription_that_somebody_has_is_waited_for(
    plain_pulsar: PulsarBroker, fresh_name: Callable[[str], str], tmp_path: Path
) -> None:
    topic = fresh_name("busy")
    plain_pulsar.admin.create_topic(topic)
    client = quiet_client(plain_pulsar.service_url)
    holder = client.subscribe(topic, "landing")
    client.create_producer(topic).send(b"000000000")
    job = Job(plain_pulsar.service_url, topic, tmp_path / "data", kind="exclusive", sink={"create": True})
    with Daemon("run", str(job.write(tmp_path)), "--until-end", log=tmp_path / "run.log") as daemon:
        daemon.wait_for("ConsumerBusy")
        holder.close()
        daemon.wait_done()
    client.close()
    assert_each_once(job.path, 1)
