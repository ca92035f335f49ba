"""Where others are found: service URLs of brokers, the address of the HTTP server."""

import re
from dataclasses import dataclass

from .text import nearest

__all__ = ["HttpAddress", "ServiceUrl", "format_host", "parse_http_address", "parse_service_url"]

_DEFAULT_PORTS = {"pulsar": 6650, "pulsar+ssl": 6651}
_LATER = ("kafka", "kafka+ssl", "tank", "tubemq")


@dataclass(frozen=True, slots=True)
class ServiceUrl:
    """Where a broker is found: one or more hosts, all spoken to in the same way."""

    scheme: str
    hosts: tuple[tuple[str, int], ...]
    tls: bool

    @property
    def system(self) -> str:
        """The message system: ``pulsar``."""
        return self.scheme.partition("+")[0]

    @property
    def host_list(self) -> str:
        """All hosts with their ports, ``a:6650,b:6650``: what names a cluster that has no name."""
        return ",".join(format_host(host, port) for host, port in self.hosts)

    def __str__(self) -> str:
        return f"{self.scheme}://{self.host_list}"


def format_host(host: str, port: int) -> str:
    """Return ``host:port``, an IPv6 address in brackets."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def parse_service_url(text: str) -> ServiceUrl:
    """Read ``pulsar://host[:port][,host…]`` or ``pulsar+ssl://…``; a path behind it is ignored.

    Raises ValueError with a text for the person who wrote the URL. It never repeats what may be a password.
    """
    scheme, mark, rest = text.strip().partition("://")
    scheme = scheme.lower()
    if not mark:
        shown = "" if "@" in text else f', not "{text}"'
        raise ValueError(f'must be a URL such as "pulsar://127.0.0.1:6650"{shown}')
    if scheme in _LATER:
        raise ValueError(f"{scheme}:// is not supported by this version, which reads pulsar:// and pulsar+ssl://")
    if scheme in ("http", "https"):
        port = 6651 if scheme == "https" else 6650
        form = "pulsar+ssl" if scheme == "https" else "pulsar"
        raise ValueError(f'lookup by {scheme}:// is not supported: use the broker\'s own port, "{form}://host:{port}"')
    if scheme not in _DEFAULT_PORTS or "@" in scheme:
        hint = nearest(scheme, _DEFAULT_PORTS)
        raise ValueError(f'"{scheme}://" is not a known kind of broker{hint or ": use pulsar:// or pulsar+ssl://"}')
    if "://" in rest:
        raise ValueError(f'several hosts stand behind one scheme: "{scheme}://host1:6650,host2:6650"')
    authority = re.split(r"[/?#]", rest, maxsplit=1)[0]
    if "@" in authority:
        raise ValueError("a user or password does not belong into the URL: use the key auth")
    parts = [part.strip() for part in re.split(r"[,;]", authority)]
    hosts = tuple(_host_and_port(part, _DEFAULT_PORTS[scheme]) for part in parts)
    if len(set(hosts)) < len(hosts):
        raise ValueError("names the same host twice")
    return ServiceUrl(scheme, hosts, tls=scheme.endswith("+ssl"))


_HOST = re.compile(r"[A-Za-z0-9._-]+")
_IPV6 = re.compile(r"[0-9A-Fa-f:.]+(%[A-Za-z0-9._-]+)?")


def _host_and_port(text: str, default_port: int | None, lowest_port: int = 1) -> tuple[str, int]:
    if text.startswith("["):
        host, closed, after = text[1:].partition("]")
        if not closed or not _IPV6.fullmatch(host) or (after and not after.startswith(":")):
            raise ValueError(f'"{text}" is not an IPv6 address in brackets')
        port_text = after[1:] if after else None
    elif text.count(":") > 1:
        raise ValueError(f'put an IPv6 address into brackets: "[{text}]"')
    else:
        host, colon, tail = text.partition(":")
        port_text = tail if colon else None
        if not host:
            raise ValueError("has no host" if not colon else f'"{text}" has no host before the port')
        if not _HOST.fullmatch(host):
            raise ValueError(f'"{host}" is not a host name')
    if port_text is None:
        if default_port is None:
            raise ValueError(f'"{text}" has no port')
        return host, default_port
    if not port_text.isdecimal() or not lowest_port <= int(port_text) < 65536:
        raise ValueError(f'"{port_text}" is not a port: {lowest_port} to 65535')
    return host, int(port_text)


# -- the HTTP server's address ---------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class HttpAddress:
    """A TCP address, or the path of a unix socket when ``path`` is not empty."""

    host: str = ""
    port: int = 0
    path: str = ""

    def __str__(self) -> str:
        return f"unix:{self.path}" if self.path else format_host(self.host, self.port)


def parse_http_address(text: str) -> HttpAddress | None:
    """Read ``host:port`` or ``unix:/path``; an empty text is None: no server. Port 0 takes any free one."""
    if not text:
        return None
    if text.startswith("unix:"):
        path = text.removeprefix("unix:")
        if not path.startswith("/"):
            raise ValueError(f'"{text}" needs a whole path: "unix:/run/fastwire.sock"')
        if len(path.encode()) > 107:
            raise ValueError(f"the path of a unix socket may have 107 bytes, this one has {len(path.encode())}")
        return HttpAddress(path=path)
    try:
        host, port = _host_and_port(text, None, lowest_port=0)
    except ValueError as exc:
        raise ValueError(f'{exc}; an address is "127.0.0.1:8650", "unix:/path" or "" for none') from None
    return HttpAddress(host, port)
