"""What can be said of a configuration before it runs: promises, files it needs, folders it writes to."""

import os
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from shutil import which

from .auth import AuthError, BasicCredentials, credentials
from .config import (
    Config,
    ConfigError,
    EncryptionConfig,
    SinkConfig,
    SourceConfig,
    SparkConfig,
    SparkSource,
    TlsConfig,
)
from .config.systems import PULSAR, system_of
from .pulsar.settings import decryptor
from .tls import client_context

__all__ = ["CheckResult", "folder_checks", "promise", "spark_checks", "static_checks"]


@dataclass(frozen=True, slots=True)
class CheckResult:
    """One thing that was looked at: ``what`` in a word or two, ``detail`` in a sentence for a person."""

    pipeline: str
    what: str
    ok: bool
    detail: str


def promise(sink: SinkConfig) -> str:
    """Say what a crash at any instant may do to the records on their way into ``sink``."""
    if sink.is_dataset:
        return "exactly once: files and positions are one commit"
    if sink.type == "stdout":
        return "at least once: stdout has no log, what was not acknowledged comes again after a crash"
    if sink.type == "discard":
        return "none: discard acknowledges records and throws them away"
    return (
        f"at least once, unless {sink.type} keeps positions itself: what was not acknowledged comes again after a crash"
    )


def static_checks(config: Config) -> list[CheckResult]:
    """Check what can be checked without a broker and without writing anything: promises, tokens, certificates."""
    results = []
    for name, pipeline in config.pipelines.items():
        results.append(CheckResult(name, "promise", True, promise(pipeline.sink)))
        results += _source(name, pipeline.source)
    for name, job in config.spark.items():
        results += _job(f"spark.{name}", job)
    return results


def _source(name: str, source: SourceConfig | SparkSource) -> list[CheckResult]:
    """Who we are to the brokers, and what files are needed for it."""
    results = []
    if source.auth.given:
        results.append(_auth(name, source))
    if source.url is not None and source.url.tls:
        results.append(_tls(name, source.tls))
    if source.encryption.private_keys:
        results.append(_encryption(name, source.encryption))
    return results


def _job(name: str, job: SparkConfig) -> list[CheckResult]:
    """What can be said of a job without Spark; `fastwire-consume spark --dry-run` says the rest."""
    promise = (
        "exactly once: rows and the number of the batch are one commit"
        if job.output.format == "dataset"
        else "exactly once in the end: a listing may see part of a batch while it is written"
    )
    results = [CheckResult(name, "promise", True, promise), *_source(name, job.source)]
    if job.decode.definition is not None:
        path = job.decode.definition
        try:
            size = len(path.read_bytes())
        except OSError as exc:
            results.append(CheckResult(name, "schema", False, f"{path}: {exc.strerror}"))
        else:
            results.append(CheckResult(name, "schema", size > 0, f"{path}" if size else f"{path} is empty"))
    return results


def folder_checks(config: Config) -> list[CheckResult]:
    """Try in each dataset's folder what a commit does there: link, second link, rename, sync. Leaves nothing behind."""
    folders = [
        (name, pipeline.sink.path)
        for name, pipeline in config.pipelines.items()
        if pipeline.sink.is_dataset and pipeline.sink.path is not None
    ]
    for name, job in config.spark.items():
        folders += [(f"spark.{name}", job.output.path), (f"spark.{name}", job.output.quarantine)]
    return [_folder(name, path) for name, path in folders]


def spark_checks(config: Config) -> list[CheckResult]:
    """Whether jobs could run on this machine."""
    missing = [module for module in ("pyspark", "pandas") if find_spec(module) is None]
    if which("java") is None and "JAVA_HOME" not in os.environ:
        missing.append("java")
    detail = f"not there: {', '.join(missing)} (pip install '.[spark]', and Java 17)"
    found = "PySpark and Java are there"
    return [CheckResult(f"spark.{name}", "spark", not missing, detail if missing else found) for name in config.spark]


def _auth(pipeline: str, source: SourceConfig | SparkSource) -> CheckResult:
    try:
        found = credentials(source.auth)
        said = found.check()
        if isinstance(found, BasicCredentials) and system_of(source.url) is PULSAR:
            found.pair()
        return CheckResult(pipeline, "auth", True, said)
    except AuthError as exc:
        return CheckResult(pipeline, "auth", False, str(exc))


def _tls(pipeline: str, tls: TlsConfig) -> CheckResult:
    try:
        client_context(tls)
    except ConfigError as exc:
        return CheckResult(pipeline, "tls", False, str(exc))
    if not tls.verify:
        return CheckResult(pipeline, "tls", True, "encrypted, but verify = false: anybody could be the broker")
    return CheckResult(pipeline, "tls", True, f"the broker must be vouched for by {tls.ca or 'the system'}")


def _encryption(pipeline: str, encryption: EncryptionConfig) -> CheckResult:
    try:
        decryptor(encryption)
    except ConfigError as exc:
        return CheckResult(pipeline, "encryption", False, str(exc))
    return CheckResult(pipeline, "encryption", True, f"private keys found: {', '.join(encryption.private_keys)}")


def _folder(pipeline: str, path: Path) -> CheckResult:
    from .dataset.storage import probe  # not needed by those who check nothing

    refused = [check for check in probe(str(path)) if not check.ok]
    if refused:
        return CheckResult(pipeline, "folder", False, "; ".join(f"{check.check}: {check.detail}" for check in refused))
    return CheckResult(pipeline, "folder", True, f"{path} can hold a dataset")
