"""A GET request with one deadline for the whole of it, from the connection to the end of the answer."""

import ssl
from collections.abc import Mapping

import aiohttp


async def get(
    url: str,
    headers: Mapping[str, str],
    *,
    tls: ssl.SSLContext | None,
    server_name: str | None,
    most_s: float,
    most_bytes: int,
) -> tuple[int, bytes]:
    """Return the status and the body of an answer of ``most_bytes`` at most. Redirects are not followed.

    ``server_name`` is what the certificate must be for, in place of the host. Raises OSError: TimeoutError after
    ``most_s`` seconds, which the resolver of names alone may exceed.
    """
    try:
        async with (
            aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=most_s)) as session,
            session.get(
                url, headers=headers, ssl=tls or True, server_hostname=server_name, allow_redirects=False
            ) as answer,
        ):
            return answer.status, await body_of(answer, most_bytes)
    except TimeoutError:
        raise TimeoutError(f"no whole answer within {most_s:.0f} s") from None
    except aiohttp.ClientConnectorCertificateError as exc:
        raise exc.certificate_error from None
    except aiohttp.ClientConnectorError as exc:
        raise exc.os_error from None
    except aiohttp.ClientError as exc:
        raise OSError(" ".join(str(exc).split())) from None  # a parser shows bytes in lines of their own


async def body_of(answer: aiohttp.ClientResponse, most_bytes: int) -> bytes:
    """Return the body of an answer. Raises aiohttp.ClientPayloadError for one of more than ``most_bytes``."""
    body = bytearray()
    async for piece in answer.content.iter_any():
        body += piece
        if len(body) > most_bytes:
            raise aiohttp.ClientPayloadError(f"an answer of more than {most_bytes} bytes")
    return bytes(body)
