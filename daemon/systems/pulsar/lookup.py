"""Interpretation of lookup responses (spec: pulsar 5)."""

from fastwire.errors import FastwireError
from fastwire.pulsar import pulsar_pb2 as pb
from fastwire.pulsar.names.topic import Address, parse_address

from ...runtime.errors import ConfigurationRefused

MOST_REDIRECTS = 20


def broker_address(found: pb.CommandLookupTopicResponse, tls: bool) -> Address:
    """Return the broker address in a lookup response.

    Raises ConfigurationRefused if the broker has no port of the wanted kind, FastwireError for an invalid address.
    """
    text = found.brokerServiceUrlTls if tls else found.brokerServiceUrl
    if not text:
        what = "brokerServiceUrlTls" if tls else "brokerServiceUrl"
        raise ConfigurationRefused(
            f"the broker names no {what}: it {'has no TLS port' if tls else 'has a TLS port only'}"
        )
    try:
        return parse_address(text)
    except ValueError as exc:
        raise FastwireError(f"the broker answered the lookup with an invalid address: {exc}") from None
