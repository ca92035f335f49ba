"""Partition assignors of a consumer group, computed by its leader (spec: kafka 11)."""

from collections import Counter, deque
from collections.abc import Iterable, Mapping, Sequence
from itertools import islice, repeat
from typing import Final, Literal

from ..names import TopicPartition
from .subscription import Member

Assignor = Literal["cooperative-sticky", "sticky", "range", "roundrobin"]
"""The assignors, by their names in JoinGroup."""
COOPERATIVE: Final = "cooperative-sticky"

Shares = dict[str, list[TopicPartition]]
"""Partitions by member id."""
Racks = Mapping[TopicPartition, frozenset[str]]
"""The racks in which a partition has replicas."""


def assign(
    protocol: str, members: Sequence[Member], partitions: Mapping[str, int], racks: Racks | None = None
) -> Shares:
    """Assign the partitions of all subscribed topics to the members; ``partitions`` has the number of each topic.

    The result is deterministic. Topics that are not in ``partitions`` are left out. The ``range`` assignor prefers
    partitions with replicas in the member's rack, if ``racks`` and members name racks (KIP-881). Raises ValueError for
    an unknown assignor.
    """
    match protocol:
        case "range":
            shares = _range(members, partitions, racks or {})
        case "roundrobin":
            shares = _round_robin(members, partitions)
        case "sticky":
            shares = _sticky(members, partitions)
        case "cooperative-sticky":
            shares = _hold_back(members, _sticky(members, partitions))
        case _:
            raise ValueError(f"there is no assignor {protocol}")
    return {member: sorted(places) for member, places in shares.items()}


def _in_order(members: Iterable[Member]) -> list[Member]:
    """Return the members in order, static members first."""
    return sorted(members, key=lambda one: (one.instance is None, (one.instance or one.id).encode()))


def _range(members: Sequence[Member], partitions: Mapping[str, int], racks: Racks) -> Shares:
    shares: Shares = {one.id: [] for one in members}
    in_order = _in_order(members)
    alike: dict[tuple[int, ...], list[str]] = {}  # topics by number of partitions and indexes of the subscribers
    for topic, count in partitions.items():
        places = [place for place, one in enumerate(in_order) if topic in one.topics]
        if places:
            alike.setdefault((count, *places), []).append(topic)
    for (count, *places), topics in alike.items():
        subscribers = [in_order[place] for place in places]
        for member, numbers in zip(subscribers, _split(subscribers, topics, count, racks), strict=True):
            shares[member.id] += [(topic, number) for topic in topics for number in numbers]
    return shares


def _split(subscribers: Sequence[Member], topics: Sequence[str], count: int, racks: Racks) -> Sequence[Sequence[int]]:
    """Choose the partitions of each subscriber: the same numbers in all ``topics``, whose keys may be joined."""
    unknown = frozenset[str]()
    plain = _nearest(subscribers, [unknown] * count)
    near = [
        frozenset.intersection(*(racks.get((topic, number), unknown) for topic in topics)) for number in range(count)
    ]
    if len(set(near)) < 2:
        return plain  # one partition has no nearer alternative
    nearest = _nearest(subscribers, near)

    def local(shares: Sequence[Sequence[int]]) -> int:
        return sum(
            one.rack in racks.get((topic, number), ())
            for one, numbers in zip(subscribers, shares, strict=True)
            for number in numbers
            for topic in topics
        )

    # ``near`` ignores a partition that has a rack in some of the topics only, so the plain ranges may be nearer.
    return nearest if local(nearest) >= local(plain) else plain


def _nearest(subscribers: Sequence[Member], near: Sequence[frozenset[str]]) -> Sequence[Sequence[int]]:
    """Assign partitions that are ``near`` the members' racks, then fill up in order, as evenly as plain ranges."""
    least, larger = divmod(len(near), len(subscribers))  # as many members may have one more than the least
    by_rack: dict[str | None, list[int]] = {}
    for number, racks in enumerate(near):
        for rack in racks:
            by_rack.setdefault(rack, []).append(number)
    in_rack = {rack: iter(numbers) for rack, numbers in by_rack.items()}
    free = set(range(len(near)))
    shares: list[list[int]] = [[] for _ in subscribers]
    for sources in ([in_rack.get(one.rack, iter(())) for one in subscribers], repeat(iter(range(len(near))))):
        for mine, source in zip(shares, sources, strict=False):
            room = least + (larger > 0) - len(mine)
            if room > 0:
                mine += islice((number for number in source if number in free), room)
                free.difference_update(mine)
                larger -= len(mine) > least
    return shares


