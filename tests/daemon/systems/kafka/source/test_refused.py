"""Leaders that refuse to be read from: what passes is tried again, what does not ends the log, and both are said."""

import logging
from typing import Any

import pytest

from fastwire.kafka.format.error import BrokerError, Code
from fastwire_daemon.net.backoff import Backoff
from fastwire_daemon.runtime.logs import Logger
from fastwire_daemon.systems.kafka.source.firstposition import FirstPositions
from fastwire_daemon.systems.reading.patience import Patience
from tests.support.kafka.source_pipe import batches
from tests.support.kafka.source_scene import assert_once, reading, serving
from tests.support.source_pipe import until


@pytest.mark.parametrize("altogether", [False, True])
@pytest.mark.parametrize(
    ("code", "helps"),
    [
        (Code.TOPIC_AUTHORIZATION_FAILED, "allow this user READ"),
        (Code.CORRUPT_MESSAGE, "let another replica lead"),
        (Code.UNSUPPORTED_VERSION, "cannot convert"),
        (Code.UNSUPPORTED_COMPRESSION_TYPE, "zstd"),
        (Code.INVALID_REQUEST, "its log may say why"),
        (Code.INVALID_TOPIC_EXCEPTION, "INVALID_TOPIC_EXCEPTION"),
    ],
)
async def test_what_does_not_pass_stops_the_log(code: Code, helps: str, altogether: bool) -> None:
    async with serving() as broker:
        broker.append("t", batches(0, 10))
        broker.refuse_fetches(code, 1, altogether=altogether)
        async with reading(broker) as pipe:
            await until(lambda: pipe.count("stopped") == 1, "a stopped log", lambda: pipe.told)
            (stopped,) = [one for one in pipe.told if one[0] == "stopped"]
            assert code.name in stopped[2]
            assert helps in stopped[2]
            assert pipe.rows == 0


@pytest.mark.parametrize("altogether", [False, True])
@pytest.mark.parametrize("code", [Code.UNKNOWN_SERVER_ERROR, 1234])
async def test_what_may_pass_is_said_at_once_and_tried_again(
    code: int, altogether: bool, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING, "fastwire.source"):
        async with serving() as broker:
            broker.append("t", batches(0, 10))
            broker.refuse_fetches(code, 3, altogether=altogether)
            async with reading(broker) as pipe:
                await pipe.got(100)
                assert_once(pipe, 100)
                assert broker.requests["Fetch"] < 10
    said = [vars(record) for record in caplog.records if "the leader refuses to be read from" in record.message]
    assert len(said) == 2  # of the first two, and then seldom
    assert ("UNKNOWN_SERVER_ERROR" if code < 0 else "error 1234") in str(said[0])


@pytest.mark.parametrize("code", [Code.INVALID_REQUEST, Code.UNSUPPORTED_FOR_MESSAGE_FORMAT])
async def test_a_beginning_that_cannot_be_found_stops_the_log(code: Code, monkeypatch: pytest.MonkeyPatch) -> None:
    async def refuse(*_: object) -> int:
        raise BrokerError(code, "offsets of t")

    monkeypatch.setattr(FirstPositions, "_start", refuse)
    async with serving() as broker:
        broker.append("t", batches(0, 10))
        async with reading(broker) as pipe:
            await until(lambda: pipe.count("stopped") == 1, "a stopped log", lambda: pipe.told)
            (stopped,) = [one for one in pipe.told if one[0] == "stopped"]
            assert "where to begin cannot be found" in stopped[2]
            assert code.name in stopped[2]


async def test_a_beginning_that_is_not_found_is_waited_for_and_has_a_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    tries = 0

    async def refuse(*_: object) -> int:
        nonlocal tries
        tries += 1
        raise BrokerError(1234, "offsets of t")

    monkeypatch.setattr(FirstPositions, "_start", refuse)
    monkeypatch.setattr("fastwire_daemon.systems.reading.patience.LOG_LIMIT_S", 1.0)
    async with serving() as broker:
        broker.append("t", batches(0, 10))
        async with reading(broker) as pipe:
            patience = Patience(pipe.source)
            await until(lambda: "1234" in str(pipe.source.waiting()), "a reason", pipe.source.waiting)

            def stopped() -> bool:
                patience.look()
                return pipe.count("stopped") == 1

            await until(stopped, "a stopped log", lambda: pipe.told)
            assert pipe.source.waiting() == {}
            assert tries < 9


async def test_a_leader_that_moves_is_no_news(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, "fastwire.source"):
        async with serving() as broker:
            broker.append("t", batches(0, 10))
            broker.refuse_fetches(Code.NOT_LEADER_OR_FOLLOWER, 4)
            async with reading(broker) as pipe:
                await pipe.got(100)
                assert_once(pipe, 100)
    assert not [record for record in caplog.records if "refuses" in record.message]


async def test_a_static_member_whose_id_is_taken_says_so_and_asks_less_often(monkeypatch: pytest.MonkeyPatch) -> None:
    failures: list[int] = []
    failed = Backoff.failed

    def counted(backoff: Backoff, log: Logger, event: str, error: Exception | str, **more: Any) -> float:
        delay = failed(backoff, log, event, error, **more)
        failures.append(backoff.failures)
        return delay / 100

    monkeypatch.setattr(Backoff, "failed", counted)
    static: dict[str, Any] = {"protocol": "consumer", "instance": "one"}
    async with serving() as broker, reading(broker, **static) as first:
        await first.granted()
        async with reading(broker, **static) as second:
            await until(lambda: len(failures) >= 4, "refusals")
            assert failures[:4] == [1, 2, 3, 4]
            error = second.source.status()["membership"]["error"]
            assert "UNRELEASED_INSTANCE_ID" in error
            assert "a member with the same group_instance_id is in the group" in error
            assert second.failure is None  # the id is free once the other one has left
            await first.close()
            await second.granted()
            assert second.source.status()["membership"]["error"] == ""


async def test_a_static_member_that_is_replaced_says_by_what() -> None:
    static: dict[str, Any] = {"protocol": "classic", "instance": "one", "session_timeout_s": 6.0}
    async with serving() as broker, reading(broker, **static) as first:
        await first.granted()
        async with reading(broker, **static) as second:
            await second.granted()
            await until(lambda: first.failure is not None, "a failure")
            assert "FENCED_INSTANCE_ID; another process has joined the group with the same" in str(first.failure)
            assert second.failure is None
