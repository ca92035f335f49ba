"""The failure of a pipeline, with the exit code of a process that runs only this one."""

from fastwire.errors import FastwireError

from ..runtime.errors import DatasetError, DatasetMismatchError
from ..systems.source import SourceFailed

EXIT_CONFIG = 78


class PipelineFailed(FastwireError):  # noqa: N818 - what happened to the pipeline; its cause is chained
    """The pipeline cannot continue. ``exit_code`` is the exit code for a process that runs only this pipeline."""

    def __init__(self, message: str, exit_code: int = 1) -> None:
        self.exit_code = exit_code
        super().__init__(message)


def failure_of(exc: Exception) -> PipelineFailed | None:
    """Return the failure that an error of the source, the sink or the dataset means; None for an internal error."""
    match exc:
        case PipelineFailed():
            return exc
        case DatasetMismatchError():
            return PipelineFailed(str(exc), EXIT_CONFIG)
        case SourceFailed():
            return PipelineFailed(str(exc), EXIT_CONFIG if exc.configuration else 1)
        case DatasetError():
            return PipelineFailed(str(exc))
    return None


def drained_without_commit(exc: Exception) -> PipelineFailed:
    """Return the failure of a drain whose last commit has failed."""
    return PipelineFailed(
        f"the drain has not committed its last records: {exc}; none are lost: they are not acknowledged, and the next "
        "start reads them again"
    )
