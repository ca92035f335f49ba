"""Subscriptions and assignments of group members, against Kafka's own assignors."""

import json
import random
from dataclasses import replace
from itertools import chain, combinations
from typing import Any, get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fastwire.errors import ProtocolError
from fastwire.kafka.format.message import Table
from fastwire.kafka.groups.assignor import COOPERATIVE, Assignor, assign
from fastwire.kafka.groups.subscription import (
    Member,
    decode_assignment,
    decode_member,
    encode_assignment,
    encode_subscription,
)
from fastwire.kafka.names import TopicPartition
from tests.support.kafka.golden import GOLDEN

CASES: list[dict[str, Any]] = json.loads((GOLDEN / "assignors.json").read_text())
FRAMES: dict[str, dict[str, Any]] = json.loads((GOLDEN / "frames" / "expected.json").read_text())
PLAIN = [number for number in range(len(CASES)) if number % 4 != 3]  # the others have racks


def members_of(case: dict[str, Any]) -> list[Member]:
    return [
        Member(
            one["id"],
            frozenset(one["topics"]),
            one["instance"],
            tuple((topic, number) for topic, number in one["owned"]),
            one["generation"],
            one["rack"],
        )
        for one in case["members"]
    ]


def expected(case: dict[str, Any], protocol: str) -> dict[str, list[TopicPartition]]:
    return {
        member: [(topic, number) for topic, number in places] for member, places in case["expected"][protocol].items()
    }


def racks_of(case: dict[str, Any]) -> dict[TopicPartition, frozenset[str]]:
    racks = {one["id"]: one["rack"] for one in case["brokers"] if one["rack"] is not None}
    return {
        (topic, number): frozenset(racks[node] for node in nodes if node in racks)
        for topic, found in case["topics"].items()
        for number, nodes in enumerate(found)
    }


def shared(case: dict[str, Any], protocol: str) -> dict[str, list[TopicPartition]]:
    partitions = {topic: len(found) for topic, found in case["topics"].items()}
    return assign(protocol, members_of(case), partitions, racks_of(case))


def test_ranges_are_the_same_as_official_ones() -> None:
    for number, case in enumerate(CASES):
        assert shared(case, "range") == expected(case, "range"), number


def test_round_robin_is_the_same_as_the_official_one() -> None:
    for number in PLAIN:
        assert shared(CASES[number], "roundrobin") == expected(CASES[number], "roundrobin"), number


Scene = tuple[list[Member], dict[str, int], dict[TopicPartition, frozenset[str]]]
RACKS = ("a", "b", "c")


@st.composite
def scenes(draw: st.DrawFn) -> Scene:
    """A group of which some members say a rack, and topics whose partitions have replicas in some racks."""
    partitions = draw(st.dictionaries(st.sampled_from("tuvw"), st.integers(0, 7), min_size=1))
    members = [
        Member(
            f"m{number}",
            frozenset(draw(st.sampled_from([[*partitions], [*partitions][:1]]))),
            draw(st.sampled_from([None, None, f"i{9 - number}"])),
            rack=draw(st.sampled_from([*RACKS, None, "elsewhere"])),
        )
        for number in range(draw(st.integers(1, 6)))
    ]
    places = [(topic, number) for topic, count in partitions.items() for number in range(count)]
    return members, partitions, {place: draw(st.frozensets(st.sampled_from(RACKS))) for place in places}


def local(scene: Scene, shares: dict[str, list[TopicPartition]]) -> int:
    members, _, racks = scene
    return sum(one.rack in racks[place] for one in members for place in shares[one.id])


@given(scenes(), st.randoms(use_true_random=False))
def test_ranges_by_rack_are_complete_level_and_nearer(scene: Scene, dice: random.Random) -> None:
    members, partitions, racks = scene
    plain = assign("range", members, partitions)
    shares = assign("range", members, partitions, racks)
    check_shares(members, shares)
    assert {*chain(*shares.values())} == {*chain(*plain.values())}
    assert local(scene, shares) >= local(scene, plain)
    for topic in partitions:
        sizes = [sum(place[0] == topic for place in shares[one.id]) for one in members if topic in one.topics]
        assert not sizes or max(sizes) - min(sizes) <= 1
        alike = [one for one in partitions if partitions[one] == partitions[topic]]
        for one in members:  # whoever wants topics that others want as well gets the same numbers of them
            numbers = {
                tuple(number for name, number in shares[one.id] if name == other)
                for other in alike
                if [other in each.topics for each in members] == [topic in each.topics for each in members]
            }
            assert len(numbers) == 1
    others = dice.sample(members, len(members)), dict(dice.sample([*partitions.items()], len(partitions)))
    assert assign("range", *others, racks) == shares


