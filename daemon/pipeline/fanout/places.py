"""The datasets of a fan-out: their names, those that exist, and their sinks."""

from collections import Counter
from collections.abc import Callable
from typing import NamedTuple

from fastwire.coverage import Coverage

from ...config import PipelineConfig
from ...config.sinks.topicplaces import config_of_every_topic, config_of_topic, dataset_name, name_key
from ...dataset.roots import standings
from ...runtime.errors import DatasetMismatchError
from ...sinks.base import LoggedSink, Sink


class Found(NamedTuple):
    """The datasets that exist: the name of the cluster for new ones, and what has landed in all together."""

    cluster: str
    coverage: Coverage
    datasets: int = 0
    errors: tuple[str, ...] = ()


class Places:
    """The datasets of a pipeline's configuration; ``sink_of`` makes the sink of the configuration of one topic.

    Making it raises ConfigError if no topic can have a sink.
    """

    def __init__(self, config: PipelineConfig, sink_of: Callable[[PipelineConfig], Sink]) -> None:
        self._config = config
        self._sink_of = sink_of
        self._cluster: str | None = None  # the name that new datasets get
        self._names: dict[str, str] = {}
        self._alike: dict[str, set[str]] = {}  # topics of this run by the key of the name
        self._owners: dict[str, str] = {}  # topics by the key of the name, of datasets that exist
        sample = sink_of(config_of_every_topic(config))
        assert isinstance(sample, LoggedSink), "only datasets are by topic"
        self.needed_columns = sample.needed_columns
        """The columns that chunks must have."""

    def name(self, topic: str) -> str:
        """Return the name of the dataset of ``topic``, which counts among the topics from now on."""
        name = self._names.get(topic)
        if name is None:
            name = self._names[topic] = dataset_name(topic, self._config.sink.names)
            self._alike.setdefault(name_key(name), set()).add(topic)
        return name

    def make_sink(self, topic: str) -> Sink:
        """Make the sink of ``topic``. Raises ConfigError."""
        return self._sink_of(config_of_topic(self._config, topic, self._cluster))

    def find(self) -> Found:
        """Find the datasets, and read what has landed in them. It blocks. Raises OSError, FastwireError."""
        coverage, clusters, errors = Coverage(), Counter[str](), []
        found = standings(self._config.sink)
        for each in found:
            if each.error:
                errors.append(f"{each.place}: {each.error}")
            if each.description is not None:
                clusters[each.description.cluster] += 1
            coverage.update(each.landed.coverage)
            for topic in {log.topic for log in each.landed.coverage.logs()}:
                self._owners[name_key(dataset_name(topic, self._config.sink.names))] = topic
        # Logs carry one name of the cluster, which is that of a dataset as it was created.
        cluster = clusters.most_common(1)[0][0] if clusters else self._config.source.cluster_name
        self._cluster = cluster
        return Found(cluster, coverage, len(found), tuple(errors))

    def check(self, topic: str) -> None:
        """Raise DatasetMismatchError if the name of the dataset of ``topic`` is too much like that of another topic.

        The topic whose dataset exists keeps the name, else the first of the topics by the alphabet.
        """
        key = name_key(self.name(topic))
        owner = self._owners.get(key) or min(self._alike[key])
        if owner != topic:
            raise DatasetMismatchError(
                f"{topic} and {owner} would have datasets of one name for some stores and catalogs: {self.name(topic)} "
                f"and {self.name(owner)}. Give {topic} another name in sink.names"
            )
