"""Encrypted payloads: the specification's bytes, both directions, every way to be refused."""

import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec, rsa

from fastwire.errors import CorruptEntryError
from fastwire.pulsar import pulsar_pb2 as pb
from fastwire.pulsar.reading import encryption
from fastwire.pulsar.reading.encryption import Decryptor, Encryptor
from tests.support.rsa_keys import Keys, key_pair

DATA_KEY = bytes(range(32))
IV = bytes(range(0x64, 0x70))
PLAIN = b"secret payload"


@pytest.fixture(scope="module")
def alice() -> Keys:
    return key_pair("alice")


@pytest.fixture(scope="module")
def bob() -> Keys:
    return key_pair("bob")


def sealed(*keys: Keys, plain: bytes = PLAIN) -> tuple[pb.MessageMetadata, bytes]:
    metadata = pb.MessageMetadata(producer_name="p", sequence_id=1, publish_time=1)
    return metadata, Encryptor({each.name: each.public for each in keys}, DATA_KEY).encrypt(metadata, plain, IV)


def test_the_bytes_of_the_specification(alice: Keys) -> None:
    metadata, stored = sealed(alice)
    assert stored.hex() == "3b7ebd141c9d76ee5f1b3387bb01926029dbcfbffc1dbe3b223f89b2a699"  # spec: pulsar 28
    assert metadata.encryption_param == IV
    assert [key.key for key in metadata.encryption_keys] == ["alice"]
    assert DATA_KEY not in metadata.SerializeToString()


@pytest.mark.parametrize("form", ["pkcs8", "pkcs1"])
def test_any_of_several_keys_opens_it(alice: Keys, bob: Keys, form: str) -> None:
    metadata, stored = sealed(alice, bob)
    for keys in (alice, bob):
        pem = keys.private if form == "pkcs8" else keys.private_pkcs1
        assert Decryptor({keys.name: pem}).decrypt(metadata, memoryview(stored)) == PLAIN


def test_empty_payloads_are_encrypted_too(alice: Keys) -> None:
    metadata, stored = sealed(alice, plain=b"")
    assert len(stored) == 16
    assert Decryptor({"alice": alice.private}).decrypt(metadata, stored) == b""


def test_describing_again_replaces_what_was_there(alice: Keys) -> None:
    metadata = pb.MessageMetadata()
    encryptor = Encryptor({"alice": alice.public}, DATA_KEY)
    encryptor.encrypt(metadata, b"1", IV)
    stored = encryptor.encrypt(metadata, b"2", IV[::-1])
    assert len(metadata.encryption_keys) == 1
    assert Decryptor({"alice": alice.private}).decrypt(metadata, stored) == b"2"


def refused(decryptor: Decryptor, metadata: pb.MessageMetadata, stored: bytes) -> str:
    with pytest.raises(CorruptEntryError) as caught:
        decryptor.decrypt(metadata, stored)
    assert caught.value.reason == "DecryptionError"
    return caught.value.detail


def test_what_does_not_fit_is_refused_with_its_reason(alice: Keys, bob: Keys) -> None:
    metadata, stored = sealed(alice)
    assert "encrypted for alice" in refused(Decryptor({"bob": bob.private}), metadata, stored)
    assert "encrypted for alice" in refused(Decryptor({}), metadata, stored)
    # The right name with another's key.
    assert "does not open the data key" in refused(Decryptor({"alice": bob.private}), metadata, stored)
    ours = Decryptor({"alice": alice.private})
    for cut in range(len(stored)):
        refused(ours, metadata, stored[:cut])
    for place in range(len(stored)):
        flipped = bytearray(stored)
        flipped[place] ^= 1
        assert "does not fit the data key" in refused(ours, metadata, bytes(flipped))
    other = pb.MessageMetadata()
    other.CopyFrom(metadata)
    other.encryption_param = IV[::-1]
    assert "does not fit the data key" in refused(ours, other, stored)
    for length in (0, 11, 13, 1000):
        other.encryption_param = bytes(length)
        assert f"initialisation vector of {length} bytes" in refused(ours, other, stored)
    other.CopyFrom(metadata)
    other.encryption_keys[0].value = b"v"
    assert "does not open the data key" in refused(ours, other, stored)
    other.encryption_keys[0].value = b""
    refused(ours, other, stored)
    del other.encryption_keys[:]
    assert "no key" in refused(ours, other, stored)


