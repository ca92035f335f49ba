"""Encrypted keys of client certificates: opened by their password, which nothing that is said holds."""

from pathlib import Path

import pytest
from cryptography.hazmat.primitives import serialization as pem

from fastwire_daemon.config import ConfigError, TlsConfig, parse_connection
from fastwire_daemon.net.tls import ClientTls
from tests.brokers.certs import make_certificates

PASSWORD = "hunter2 and more"


@pytest.fixture
def files(tmp_path: Path) -> dict[str, str]:
    """A certificate, and its key as encrypted PKCS#8."""
    certificates = make_certificates(tmp_path)
    key = pem.load_pem_private_key(Path(certificates.key).read_bytes(), None)
    how = pem.BestAvailableEncryption(PASSWORD.encode())
    encrypted = key.private_bytes(pem.Encoding.PEM, pem.PrivateFormat.PKCS8, how)
    assert encrypted.startswith(b"-----BEGIN ENCRYPTED PRIVATE KEY-----")
    (tmp_path / "encrypted.pem").write_bytes(encrypted)
    return {"cert": str(certificates.cert), "key": str(tmp_path / "encrypted.pem")}


def test_a_password_opens_the_key(files: dict[str, str], tmp_path: Path) -> None:
    config = TlsConfig.model_validate(files | {"key_password": PASSWORD})
    ClientTls(config)
    assert PASSWORD not in repr(config) + str(config) + config.model_dump_json()
    (tmp_path / "password").write_text(PASSWORD + "\n")
    ClientTls(TlsConfig.model_validate(files | {"key_password_file": str(tmp_path / "password")}))


@pytest.mark.parametrize(
    ("given", "key", "why"),
    [
        ({}, "key_password", "is needed: the key is encrypted"),
        ({"key_password": "hunter3"}, "key_password", "does not open the key"),
        ({"key_password": "x" * 2000}, "key_password", "1023 bytes"),
        (
            {"key_password_file": "/nowhere"},
            "key_password_file",
            "cannot read (not shown, as it may be the secret itself)",
        ),
    ],
)
def test_a_key_that_is_not_opened(files: dict[str, str], given: dict[str, str], key: str, why: str) -> None:
    with pytest.raises(ConfigError) as caught:
        ClientTls(TlsConfig.model_validate(files | given))
    (problem,) = caught.value.problems
    assert problem.key == key
    assert why in problem.message
    assert "hunter" not in str(caught.value)


def test_a_password_file_that_changes_is_read_again(files: dict[str, str], tmp_path: Path) -> None:
    password = tmp_path / "password"
    password.write_text(PASSWORD)
    tls = ClientTls(TlsConfig.model_validate(files | {"key_password_file": str(password)}))
    before = tls.context()
    assert tls.context() is before
    password.write_text("something else")
    assert tls.context() is before  # it does not open the key: the old context stays
    password.write_text(PASSWORD + "\r\n")
    assert tls.context() is not before


@pytest.mark.parametrize("url", ["pulsar+ssl://h", "kafka+ssl://h"])
def test_passwords_that_stand_at_the_wrong_place(url: str) -> None:
    for tls, why in (
        ({"key_password": "p"}, "cert is missing"),
        ({"cert": "c", "key_password": "p", "key_password_file": "f"}, "use one of them"),
    ):
        with pytest.raises(ConfigError, match=why):
            parse_connection({"url": url, "tls": tls})
