"""The Spark of the tests: an installed PySpark, whose Python workers start in a third of the time."""

import shutil
from importlib.machinery import PathFinder
from importlib.metadata import distributions
from pathlib import Path
from tempfile import mkdtemp

FOLDER = Path(__file__).parents[2] / "build" / "spark-homes"


def spark_home(*places: str) -> str | None:
    """Return the folder that SPARK_HOME is to name; None if PySpark is not installed.

    ``places`` are the folders in which PySpark is looked for, by default those of this Python. The folder that is
    returned has all of PySpark but the archive of it, from which Spark has its Python workers import: 1.4 s of CPU for
    each, 0.5 s from the package with its byte code. Spark waits ten seconds for some of them, which is too little on
    a busy machine, and has no setting for it.
    """
    spec = PathFinder.find_spec("pyspark", list(places) or None)
    if spec is None or spec.origin is None:
        return None
    package = Path(spec.origin).parent
    (version,) = {each.version for each in distributions(name="pyspark", path=[str(package.parent)])}
    home = FOLDER / version
    if not home.exists():
        FOLDER.mkdir(parents=True, exist_ok=True)
        made = Path(mkdtemp(dir=FOLDER))
        (made / "python").mkdir()
        for each in (*package.iterdir(), *(package / "python").iterdir()):
            if each.name not in ("python", "lib"):
                (made / each.relative_to(package)).symlink_to(each)
        try:
            made.rename(home)
        except OSError:  # another process was first
            shutil.rmtree(made)
    return str(home)
