"""Keys and values under their former names are read, and ``check`` names today's."""

import re
from pathlib import Path

import pytest
from typer.testing import CliRunner

from fastwire_daemon.cli.app import app
from fastwire_daemon.config import ConfigError, formerwords, parse_config
from tests.support.config_file import MINIMAL

SCHEMA = """{"type": "record", "name": "R", "fields": [{"name": "a", "type": "long"}]}"""


GONE = "has no effect: no schema is sent with a subscription; decode.registry reads values by that of the topic"


def former(folder: Path, **words: str) -> str:
    """A configuration in the words of an earlier version; ``words`` replaces some."""
    (folder / "a.avsc").write_text(SCHEMA)
    chosen = {
        "on_corrupt": 'on_corrupt = "divert"\ninitial_schema = { type = "string" }',
        "bad": 'on_bad = "divert"',
        "out": 'quarantine = "/lake/d"',
        **words,
    }
    return f"""
[pipelines.orders.source]
url = "kafka://127.0.0.1"
topics = ["orders"]
subscription = "s"
start = "earliest"
{chosen["on_corrupt"]}
[pipelines.orders.decode]
format = "avro"
schema = "{folder}/a.avsc"
evolve = "divert"
{chosen["bad"]}
[pipelines.orders.sink]
type = "parquet"
path = "{folder}/orders"
[spark.job.source]
dataset = "/data/other"
[spark.job.output]
path = "/lake/a"
{chosen["out"]}
checkpoint = "/lake/c"
"""


def test_former_words_mean_what_todays_do(tmp_path: Path) -> None:
    config = parse_config(former(tmp_path), {})
    orders = config.pipelines["orders"]
    assert orders.decode is not None
    assert (orders.source.on_corrupt, orders.decode.on_error, orders.decode.evolve) == ("dead_letter",) * 3
    assert config.spark["job"].output.dead_letters == Path("/lake/d")
    assert [str(each) for each in config.former] == [
        "configuration:13: pipelines.orders.decode.on_bad: is named on_error now",
        "configuration:21: spark.job.output.quarantine: is named dead_letters now",
        f"configuration:8: pipelines.orders.source.initial_schema: {GONE}",
        'configuration:7: pipelines.orders.source.on_corrupt: "divert" is named "dead_letter" now',
        'configuration:13: pipelines.orders.decode.on_bad: "divert" is named "dead_letter" now',
        'configuration:12: pipelines.orders.decode.evolve: "divert" is named "dead_letter" now',
    ]


def test_todays_words_are_no_former_ones() -> None:
    assert parse_config(MINIMAL, {}).former == ()


def test_both_names_of_a_key_are_a_mistake(tmp_path: Path) -> None:
    with pytest.raises(ConfigError) as raised:
        parse_config(former(tmp_path, bad='on_bad = "stop"\non_error = "stop"'), {})
    assert str(raised.value) == (
        "configuration:13: pipelines.orders.decode.on_bad: is the former name of on_error, which is given too"
    )


def test_a_mistake_in_a_former_key_has_its_line_and_no_secret(tmp_path: Path) -> None:
    with pytest.raises(ConfigError) as raised:
        parse_config(former(tmp_path, bad='on_bad = "${WORD}"'), {"WORD": "abcdef"})
    assert str(raised.value) == (
        'configuration:13: pipelines.orders.decode.on_bad: must be "dead_letter" or "stop", not "${WORD}"'
    )


@pytest.mark.parametrize("text", ["pipelines = 3", "[pipelines]\na = 3", "spark = [1]", "[pipelines.a]\ndecode = 3"])
def test_what_is_no_table_is_left_to_the_models(text: str) -> None:
    with pytest.raises(ConfigError):
        parse_config(text, {})


def test_check_says_the_present_names(tmp_path: Path) -> None:
    file = tmp_path / "f.toml"
    file.write_text(former(tmp_path))
    said = CliRunner().invoke(app, ["check", str(file)]).output.replace("\n", " ")
    assert f"note: {file}:13: pipelines.orders.decode.on_bad: is named on_error now" in said


def test_the_complete_configuration_names_no_former_key() -> None:
    text = (Path(__file__).parents[3] / "conf" / "complete.toml").read_text()
    for *_, key in (*formerwords._KEYS, *formerwords._GONE):
        assert not re.search(rf"^#? ?{key}\b", text, re.MULTILINE), key