@given(scenes(), st.frozensets(st.sampled_from(RACKS)))
def test_ranges_stay_where_racks_make_no_difference(scene: Scene, everywhere: frozenset[str]) -> None:
    members, partitions, racks = scene
    plain = assign("range", members, partitions)
    assert assign("range", members, partitions, dict.fromkeys(racks, everywhere)) == plain
    nowhere = [replace(one, rack=None) for one in members]
    assert assign("range", nowhere, partitions, racks) == plain


def test_ranges_by_rack() -> None:
    east, west, nowhere = (
        Member(name, frozenset("tu"), rack=rack) for name, rack in zip("ewn", ["e", "w", None], strict=True)
    )
    racks = {("t", number): frozenset("ew"[number % 2]) for number in range(6)}
    assert assign("range", [east, west], {"t": 6}, racks) == {
        "e": [("t", 0), ("t", 2), ("t", 4)],
        "w": [("t", 1), ("t", 3), ("t", 5)],
    }
    assert assign("range", [nowhere, west], {"t": 6}, racks)["w"] == [("t", 1), ("t", 3), ("t", 5)]
    # No more than a fair share is near, and what is near in one of two topics with as many partitions only is not.
    assert assign("range", [east, nowhere], {"t": 3}, dict.fromkeys([("t", 0), ("t", 2)], frozenset("e"))) == {
        "e": [("t", 0), ("t", 2)],
        "n": [("t", 1)],
    }
    both = racks | {("u", number): frozenset("ee"[number % 2]) for number in range(6)}
    assert assign("range", [east, west], {"t": 6, "u": 6}, both) == {
        "e": [(topic, number) for topic in "tu" for number in (0, 2, 4)],
        "w": [(topic, number) for topic in "tu" for number in (1, 3, 5)],
    }


def test_ranges_stay_where_keeping_topics_together_would_make_them_less_near() -> None:
    one, other = (Member(name, frozenset("tu"), rack=name) for name in "ab")
    racks = {("t", 0): frozenset("a"), ("t", 1): frozenset("ab"), ("u", 0): frozenset[str](), ("u", 1): frozenset("ab")}
    assert assign("range", [one, other], {"t": 2, "u": 2}, racks) == {
        "a": [("t", 0), ("u", 0)],
        "b": [("t", 1), ("u", 1)],
    }


def kept(members: list[Member], shares: dict[str, list[TopicPartition]]) -> int:
    return sum(len(set(one.owned) & set(shares[one.id])) for one in members)


def check_shares(members: list[Member], shares: dict[str, list[TopicPartition]]) -> None:
    """Check the rules for any assignor's result."""
    assert set(shares) == {one.id for one in members}
    given = [place for mine in shares.values() for place in mine]
    assert len(given) == len(set(given))
    for one in members:
        assert {topic for topic, _ in shares[one.id]} <= one.topics


def check_balance(members: list[Member], shares: dict[str, list[TopicPartition]]) -> None:
    for one, other in combinations(members, 2):
        for giver, taker in ((one, other), (other, one)):
            if len(shares[giver.id]) >= len(shares[taker.id]) + 2:
                assert not {topic for topic, _ in shares[giver.id]} & taker.topics


def check_held_back(members: list[Member], shares: dict[str, list[TopicPartition]]) -> None:
    for one, other in combinations(members, 2):
        assert not set(shares[one.id]) & set(other.owned)
        assert not set(shares[other.id]) & set(one.owned)


def test_cooperative_against_the_official_one() -> None:
    for number, case in enumerate(CASES):
        members = members_of(case)
        shares, theirs = shared(case, COOPERATIVE), expected(case, COOPERATIVE)
        check_shares(members, shares)
        check_held_back(members, shares)
        if len({one.topics for one in members}) == 1 and number in PLAIN:
            assert sorted(map(len, shares.values())) == sorted(map(len, theirs.values())), number
            assert kept(members, shares) >= kept(members, theirs), number
        if not any(one.owned for one in members):
            check_balance(members, shares)


