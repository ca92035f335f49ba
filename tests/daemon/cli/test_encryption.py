"""Keys on the command line: ``produce`` encrypts for them, ``tail`` opens with them."""

import json
import subprocess
import sys
from pathlib import Path

from fastwire_daemon.devbroker.pulsar import PulsarDevBroker
from tests.daemon.cli.program import Run
from tests.support.rsa_keys import key_pair


def test_written_for_a_key_and_read_with_it(run: Run, broker: PulsarDevBroker, tmp_path: Path) -> None:
    broker.create_topic("locked")
    keys = key_pair("orders")
    public, private = tmp_path / "public.pem", tmp_path / "private.pem"
    public.write_bytes(keys.public)
    private.write_bytes(keys.private)
    program = [sys.executable, "-m", "fastwire_daemon.cli", "produce", broker.url, "locked"]
    written = subprocess.run(
        [*program, "--public-key", f"orders={public}"],
        input=b"one\ntwo\n",
        capture_output=True,
        timeout=60,
        check=False,
    )
    assert written.returncode == 0, written.stderr
    tail = ("tail", broker.url, "locked", "--from", "earliest", "--until-end")
    assert run(*tail, "--private-key", f"orders={private}", "--format", "raw") == (0, "one\ntwo\n", "")
    code, out, err = run(*tail)
    assert (code, out) == (1, "")
    assert "cannot be decrypted (it is encrypted for orders, of which no private key is given)" in err
    assert run(*tail, "--on-undecryptable", "discard") == (0, "", "")
    code, out, _ = run(*tail, "--on-undecryptable", "consume", "--format", "jsonl")
    assert code == 0
    assert "pulsar.encryption.key.orders" in {one["key"] for one in json.loads(out)["headers"]}


def test_keys_that_are_none(run: Run, broker: PulsarDevBroker, tmp_path: Path) -> None:
    code, _, err = run("tail", broker.url, "orders", "--private-key", "orders")
    assert (code, '"orders" is not NAME=FILE' in err) == (2, True)
    assert run("tail", broker.url, "orders", "--private-key", f"k={tmp_path}/missing")[0] == 78
    for more, said in (
        ((), "the key 'k' cannot be read"),
        (("--load", "5"), "generated records are not encrypted"),
    ):
        code, _, err = run("produce", broker.url, "orders", "--public-key", f"k={tmp_path}/missing", *more)
        assert (code, said in " ".join(err.split())) == (2, True), err
    for option, given in (("--private-key", f"k={tmp_path}/missing"), ("--on-undecryptable", "discard")):
        code, _, err = run("tail", "kafka://h", "orders", option, given)
        assert (code, f"for {option}: is not supported for kafka" in " ".join(err.split())) == (2, True), err
    code, _, err = run("produce", "kafka://h", "orders", "--public-key", f"k={tmp_path}/missing")
    assert (code, "Kafka has no encryption of records" in err) == (2, True), err
