"""Messages about a failed query."""

import pytest

from fastwire_daemon.spark.job.failure import cause, details, is_passing
from tests.spark.session import started

IN_DRIVER = """\
[PYTHON_STREAMING_DATA_SOURCE_RUNTIME_ERROR] Failed when Python streaming data source perform initialOffset: \
Traceback (most recent call last):
  File "runner.py", line 267, in main
    work()
    ^^^^^^
fastwire.errors.FastwireError: orders: there is no such topic
 SQLSTATE: 38000
=== Streaming Query ===
"""
IN_JAVA = """\
[STREAM_FAILED] Query [id = 1] terminated: No space left on device SQLSTATE: XXKST
=== Streaming Query ===
Current Committed Offsets: {}
\tat java.lang.Thread
"""
CHAINED = """\
Job aborted: org.apache.spark.api.python.PythonException: Traceback (most recent call last):
  File "a.py", line 1, in read
KeyError: 'x'

During handling of the above exception, another exception occurred:

Traceback (most recent call last):
ValueError: second

\tat org.apache.spark.api.python.BasePythonRunner
"""


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (IN_DRIVER, "FastwireError: orders: there is no such topic"),
        (CHAINED, "KeyError: 'x'"),
        ("[CANNOT] do: that\n\tat java", "RuntimeError: [CANNOT] do: that"),
        (IN_JAVA, "RuntimeError: [STREAM_FAILED] Query [id = 1] terminated: No space left on device SQLSTATE: XXKST"),
        (
            "x: Traceback (most recent call last):\nKeyboardInterrupt\n",
            "RuntimeError: x: Traceback (most recent call last): KeyboardInterrupt",
        ),
        ("Traceback (most recent call last):\n  File", "RuntimeError: Traceback (most recent call last): File"),
    ],
)
def test_the_first_cause_is_said(text: str, said: str) -> None:
    assert cause(RuntimeError(text)) == said


def test_what_spark_says_of_its_own_failures_is_kept() -> None:
    assert details(RuntimeError(IN_JAVA)) == IN_JAVA
    assert details(RuntimeError(IN_DRIVER)) == details(RuntimeError("a cause alone")) == ""


def test_what_is_spark_s_own_trouble_passes() -> None:
    assert is_passing(RuntimeError("org.apache.spark.SparkException: Python worker failed to connect back."))
    overflow = (
        "[STREAM_FAILED] Query [id = 1] terminated with exception: java.lang.StackOverflowError\n\tat java.util.regex"
    )
    assert is_passing(RuntimeError(overflow))
    assert not is_passing(RuntimeError(IN_DRIVER))


class Query:
    """A query that has ended, or goes on."""

    def __init__(self, error: str | None, progress: object = None) -> None:
        self.isActive = error is None
        self.lastProgress = progress
        self._error = error

    def exception(self) -> str | None:
        return self._error


@pytest.mark.parametrize(
    ("errors", "begun"),
    [
        (["Python worker failed to connect back.", None], 2),
        (["there is no such topic", None], 1),
        (["Python worker failed to connect back."] * 9, 4),
    ],
)
def test_tests_begin_a_query_again_only_for_a_process_that_did_not_come_up(
    errors: list[str | None], begun: int
) -> None:
    queries = [Query(error, {}) for error in errors]
    left = iter(queries)
    assert started(lambda: next(left)) is queries[begun - 1]
