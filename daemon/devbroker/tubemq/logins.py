"""Checks of the identity of clients: their ids, and the signatures of requests to the Master (spec: tubemq 8, 17)."""

import hmac

from fastwire.tubemq import tubemq_pb2 as pb
from fastwire.tubemq.format.credentials import signature
from fastwire.tubemq.format.error import Code

from ...runtime.clock import now_ms
from ..base import RefusedError
from .cluster import Cluster

LONGEST = 1024  # characters of a client id and of a group
WINDOW_MS = 20_000  # between the time of a signature and the Master's clock


def check_identity(*names: str) -> None:
    """Refuse a blank or too long client id or group."""
    for name in names:
        if not name.strip() or len(name) > LONGEST:
            raise RefusedError(Code.BAD_REQUEST, f"[Parameter error] {name[:80]!r} is blank or too long")


def check_signature(broker: Cluster, info: pb.MasterCertificateInfo) -> None:
    """Refuse a request that is not signed with the password of a user, if there are users."""
    users = broker.options.users
    if not users:
        return
    who = info.authInfo
    wanted = signature(who.userName, users.get(who.userName, ""), who.timestamp, who.nonce)
    if (
        who.userName not in users
        or abs(now_ms() - who.timestamp) > WINDOW_MS
        or not hmac.compare_digest(who.signature.encode(), wanted.encode())
    ):
        raise RefusedError(Code.CERTIFICATE_FAILURE, f"user {who.userName!r} is not admitted")
