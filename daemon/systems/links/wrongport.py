"""Say why a port that answers is not that of a system's broker: by the first bytes, or because there were none."""

from fastwire.grammar import Grammar
from fastwire.systems import grammars

_TLS_ALERT = b"\x15\x03"


def foreign(grammar: Grammar, port: int, greeting: bytes, error: str) -> str:
    """Return why ``greeting``, the first bytes of a server, are not those of a broker of the system.

    ``error`` is what the reader of the protocol says about them.
    """
    if greeting.startswith(b"HTTP"):
        return f"the server speaks HTTP, not the protocol of {grammar.title}: {_ports(grammar, port)}"
    if greeting.startswith(_TLS_ALERT):
        scheme = _with_tls(grammar)
        way = f"the url needs {scheme}://" if scheme else f"which {grammar.title} does not have"
        return f"the server speaks TLS, {way}: {_ports(grammar, port)}"
    return f"the server does not speak the protocol of {grammar.title} ({error}): {_ports(grammar, port)}"


def unheard(grammar: Grammar, port: int, tls: bool) -> str:
    """Return why a server may say nothing to a client of the system."""
    scheme = _with_tls(grammar)
    also = f"one with TLS ({scheme}://), or " if scheme and not tls else ""
    return f"nothing came from the server: the port may be {also}none of {grammar.title}: {_ports(grammar, port)}"


def _with_tls(grammar: Grammar) -> str:
    return next((scheme for scheme in grammar.schemes if scheme.endswith("+ssl")), "")


def _ports(grammar: Grammar, port: int) -> str:
    """Return where servers of the system usually listen, and whose port ``port`` usually is."""
    plain, *secured = grammar.schemes.values()
    text = f"its {grammar.servers} listen at {plain}"
    if secured:
        text += f", with TLS at {secured[0]},"
    text += " as shipped"
    others = [one.title for one in grammars() if one is not grammar and port in one.usual_ports]
    return f"{text}; {port} is a port of {others[0]}" if others else text
