"""Who of a group reads what, as its leader decides it (kafka 11)."""

from collections import Counter, deque
from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from .subscription import Member, Place

__all__ = ["ASSIGNORS", "COOPERATIVE", "assign"]

ASSIGNORS = ("cooperative-sticky", "sticky", "range", "roundrobin")
COOPERATIVE: Final = "cooperative-sticky"

Shares = dict[str, list[Place]]
"""What each member gets, by its id."""


def assign(protocol: str, members: Sequence[Member], partitions: Mapping[str, int]) -> Shares:
    """Share out the partitions of all topics that somebody wants; ``partitions`` has their numbers.

    The same for whoever computes it. Topics that are not in ``partitions`` are left out. Raises ValueError for an
    assignor that is none of ours.
    """
    match protocol:
        case "range":
            shares = _range(members, partitions)
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
    """Static members first."""
    return sorted(members, key=lambda one: (one.instance is None, (one.instance or one.id).encode()))


def _range(members: Sequence[Member], partitions: Mapping[str, int]) -> Shares:
    shares: Shares = {one.id: [] for one in members}
    in_order = _in_order(members)
    for topic, count in partitions.items():
        subscribers = [one.id for one in in_order if topic in one.topics]
        if not subscribers:
            continue
        each, more = divmod(count, len(subscribers))
        first = 0
        for place, member in enumerate(subscribers):
            last = first + each + (place < more)
            shares[member] += [(topic, number) for number in range(first, last)]
            first = last
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


def _wanted(members: Iterable[Member], partitions: Mapping[str, int]) -> list[Place]:
    """All partitions that somebody wants, by topic and number."""
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


def _claims(members: Sequence[Member], wanted: Iterable[Place]) -> Shares:
    """What each member may call its own: what two of them claim is that of the higher generation, else nobody's."""
    there = frozenset(wanted)
    best: dict[Place, int] = {}
    owner: dict[Place, str | None] = {}
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


def _level(owned: Shares, wanted: Sequence[Place]) -> Shares:
    """All want the same topics: sizes differ by one at most, and as few as possible move."""
    least, larger = divmod(len(wanted), len(owned))  # so many may have one more than the least
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


def _balance(members: Sequence[Member], owned: Shares, wanted: Sequence[Place]) -> Shares:
    """Members want different topics: nobody could take one from somebody with two more."""
    possible = {topic: sorted(one.id for one in members if topic in one.topics) for topic, _ in wanted}
    shares = {member: list(mine) for member, mine in owned.items()}
    sizes = Counter({member: len(mine) for member, mine in shares.items()})
    taken = {place for mine in shares.values() for place in mine}
    for place in sorted((place for place in wanted if place not in taken), key=lambda one: len(possible[one[0]])):
        member = min(possible[place[0]], key=lambda one: (sizes[one], one))
        shares[member].append(place)
        sizes[member] += 1
    moved = True
    while moved:  # each move makes the sum of the squared sizes smaller
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
    """What somebody else still has is given out in the next round, when it has been given up."""
    owners: dict[Place, set[str]] = {}
    for one in members:
        for place in one.owned:
            owners.setdefault(place, set()).add(one.id)
    return {
        member: [place for place in mine if not owners.get(place, set()) - {member}] for member, mine in shares.items()
    }
