"""Topic names, partition names and service URLs of Pulsar (spec: pulsar 4)."""

import re
from dataclasses import dataclass

from fastwire.address import format_host, parse_host

DOMAINS = ("persistent", "non-persistent")
SCHEMES = {"pulsar": 6650, "pulsar+ssl": 6651}  # the default port of each

_NAME = re.compile(r"[A-Za-z0-9_\-=:.]+")
_PARTITION = re.compile(r"(.+)-partition-(0|[1-9][0-9]*)", re.DOTALL)


@dataclass(frozen=True, slots=True)
class Topic:
    """A topic name in parts; ``str()`` returns the full form, which all frames carry."""

    domain: str
    tenant: str
    namespace: str
    local: str

    def __str__(self) -> str:
        return f"{self.domain}://{self.tenant}/{self.namespace}/{self.local}"

    @property
    def persistent(self) -> bool:
        """True for a persistent topic."""
        return self.domain == "persistent"

    @property
    def partition(self) -> int:
        """The partition number if this is a partition's name, else -1."""
        return partition_index(self.local)

    @property
    def base(self) -> "Topic":
        """The partitioned topic of a partition, or the topic itself."""
        match = _PARTITION.fullmatch(self.local)
        return Topic(self.domain, self.tenant, self.namespace, match[1]) if match else self

    def of_partition(self, index: int) -> "Topic":
        """Return the name of partition ``index``, which is a topic of its own on the wire. Raises ValueError for a
        partition.
        """
        if index < 0 or self.partition >= 0:
            raise ValueError(f"{self} has no partition {index}")
        return Topic(self.domain, self.tenant, self.namespace, f"{self.local}-partition-{index}")


def partition_index(name: str) -> int:
    """Return the number after the last ``-partition-`` of ``name``; -1 if there is none."""
    match = _PARTITION.fullmatch(name)
    return int(match[2]) if match else -1


def parse_topic(text: str) -> Topic:
    """Parse a full or short topic name. Raises ValueError with a message for the author of the name."""
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
    """The address of one broker, and whether it uses TLS."""

    host: str
    port: int
    tls: bool = False

    def __str__(self) -> str:
        return f"pulsar{'+ssl' if self.tls else ''}://{self.netloc}"

    @property
    def netloc(self) -> str:
        """``host:port``, the form that a proxy expects in CONNECT."""
        return format_host(self.host, self.port)


@dataclass(frozen=True, slots=True)
class ServiceUrl:
    """The hosts of a cluster in the given order, all with TLS or all without."""

    tls: bool
    addresses: tuple[Address, ...]

    def __str__(self) -> str:
        return f"pulsar{'+ssl' if self.tls else ''}://{self.hosts}"

    @property
    def hosts(self) -> str:
        """The host list without a scheme, the default name of the cluster."""
        return ",".join(address.netloc for address in self.addresses)


def parse_service_url(text: str) -> ServiceUrl:
    """Parse ``pulsar://host[:port][,host…]`` or ``pulsar+ssl://…``; a path after the hosts is ignored.

    Raises ValueError with a message for the author of the URL, which never repeats a possible password.
    """
    scheme, mark, rest = text.strip().partition("://")
    scheme = scheme.lower()
    if not mark:
        shown = "" if "@" in text else f', not "{text}"'
        raise ValueError(f'must be a URL such as "pulsar://127.0.0.1:6650"{shown}')
    if scheme in ("http", "https"):
        instead = "pulsar+ssl" if scheme == "https" else "pulsar"
        port = SCHEMES[instead]
        raise ValueError(
            f'lookup by {scheme}:// is not supported: use the broker\'s own port, "{instead}://host:{port}"'
        )
    if scheme not in SCHEMES:
        shown = "this" if "@" in scheme else f'"{scheme}://"'
        raise ValueError(f"{shown} is not a known kind of broker: use pulsar:// or pulsar+ssl://")
    if "://" in rest:
        raise ValueError(f'put several hosts after one scheme: "{scheme}://host1:6650,host2:6650"')
    authority = re.split(r"[/?#]", rest, maxsplit=1)[0]
    if "@" in authority:
        raise ValueError("a user or password does not belong into the URL: use the key auth")
    tls = scheme == "pulsar+ssl"
    hosts = [parse_host(part.strip(), SCHEMES[scheme]) for part in re.split(r"[,;]", authority)]
    if len(set(hosts)) < len(hosts):
        raise ValueError("names the same host twice")
    return ServiceUrl(tls, tuple(Address(host, port, tls) for host, port in hosts))


def parse_address(text: str) -> Address:
    """Parse the URL of one broker, as in a lookup response. Raises ValueError."""
    url = parse_service_url(text)
    if len(url.addresses) != 1:
        raise ValueError(f"{text!r}: one host is expected here")
    return url.addresses[0]
