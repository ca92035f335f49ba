"""The source of a job's rows: a landed dataset or the brokers, behind the same functions."""

from typing import Any

from ...config import SparkConfig, SparkDataset, SparkSource
from .checkpoint import landed_path
from .files import LandedFiles
from .landed import read_landed, stream_files, stream_landed
from .plan import Plan
from .planned import BrokerBatches, DatasetBatches, PlannedBatches


def stream_rows(session: Any, name: str, job: SparkConfig) -> Any:
    """Return a stream that has each row of the job ``name`` once; it ends if the job has no interval."""
    source = job.source
    if isinstance(source, SparkDataset):
        return stream_landed(session, source.dataset, source.max_files)
    from .direct import stream_brokers  # PySpark 4.0 and later

    landed = landed_path(job.output.checkpoint)
    return stream_brokers(session, name, source, landed, ends=job.trigger is None)


def batches_of(job: SparkConfig) -> PlannedBatches:
    """Return what says which records a batch of ``job`` has."""
    checkpoint = job.output.checkpoint
    if isinstance(job.source, SparkDataset):
        return DatasetBatches(checkpoint, job.source.dataset)
    return BrokerBatches(checkpoint)


def by_files(session: Any, plan: Plan, source: SparkSource) -> Plan:
    """Return ``plan`` with tasks that read landed files themselves."""
    if not isinstance(source, SparkDataset):
        return plan
    files = LandedFiles(plan.pieces, tuple(plan.dead[:-1]), plan.keyed is not None)
    return plan._replace(frame=stream_files(session, source.dataset, source.max_files), pieces=files.open)


def read_rows(session: Any, name: str, source: SparkSource) -> Any:
    """Return the existing rows as a batch frame. Moves no cursor."""
    if isinstance(source, SparkDataset):
        return read_landed(session, source.dataset)
    from .direct import read_brokers

    return read_brokers(session, name, source)
