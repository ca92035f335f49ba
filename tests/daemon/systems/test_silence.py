"""Topics whose producers fall silent, each against its own past hour."""

from collections.abc import Iterable

from fastwire_daemon.systems.reading.silence import WINDOW_S, Silence

LOGS = {"t": frozenset({0, 1})}


class Hours:
    """A topic whose growth is told twice a window."""

    def __init__(self) -> None:
        self.silence = Silence()
        self.now = 1000.0
        self.silence.add(LOGS, {}, self.now)

    def grow(self, windows: Iterable[int], logs: dict[str, frozenset[int]] | None = None) -> list[int]:
        """Add the growth of windows; return the number of silent topics behind each."""
        counts = []
        for growth in windows:
            for part in (growth - growth // 2, growth // 2):
                self.now += WINDOW_S / 2
                self.silence.add(LOGS if logs is None else logs, {"t": part}, self.now)
            counts.append(self.silence.count)
        return counts


def test_a_topic_that_stops_growing_is_silent_until_it_grows_again() -> None:
    hours = Hours()
    assert hours.grow([100] * 12) == [0] * 12
    assert hours.grow([0, 0]) == [1, 1]
    assert hours.silence.status(hours.now) == {"t": {"silent_s": 600, "entries_per_hour": 1200}}
    assert hours.grow([0] * 20) == [1] * 20, "also when its past hour has nothing but silence"
    assert hours.grow([100, 0]) == [0, 0], "it begins anew"
    assert hours.silence.status(hours.now) == {}


def test_a_twentieth_of_the_rate_is_silence_and_a_tenth_is_not() -> None:
    assert Hours().grow([100] * 12 + [10]) == [0] * 13
    assert Hours().grow([100] * 12 + [5]) == [0] * 12 + [1]


def test_a_young_or_irregular_topic_does_not_fall_silent() -> None:
    assert Hours().grow([100] * 11 + [0]) == [0] * 12
    assert Hours().grow([100, 0, 0, 0] * 4 + [0] * 8) == [0] * 24


def test_logs_that_have_moved_to_another_instance_begin_anew() -> None:
    hours = Hours()
    hours.grow([100] * 12)
    assert hours.grow([0], {"t": frozenset({0})}) == [0]
    hours.grow([100] * 12)
    hours.grow([0], {})
    assert hours.silence.count == 0


def test_each_topic_has_its_own_hour() -> None:
    silence, now = Silence(), 0.0
    logs = {f"t{number}": frozenset({number}) for number in range(1000)}
    for window in range(14):
        growth = dict.fromkeys(logs, 10) | ({"t7": 0} if window >= 13 else {})
        silence.add(logs, growth, now)
        now += WINDOW_S
    assert silence.count == 1 and list(silence.status(now)) == ["t7"]
