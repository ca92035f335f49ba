"""Build of the toy system, as anybody would build a system outside of fastwire: one extension, one registration."""

from pathlib import Path

from Cython.Build import cythonize
from setuptools import Extension, setup

import fastwire

BUILD = "../../build/toy"
WIRE = Path(fastwire.__file__).with_name("wire")

setup(
    name="fastwire-toy",
    version="1",
    packages=["fastwire_toy"],
    ext_modules=cythonize(
        [Extension("fastwire_toy.scan", ["fastwire_toy/scan.pyx"], include_dirs=[str(WIRE)])],
        include_path=[str(WIRE.parent.parent)],
        build_dir=f"{BUILD}/cython",
        compiler_directives={"language_level": "3"},
    ),
    options={"build": {"build_base": BUILD}},
    entry_points={"fastwire.systems": ["toy = fastwire_toy"]},
)
