"""Secrets of a configuration: read, and shown nowhere, in no error and no traceback."""

import json
from pathlib import Path

import pytest
import typer

from fastwire_daemon.cli.check.command import check
from fastwire_daemon.config import Config, ConfigError, Secured, parse_config
from fastwire_daemon.config.values.secretpath import shown_path
from fastwire_daemon.systems.pulsar.config import EncryptionConfig
from fastwire_daemon.systems.pulsar.settings import decryptor
from tests.support.config_file import problem, problems, sink, source
from tests.support.rsa_keys import key_pair


def test_a_token_is_shown_nowhere() -> None:
    config = parse_config(source(auth="{ token = '${TOKEN}' }"), {"TOKEN": " token:hunter2\n"})
    connection = config.pipelines["orders"].source
    assert isinstance(connection, Secured)
    auth = connection.auth
    assert auth.token is not None and auth.token.get_secret_value() == "hunter2"
    for shown in (repr(config), str(config), config.model_dump_json(), repr(config.model_dump()), repr(auth)):
        assert "hunter2" not in shown


def test_a_token_is_not_in_errors() -> None:
    text = source(auth="{ token = '${TOKEN}', tokn = '${TOKEN}' }", subscription_type="'${TOKEN}'", url="'${TOKEN}'")
    told = "\n".join(problems(text, {"TOKEN": "hunter2"}))
    assert "hunter2" not in told
    assert told.splitlines() == [
        (
            'f.toml:2: pipelines.orders.source.url: must be a URL such as "pulsar://127.0.0.1:6650" or '
            '"kafka://127.0.0.1:9092" or "tank://127.0.0.1:11011" or "tubemq://127.0.0.1:8715", not "${TOKEN}"'
        ),
        'f.toml:6: pipelines.orders.source.auth.tokn: unknown key, did you mean "token"?',
        (
            'f.toml:7: pipelines.orders.source.subscription_type: must be "exclusive", "failover", "shared" or '
            '"key_shared", not "${TOKEN}"'
        ),
    ]


@pytest.mark.parametrize("token", ["hunter2\nhunter2", "hünter2", "", "   "])
def test_a_bad_token_is_refused_without_repeating_it(token: str) -> None:
    told = problem(source(auth="{ token = '${TOKEN}' }"), {"TOKEN": token})
    what = "contains characters that are not allowed in a token" if token.strip() else "is empty"
    assert told == f"f.toml:6: pipelines.orders.source.auth.token: {what}"
    assert "unter2" not in told


def test_no_traceback_holds_a_secret() -> None:
    import traceback

    try:
        parse_config(source(auth="{ token = 'hunter2', token = 1 }"), {})
    except ConfigError as exc:
        told = "".join(traceback.format_exception(exc))
    try:
        parse_config(source(auth="'hunter2'"), {})
    except ConfigError as exc:
        told += "".join(traceback.format_exception(exc))
    assert "auth: must be a table, not a string" in told
    assert "hunter2" not in told.replace("hunter2', token = 1", "").replace("auth=\"'hunter2'\"", "")


def test_models_do_not_repeat_what_they_refuse() -> None:
    with pytest.raises(ValueError) as caught:
        Config.model_validate({"pipelines": {"hunter1": "hunter2"}})
    assert "hunter1" in str(caught.value)
    assert "hunter2" not in str(caught.value)


def test_no_secret_of_a_user_or_client_is_shown() -> None:
    config = parse_config(source(auth="{ user = 'me', password = 'hunter2' }"), {})
    oauth2 = "{ issuer_url = 'https://a', client_id = 'b', client_secret = 'hunter2' }"
    for shown in (config, parse_config(source(auth=f"{{ oauth2 = {oauth2} }}"), {})):
        assert "hunter2" not in f"{shown!r}{shown}{shown.model_dump_json()}{shown.model_dump()!r}"


def keys_from(**paths: Path) -> EncryptionConfig:
    return EncryptionConfig.model_validate({"private_keys": {name: str(path) for name, path in paths.items()}})


def test_private_key_files(tmp_path: Path) -> None:
    keys = key_pair("orders")
    good, bad = tmp_path / "good.pem", tmp_path / "bad.pem"
    good.write_bytes(keys.private)
    bad.write_bytes(keys.public)
    assert repr(decryptor(keys_from(orders=good))) == "Decryptor(orders)"
    assert decryptor(EncryptionConfig()) is None
    with pytest.raises(ConfigError) as caught:
        decryptor(keys_from(a=bad, b=tmp_path / "none.pem", orders=good))
    assert [problem.key for problem in caught.value.problems] == [
        "encryption.private_keys.a",
        "encryption.private_keys.b",
    ]
    assert "BEGIN" not in str(caught.value)


