"""The samples: those for brokers that people rent are configurations with the login they name; one has every key."""

import re

import pytest

from docs.configuration import TABLES
from fastwire_daemon.config import parse_config
from fastwire_daemon.config.brokers.secured import Secured
from fastwire_daemon.systems.registry import system_named
from tests.support.source_tree import ROOT

RENTED = {
    "aiven": "SCRAM-SHA-256",
    "amazon-msk": "OAUTHBEARER",
    "astra-streaming": "token_file",
    "confluent-cloud": "PLAIN",
    "event-hubs": "PLAIN",
    "redpanda": "SCRAM-SHA-256",
    "streamnative": "oauth2",
}


@pytest.mark.parametrize("name", RENTED)
def test_a_sample_is_a_sound_configuration(name: str) -> None:
    text = (ROOT / "conf" / f"{name}.toml").read_text()
    assert "\n# Tried: " in text and "Not tried: " in text
    environ = dict.fromkeys(re.findall(r"\$\{(\w+)\}", text), "x")
    source = parse_config(text, environ).pipelines["orders"].source
    assert isinstance(source, Secured) and source.url.tls and source.auth.given
    login = system_named(source.system).mechanism(source) or "".join(source.auth.model_fields_set)
    assert login == RENTED[name]


def test_every_sample_is_listed_on_a_page() -> None:
    page = (ROOT / "docs" / "brokers.md").read_text()
    assert [name for name in RENTED if f"(../conf/{name}.toml)" not in page] == []


def test_the_complete_sample_has_every_key() -> None:
    text = (ROOT / "conf" / "complete.toml").read_text()
    keys = {field.alias or name for _, model in TABLES for name, field in model.model_fields.items()}
    assert sorted(key for key in keys if not re.search(rf"\b{key}\b", text)) == []


def test_the_notebook_for_spark_reads_what_its_configuration_writes() -> None:
    code, configuration = ((ROOT / "conf" / name).read_text() for name in ("spark_notebook.py", "spark.toml"))
    paths = set(re.findall(r'"(orders/[^"]+)"', code))
    assert len(paths) == 3 and paths <= set(re.findall(r'"(orders/[^"]+)"', configuration))
