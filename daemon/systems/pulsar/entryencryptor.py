"""Encryption of produced entries: a data key that changes every few hours, and a new vector for each entry."""

import secrets
import time
from collections.abc import Callable, Mapping

from fastwire.pulsar import pulsar_pb2 as pb
from fastwire.pulsar.format.payload import Encrypt
from fastwire.pulsar.reading.encryption import DATA_KEY_BYTES, IV_BYTES, Decryptor, Encryptor

KEY_AGE_S = 4 * 3600.0


class EntryEncryptor:
    """Encryption for ``ProducerSettings.encrypt``. ``public_keys`` are PEM texts by the key names that readers use.

    Raises ValueError for a key that is no RSA public key.
    """

    def __init__(self, public_keys: Mapping[str, bytes], clock: Callable[[], float] = time.monotonic) -> None:
        self._public_keys = dict(public_keys)
        self._clock = clock
        self._renew()

    def __call__(self, metadata: pb.MessageMetadata, payload: bytes) -> bytes:
        """Encrypt one payload, and describe the encryption in ``metadata``."""
        if self._clock() - self._made_at >= KEY_AGE_S:
            self._renew()
        return self._encryptor.encrypt(metadata, payload, secrets.token_bytes(IV_BYTES))

    def _renew(self) -> None:
        self._encryptor = Encryptor(self._public_keys, secrets.token_bytes(DATA_KEY_BYTES))
        self._made_at = self._clock()


def encrypt_again(decryptor: Decryptor, entry: pb.MessageMetadata) -> Encrypt:
    """Return an encryption with the data key of ``entry``, for its readers. Raises CorruptEntryError without a key."""
    encryptor = decryptor.encryptor(entry)

    def seal(metadata: pb.MessageMetadata, payload: bytes) -> bytes:
        return encryptor.encrypt(metadata, payload, secrets.token_bytes(IV_BYTES))

    return seal
