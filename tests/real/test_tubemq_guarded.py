"""The daemon and ``produce`` on a real TubeMQ with certificates, signed requests and two Masters."""

import json
import subprocess
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from tests.brokers.guarded_tubemq import GuardedTubeMQ
from tests.real.daemon import RUN_LIMIT, Daemon, Job, command
from tests.real.test_tubemq_daemon import TAKEOVER_LIMIT, job, member, numbers, produced, producing, rows

pytestmark = pytest.mark.broker


def guarded_job(broker: GuardedTubeMQ, topic: str, folder: Path, *without: str, **more: Any) -> Job:
    """A job that shows a certificate and signs; but not what is in ``without``."""
    certificates = broker.certificates
    cert, key = certificates.client(folder / "client", "alice")
    password = folder / "password"
    password.write_text("s3cret+/=\n")
    shown = {
        "tls": {"ca": certificates.ca, "cert": cert, "key": key},
        "auth": {"user": "alice", "password_file": password},
    }
    if "certificate" in without:
        shown["tls"] = {"ca": certificates.ca}
    if "auth" in without:
        del shown["auth"]
    return job(broker, topic, folder / "data", source=shown, **more)


def arguments(task: Job) -> list[str]:
    """The same for ``produce``."""
    tls, auth = task.source["tls"], task.source["auth"]
    files = (f"--{name}={tls[name]}" for name in ("ca", "cert", "key"))
    return [*files, f"--user={auth['user']}", f"--password-file={auth['password_file']}"]


def produce(task: Job, count: int) -> None:
    lines = "\n".join(json.dumps({"value": json.dumps({"number": number})}) for number in range(count))
    done = subprocess.run(
        command("produce", task.url, task.topic, "--format", "jsonl", *arguments(task)),
        input=lines, capture_output=True, text=True, timeout=RUN_LIMIT,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr


def masters(consumer: Daemon) -> set[str]:
    """The Masters at which a member has been registered."""
    return {event["master"] for event in consumer.events() if event.get("event") == "registered at the Master"}


def test_certificates_and_signed_requests(guarded_tubemq: GuardedTubeMQ, tmp_path: Path) -> None:
    task = guarded_job(guarded_tubemq, guarded_tubemq.fresh_topic(), tmp_path)
    produce(task, 500)
    with member(task, tmp_path, "log", until_end=True) as daemon:
        daemon.wait_done()
    assert numbers(rows(task.path)) == list(range(500))


@pytest.mark.parametrize(("without", "said"), [("auth", "415"), ("certificate", "certificate")])
def test_who_is_not_let_in(without: str, said: str, guarded_tubemq: GuardedTubeMQ, tmp_path: Path) -> None:
    task = guarded_job(guarded_tubemq, guarded_tubemq.fresh_topic(), tmp_path, without)
    with member(task, tmp_path, "log", until_end=True) as daemon:
        daemon.wait_for(said)


def test_the_other_master_takes_over(guarded_tubemq: GuardedTubeMQ, tmp_path: Path) -> None:
    topic = guarded_tubemq.fresh_topic()
    task = guarded_job(guarded_tubemq, topic, tmp_path, roll={"rows": 400, "idle": "300ms"})
    with ExitStack() as stack:
        producer = stack.enter_context(producing(guarded_tubemq, topic, tmp_path, *arguments(task)))
        consumer = stack.enter_context(member(task, tmp_path, "consumer"))
        consumer.wait_for_rows(100)
        gone = guarded_tubemq.master
        gone.stop(at_once=True)
        assert guarded_tubemq.master is not gone
        guarded_tubemq.wait_until_serves(topic)
        consumer.wait_until(lambda: len(masters(consumer)) == 2, "the other Master knew it", TAKEOVER_LIMIT)
        consumer.wait_for_rows(consumer.committed() + 400, TAKEOVER_LIMIT)
        count = produced(producer)
        consumer.end()
        with member(task, tmp_path, "last", until_end=True) as last:
            last.wait_done(TAKEOVER_LIMIT)
    assert sorted(set(numbers(rows(task.path)))) == list(range(count))
