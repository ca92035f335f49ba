"""The member of a group at the Master: events are performed one after the other, with one result each."""

import asyncio
from typing import Any, cast

import pytest

from fastwire.tubemq import tubemq_pb2 as pb
from fastwire.tubemq.format.text import Broker, BrokerPartition
from fastwire.tubemq.groups.master import Change
from fastwire.tubemq.groups.membership import EventType, Membership, Settings
from fastwire_daemon.systems.tubemq.cluster import Cluster
from fastwire_daemon.systems.tubemq.link import Link
from fastwire_daemon.systems.tubemq.source import member
from fastwire_daemon.systems.tubemq.source.member import Member

PLACES = [BrokerPartition(Broker(1, "h", 8123), "t", number) for number in range(2)]


class Bed:
    """A registered member without a network; ``gate`` lets the first change go on."""

    def __init__(self) -> None:
        settings = Settings(client_id="c", host="h", topics=("t",), group="g", session_time_ms=1)
        self.membership = Membership(settings)
        self.gate = asyncio.Event()
        self.performed: list[tuple[BrokerPartition, ...]] = []
        self.member = Member(self.membership, cast(Cluster, None), self.perform, lambda error: None)
        self.membership.take_request(0.0)
        self.answer(pb.RegisterResponseM2C(success=True, errCode=200, errMsg="OK!"))

    async def perform(self, change: Change) -> None:
        await self.gate.wait()
        self.performed.append(change.take + change.give_up)

    def answer(self, body: Any) -> None:
        self.member._answered(body)

    def beat(self, number: int = 0, kind: EventType = EventType.CONNECT) -> pb.HeartRequestC2M:
        """Make the heartbeat that is due, and answer it with an event."""
        request = self.membership.take_request(1e9)
        assert request is not None
        sent = request[1]
        assert isinstance(sent, pb.HeartRequestC2M)
        body = pb.HeartResponseM2C(success=True, errCode=200, errMsg="OK!")
        if number:
            places = [place.subscription("c", "g") for place in PLACES]
            body.event.CopyFrom(pb.EventProto(rebalanceId=number, opType=kind, subscribeInfo=places))
        self.answer(body)
        return sent


async def test_events_are_performed_one_after_the_other_and_the_last_one_has_a_result() -> None:
    """The Master sends another event when it has waited too long for a result, which must not come any more."""
    bed = Bed()
    working = asyncio.create_task(bed.member.perform())
    bed.beat(1)
    await asyncio.sleep(0)
    bed.beat(2, EventType.DISCONNECT)
    await asyncio.sleep(0)
    assert bed.performed == []
    bed.gate.set()
    while len(bed.performed) < 2:
        await asyncio.sleep(0)
    assert bed.performed == [tuple(PLACES)] * 2
    await asyncio.sleep(0)
    results = [bed.beat().event.rebalanceId for _ in range(3)]
    assert results == [2, 0, 0]
    working.cancel()


async def test_a_member_stands_by_once_the_partitions_of_its_group_are_shared_out(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Before that it waits for its own, for not longer than a Master needs that does not say it."""
    bed = Bed()
    assert not bed.member.standing_by
    bed.member._settled(cast(Link, "master"))
    assert not bed.member.standing_by
    with monkeypatch.context() as patch:
        patch.setattr(member, "BALANCE_S", 0.0)
        assert bed.member.standing_by
    bed.answer(pb.HeartResponseM2C(success=True, errCode=200, errMsg="OK!", notAllocated=False))
    assert bed.member.standing_by
    bed.member.took(PLACES[0])
    assert not bed.member.standing_by


async def test_an_event_of_an_earlier_registration_has_no_result() -> None:
    bed = Bed()
    working = asyncio.create_task(bed.member.perform())
    bed.beat(1)
    await asyncio.sleep(0)
    bed.membership.take_request(1e9)
    bed.answer(pb.HeartResponseM2C(success=False, errCode=411, errMsg="unknown"))
    bed.membership.take_request(1e9)
    bed.answer(pb.RegisterResponseM2C(success=True, errCode=200, errMsg="OK!"))
    bed.gate.set()
    while not bed.performed:
        await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert bed.beat().event.rebalanceId == 0
    working.cancel()
