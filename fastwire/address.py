"""Parsing and formatting of host and port, and of URLs that consist of them."""

import re
from collections.abc import Mapping
from dataclasses import dataclass

_HOST = re.compile(r"[A-Za-z0-9._-]+")
_IPV6 = re.compile(r"[0-9A-Fa-f:.]+(%[A-Za-z0-9._-]+)?")


def format_host(host: str, port: int) -> str:
    """Return ``host:port``; an IPv6 address is put into brackets."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def parse_host(text: str, default_port: int | None, lowest_port: int = 1) -> tuple[str, int]:
    """Parse ``host``, ``host:port`` or ``[ipv6]:port`` into host and port.

    If ``default_port`` is None, the text must contain a port. Raises ValueError with a message for the author of the
    text.
    """
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
    if not (port_text.isascii() and port_text.isdigit()) or not lowest_port <= int(port_text) < 65536:
        raise ValueError(f'"{port_text}" is not a port: {lowest_port} to 65535')
    return host, int(port_text)


def parse_hosts(text: str, default_port: int) -> tuple[tuple[str, int], ...]:
    """Parse a comma-separated list of hosts, as a URL has it before its path.

    Raises ValueError with a message for the author of the text, which never repeats a possible password.
    """
    if "@" in text:
        raise ValueError("user and password do not belong in the URL: put them into auth")
    found: list[tuple[str, int]] = []
    for part in text.split(","):
        host = parse_host(part.strip(), default_port)
        if host in found:
            raise ValueError(f'"{format_host(*host)}" stands in the URL twice')
        found.append(host)
    return tuple(found)


@dataclass(frozen=True, slots=True)
class HostsUrl:
    """The hosts of a cluster in the given order, all with TLS (``SYSTEM+ssl``) or all without."""

    scheme: str
    addresses: tuple[tuple[str, int], ...]

    def __str__(self) -> str:
        return f"{self.scheme}://{self.hosts}"

    @property
    def tls(self) -> bool:
        """True if connections use TLS."""
        return self.scheme.endswith("+ssl")

    @property
    def hosts(self) -> str:
        """The host list without a scheme, the default name of the cluster."""
        return ",".join(format_host(host, port) for host, port in self.addresses)


def parse_hosts_url(text: str, schemes: Mapping[str, int]) -> HostsUrl:
    """Parse ``SCHEME://host[:port][,host…]`` with one of ``schemes``, which have default ports; a path is ignored.

    Raises ValueError with a message for the author of the URL, which never repeats a possible password.
    """
    scheme, mark, rest = text.strip().partition("://")
    scheme = scheme.lower()
    if not mark or scheme not in schemes:
        plain, port = next(iter(schemes.items()))
        raise ValueError(f'must be a URL such as "{plain}://127.0.0.1:{port}"')
    return HostsUrl(scheme, parse_hosts(rest.partition("/")[0], schemes[scheme]))
