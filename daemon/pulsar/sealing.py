"""Encrypting what a producer sends: a data key that is changed every few hours, a fresh vector for each entry."""

import secrets
import time
from collections.abc import Callable, Mapping

from fastwire.pulsar import pulsar_pb2 as pb
from fastwire.pulsar.encryption import DATA_KEY_BYTES, IV_BYTES, Encryptor

__all__ = ["Sealer"]

KEY_AGE_S = 4 * 3600.0


class Sealer:
    """What ``ProducerSettings.encrypt`` wants. ``public_keys`` are PEM texts by the name that readers know them by.

    Raises ValueError for a key that is no RSA public key.
    """

    def __init__(self, public_keys: Mapping[str, bytes], clock: Callable[[], float] = time.monotonic) -> None:
        self._public_keys = dict(public_keys)
        self._clock = clock
        self._renew()

    def __call__(self, metadata: pb.MessageMetadata, payload: bytes) -> bytes:
        """Encrypt one payload and say in ``metadata`` how."""
        if self._clock() - self._made_at >= KEY_AGE_S:
            self._renew()
        return self._encryptor.encrypt(metadata, payload, secrets.token_bytes(IV_BYTES))

    def _renew(self) -> None:
        self._encryptor = Encryptor(self._public_keys, secrets.token_bytes(DATA_KEY_BYTES))
        self._made_at = self._clock()
