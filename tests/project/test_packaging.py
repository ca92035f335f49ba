"""The installed distribution: from an sdist, as a wheel, in an environment that has nothing of this tree."""

import configparser
import importlib.metadata
import importlib.resources
import importlib.util
import os
import shutil
import subprocess
import sys
import tarfile
import venv
import zipfile
from importlib.machinery import EXTENSION_SUFFIXES
from pathlib import Path

import pytest

import fastwire
from release.dist import build_sdist, build_wheel, repair, try_wheel
from tests.support.source_tree import ROOT, sources

DISTRIBUTION = "fastwire-daemon"
# In the tree, and nobody else's business.
NOT_INSTALLED = ("daemon", "conf", "proto", "tests", "bench", "docs", "release")
EPOCH = 1_580_601_600  # 2020-02-02
GENERATED = (
    ".venv",
    ".git",
    "build",
    "dist",
    "demo-data",
    "__pycache__",
    "*.so",
    "*.egg-info",
    "*_cache",
    ".hypothesis",
)


def run(*command: str | Path, cwd: Path, **environment: str) -> str:
    kept = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "VIRTUAL_ENV")}
    done = subprocess.run(command, cwd=cwd, env=kept | environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, (done.stdout + done.stderr)[-3000:]
    return done.stdout


def copied(tree: Path, folder: Path) -> Path:
    """Copy a tree, without what was made or fetched in it, to a new folder in ``folder``."""
    return shutil.copytree(tree, folder / "fastwire", ignore=shutil.ignore_patterns(*GENERATED))


@pytest.fixture(scope="module")
def tree(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return copied(ROOT, tmp_path_factory.mktemp("tree"))


@pytest.fixture(scope="module")
def dist(tree: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the sdist of this tree, and the wheel that was built from that sdist."""
    target = tmp_path_factory.mktemp("dist")
    sdist = build_sdist(tree, target, epoch=EPOCH)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("FASTWIRE_BUILD", "quick")
        build_wheel(sys.executable, sdist, target, epoch=EPOCH)
    return target


@pytest.fixture(scope="module")
def wheel(dist: Path) -> list[str]:
    [path] = dist.glob("*.whl")
    return zipfile.ZipFile(path).namelist()


@pytest.fixture(scope="module")
def installed(dist: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The interpreter of a fresh environment with the wheel; the dependencies are those of the one we run in."""
    [path] = dist.glob("*.whl")
    folder = tmp_path_factory.mktemp("fresh") / "venv"
    venv.create(folder, symlinks=True)
    python = folder / "bin" / "python"
    site = Path(run(python, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))", cwd=folder).strip())
    run(sys.executable, "-m", "pip", "--python", python, "install", "-q", "--no-deps", "--no-index", path, cwd=folder)
    # A path in a .pth file is appended, so the wheel comes first; .pth files in there (our editable install) are inert.
    own = Path(pytest.__file__).parents[1]
    (site / "dependencies.pth").write_text(f"{own}\n")
    return python


@pytest.mark.packaging
def test_wheel_holds_three_packages_and_the_command(wheel: list[str]) -> None:
    tops = {name.split("/")[0] for name in wheel if ".dist-info/" not in name}
    assert tops == {"fastwire", "fastwire_daemon", "pyspark_fastwire", "fastwire_consume.py"}
    assert not [name for name in wheel if name.endswith((".pyx", ".c", ".pyc"))]


@pytest.mark.packaging
def test_wheel_holds_every_file_that_belongs_to_a_package(wheel: list[str]) -> None:
    wanted = {source.path.relative_to(ROOT) for source in sources(".py", ".pyi", ".pxd", ".h", ".typed", ".html")}
    wanted |= {path.relative_to(ROOT) for path in (ROOT / "conf").iterdir() if path.is_file()}
    folders = {"daemon": "fastwire_daemon", "conf": "fastwire_daemon/conf"}
    installed = {"/".join((folders.get(path.parts[0], path.parts[0]), *path.parts[1:])) for path in wanted}
    assert installed - set(wheel) == set()


@pytest.mark.packaging
def test_wheel_holds_every_compiled_module(wheel: list[str]) -> None:
    compiled = {name.partition(".")[0].replace("/", ".") for name in wheel if name.endswith(EXTENSION_SUFFIXES[0])}
    assert compiled == {source.module for source in sources(".pyx")}


@pytest.mark.packaging
def test_sdist_holds_what_a_clone_needs(dist: Path) -> None:
    [path] = dist.glob("*.tar.gz")
    with tarfile.open(path) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    wanted = {str(source) for source in sources(".py", ".pyi", ".pyx", ".pxd", ".h", ".typed")}
    wanted |= {"Makefile", "LICENSE", "README.md", "pyproject.toml", "setup.py", "tests/conftest.py", ".ci/missing"}
    wanted |= {str(path.relative_to(ROOT)) for path in (ROOT / "proto").rglob("*.proto")}
    wanted |= {str(path.relative_to(ROOT)) for path in (ROOT / "docs").rglob("*.md")}
    assert wanted - names == set()
    assert not [name for name in names if name.endswith((".so", ".c", ".pyc")) or name.startswith("build/")]


@pytest.mark.packaging
def test_the_sdist_holds_nothing_that_was_made_or_fetched(dist: Path) -> None:
    if not (ROOT / ".git").exists():
        pytest.skip("needs the repository")
    listed = subprocess.run(
        ("git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"),
        cwd=ROOT, capture_output=True, text=True, check=True,
    ).stdout.split("\0")  # fmt: skip
    [path] = dist.glob("*.tar.gz")
    with tarfile.open(path) as archive:
        names = {name.name.partition("/")[2] for name in archive.getmembers() if name.isfile()}
    added = {name for name in names - set(listed) if not name.startswith("fastwire_daemon.egg-info/")}
    assert added == {"PKG-INFO", "setup.cfg"}
    assert "LICENSE" in names


@pytest.mark.packaging
def test_the_same_source_gives_the_same_sdist(tree: Path, dist: Path, tmp_path: Path) -> None:
    """In another folder, and with files of another time and another mask."""
    other = copied(tree, tmp_path / "elsewhere")
    for path in other.rglob("*.py"):
        path.chmod(0o600)
        os.utime(path, (1e9, 1e9))
    again = build_sdist(other, tmp_path / "again", epoch=EPOCH)
    assert again.read_bytes() == (dist / again.name).read_bytes()


@pytest.mark.packaging
def test_the_wheel_has_the_licence_and_one_time(dist: Path) -> None:
    [path] = dist.glob("*.whl")
    with zipfile.ZipFile(path) as archive:
        entries = archive.infolist()
    assert any(entry.filename.endswith(".dist-info/licenses/LICENSE") for entry in entries)
    assert {entry.date_time for entry in entries} == {(2020, 2, 2, 0, 0, 0)}


@pytest.mark.packaging
def test_compiled_modules_name_no_folder_of_the_build(dist: Path) -> None:
    [path] = dist.glob("*.whl")
    with zipfile.ZipFile(path) as archive:
        told = [
            name for name in archive.namelist() if name.endswith(".so") and b"fastwire-wheel-" in archive.read(name)
        ]
    assert told == []


@pytest.mark.packaging
def test_the_wheel_becomes_one_for_many_linuxes(dist: Path, tmp_path: Path) -> None:
    [path] = dist.glob("*.whl")
    repaired = repair(path, tmp_path, epoch=EPOCH)
    assert "manylinux" in repaired.name
    assert repaired.name.startswith("fastwire_daemon-")


@pytest.mark.packaging
def test_the_installed_wheel_lands_records_without_a_compiler(installed: Path, tmp_path: Path) -> None:
    try_wheel(installed.with_name("fastwire-consume"), fastwire.__version__, tmp_path)


@pytest.mark.packaging
def test_every_module_imports_from_the_wheel(installed: Path, tmp_path: Path) -> None:
    modules = sorted({source.module for source in sources(".py", ".pyx")})
    if importlib.util.find_spec("pyspark") is None:  # an extra
        modules = [name for name in modules if "pyspark" not in name and not name.startswith("fastwire_daemon.spark.")]
    script = "import importlib, sys\nfor name in sys.argv[1:]: print(importlib.import_module(name).__file__)"
    files = run(installed, "-I", "-W", "error", "-c", script, *modules, cwd=tmp_path).splitlines()
    assert len(files) == len(modules)
    assert [file for file in files if not Path(file).is_relative_to(installed.parents[1])] == []


@pytest.mark.packaging
def test_nothing_else_became_importable(dist: Path, installed: Path, tmp_path: Path) -> None:
    """Without the borrowed dependencies: some of those do install a package called tests."""
    script = "import importlib.util, sys\nprint([n for n in sys.argv[1:] if importlib.util.find_spec(n)])"
    site = run(installed, "-I", "-c", "import fastwire; print(fastwire.__path__[0])", cwd=tmp_path).strip()
    names = ("fastwire", "fastwire_daemon", "pyspark_fastwire")
    found = run(sys.executable, "-S", "-c", script, *names, *NOT_INSTALLED,
                cwd=tmp_path, PYTHONPATH=os.fspath(Path(site).parent))  # fmt: skip
    assert found.strip() == str(list(names))


@pytest.mark.packaging
def test_the_command_and_the_samples_are_installed(installed: Path, tmp_path: Path) -> None:
    assert "run" in run(installed.with_name("fastwire-consume"), "--help", cwd=tmp_path)
    script = "from importlib.resources import files\nprint(*(f.name for f in files('fastwire_daemon.conf').iterdir()))"
    names = run(installed, "-I", "-c", script, cwd=tmp_path).split()
    assert {path.name for path in (ROOT / "conf").iterdir() if path.is_file()} <= set(names)


def test_samples_are_found_in_this_environment() -> None:
    names = {each.name for each in importlib.resources.files("fastwire_daemon.conf").iterdir()}
    assert "__init__.py" in names


def test_version_is_the_one_of_the_metadata() -> None:
    assert importlib.metadata.version(DISTRIBUTION) == fastwire.__version__


def test_every_entry_point_loads() -> None:
    own = importlib.metadata.distribution(DISTRIBUTION).entry_points
    assert {point.group for point in own} >= {"console_scripts", "fastwire.sinks", "fastwire.encoders"}
    for point in own:
        assert callable(point.load()), point.name


def test_unit_files_are_ini_files() -> None:
    for path in (ROOT / "conf").glob("*.service"):
        parser = configparser.ConfigParser(strict=False, interpolation=None)
        parser.optionxform = str  # type: ignore[assignment, method-assign]
        parser.read(path)
        assert {"Unit", "Service", "Install"} <= set(parser.sections())


@pytest.mark.packaging
def test_the_image_lands_records_with_a_read_only_root(dist: Path, tmp_path: Path) -> None:
    tool = next((name for name in ("podman", "docker") if shutil.which(name)), None)
    if tool is None or subprocess.run((tool, "info"), capture_output=True, check=False).returncode:
        pytest.skip("needs podman, or docker and its daemon")
    base = f"docker.io/library/python:{sys.version_info.major}.{sys.version_info.minor}-slim"
    if subprocess.run((tool, "pull", "-q", base), capture_output=True, check=False).returncode:
        pytest.skip(f"needs the image {base}")
    [wheel] = dist.glob("*.whl")
    for path in (ROOT / "Containerfile", ROOT / ".dockerignore", wheel):
        target = tmp_path / "dist" / path.name if path == wheel else tmp_path / path.name
        target.parent.mkdir(exist_ok=True)
        shutil.copy(path, target)
    version = f"PYTHON={sys.version_info.major}.{sys.version_info.minor}"
    run(tool, "build", "--build-arg", version, "-f", "Containerfile", "-t", "fastwire-tested", ".", cwd=tmp_path)
    shown = run(tool, "run", "--rm", "--read-only", "fastwire-tested", "demo", "--records", "2000", "--path", "landed",
                cwd=tmp_path)  # fmt: skip
    assert "2,000" in shown