def _round_robin(members: Sequence[Member], partitions: Mapping[str, int]) -> Shares:
    shares: Shares = {one.id: [] for one in members}
    circle = deque(_in_order(members))
    for place in _wanted(members, partitions):
        while place[0] not in circle[0].topics:
            circle.rotate(-1)
        shares[circle[0].id].append(place)
        circle.rotate(-1)
    return shares


def _wanted(members: Iterable[Member], partitions: Mapping[str, int]) -> list[TopicPartition]:
    """Return all partitions of subscribed topics, by topic and number."""
    topics = frozenset[str]().union(*(one.topics for one in members))
    return [(topic, number) for topic in sorted(topics & partitions.keys()) for number in range(partitions[topic])]


def _sticky(members: Sequence[Member], partitions: Mapping[str, int]) -> Shares:
    if not members:
        return {}
    wanted = _wanted(members, partitions)
    owned = _claims(members, wanted)
    if len({one.topics for one in members}) == 1:
        return _level(owned, wanted)
    return _balance(members, owned, wanted)


def _claims(members: Sequence[Member], wanted: Iterable[TopicPartition]) -> Shares:
    """Return the partitions that each member owns; of two claims the higher generation wins, else neither."""
    there = frozenset(wanted)
    best: dict[TopicPartition, int] = {}
    owner: dict[TopicPartition, str | None] = {}
    for one in members:
        for place in dict.fromkeys(one.owned):
            if place not in there or place[0] not in one.topics:
                continue
            if place not in best or one.generation > best[place]:
                best[place], owner[place] = one.generation, one.id
            elif one.generation == best[place]:
                owner[place] = None
    claims: Shares = {one.id: [] for one in members}
    for place, member in owner.items():
        if member is not None:
            claims[member].append(place)
    return claims


def _level(owned: Shares, wanted: Sequence[TopicPartition]) -> Shares:
    """Balance members with the same topics: sizes differ by one at most, and as few partitions as possible move."""
    least, larger = divmod(len(wanted), len(owned))  # as many members may have one more than the least
    shares: Shares = {}
    candidates = []
    for member in sorted(owned):
        mine = sorted(owned[member], key=lambda place: (place[1], place[0]))
        if len(mine) > least and larger:
            larger -= 1
            shares[member] = mine[: least + 1]
        else:
            shares[member] = mine[:least]
            if len(mine) >= least:
                candidates.append(member)
    taken = {place for mine in shares.values() for place in mine}
    free = deque(place for place in wanted if place not in taken)
    circle = deque(member for member in sorted(shares) if len(shares[member]) < least)
    while circle:
        member = circle.popleft()
        shares[member].append(free.popleft())
        (circle if len(shares[member]) < least else candidates).append(member)
    for member in candidates[: len(free)]:
        shares[member].append(free.popleft())
    return shares


def _balance(members: Sequence[Member], owned: Shares, wanted: Sequence[TopicPartition]) -> Shares:
    """Balance members with different topics, until no move between two members makes them more even."""
    possible = {topic: sorted(one.id for one in members if topic in one.topics) for topic, _ in wanted}
    shares = {member: list(mine) for member, mine in owned.items()}
    sizes = Counter({member: len(mine) for member, mine in shares.items()})
    taken = {place for mine in shares.values() for place in mine}
    for place in sorted((place for place in wanted if place not in taken), key=lambda one: len(possible[one[0]])):
        member = min(possible[place[0]], key=lambda one: (sizes[one], one))
        shares[member].append(place)
        sizes[member] += 1
    moved = True
    while moved:  # each move reduces the sum of the squared sizes
        moved = False
        for member in sorted(shares, key=lambda one: (-sizes[one], one)):
            for place in sorted(shares[member]):
                smallest = min(possible[place[0]], key=lambda one: (sizes[one], one))
                if sizes[smallest] + 2 <= sizes[member]:
                    shares[member].remove(place)
                    shares[smallest].append(place)
                    sizes[member] -= 1
                    sizes[smallest] += 1
                    moved = True
    return shares


def _hold_back(members: Sequence[Member], shares: Shares) -> Shares:
    """Leave out partitions that another member still owns; the next round assigns them, once they are revoked."""
    owners: dict[TopicPartition, set[str]] = {}
    for one in members:
        for place in one.owned:
            owners.setdefault(place, set()).add(one.id)
    return {
        member: [place for place in mine if not owners.get(place, set()) - {member}] for member, mine in shares.items()
    }
