"""The length of the campaigns of `make soak` in which daemons and brokers are killed."""

import os

__all__ = ["KILLS"]

KILLS = int(os.environ.get("FASTWIRE_KILLS", "200"))
