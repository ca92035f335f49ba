"""A producer's encryption: every entry with a vector of its own, and a data key that does not grow old."""

import pytest
from cryptography.hazmat.primitives.asymmetric import rsa
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, PublicFormat

from fastwire.pulsar import pulsar_pb2 as pb
from fastwire.pulsar.reading.encryption import Decryptor
from fastwire_daemon.systems.pulsar.entryencryptor import KEY_AGE_S, EntryEncryptor


def test_a_new_data_key_every_few_hours_and_a_new_vector_each_time() -> None:
    key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
    public = key.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
    private = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    now = [0.0]
    seal, reader = EntryEncryptor({"k": public}, lambda: now[0]), Decryptor({"k": private})
    vectors, wrapped = set(), []
    for at in (0.0, KEY_AGE_S - 1, KEY_AGE_S, KEY_AGE_S + 1):
        now[0] = at
        metadata = pb.MessageMetadata()
        sealed = seal(metadata, b"payload")
        assert sealed != b"payload"
        assert reader.decrypt(metadata, sealed) == b"payload"
        vectors.add(metadata.encryption_param)
        wrapped.append(metadata.encryption_keys[0].value)
    assert len(vectors) == 4
    assert wrapped[0] == wrapped[1] != wrapped[2] == wrapped[3]


def test_a_key_that_is_none() -> None:
    with pytest.raises(ValueError, match="public key 'k'"):
        EntryEncryptor({"k": b"?"})
