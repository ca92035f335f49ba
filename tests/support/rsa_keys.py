"""RSA key pairs for tests of encryption."""

from dataclasses import dataclass
from functools import cache

from cryptography.hazmat.primitives.asymmetric import rsa
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, PublicFormat


@dataclass(frozen=True, slots=True)
class Keys:
    """Both halves of a key as PEM texts."""

    name: str
    public: bytes
    private: bytes
    private_pkcs1: bytes


@cache
def key_pair(name: str) -> Keys:
    """A fresh key pair; the same one for the same name in one run."""
    key = rsa.generate_private_key(65537, 2048)
    return Keys(
        name,
        key.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo),
        key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()),
        key.private_bytes(Encoding.PEM, PrivateFormat.TraditionalOpenSSL, NoEncryption()),
    )
