"""What can go wrong with things durable, or configured. Each class is one decision of whoever catches it."""

from fastwire.errors import FastwireError

__all__ = [
    "ConfigurationRefused",
    "DatasetDamagedError",
    "DatasetError",
    "DatasetMismatchError",
    "Diverged",
    "FatalDiskError",
    "FencedError",
    "SinkDoneError",
    "SinkFailedError",
    "Superseded",
]


class ConfigurationRefused(FastwireError):  # noqa: N818 - what the peer did, named as its answer
    """The other side cannot serve what is configured, and trying again will not help (exit code 78)."""

    configuration = True


class Superseded(FastwireError):  # noqa: N818 - a fact about the roll, named as the contract names it
    """Another writer has landed some of what this roll holds: the roll is gone, call ``open`` again."""


class Diverged(FastwireError):  # noqa: N818 - a fact about the roll, too
    """The broker has lost some of what this roll holds: it is dropped, and what there is instead is read."""


class SinkFailedError(FastwireError):
    """The sink cannot go on with this roll (a failed fsync, a vanished folder): re-open as after a crash."""


class SinkDoneError(SinkFailedError):
    """Nobody takes what this sink gives any more; opening it again will not help, and nothing is wrong: end."""


class FatalDiskError(SinkFailedError):
    """The disk refused something that is never tried twice; what was not committed is void, ``open`` must follow."""


class FencedError(SinkFailedError):
    """Another process took this writer for dead and cleared its unfinished work away: ``open`` makes a new writer."""


class DatasetError(FastwireError):
    """The dataset cannot be used; opening it again will not help, a person must look."""


class DatasetMismatchError(DatasetError):
    """The dataset was created with other settings than the configured ones (exit code 78)."""


class DatasetDamagedError(DatasetError):
    """A file of the dataset's own log cannot be understood."""
