"""The identity of the cluster whose records something holds; that of a dataset is in its description and later files.

The description never changes. A fact that it lacks is recorded in its own file, once, by the first writer: the hosts,
for a dataset that an older version made, and the cluster id that the brokers report.
"""

import os
from collections.abc import Callable, Collection
from dataclasses import replace
from typing import Protocol

import orjson

from fastwire.systems import grammar_named

from ..runtime.errors import DatasetDamagedError, DatasetMismatchError
from .description import DESCRIPTION, DatasetOptions, Description, read_description
from .place import storage_at
from .storage.base import Storage
from .storage.bucket import Bucket
from .storage.disk import Disk

HOSTS = "_fastwire/hosts.json"
CLUSTER_ID = "_fastwire/cluster_id.json"
ROUTING = "_fastwire/routing.json"
FORMAT = 1


class Origin:
    """Reads the description of a dataset, and compares its cluster with that of ``options``."""

    def __init__(self, storage: Storage, options: DatasetOptions) -> None:
        self._storage = storage
        self._options = options

    def look(self) -> Description | None:
        """Return the description with the facts recorded later; None if there is no dataset.

        Raises DatasetDamagedError, or DatasetMismatchError if the dataset was created with other settings or holds
        records of another cluster. If the cluster id is recorded, hosts are not compared: the id is compared when a
        broker reports it.
        """
        data = self._storage.read(DESCRIPTION)
        if data is None:
            return None
        description = read_description(data, self._storage.root)
        if not description.known_hosts:
            description = replace(description, hosts=self._recorded(HOSTS))
        description.check(self._options, self._storage.root)
        if not self._recorded(CLUSTER_ID):
            self._check_hosts(description)
        return description

    def record_hosts(self, temporary: Callable[[str], str]) -> None:
        """Record the hosts of ``options`` if the dataset has none. Raises like :meth:`look`."""
        description = self.look()
        if description is not None and self._options.hosts and not description.known_hosts:
            self._record(HOSTS, self._options.hosts, temporary("hosts"))
            self.look()  # another writer may have been first, with other hosts

    def identify(self, cluster_id: str, temporary: Callable[[str], str]) -> None:
        """Compare the cluster's id ("" if it has none) with the recorded one, or record it.

        Raises DatasetMismatchError.
        """
        known = self._recorded(CLUSTER_ID)
        if cluster_id and not known:
            self._record(CLUSTER_ID, (cluster_id,), temporary("cluster"))
            known = self._recorded(CLUSTER_ID)
        if known and not cluster_id:
            description = self.look()
            assert description is not None
            self._check_hosts(description)
        elif known:
            again = (
                "a new path. If the cluster has a new id and still holds the same records at the same offsets, remove "
                f"{self._storage.path(CLUSTER_ID)}"
            )
            refuse_other_id(self._what, known[0], cluster_id, self._options.hosts, again)

    @property
    def _what(self) -> str:
        return f"the dataset at {self._storage.root}"

    def _check_hosts(self, description: Description) -> None:
        known, options = description.known_hosts, self._options
        refuse_other_hosts(self._what, options.system, (description.cluster, known), options, "a new path")

    def routing(self, found: tuple[str, ...], temporary: Callable[[str], str]) -> tuple[str, ...]:
        """Return the recorded facts about the partitions of a target; the first call records ``found``."""
        if not self._recorded(ROUTING):
            self._record(ROUTING, found, temporary("routing"))
        return self._recorded(ROUTING)

    def _recorded(self, name: str) -> tuple[str, ...]:
        data = self._storage.read(name)
        if data is None:
            return ()
        try:
            value = orjson.loads(data)
            if value["format"] != FORMAT or not all(isinstance(each, str) for each in value["values"]):
                raise ValueError("unknown format")
            return tuple(value["values"])
        except (ValueError, KeyError, TypeError) as exc:
            raise DatasetDamagedError(
                f"{self._storage.path(name)} is damaged: {exc}. Restore it from a backup, or remove it: it is then "
                "recorded anew"
            ) from exc

    def _record(self, name: str, values: tuple[str, ...], temporary: str) -> None:
        self._storage.write_synced(temporary, orjson.dumps({"format": FORMAT, "values": values}))
        self._storage.put_new(temporary, name)
        self._storage.discard(temporary)


class Place(Protocol):
    """The cluster of a source as it is configured."""

    @property
    def cluster(self) -> str:
        """Its name."""

    @property
    def hosts(self) -> tuple[str, ...]:
        """Its addresses (``host:port``)."""


def refuse_other_hosts(what: str, system: str, known: tuple[str, Collection[str]], source: Place, instead: str) -> None:
    """Raise DatasetMismatchError if ``source`` leads to another cluster than that whose records ``what`` holds.

    ``known`` are the name and the hosts of the latter. It is the same if the names are, or one host is; ports that are
    usual for ``system`` count as one, because TLS changes them. ``instead`` names what another cluster can be given.
    """
    cluster, hosts = known
    if cluster == source.cluster or not source.hosts or not hosts:
        return
    usual = grammar_named(system).usual_ports
    if {_place(host, usual) for host in hosts} & {_place(host, usual) for host in source.hosts}:
        return
    raise DatasetMismatchError(
        f"{what} holds records of the cluster at {', '.join(hosts)}, but source.url leads to "
        f"{', '.join(source.hosts)}: positions of another cluster would count as committed, and their records would be "
        "acknowledged without being written. If it is the same cluster on other hosts, set source.cluster = "
        f'"{cluster}" in this pipeline, beside source.url, and leave it there; for another cluster use {instead}'
    )


def refuse_other_id(what: str, known: str, found: str, hosts: Collection[str], instead: str) -> None:
    """Raise DatasetMismatchError if the cluster at ``hosts`` has the id ``found``, and not that of the records held."""
    if known != found:
        raise DatasetMismatchError(
            f"{what} holds records of the cluster whose id is {known}, but that at {', '.join(hosts)} has the id "
            f"{found}: offsets of another cluster would count as committed, and their records would be skipped. "
            f"Correct source.url, or use {instead}"
        )


def _place(host: str, usual: Collection[int]) -> str:
    name, _, port = host.rpartition(":")
    return name.lower() if port.isdecimal() and int(port) in usual else host.lower()


def look_at(
    path: str | os.PathLike[str], options: DatasetOptions | None, medium: Disk | Bucket | None = None
) -> Description | None:
    """Read the description of the dataset at ``path`` as a writer with ``options`` does, without writing.

    Returns None if there is no dataset. Raises like :meth:`Origin.look`; without ``options`` nothing is compared.
    """
    storage = storage_at(path, medium, patient=False)
    if options is not None:
        return Origin(storage, options).look()
    data = storage.read(DESCRIPTION)
    return None if data is None else read_description(data, storage.root)
