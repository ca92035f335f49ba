"""A certificate authority of one run, a server certificate for 127.0.0.1 and tokens of the broker's own secret."""

import base64
import datetime
import hashlib
import hmac
import ipaddress
import json
from dataclasses import dataclass
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePrivateKey
from cryptography.x509.oid import NameOID


@dataclass(frozen=True, slots=True)
class Certificates:
    """PEM files: the authority, the server's certificate and key (PKCS#8), and an authority that signed nothing."""

    ca: Path
    cert: Path
    key: Path
    other_ca: Path
    authority_key: EllipticCurvePrivateKey
    authority: x509.Certificate

    def client(self, folder: Path, name: str) -> tuple[Path, Path]:
        """A fresh certificate of the authority for a client of that common name, and its key, in ``folder``."""
        folder.mkdir(parents=True, exist_ok=True)
        cert, key_file = folder / "client.pem", folder / "client.key"
        key = ec.generate_private_key(ec.SECP256R1())
        subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        certificate = (
            _builder(subject, self.authority.subject, key, self.authority_key)
            .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
            .sign(self.authority_key, hashes.SHA256())
        )
        _write_certificate(cert, certificate)
        _write_key(key_file, key)
        return cert, key_file


def make_certificates(folder: Path) -> Certificates:
    """Write a fresh authority and a certificate for ``localhost`` and 127.0.0.1 into ``folder``."""
    folder.mkdir(parents=True, exist_ok=True)
    authority_key, authority = _authority("fastwire test authority")
    files = Certificates(
        ca=folder / "ca.pem",
        cert=folder / "server.pem",
        key=folder / "server.key",
        other_ca=folder / "other-ca.pem",
        authority_key=authority_key,
        authority=authority,
    )
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "localhost")])
    certificate = (
        _builder(name, authority.subject, key, authority_key)
        .add_extension(
            x509.SubjectAlternativeName(
                [x509.DNSName("localhost"), x509.IPAddress(ipaddress.IPv4Address("127.0.0.1"))]
            ),
            critical=False,
        )
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .sign(authority_key, hashes.SHA256())
    )
    _write_certificate(files.ca, authority)
    _write_certificate(files.cert, certificate)
    _write_key(files.key, key)
    _write_certificate(files.other_ca, _authority("somebody else")[1])
    return files


def make_token(secret: bytes, role: str, end: float | None = None) -> str:
    """A JWT for ``role``, signed as the broker's ``tokenSecretKey`` demands (HS256); ``end`` in Unix time."""
    head = _segment(json.dumps({"alg": "HS256", "typ": "JWT"}).encode())
    body = _segment(json.dumps({"sub": role} if end is None else {"sub": role, "exp": int(end)}).encode())
    signature = hmac.new(secret, f"{head}.{body}".encode(), hashlib.sha256).digest()
    return f"{head}.{body}.{_segment(signature)}"


def _segment(raw: bytes) -> str:
    return base64.urlsafe_b64encode(raw).rstrip(b"=").decode()


def _authority(common_name: str) -> tuple[EllipticCurvePrivateKey, x509.Certificate]:
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, common_name)])
    certificate = (
        _builder(name, name, key, key)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(
            x509.KeyUsage(
                digital_signature=True,
                key_cert_sign=True,
                crl_sign=True,
                content_commitment=False,
                key_encipherment=False,
                data_encipherment=False,
                key_agreement=False,
                encipher_only=False,
                decipher_only=False,
            ),
            critical=True,
        )
        .sign(key, hashes.SHA256())
    )
    return key, certificate


def _builder(
    subject: x509.Name, issuer: x509.Name, key: EllipticCurvePrivateKey, signer: EllipticCurvePrivateKey
) -> x509.CertificateBuilder:
    """A certificate that names both keys: Python takes no other from 3.13 on."""
    now = datetime.datetime.now(datetime.UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(days=1))
        .not_valid_after(now + datetime.timedelta(days=30))
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(signer.public_key()), critical=False)
    )


def _write_key(path: Path, key: EllipticCurvePrivateKey) -> None:
    path.write_bytes(
        key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    )


def _write_certificate(path: Path, certificate: x509.Certificate) -> None:
    path.write_bytes(certificate.public_bytes(serialization.Encoding.PEM))
