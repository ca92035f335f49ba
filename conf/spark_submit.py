"""The command ``fastwire-consume spark`` for ``spark-submit``: ``spark-submit [OPTIONS] spark_submit.py CONFIG``."""

import sys

from fastwire_daemon.cli.app import main

if __name__ == "__main__":
    sys.argv.insert(1, "spark")
    main()