def test_a_data_key_of_another_length_is_refused(alice: Keys) -> None:
    """RSA opens it, AES cannot use it."""
    metadata, stored = sealed(alice)
    public = serialization.load_pem_public_key(alice.public)
    assert isinstance(public, rsa.RSAPublicKey)
    for length in (0, 5, 33):
        metadata.encryption_keys[0].value = public.encrypt(bytes(length), encryption._OAEP)
        assert "does not open the data key" in refused(Decryptor({"alice": alice.private}), metadata, stored)


def test_a_wrapped_key_is_opened_once(alice: Keys, bob: Keys) -> None:
    """Unwrapping costs a millisecond, and every entry of a producer carries the same key."""
    opened = 0

    class Counting:
        def __init__(self, key: rsa.RSAPrivateKey) -> None:
            self._key = key

        def decrypt(self, wrapped: bytes, how: object) -> bytes:
            nonlocal opened
            opened += 1
            return self._key.decrypt(wrapped, encryption._OAEP)

    metadata, stored = sealed(alice)
    decryptor = Decryptor({"alice": alice.private})
    decryptor._private = {name: Counting(key) for name, key in decryptor._private.items()}  # type: ignore[misc]
    for _ in range(5):
        assert decryptor.decrypt(metadata, stored) == PLAIN
    assert opened == 1
    # What is not for us is remembered too, and what is remembered has an end.
    metadata.encryption_keys[0].value = Encryptor({"bob": bob.public}, DATA_KEY)._wrapped[0].value
    refused(decryptor, metadata, stored)
    refused(decryptor, metadata, stored)
    assert opened == 2
    for number in range(encryption.MOST_DATA_KEYS + 5):
        metadata.encryption_keys[0].value = b"%d" % number
        refused(decryptor, metadata, stored)
    assert len(decryptor._opened) == encryption.MOST_DATA_KEYS
    # A peer that lists our key very often does not keep us busy.
    del metadata.encryption_keys[:]
    metadata.encryption_keys.extend(pb.EncryptionKeys(key="alice", value=b"x%d" % place) for place in range(10_000))
    opened = 0
    refused(decryptor, metadata, stored)
    assert opened <= encryption.MOST_KEYS_TRIED


def pem_of_an_ec_key(public: bool) -> bytes:
    key = ec.generate_private_key(ec.SECP256R1())
    if public:
        return key.public_key().public_bytes(
            serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo
        )
    return key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )


def test_unusable_keys_are_named_and_not_shown(alice: Keys) -> None:
    loaded = serialization.load_pem_private_key(alice.private, None)
    locked = loaded.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.BestAvailableEncryption(b"phrase"),
    )
    for pem, what in (
        (b"not a key", "is not in PEM"),
        (alice.public, "is not in PEM"),
        (locked, "is under a pass phrase"),
        (pem_of_an_ec_key(public=False), "is not an RSA key"),
    ):
        with pytest.raises(ValueError, match=f"the private key 'k' {what}") as caught:
            Decryptor({"k": pem})
        assert caught.value.__cause__ is None and pem.decode()[:20] not in str(caught.value)
    for pem, what in ((b"", "is not in PEM"), (pem_of_an_ec_key(public=True), "is not an RSA key")):
        with pytest.raises(ValueError, match=f"the public key 'k' {what}"):
            Encryptor({"k": pem}, DATA_KEY)


def test_misuse_of_the_writing_side(alice: Keys) -> None:
    with pytest.raises(ValueError, match="32 bytes, not 16"):
        Encryptor({"alice": alice.public}, bytes(16))
    with pytest.raises(ValueError, match="at least one public key"):
        Encryptor({}, DATA_KEY)
    encryptor = Encryptor({"alice": alice.public}, DATA_KEY)
    with pytest.raises(ValueError, match="12 bytes, not 16"):
        encryptor.encrypt(pb.MessageMetadata(), PLAIN, bytes(16))
    assert repr(encryptor) == "Encryptor(alice)"
    assert repr(Decryptor({"alice": alice.private})) == "Decryptor(alice)"
