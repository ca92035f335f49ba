"""The options for a broker stand for keys of connections."""

import pytest

from fastwire.grammar import Grammar
from fastwire.systems import grammars
from fastwire_daemon.cli.options import BrokerOptions
from fastwire_daemon.config import ConfigError, parse_connection

NAMES = [(grammar, option.name) for grammar in grammars() for option in grammar.options]


@pytest.mark.parametrize(("grammar", "name"), NAMES, ids=[f"{grammar.name} {name}" for grammar, name in NAMES])
def test_options_of_a_system_are_keys_of_its_connections(grammar: Grammar, name: str) -> None:
    option = next(each for each in grammar.options if each.name == name)
    for value in option.choices or (["a=b"] if option.form == "NAME=FILE" else "PLAIN",):
        keys = BrokerOptions({option: value}, insecure=False).keys({})
        connection = parse_connection({"url": grammar.url_example} | keys)
        assert connection.model_fields_set == {"url", option.key.partition(".")[0]}


def test_systems_agree_on_an_option() -> None:
    options = [option for grammar in grammars() for option in grammar.options]
    assert len(set(options)) == len({option.name for option in options})


def test_an_option_of_another_system_is_a_mistake() -> None:
    for grammar in grammars():
        for option in {each for other in grammars() for each in other.options} - {*grammar.options}:
            value = ["a=b"] if option.form == "NAME=FILE" else "x"
            keys = BrokerOptions({option: value}, insecure=False).keys({})
            with pytest.raises(ConfigError, match="is not supported for"):
                parse_connection({"url": grammar.url_example} | keys)
