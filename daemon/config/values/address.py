"""Network addresses: URLs of brokers, and the address of the HTTP server."""

from dataclasses import dataclass
from ipaddress import ip_address

from fastwire.address import format_host, parse_host
from fastwire.grammar import BrokerUrl
from fastwire.systems import grammar_of, grammar_without_tls, grammars

from .text import nearest

_SCHEMES = [scheme for grammar in grammars() for scheme in grammar.schemes]


def parse_url(text: str) -> BrokerUrl:
    """Read the URL of a source: ``SYSTEM://host[:port][,host…]`` or ``SYSTEM+ssl://…``; a path after it is ignored.

    Raises ValueError with a message for the user. The message never repeats a part that may be a password.
    """
    grammar = grammar_of(text)
    scheme, mark, _ = text.strip().lower().partition("://")
    if grammar is None:
        grammar = next((each for each in grammars() if scheme in each.mistaken_schemes), None)
    if grammar is not None:
        return grammar.url(text)
    if not mark:
        examples = " or ".join(f'"{each.url_example}"' for each in grammars())
        raise ValueError(f"must be a URL such as {examples}" + ("" if "@" in text else f', not "{text}"'))
    if (grammar := grammar_without_tls(text)) is not None:
        raise ValueError(f'"{scheme}://": {grammar.title} has no TLS, use {next(iter(grammar.schemes))}://')
    shown = "this" if "@" in scheme else f'"{scheme}://"'
    hint = "" if "@" in scheme else nearest(scheme, _SCHEMES)
    known = ", ".join(f"{each}://" for each in _SCHEMES)
    raise ValueError(f"{shown} is not a known kind of broker{hint or f': known are {known}'}")


@dataclass(frozen=True, slots=True)
class HttpAddress:
    """A TCP address, or the path of a unix socket when ``path`` is not empty."""

    host: str = ""
    port: int = 0
    path: str = ""

    def __str__(self) -> str:
        return f"unix:{self.path}" if self.path else format_host(self.host, self.port)


def parse_http_address(text: str) -> HttpAddress | None:
    """Read ``host:port`` or ``unix:/path``; return None (no server) for an empty text. Port 0 means any free port.

    Raises ValueError.
    """
    if not text:
        return None
    if text.startswith("unix:"):
        path = text.removeprefix("unix:")
        if not path.startswith("/"):
            raise ValueError(f'"{text}" needs an absolute path: "unix:/run/fastwire.sock"')
        if len(path.encode()) > 107:
            raise ValueError(f"the path of a unix socket has at most 107 bytes, this one has {len(path.encode())}")
        return HttpAddress(path=path)
    if "@" in text:
        raise ValueError("has a user or password: the server has no login")
    try:
        host, port = parse_host(text, None, lowest_port=0)
    except ValueError as exc:
        raise ValueError(f'{exc}; an address is "127.0.0.1:8650", "unix:/path" or "" for none') from None
    return HttpAddress(host, port)


def host_of(text: str) -> str:
    """Return the host of the field ``Host`` of a request, without the port and the brackets of IPv6."""
    if text.startswith("["):
        return text[1:].partition("]")[0]
    return text.partition(":")[0]


def is_loopback(name: str) -> bool:
    """Return True for a host that is this machine itself, by its name or address."""
    if name.lower().rstrip(".") == "localhost":
        return True
    try:
        return ip_address(name).is_loopback
    except ValueError:
        return False
