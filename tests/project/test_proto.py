"""The generated protobuf code is that of the committed definitions, and runs wherever we say it does."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from google.protobuf.descriptor import FieldDescriptor

from fastwire.pulsar import pulsar_pb2 as pb
from fastwire.tubemq import tubemq_pb2
from tests.support.source_tree import ROOT

PROTOC = ROOT / "build" / "protoc"
DEFINITIONS = sorted(path.relative_to(ROOT / "proto") for path in (ROOT / "proto").rglob("*.proto"))

UNUSED = re.compile("_FIELD_NUMBER: |^ *__slots__ = ")
"""Lines of the types that `make proto` leaves out."""

needs_protoc = pytest.mark.skipif(
    not PROTOC.exists(), reason="the pinned protobuf compiler is not there: make build/protoc/.made"
)


def run_with_oldest_protobuf(*arguments: str) -> None:
    """Run Python with the compiler's folder in front, which also holds the oldest runtime that we allow."""
    environment = os.environ | {"PYTHONPATH": os.fspath(PROTOC)}
    done = subprocess.run(
        [sys.executable, *arguments], cwd=ROOT, env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr


@needs_protoc
def test_committed_code_is_what_the_compiler_makes(tmp_path: Path) -> None:
    run_with_oldest_protobuf(
        "-m", "grpc_tools.protoc", "-I", "proto", f"--python_out={tmp_path}", f"--pyi_out={tmp_path}",
        *map(str, DEFINITIONS),
    )  # fmt: skip
    generated = {path.relative_to(tmp_path): path for path in tmp_path.rglob("*_pb2.py*")}
    assert len(generated) == 2 * len(DEFINITIONS) > 0
    for name, path in generated.items():
        made = [line for line in path.read_text().splitlines(keepends=True) if not UNUSED.search(line)]
        assert (ROOT / name).read_text() == "".join(made), f"{name} is out of date: run `make proto`"


def test_nothing_generated_has_lost_its_definition() -> None:
    generated = {path.relative_to(ROOT) for path in (ROOT / "fastwire").rglob("*_pb2.py")}
    assert generated == {path.with_name(f"{path.stem}_pb2.py") for path in DEFINITIONS}


@needs_protoc
def test_the_oldest_runtime_loads_the_generated_code() -> None:
    run_with_oldest_protobuf(
        "-W", "error", "-c",
        "import google.protobuf, tomllib\n"
        "from fastwire.pulsar import pulsar_pb2 as pb\n"
        "declared = tomllib.load(open('pyproject.toml', 'rb'))['project']['dependencies']\n"
        "assert any(f'protobuf>={google.protobuf.__version__},' in line for line in declared), declared\n"
        "assert pb.BaseCommand.FromString(b'\\x08\\x12').type == pb.BaseCommand.PING\n",
    )  # fmt: skip


def test_package_name_is_ours() -> None:
    """With the original name any other client in the same process would collide with us."""
    assert [each.DESCRIPTOR.package for each in (pb, tubemq_pb2)] == ["fastwire.pulsar", "fastwire.tubemq"]


def test_a_command_has_the_number_of_its_type() -> None:
    """The frame walkers find the command of a type by this rule. From 70 on are those that only newer brokers have."""
    types = {value.number for value in pb.BaseCommand.Type.DESCRIPTOR.values if value.number < 70}
    fields = [field for field in pb.BaseCommand.DESCRIPTOR.fields if field.number != 1]
    assert {field.number for field in fields} == types
    assert all(field.type == FieldDescriptor.TYPE_MESSAGE for field in fields)


def test_no_field_is_packed() -> None:
    """Java clients and brokers write and expect one tag per element."""
    names = [
        field.full_name
        for each in (pb, tubemq_pb2)
        for message in each.DESCRIPTOR.message_types_by_name.values()
        for field in message.fields
        if field.is_packed
    ]
    assert names == []
