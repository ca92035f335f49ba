"""End-to-end encryption of entries: AES-256-GCM under a data key that is wrapped for RSA keys (spec: pulsar 12).

A producer encrypts the compressed payload of each entry, and each part of a chunked message, under one data key with
an initialisation vector of its own. The data key travels in every entry's metadata, wrapped by RSA-OAEP (SHA-1) once
for each public key. Keys of other kinds (ECIES, which only Java has) are not supported.

Data keys and vectors are arguments, as all randomness is. Only the padding of a wrapped key is random by itself; the
package draws it.
"""

import hashlib
from collections import OrderedDict
from collections.abc import Iterable, Mapping
from typing import Self

from cryptography.exceptions import InvalidTag, UnsupportedAlgorithm
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import padding, rsa
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.serialization import load_pem_private_key, load_pem_public_key

from fastwire.errors import CorruptEntryError
from fastwire.pulsar import pulsar_pb2 as pb
from fastwire.pulsar.format.payload import text_of
from fastwire.reason import Reason

DATA_KEY_BYTES = 32
IV_BYTES = 12
TAG_BYTES = 16
# Producers change their data key every four hours; a thousand keys cover all producers of that time.
MOST_DATA_KEYS = 1000
MOST_KEYS_TRIED = 16  # per entry: each costs a millisecond, and an entry has room for thousands

# The protocol fixes SHA-1. It is safe here: OAEP does not rely on collision resistance.
_OAEP = padding.OAEP(mgf=padding.MGF1(hashes.SHA1()), algorithm=hashes.SHA1(), label=None)


class Encryptor:
    """The producer side: one data key, wrapped for every public key. Make a new object to change the data key.

    ``public_keys`` are PEM texts by the name under which readers find the private half. Raises ValueError for a key
    that is not an RSA public key in PEM; the message does not contain the key.
    """

    def __init__(self, public_keys: Mapping[str, bytes], data_key: bytes) -> None:
        if len(data_key) != DATA_KEY_BYTES:
            raise ValueError(f"a data key has {DATA_KEY_BYTES} bytes, not {len(data_key)}")
        if not public_keys:
            raise ValueError("encryption needs at least one public key")
        self._cipher = AESGCM(data_key)
        self._wrapped = [
            pb.EncryptionKeys(key=name, value=_public_key(name, pem).encrypt(data_key, _OAEP))
            for name, pem in public_keys.items()
        ]

    @classmethod
    def _again(cls, cipher: AESGCM, wrapped: Iterable[pb.EncryptionKeys]) -> Self:
        """Return an encryptor for a data key that another producer has wrapped."""
        again = cls.__new__(cls)
        again._cipher = cipher
        again._wrapped = list(wrapped)
        return again

    def __repr__(self) -> str:
        return f"Encryptor({', '.join(key.key for key in self._wrapped)})"

    def encrypt(self, metadata: pb.MessageMetadata, payload: bytes, iv: bytes) -> bytes:
        """Return ``payload`` (already compressed) encrypted, and add the encryption fields to ``metadata``.

        ``iv`` is 12 bytes never used with this data key before: a repeated vector discloses both payloads.
        """
        if len(iv) != IV_BYTES:
            raise ValueError(f"an initialisation vector has {IV_BYTES} bytes, not {len(iv)}")
        del metadata.encryption_keys[:]
        metadata.encryption_keys.extend(self._wrapped)
        metadata.encryption_param = iv
        return self._cipher.encrypt(iv, payload, None)


