"""The compiled modules, and the package of each folder."""

import os
import sys
from pathlib import Path

from Cython.Build import cythonize
from setuptools import Extension, find_packages, setup

SANITIZERS = ["-fsanitize=address,undefined", "-fno-sanitize-recover=undefined"]
# FASTWIRE_BUILD chooses; bounds checks are on in each. The sanitizer is built without freelists, because it cannot see
# the use of an object that is only parked. The quick one is for tests of the packages, not of what is in them.
FLAGS = {
    "release": ["-O3"],
    "quick": ["-O0"],
    "portable": ["-O0", "-DFW_PORTABLE"],  # without what only some processors have
    "debug": ["-O0", "-g3", "-UNDEBUG"],
    "asan": ["-O1", "-g", "-fno-omit-frame-pointer", "-DCYTHON_USE_FREELISTS=0", *SANITIZERS],
}
BUILD = os.environ.get("FASTWIRE_BUILD", "release")
if BUILD not in FLAGS:
    raise SystemExit(f"FASTWIRE_BUILD is {BUILD!r}, must be one of: {', '.join(FLAGS)}")

# Each build keeps its own objects, so that an editable install compiles only what has changed, whoever asks for it.
OBJECTS = f"build/{BUILD}/{sys.implementation.cache_tag}"

HEADERS = sorted(map(str, Path("fastwire").rglob("*.h")))
PYX = sorted([*Path("fastwire").rglob("*.pyx"), *Path("daemon").rglob("*.pyx")])
if not PYX:
    raise SystemExit("no .pyx files: this source tree is incomplete")


def module_name(path: Path) -> str:
    """The installed name: the folder ``daemon`` is the package ``fastwire_daemon``."""
    parts = path.with_suffix("").parts
    return ".".join(("fastwire_daemon", *parts[1:]) if parts[0] == "daemon" else parts)


EXTENSIONS = [
    Extension(
        module_name(path),
        [str(path)],
        include_dirs=["fastwire/wire"],
        depends=HEADERS,
        extra_compile_args=FLAGS[BUILD],
        extra_link_args=SANITIZERS if BUILD == "asan" else [],
    )
    for path in PYX
]
# Commands that compile nothing: translating all modules would take them half a minute.
if {"sdist", "egg_info", "dist_info"}.isdisjoint(sys.argv):
    EXTENSIONS = cythonize(
        EXTENSIONS,
        build_dir=f"build/{BUILD}/cython",
        compiler_directives={"language_level": "3", "embedsignature": True},
    )


setup(
    packages=[
        *find_packages(include=["fastwire", "fastwire.*"]),
        "fastwire_daemon",
        *(f"fastwire_daemon.{name}" for name in find_packages("daemon")),
        "fastwire_daemon.conf",
        "pyspark_fastwire",  # Spark looks for modules of such names
    ],
    py_modules=["fastwire_consume"],
    # Folders keep short names; installed names must not clash with others.
    package_dir={"fastwire_daemon": "daemon", "fastwire_daemon.conf": "conf"},
    package_data={
        "": ["py.typed", "*.pyi", "*.pxd", "*.h"],
        "fastwire_daemon.conf": ["*", "kubernetes/*"],
        "fastwire_daemon.service": ["*.html"],
    },
    ext_modules=EXTENSIONS,
    options={
        "build": {"build_lib": f"{OBJECTS}/lib"},
        "build_ext": {
            "build_lib": f"{OBJECTS}/lib",
            "build_temp": f"{OBJECTS}/temp",
            "parallel": str(len(os.sched_getaffinity(0))),
        },
    },
)