@pytest.mark.parametrize("seed", range(60))
def test_rounds_of_members_that_come_and_go(seed: int) -> None:
    dice = random.Random(seed)
    partitions = {f"t{number}": dice.randrange(1, 9) for number in range(dice.randrange(1, 5))}
    same = dice.random() < 0.5
    owned: dict[str, tuple[TopicPartition, ...]] = {}
    wishes: dict[str, frozenset[str]] = {}
    for generation in range(1, 9):
        for name in dice.sample(sorted(owned), dice.randrange(len(owned) + 1) // 2):
            del owned[name]
        for _ in range(dice.randrange(1, 3)):
            name = f"m{dice.randrange(1000)}"
            owned.setdefault(name, ())
            some = partitions if same else dice.sample(sorted(partitions), dice.randrange(1, len(partitions) + 1))
            wishes[name] = frozenset(some)
        topics = {topic for name in owned for topic in wishes[name]}
        wanted = {(topic, number) for topic in topics for number in range(partitions[topic])}
        rounds = 0
        settled = False
        while not settled:
            members = [Member(name, wishes[name], None, mine, generation) for name, mine in owned.items()]
            for protocol in ("range", "roundrobin", "sticky"):
                shares = assign(protocol, members, partitions)
                check_shares(members, shares)
                assert {place for mine in shares.values() for place in mine} == wanted
            check_balance(members, shares)
            shares = assign(COOPERATIVE, members, partitions)
            check_shares(members, shares)
            check_held_back(members, shares)
            # What is not theirs any more is given up, what is new to them is taken.
            settled = all(set(shares[name]) == set(mine) for name, mine in owned.items())
            owned = {name: tuple(mine) for name, mine in shares.items()}
            rounds += 1
            assert rounds <= 6
        assert {place for mine in owned.values() for place in mine} == wanted


def test_who_keeps_what_two_claim() -> None:
    topics = frozenset({"t"})
    old = Member("a", topics, None, (("t", 0), ("t", 1)), 3)
    new = Member("b", topics, None, (("t", 0),), 4)
    assert assign("sticky", [old, new], {"t": 2}) == {"a": [("t", 1)], "b": [("t", 0)]}


@pytest.mark.parametrize("protocol", get_args(Assignor))
def test_metadata_there_and_back(protocol: str) -> None:
    owned = [("b", 2), ("a", 0), ("a", 3)]
    data = encode_subscription(protocol, ["b", "a"], owned, 7, "r")
    member = decode_member(protocol, {"member_id": "m", "group_instance_id": "i", "metadata": data})
    assert (member.id, member.instance, member.topics, member.rack) == ("m", "i", frozenset({"a", "b"}), "r")
    assert list(member.owned) == ([] if protocol in ("range", "roundrobin") else sorted(owned))
    assert member.generation == 7
    assert decode_assignment(encode_assignment(owned)) == frozenset(owned)


def test_what_other_clients_write() -> None:
    found = 0
    for said in FRAMES.values():
        body = said.get("body") or {}
        if said["api"] == "JoinGroup" and said["kind"] == "response":
            for one in body["members"]:
                member = decode_member("range", {**one, "metadata": bytes.fromhex(one["metadata"])})
                assert len(member.topics) == 1
                found += 1
        if said["api"] == "SyncGroup" and said["kind"] == "response" and body["assignment"]:
            places = decode_assignment(bytes.fromhex(body["assignment"]))
            assert encode_assignment(places)[2:].hex() == body["assignment"][4:]
            found += 1
    assert found > 10


@pytest.mark.parametrize("data", [b"", b"\0", b"\xff\xff", b"\0\1", b"\0\0\x7f\xff\xff\xff", b"\0\3\0\0\0\1\0\5ab"])
def test_broken_metadata(data: bytes) -> None:
    if data == b"\0\1":  # all that is missing at the end is absent
        assert decode_assignment(data) == frozenset()
        return
    with pytest.raises(ProtocolError):
        decode_member("range", {"member_id": "m", "metadata": data})
    if len(data) != 8:
        with pytest.raises(ProtocolError):
            decode_assignment(data)


def test_newer_metadata_and_broken_user_data() -> None:
    table = Table("version i16\ntopics [string]\nuser_data bytes null=0+")
    newer = table.encode({"version": 9, "topics": ["t"], "user_data": b"\0\0\0\5"})
    assert decode_member("sticky", {"member_id": "m", "metadata": newer}) == Member("m", frozenset({"t"}))
    assert decode_member(COOPERATIVE, {"member_id": "m", "metadata": newer}).generation == 5
