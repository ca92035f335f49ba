"""Members of a group against the embedded coordinator, with requests and answers that get lost between them."""

import random
from itertools import count

import pytest

from fastwire.kafka.groups.membership import Ask, ConsumerMembership, GroupSettings
from fastwire.kafka.names import TopicIdPartition
from fastwire.kafka.protocol.connection import Key
from fastwire_daemon.devbroker.kafka import KafkaDevBroker, KafkaOptions, running
from tests.support.kafka.raw_client import Peer

PARTITIONS = 5
MOST = 4  # members
STEPS = 60


class Scene:
    """Members on one connection; ``now`` is their clock. Partitions are given away when ``release`` says so."""

    def __init__(self, broker: KafkaDevBroker, peer: Peer, dice: random.Random) -> None:
        self.members: list[ConsumerMembership] = []
        self.topic_id = broker.topics["t"].topic_id
        self.now = 0.0
        self._broker = broker
        self._peer = peer
        self._dice = dice
        self._names = map(str, count())

    def join(self) -> None:
        """Have another member, which the coordinator does not know yet."""
        self.members.append(ConsumerMembership(GroupSettings(group="g", topics=("t",)), next(self._names)))

    def leave(self) -> None:
        """Any member leaves, or dies and is missed by the coordinator."""
        member = self.members.pop(self._dice.randrange(len(self.members)))
        ask = member.leave()
        if ask is not None and self._dice.random() < 0.5:
            self._peer.ask(ask.key, 1, ask.body)
        else:
            self._broker.call(lambda: self._broker.group("g").consumers.remove(member.member_id))

    def beat(self, member: ConsumerMembership, fate: str = "answered") -> None:
        """Let a member ask, if it wants to; ``fate`` says which of request and answer gets lost, if any."""
        ask = member.next(self.now)
        if not isinstance(ask, Ask):
            return
        assert ask.key == Key.CONSUMER_GROUP_HEARTBEAT
        if fate == "not asked":
            member.unanswered()
            return
        answer = self._peer.ask(ask.key, 1, ask.body)
        if fate == "not answered":
            member.unanswered()
        else:
            member.answered(ask, answer, self.now)

    def owned(self) -> list[TopicIdPartition]:
        """Return the partitions that the members own, as they see it."""
        return sorted(place for member in self.members for place in member.owned)

    def step(self) -> None:
        """Let anything happen."""
        self.now += self._dice.choice((0.0, 1.0, 10.0))
        what = self._dice.random()
        if what < 0.1 and len(self.members) < MOST:
            self.join()
        elif what < 0.15 and self.members:
            self.leave()
        elif self.members:
            member = self._dice.choice(self.members)
            if what < 0.3:
                if member.releasing:
                    member.released()
            else:
                self.beat(member, self._dice.choice(("answered", "answered", "not asked", "not answered")))

    def settle(self) -> None:
        """Let every member say and do what it has to, until there is nothing left to be said."""
        for _ in range(4 * MOST):
            self.now += 10.0
            for member in self.members:
                self.beat(member)
                if member.releasing:
                    member.released()


@pytest.mark.parametrize("seed", range(40))
def test_every_partition_has_one_owner_whatever_gets_lost(seed: int) -> None:
    with running(KafkaDevBroker(KafkaOptions(consumer_session_s=600.0))) as broker:
        broker.create_topic("t", PARTITIONS)
        peer = Peer(broker)
        scene = Scene(broker, peer, random.Random(seed))
        for _ in range(STEPS):
            scene.step()
            owned = scene.owned()
            assert len(set(owned)) == len(owned), "two members read the same partition"
        if not scene.members:
            scene.join()
        scene.settle()
        peer.close()
        assert scene.owned() == [(scene.topic_id, number) for number in range(PARTITIONS)]
        assert broker.violations == []
