"""Consumers in other languages, beside which we are measured. Their sources are in ``bench/peers``.

Each function returns a command, or None where its compiler is missing or what it needs cannot be fetched, which is
said aloud. Programs are compiled once, into ``build/peers``.
"""

import os
import shlex
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from tests.brokers.maven import BrokerUnavailableError, cached_jars, java_executable, pom
from tests.brokers.pulsar import VERSION

from .child import ROOT

SOURCES = ROOT / "bench" / "peers"
BUILD = ROOT / "build" / "peers"
FRANZ = "github.com/twmb/franz-go@v1.20.6"
CARGO = """\
[package]
name = "peer"
version = "0.0.0"
edition = "2021"

[[bin]]
name = "peer"
path = "pulsar.rs"

[dependencies]
futures = "0.3"
libc = "0.2"
pulsar = { version = "6", default-features = false, features = ["tokio-runtime", "compression"] }
tokio = { version = "1", features = ["rt-multi-thread", "macros"] }
"""
JAVA = pom(
    "pulsar-client",
    f"""\
    <dependency>
      <groupId>org.apache.pulsar</groupId><artifactId>pulsar-client</artifactId><version>{VERSION}</version>
    </dependency>
    <dependency><groupId>org.slf4j</groupId><artifactId>slf4j-nop</artifactId><version>2.0.13</version></dependency>
""",
)


def franz_go() -> list[str] | None:
    """Franz-go, for Kafka, by Go."""
    steps = [["go", *step.split()] for step in (f"get {FRANZ}", "mod tidy", "build -o peer .")]
    return _compiled("franz-go", "kafka.go", {"go.mod": "module peer\n"}, steps, "peer")


def pulsar_peers() -> dict[str, list[str]]:
    """The clients for Java and Rust that are here, by name."""
    found = {"Java client": _java(), "Rust client": _rust()}
    return {who: command for who, command in found.items() if command is not None}


def _rust() -> list[str] | None:
    """The crate ``pulsar``, by Cargo. It compiles Pulsar's messages with the protoc of ``make proto``."""
    protoc = BUILD / "protoc"
    BUILD.mkdir(parents=True, exist_ok=True)
    path, python = shlex.quote(str(ROOT / "build" / "protoc")), shlex.quote(sys.executable)
    protoc.write_text(f'#!/bin/sh\nPYTHONPATH={path} exec {python} -m grpc_tools.protoc "$@"\n', encoding="utf-8")
    protoc.chmod(0o755)
    steps = [["cargo", "build", "--release", "--quiet"]]
    return _compiled(
        "Pulsar's Rust client", "pulsar.rs", {"Cargo.toml": CARGO}, steps, "target/release/peer", PROTOC=str(protoc)
    )


def _java() -> list[str] | None:
    """Pulsar's Java client, by a JDK and Maven."""
    try:
        java = java_executable()
        jars = cached_jars("pulsar-client", JAVA)
    except BrokerUnavailableError as reason:
        print(f"Pulsar's Java client is left out: {reason}", file=sys.stderr)
        return None
    if shutil.which("javac") is None:
        print("Pulsar's Java client is left out: no JDK, only a JRE", file=sys.stderr)
        return None
    return [java, "-cp", f"{jars}/*", str(SOURCES / "Pulsar.java")]


def _compiled(
    who: str, source: str, files: Mapping[str, str], steps: Sequence[Sequence[str]], program: str, **environment: str
) -> list[str] | None:
    folder = BUILD / Path(source).stem
    found = folder / program
    if found.exists() and found.stat().st_mtime > (SOURCES / source).stat().st_mtime:
        return [str(found)]
    folder.mkdir(parents=True, exist_ok=True)
    shutil.copy(SOURCES / source, folder)
    for name, text in files.items():
        (folder / name).write_text(text, encoding="utf-8")
    for step in steps:
        if shutil.which(step[0]) is None:
            print(f"{who} is left out: no {step[0]}", file=sys.stderr)
            return None
        done = subprocess.run(step, cwd=folder, capture_output=True, text=True, env={**os.environ, **environment})
        if done.returncode:
            print(f"{who} is left out: {shlex.join(step)} failed: {done.stderr[-500:]}", file=sys.stderr)
            return None
    return [str(found)]
