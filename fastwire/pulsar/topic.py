"""Names and addresses of Pulsar: topics, their partitions, service URLs (pulsar 4)."""

import re
from dataclasses import dataclass

__all__ = ["Address", "ServiceUrl", "Topic", "parse_address", "parse_service_url", "parse_topic", "partition_index"]

DOMAINS = ("persistent", "non-persistent")
PLAIN_PORT = 6650
TLS_PORT = 6651

_NAME = re.compile(r"[A-Za-z0-9_\-=:.]+")
_PARTITION = re.compile(r"(.+)-partition-(0|[1-9][0-9]*)", re.DOTALL)
_HOST = re.compile(r"[A-Za-z0-9_.\-]+")
_IPV6 = re.compile(r"[0-9A-Fa-f:.]+(%[A-Za-z0-9_.\-]+)?")


@dataclass(frozen=True, slots=True)
class Topic:
    """A topic's name in parts; ``str()`` is the full form that every frame carries."""

    domain: str
    tenant: str
    namespace: str
    local: str

    def __str__(self) -> str:
        return f"{self.domain}://{self.tenant}/{self.namespace}/{self.local}"

    @property
    def persistent(self) -> bool:
        return self.domain == "persistent"

    @property
    def partition(self) -> int:
        """The partition's number if this is the name of a partition, else -1."""
        return partition_index(self.local)

    @property
    def base(self) -> "Topic":
        """The topic that this is a partition of, or the topic itself."""
        match = _PARTITION.fullmatch(self.local)
        return Topic(self.domain, self.tenant, self.namespace, match[1]) if match else self

    def of_partition(self, index: int) -> "Topic":
        """The name of partition ``index``, which is a topic of its own on the wire."""
        if index < 0 or self.partition >= 0:
            raise ValueError(f"{self} has no partition {index}")
        return Topic(self.domain, self.tenant, self.namespace, f"{self.local}-partition-{index}")


def partition_index(name: str) -> int:
    """The number behind the last ``-partition-`` of ``name``; -1 if there is none."""
    match = _PARTITION.fullmatch(name)
    return int(match[2]) if match else -1


def parse_topic(text: str) -> Topic:
    """Understand a full or short topic name; ValueError says what is wrong with it."""
    domain, separator, rest = text.partition("://")
    if not separator:
        domain, rest = "persistent", text
        parts = rest.split("/")
        if len(parts) == 1:
            parts = ["public", "default", *parts]
        elif len(parts) != 3:
            raise ValueError(f"topic {text!r}: a short name is TOPIC or TENANT/NAMESPACE/TOPIC")
    else:
        if domain not in DOMAINS:
            raise ValueError(f"topic {text!r}: unknown domain {domain!r}, known are {' and '.join(DOMAINS)}")
        parts = rest.split("/")
        if len(parts) == 4:
            raise ValueError(f"topic {text!r}: old names with a cluster in them are not supported")
        if len(parts) != 3:
            raise ValueError(f"topic {text!r}: a full name is {domain}://TENANT/NAMESPACE/TOPIC")
    tenant, namespace, local = parts
    for what, name in (("tenant", tenant), ("namespace", namespace)):
        if not _NAME.fullmatch(name):
            raise ValueError(f"topic {text!r}: {what} {name!r} may hold letters, digits and _ - = : . only")
    if not local:
        raise ValueError(f"topic {text!r}: the name of the topic itself is empty")
    if any(ord(letter) < 0x20 or ord(letter) == 0x7F for letter in local):
        raise ValueError(f"topic {text!r}: control characters in the name")
    return Topic(domain, tenant, namespace, local)


@dataclass(frozen=True, slots=True)
class Address:
    """One broker: where to connect to, and whether with TLS."""

    host: str
    port: int
    tls: bool = False

    def __str__(self) -> str:
        return f"pulsar{'+ssl' if self.tls else ''}://{self.netloc}"

    @property
    def netloc(self) -> str:
        """``host:port`` as a proxy wants it in CONNECT."""
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


@dataclass(frozen=True, slots=True)
class ServiceUrl:
    """The hosts of a cluster in the order given; all with TLS or all without."""

    tls: bool
    addresses: tuple[Address, ...]

    def __str__(self) -> str:
        return f"pulsar{'+ssl' if self.tls else ''}://{self.hosts}"

    @property
    def hosts(self) -> str:
        """The host list without a scheme: what names the cluster when nothing else does."""
        return ",".join(address.netloc for address in self.addresses)


def parse_service_url(text: str) -> ServiceUrl:
    """Understand ``pulsar://h1:p1,h2`` and ``pulsar+ssl://…``; ValueError says what is wrong with it."""
    scheme, separator, rest = text.partition("://")
    if scheme in ("http", "https"):
        raise ValueError(f"{text!r}: lookup over HTTP is not supported, use the broker's pulsar:// URL")
    if not separator or scheme not in ("pulsar", "pulsar+ssl"):
        raise ValueError(f"{text!r}: a service URL begins with pulsar:// or pulsar+ssl://")
    tls = scheme == "pulsar+ssl"
    addresses = []
    for part in re.split("[,;]", rest.split("/", 1)[0]):
        addresses.append(_host_and_port(part, tls, text))
    return ServiceUrl(tls, tuple(dict.fromkeys(addresses)))


def parse_address(text: str) -> Address:
    """Understand the URL of one broker, as a lookup answers; ValueError says what is wrong with it."""
    url = parse_service_url(text)
    if len(url.addresses) != 1:
        raise ValueError(f"{text!r}: one host is expected here")
    return url.addresses[0]


def _host_and_port(part: str, tls: bool, url: str) -> Address:
    if part.startswith("["):
        host, bracket, tail = part[1:].partition("]")
        if not bracket or not _IPV6.fullmatch(host) or (tail and not tail.startswith(":")):
            raise ValueError(f"{url!r}: {part!r} is no host and port")
        port_text = tail[1:]
        separator = tail[:1]
    else:
        host, separator, port_text = part.partition(":")
        if not _HOST.fullmatch(host):
            raise ValueError(f"{url!r}: {part!r} is no host and port")
    if not separator:
        return Address(host, TLS_PORT if tls else PLAIN_PORT, tls)
    if not (port_text.isascii() and port_text.isdigit()) or not 0 < int(port_text) < 65536:
        raise ValueError(f"{url!r}: {port_text!r} is no port")
    return Address(host, int(port_text), tls)