TOKENS = {
    "a token": "eyJhbGciOiJIUzI1NiJ9.hunter2.sig",
    "of base64": "/9j/hunter2hunter2==",
    "of base64, too": "hunter2/hunter2+hunter2==",
    "a key": "-----BEGIN PRIVATE KEY-----\nhunter2/hunter2\n-----END PRIVATE KEY-----",
    "a long key": "hunter2" * 1000,
}
OAUTH2 = "issuer_url = 'https://a', client_id = 'b'"


@pytest.mark.parametrize("what", TOKENS)
@pytest.mark.parametrize(
    ("keys", "url"),
    [
        ("auth = {{ token_file = {} }}", "pulsar://127.0.0.1:1"),
        ("auth = {{ user = 'me', password_file = {} }}", "kafka://127.0.0.1:1"),
        ("auth = {{ oauth2 = {{ key_file = {} }} }}", "pulsar://127.0.0.1:1"),
        (f"auth = {{{{ oauth2 = {{{{ {OAUTH2}, client_secret_file = {{}} }}}} }}}}", "kafka://127.0.0.1:1"),
        ("tls = {{ cert = {} }}", "pulsar+ssl://127.0.0.1:1"),
        ("tls = {{ cert = '/etc/passwd', key = {} }}", "kafka+ssl://127.0.0.1:1"),
        ("tls = {{ cert = '/etc/passwd', key_password_file = {} }}", "tubemq+ssl://127.0.0.1:1"),
        ("encryption = {{ private_keys = {{ k = {} }} }}", "pulsar://127.0.0.1:1"),
    ],
)
def test_a_secret_in_the_place_of_its_file_is_not_repeated(
    keys: str, url: str, what: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    text = keys.format(json.dumps(TOKENS[what]))
    (tmp_path / "c.toml").write_text(
        f'[pipelines.p.source]\nurl = "{url}"\ntopics = ["t"]\ngroup = "gr"\nstart = "latest"\n{text}\n'
        '[pipelines.p.sink]\ntype = "discard"\n'
    )
    with pytest.raises(typer.Exit) as ended:
        check(tmp_path / "c.toml", connect=False)
    said = capsys.readouterr()
    assert ended.value.exit_code == 1
    assert "FAILED: " in said.out
    assert "hunter2" not in said.out + said.err


def test_paths_of_files_are_shown(tmp_path: Path) -> None:
    """A folder that exists tells a path from a secret."""
    for path in (tmp_path / "no" / "token", tmp_path / "token", Path("/etc/fastwire/token")):
        assert shown_path(path) == str(path)
    (tmp_path / "token").touch()
    assert shown_path(tmp_path / "token") == str(tmp_path / "token")
    for text in ("token", "/token", "no/token", "/no/token"):
        assert shown_path(text) == "(not shown, as it may be the secret itself)"


@pytest.mark.parametrize(
    ("catalog", "key"),
    [
        ("type = 'rest', uri = 'https://u:hunter2@a'", "uri"),
        ("type = 'rest', uri = 'https://a', credential = 'a:b', oauth2_server_uri = 'https://u:hunter2@a'", "oauth2_"),
    ],
)
def test_urls_of_catalogs_have_no_password(catalog: str, key: str) -> None:
    told = problem(sink(type="'iceberg'", table="'a.b'", catalog=f"{{ {catalog} }}"))
    assert f"catalog.{key}" in told and "hunter2" not in told


def test_an_endpoint_of_a_store_has_no_password() -> None:
    told = problem(sink(path="'s3://bucket/x'", store="{ endpoint = 'https://u:hunter2@a' }"))
    assert told.endswith("store.endpoint: has a password: give keys instead")


def test_secrets_under_other_keys_of_a_login() -> None:
    url = "'kafka://h'"
    told = problems(source(url=url, topics="['t']", auth="{ user = 'a', password = 'b', mechanism = 'hunter2' }"))
    assert "hunter2" not in "".join(told) and 'mechanism: must be "PLAIN"' in "".join(told)
    assert "hunter2" not in problem('daemon.http = "me:hunter2@h:1"\n' + source())
