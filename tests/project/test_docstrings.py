"""Every public definition of the core has a docstring, in compiled modules too, and no docstring is a question."""

import importlib
import inspect
import pkgutil
import re
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest

import fastwire
from tests.support.source_tree import ROOT

MODULES = sorted(
    found.name
    for found in pkgutil.walk_packages(fastwire.__path__, "fastwire.")
    if not found.ispkg and not found.name.endswith("_pb2")
)
# A docstring that begins like this names a question in place of its answer.
QUESTIONS = ("What ", "Who ", "Whose ", "Which ", "Whether ", "How ", "Where ")


def definitions(module: ModuleType) -> Iterator[tuple[str, str | None]]:
    """Yield the module and its public classes, functions, methods and properties, with their own docstrings."""
    yield module.__name__, module.__doc__
    for name, found in vars(module).items():
        if name.startswith("_") or getattr(found, "__module__", None) != module.__name__:
            continue
        if inspect.isclass(found):
            yield f"{module.__name__}.{name}", found.__doc__
            for member, of in vars(found).items():
                if not member.startswith("_") and (inspect.isroutine(of) or is_property(module, member, of)):
                    yield f"{module.__name__}.{name}.{member}", of.__doc__
        elif inspect.isroutine(found):
            yield f"{module.__name__}.{name}", found.__doc__


def is_property(module: ModuleType, name: str, member: object) -> bool:
    """Tell a property from a plain attribute; in a compiled class both are descriptors, so the source decides."""
    if isinstance(member, property):
        return True
    source = Path(str(module.__file__)).with_name(module.__name__.rpartition(".")[2] + ".pyx")
    return inspect.isgetsetdescriptor(member) and f"@property\n    def {name}(" in source.read_text()


@pytest.mark.parametrize("name", MODULES)
def test_public_definitions_say_what_they_are(name: str) -> None:
    for where, text in definitions(importlib.import_module(name)):
        assert text and text.strip(), where
        assert not text.startswith(QUESTIONS), f"{where}: {text.splitlines()[0]}"


def test_docstrings_are_no_questions() -> None:
    """Those of the daemon, the tests and the benches too."""
    question = re.compile(rf'(?:\A|:\n) *r?"""((?:{"|".join(QUESTIONS)}).*)')
    assert question.findall('"""What a module.\nclass Place:\n    """How it is.') == ["What a module.", "How it is."]
    wrong = []
    for folder in ("fastwire", "daemon", "pyspark_fastwire", "bench", "docs", "release", "tests"):
        for path in sorted((ROOT / folder).rglob("*.py")):
            found = question.findall(path.read_text(encoding="utf-8"))
            wrong += [f"{path.relative_to(ROOT)}: {line}" for line in found]
    assert not wrong, "\n".join(wrong)