class Decryptor:
    """The reader side: private keys by name, and the data keys unwrapped with them.

    ``private_keys`` are PEM texts (PKCS#1 or PKCS#8, without a pass phrase). Raises ValueError for a key that is not an
    RSA private key in PEM; the message does not contain the key.
    """

    def __init__(self, private_keys: Mapping[str, bytes]) -> None:
        self._private = {name: _private_key(name, pem) for name, pem in private_keys.items()}
        # By a digest of the key's name and wrapped form; None if the private key does not unwrap it.
        self._opened: OrderedDict[bytes, AESGCM | None] = OrderedDict()

    def __repr__(self) -> str:
        return f"Decryptor({', '.join(self._private)})"

    def decrypt(self, metadata: pb.MessageMetadata, payload: bytes | memoryview) -> bytes:
        """Return the decrypted payload; any one of the entry's keys suffices.

        Raises CorruptEntryError with reason DecryptionError if no private key fits, or the payload is damaged.
        """
        iv = metadata.encryption_param
        if len(iv) != IV_BYTES:
            raise _failed(f"an initialisation vector of {len(iv)} bytes, {IV_BYTES} are needed")
        if len(payload) < TAG_BYTES:
            raise _failed(f"{len(payload)} bytes of ciphertext, the tag alone has {TAG_BYTES}")
        known = self._known(metadata)
        if not known:
            wanted = ", ".join(sorted({text_of(key.key) for key in metadata.encryption_keys[:MOST_KEYS_TRIED]}))
            raise _failed(f"it is encrypted for {wanted or 'no key'}, of which no private key is given")
        opened = False
        for key in known:
            cipher = self._data_key(key.key, key.value)
            if cipher is None:
                continue
            opened = True
            try:
                return cipher.decrypt(iv, payload, None)
            except InvalidTag:
                continue
        names = ", ".join(sorted({key.key for key in known}))
        if opened:
            raise _failed(f"the payload does not fit the data key that {names} opens")
        raise _failed(f"the private key of {names} does not open the data key")

    def encryptor(self, metadata: pb.MessageMetadata) -> Encryptor:
        """Return an encryptor with the data key of an entry, so that the readers of that entry can decrypt its output.

        Raises CorruptEntryError with reason DecryptionError if no private key fits.
        """
        for key in self._known(metadata):
            cipher = self._data_key(key.key, key.value)
            if cipher is not None:
                return Encryptor._again(cipher, metadata.encryption_keys)
        raise _failed("no private key opens the data key")

    def _known(self, metadata: pb.MessageMetadata) -> list[pb.EncryptionKeys]:
        return [key for key in metadata.encryption_keys if key.key in self._private][:MOST_KEYS_TRIED]

    def _data_key(self, name: str, wrapped: bytes) -> AESGCM | None:
        digest = hashlib.sha256(b"%d %b %b" % (len(name), name.encode(), wrapped)).digest()
        if digest in self._opened:
            self._opened.move_to_end(digest)
            return self._opened[digest]
        cipher: AESGCM | None = None
        try:
            cipher = AESGCM(self._private[name].decrypt(wrapped, _OAEP))
        except ValueError:
            pass  # not wrapped for this key, or not an AES key
        self._opened[digest] = cipher
        if len(self._opened) > MOST_DATA_KEYS:
            self._opened.popitem(last=False)
        return cipher


def _failed(detail: str) -> CorruptEntryError:
    return CorruptEntryError(Reason.DECRYPTION, detail)


def _public_key(name: str, pem: bytes) -> rsa.RSAPublicKey:
    try:
        key = load_pem_public_key(pem)
    except (ValueError, UnsupportedAlgorithm):
        raise ValueError(f"the public key {name!r} is not in PEM") from None
    if not isinstance(key, rsa.RSAPublicKey):
        raise ValueError(f"the public key {name!r} is not an RSA key; no other kind is supported")
    return key


def _private_key(name: str, pem: bytes) -> rsa.RSAPrivateKey:
    try:
        key = load_pem_private_key(pem, password=None)
    except TypeError:
        raise ValueError(f"the private key {name!r} is under a pass phrase") from None
    except (ValueError, UnsupportedAlgorithm):
        raise ValueError(f"the private key {name!r} is not in PEM") from None
    if not isinstance(key, rsa.RSAPrivateKey):
        raise ValueError(f"the private key {name!r} is not an RSA key; no other kind is supported")
    return key
