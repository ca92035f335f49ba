"""Where others are found: brokers of systems that we read, and our own HTTP server."""

from dataclasses import dataclass

from fastwire.address import format_host, parse_host

from .systems import SYSTEMS, SourceUrl, system_of
from .text import nearest

__all__ = ["HttpAddress", "parse_http_address", "parse_url"]

_LATER = ("tank", "tubemq")
_SCHEMES = [scheme for system in SYSTEMS for scheme in system.schemes]


def parse_url(text: str) -> SourceUrl:
    """Read the URL of a source: ``SYSTEM://host[:port][,host…]`` or ``SYSTEM+ssl://…``; a path behind it is ignored.

    Raises ValueError with a text for the person who wrote the URL. It never repeats what may be a password.
    """
    scheme, mark, _ = text.strip().partition("://")
    scheme = scheme.lower()
    if scheme in _LATER:
        raise ValueError(f"{scheme}:// is not supported by this version, which reads pulsar:// and kafka://")
    if mark and "@" not in scheme and (hint := nearest(scheme, _SCHEMES)) and scheme not in _SCHEMES:
        raise ValueError(f'"{scheme}://" is not a known kind of broker{hint}')
    return system_of(text).url(text)


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
        host, port = parse_host(text, None, lowest_port=0)
    except ValueError as exc:
        raise ValueError(f'{exc}; an address is "127.0.0.1:8650", "unix:/path" or "" for none') from None
    return HttpAddress(host, port)
