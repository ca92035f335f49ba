"""Conformance tests of a system's text forms and positions, which need no broker."""

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fastwire.position import Position, Positions, positions_of
from fastwire.systems import grammar_of, row_of

from ...config import ConfigError, SubscribedSource, parse_connection, parse_url
from ...config.brokers.connection import keys_of_systems
from ...config.brokers.source import source_model
from .scene import TOPIC, configured
from .suite import SystemSuite

SHARED_COLUMNS = ("key", "value", "topic", "partition", "offset", "timestamp", "timestampType", "headers")


class SystemTexts(SystemSuite):
    """Addresses, topics, partitions and positions."""

    def test_the_parts_belong_together(self) -> None:
        """System, grammar, positions, columns and model carry the same name, and the URL's scheme leads to them."""
        grammar = self._grammar
        assert grammar.name == grammar.positions.system == self.system
        assert grammar.positions is positions_of(self.system)
        assert next(iter(grammar.schemes)) == self.system
        assert all(grammar_of(f"{scheme}://host") is grammar for scheme in grammar.schemes)
        assert row_of(self.system).system == self.system
        assert row_of(self.system).names[: len(SHARED_COLUMNS)] == SHARED_COLUMNS
        assert parse_connection({"url": grammar.url_example}).system == self.system
        assert self._system.grammar is grammar
        grouped = "groups" not in self.lacks
        assert (
            bool(self._system.grammar.group_word) == grouped == issubclass(source_model(self.system), SubscribedSource)
        )

    def test_urls_have_one_text_form(self) -> None:
        """``url`` reads its own text again, ports have defaults, and hosts are the URL without its scheme."""
        grammar = self._grammar
        url = parse_url(grammar.url_example)
        assert str(grammar.url(str(url))) == str(url)
        for scheme, port in grammar.schemes.items():
            short = grammar.url(f"{scheme}://example")
            assert str(short) == str(grammar.url(f"{scheme}://example:{port}"))
            assert short.hosts == f"example:{port}"
            assert short.tls == (scheme != self.system)

    def test_keys_of_other_systems_are_refused(self) -> None:
        """A key of another system is a mistake that names the key and this system."""
        source = {"url": self._grammar.url_example, "topics": [self._grammar.topic_example], "start": "earliest"}
        for key in keys_of_systems(source_model) - {*source_model(self.system).known_keys()}:
            with pytest.raises(ConfigError, match=f"source.{key}: is not supported for {self.system}"):
                configured(source | {key: "x"})

    def test_topics_have_one_text_form(self) -> None:
        """``topic`` and ``partition`` return full names, which they read again."""
        grammar = self._grammar
        topic = grammar.topic(grammar.topic_example)
        assert grammar.topic(topic) == topic
        partition, position = self._start_example()
        name, of = grammar.partition(partition)
        assert grammar.partition(name) == (name, of)
        assert of == grammar.topic(TOPIC)
        assert grammar.positions.format(grammar.positions.parse(position)) == position

    def test_wrong_texts_are_refused_with_a_message(self) -> None:
        """URLs, topics, partitions, patterns and positions raise ValueError with a message, and nothing else."""
        grammar = self._grammar

        @given(st.text(max_size=30))
        def check(text: str) -> None:
            for read in (grammar.url, grammar.topic, grammar.partition, grammar.pattern, grammar.positions.parse):
                for written in (text, f"{self.system}://{text}"):
                    assert _refusal(read, written) != ""

        check()

    def test_a_position_has_one_text_form(self) -> None:
        """``parse`` reads what ``format`` writes, for every text that ``pattern`` matches and ``parse`` accepts."""
        positions = self._positions

        @given(_positions_of(positions))
        def check(position: Position) -> None:
            assert positions.parse(positions.format(position)) == position

        check()

    def test_positions_are_ordered(self) -> None:
        """``precedes`` is a strict order, and that of ``order`` if the positions have one."""
        positions = self._positions
        some = _positions_of(positions)

        @given(some, some, some)
        def check(one: Position, two: Position, three: Position) -> None:
            assert not positions.precedes(one, one)
            assert not (positions.precedes(one, two) and positions.precedes(two, one))
            if positions.precedes(one, two) and positions.precedes(two, three):
                assert positions.precedes(one, three)
            if positions.ordered:
                assert positions.precedes(one, two) == (positions.order(one) < positions.order(two))
            else:
                assert positions.chained, "a log whose positions have no order must be read in order"

        check()


def _positions_of(positions: Positions) -> st.SearchStrategy[Position]:
    """Return a strategy of positions: those of the texts that ``pattern`` matches and ``parse`` accepts."""

    def read(text: str) -> Position | None:
        return positions.parse(text) if _refusal(positions.parse, text) is None else None  # a number out of range

    found = st.from_regex(positions.pattern, fullmatch=True).map(read)
    return found.filter(lambda position: position is not None)  # type: ignore[return-value]


def _refusal(read: Callable[[str], object], text: str) -> str | None:
    """Return the message of the ValueError with which ``read`` refuses ``text``; None if it does not."""
    try:
        read(text)
    except ValueError as exc:
        return str(exc)
    return None
