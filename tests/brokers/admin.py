"""The admin interface of a Pulsar broker, as far as tests need it."""

import json
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Mapping
from typing import Any

ADMIN = "/admin/v2"


class AdminError(RuntimeError):
    """The broker refused an admin call; ``status`` is the HTTP status."""

    def __init__(self, status: int, what: str) -> None:
        super().__init__(f"HTTP {status}: {what}")
        self.status = status


class PulsarAdmin:
    """Blocking calls; topics are named in any of Pulsar's forms, ``persistent://public/default/`` being optional."""

    def __init__(self, web_url: str, token: str | None = None) -> None:
        self.web_url = web_url
        self._headers = {"Content-Type": "application/json"}
        if token is not None:
            self._headers["Authorization"] = f"Bearer {token}"

    def call(self, method: str, path: str, body: object = None, timeout: float = 30.0) -> Any:
        """Answer of one call, decoded if it is JSON."""
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(self.web_url + path, data=data, headers=self._headers, method=method)
        try:
            with urllib.request.urlopen(request, timeout=timeout) as answer:
                raw = answer.read()
        except urllib.error.HTTPError as error:
            raise AdminError(error.code, f"{method} {path}: {error.read()[:300]!r}") from None
        try:
            return json.loads(raw) if raw else None
        except ValueError:
            return raw.decode()

    def healthy(self) -> bool:
        """True when a produced message can be read back, which is what the broker's own health check tries."""
        try:
            return bool(self.call("GET", f"{ADMIN}/brokers/health", timeout=5.0) == "ok")
        except (OSError, AdminError):
            return False

    def create_topic(self, topic: str, partitions: int = 0) -> None:
        """Create a topic; 0 partitions makes a plain one."""
        if partitions:
            self.call("PUT", self._path(topic, "partitions"), partitions)
        else:
            self.call("PUT", self._path(topic))

    def delete_topic(self, topic: str, partitions: int = 0, *, force: bool = True) -> None:
        """Delete a topic with its subscriptions; ``force`` disconnects whoever uses it."""
        flag = f"?force={'true' if force else 'false'}"
        self.call("DELETE", self._path(topic, "partitions" if partitions else "") + flag)

    def grow(self, topic: str, partitions: int) -> None:
        """Raise the number of partitions."""
        self.call("POST", self._path(topic, "partitions"), partitions)

    def unload(self, topic: str) -> None:
        """Make the broker close the topic (every partition of it), which forces all clients to come again."""
        self.call("PUT", self._path(topic, "unload"))

    def terminate(self, topic: str) -> None:
        """Forbid new messages for ever; readers reach the end of the topic."""
        self.call("POST", self._path(topic, "terminate"))

    def compact(self, topic: str, timeout: float = 60.0) -> None:
        """Compact a plain topic and wait for the end of it."""
        path = self._path(topic, "compaction")
        self.call("PUT", path)
        limit = time.monotonic() + timeout
        while (state := self.call("GET", path)["status"]) != "SUCCESS":
            if state == "ERROR" or time.monotonic() > limit:
                raise AdminError(0, f"compaction of {topic}: {state}")
            time.sleep(0.1)

    def stats(self, topic: str) -> dict[str, Any]:
        """Statistics of a plain topic or of one partition, with the precise backlog."""
        answer: dict[str, Any] = self.call("GET", self._path(topic, "stats") + "?getPreciseBacklog=true")
        return answer

    def internal_stats(self, topic: str) -> dict[str, Any]:
        """Ledgers and cursors of a plain topic or of one partition."""
        answer: dict[str, Any] = self.call("GET", self._path(topic, "internalStats"))
        return answer

    def backlog(self, topic: str, subscription: str, partitions: int = 0) -> int:
        """Entries (not messages) that the subscription has not acknowledged, over all partitions."""
        return sum(
            self.stats(name)["subscriptions"].get(subscription, {"msgBacklog": 0})["msgBacklog"]
            for name in partition_names(topic, partitions)
        )

    def consumers(self, topic: str, subscription: str, partitions: int = 0) -> list[Mapping[str, Any]]:
        """Return the broker's statistics of each connected consumer."""
        return [
            consumer
            for name in partition_names(topic, partitions)
            for consumer in self.stats(name)["subscriptions"].get(subscription, {}).get("consumers", ())
        ]

    def create_subscription(self, topic: str, subscription: str, *, latest: bool = False) -> None:
        """Create a durable subscription at the start or the end of the topic."""
        edge = 2**63 - 1 if latest else -1
        path = self._path(topic, f"subscription/{urllib.parse.quote(subscription, safe='')}")
        self.call("PUT", path, {"ledgerId": edge, "entryId": edge})

    def set_retention(self, topic: str, minutes: int) -> None:
        """A policy of one topic, which the broker keeps in a topic of its own."""
        policy = {"retentionTimeInMinutes": minutes, "retentionSizeInMB": -1}
        self.call("POST", self._path(topic, "retention"), policy)

    def topics(self, namespace: str) -> list[str]:
        """All topics of a namespace, those of the broker itself included."""
        names: list[str] = self.call("GET", f"{ADMIN}/persistent/{namespace}?includeSystemTopic=true")
        return names

    def create_deduplicated(self, namespace: str) -> None:
        """Create a namespace whose topics are deduplicated."""
        self.call("PUT", f"{ADMIN}/namespaces/{namespace}")
        self.call("POST", f"{ADMIN}/namespaces/{namespace}/deduplication", True)

    def grant(self, role: str, actions: list[str], namespace: str = "public/default") -> None:
        """Allow a role to ``produce`` and/or ``consume`` in a namespace."""
        self.call("POST", f"{ADMIN}/namespaces/{namespace}/permissions/{role}", actions)

    def _path(self, topic: str, verb: str = "") -> str:
        domain, name = split_topic(topic)
        tenant, namespace, local = name.split("/", 2)
        path = f"{ADMIN}/{domain}/{tenant}/{namespace}/{urllib.parse.quote(local, safe='')}"
        return f"{path}/{verb}" if verb else path


def split_topic(topic: str) -> tuple[str, str]:
    """(domain, tenant/namespace/local name) of any form of a topic name."""
    domain, found, name = topic.partition("://")
    if not found:
        domain, name = "persistent", topic
    return domain, name if "/" in name else f"public/default/{name}"


def partition_names(topic: str, partitions: int) -> list[str]:
    """The topics that hold the messages: the partitions, or the topic itself."""
    return [f"{topic}-partition-{index}" for index in range(partitions)] if partitions else [topic]
