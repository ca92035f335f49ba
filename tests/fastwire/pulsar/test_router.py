"""Records go to the partitions that the official clients choose."""

import pytest

from fastwire.pulsar.producing.router import HASHES, Hashing, Router, java_string_hash, murmur3_32


def test_javas_hash() -> None:
    # The first four are those of the Java and C++ clients' own tests; the others what Java says.
    wanted = {
        "hello": 99162322,
        "test": 3556498,
        "keykeykeykeykey1": 434058482,
        "": 0,
        "order-17": 1234255109,
        "aaaaaaa": 910622721,  # negative in Java
        "polygenelubricants": 0,  # the least int there is, which has no positive twin
        "日本": 835047,
        "\U0001f600": 1772899,  # two units
    }
    assert {key: java_string_hash(key) for key in wanted} == wanted


def test_murmur3() -> None:
    # Those of the Java client's own test, and of the specification.
    wanted = {
        "k1": 2110152746,
        "k2": 1479966664,
        "key1": 462881061,
        "key2": 1936800180,
        "key01": 39696932,
        "key02": 751761803,
        "order-17": 63080384,
        "aaaaaaa": 1497565372,
        "device/é": 1623418359,
        "日本": 1155135810,
        "": 0,
    }
    assert {key: HASHES[Hashing.MURMUR3](key) for key in wanted} == wanted
    assert murmur3_32(b"aaaaaaa") & 0x7FFFFFFF == 1497565372


def test_keys_choose_and_others_go_round() -> None:
    router = Router(7, first=9)
    assert router.current == 2
    assert router.of_key("hello") == 99162322 % 7
    assert router.current == 2
    seen = []
    for _ in range(8):
        seen.append(router.current)
        router.turn()
    assert seen == [2, 3, 4, 5, 6, 0, 1, 2]
    assert Router(7, hashing=Hashing.MURMUR3).of_key("key1") == 462881061 % 7


def test_one_partition_for_what_has_no_key() -> None:
    router = Router(7, first=4, rotate=False)
    router.turn()
    assert router.current == 4
    with pytest.raises(ValueError):
        Router(0)
