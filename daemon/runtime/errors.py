"""Errors of sinks, datasets and configuration. Each class stands for one decision of the code that catches it."""

from collections.abc import Callable, Mapping

from fastwire.errors import FastwireError
from fastwire.position import Log

from .health import StopReason


class ConfigurationRefused(FastwireError):  # noqa: N818 - what the peer did, named as its answer
    """The broker refuses the configuration, and a retry cannot help (exit code 78)."""

    configuration = True


class Superseded(FastwireError):  # noqa: N818 - a fact about the roll, named as the contract names it
    """Another writer has committed some records of this roll: the roll is void, ``open`` must be called again."""


class Diverged(FastwireError):  # noqa: N818 - a fact about the roll, too
    """The broker has lost some records of this roll: the roll is dropped, and the log is read again as it is now."""


class SinkFailedError(FastwireError):
    """The sink cannot continue this roll (a failed fsync, a missing folder): call ``open`` again, as after a crash."""


class SinkDoneError(SinkFailedError):
    """The reader of this sink's output has closed it. This is a normal end: opening the sink again cannot help."""


class NoRecordYet(FastwireError):  # noqa: N818 - a fact about the topics
    """The topics of a new dataset have no record to begin with. This is no failure: call ``open`` again later."""


class FatalDiskError(SinkFailedError):
    """The disk refused an operation that is never retried; the uncommitted roll is void, ``open`` must follow."""


class DatasetGoneError(SinkFailedError):
    """The dataset that this process has opened is not at its path now: ``open`` works when it is back."""


class DiskFullError(FatalDiskError):
    """The disk was full at an fsync, which cannot wait for space in place: ``open`` may help after a pause."""


class FolderRefusedError(FatalDiskError):
    """Some folders of a dataset cannot be created or written to, and a retry cannot help; other folders may work."""

    def __init__(self, reasons: Mapping[str, str]) -> None:
        self.reasons = reasons
        """The reason, by the folder's path within the dataset; "" is the dataset's root."""
        super().__init__("; ".join(dict.fromkeys(reasons.values())))


class LogRefusedError(SinkFailedError):
    """The sink can never write the records of some logs; it can continue without them."""

    def __init__(self, message: str, concerns: Callable[[Log], bool], reason: StopReason = "unwritable") -> None:
        self.concerns = concerns
        """Returns True for a log that the sink cannot write."""
        self.reason = reason
        super().__init__(message)


class FencedError(SinkFailedError):
    """Another process has fenced this writer and deleted its open roll: ``open`` makes a new writer."""


class DatasetError(FastwireError):
    """The dataset cannot be used; opening it again cannot help, an operator must repair it."""


class DatasetMismatchError(DatasetError):
    """The dataset was created with other settings than the configured ones (exit code 78)."""


class DatasetDamagedError(DatasetError):
    """The log cannot be decoded, or contradicts the files: the dataset was damaged, or restored in part."""
