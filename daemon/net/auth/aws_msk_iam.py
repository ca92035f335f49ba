"""Tokens for Amazon MSK with IAM: a signed URL that stands for the permission kafka-cluster:Connect."""

import base64
from collections.abc import Callable
from urllib.parse import quote

import botocore.session
from botocore.auth import SigV4QueryAuth
from botocore.awsrequest import AWSRequest

from .base import AuthError, UnavailableError

LIFETIME_S = 900  # the most that brokers accept
SERVICE = "kafka-cluster"


def tokens(*, region: str = "", profile: str | None = None) -> Callable[[], str]:
    """Return a function that returns a token, signed with the credentials that AWS' tools find.

    These come from the environment, a profile, web identity, the container or the instance; botocore renews them.
    ``region`` is that of the cluster; default: that of the environment or the profile. Raises AuthError without one.
    """
    session = botocore.session.Session(profile=profile)
    where = region or session.get_config_variable("region")
    if not where:
        raise AuthError("aws_msk_iam has no region: set it in auth.provider.options, or AWS_REGION")

    def token() -> str:
        found = session.get_credentials()
        if found is None:
            raise UnavailableError("aws_msk_iam finds no AWS credentials: environment, profile, container or instance")
        request = AWSRequest("GET", f"https://kafka.{where}.amazonaws.com/", params={"Action": "kafka-cluster:Connect"})
        SigV4QueryAuth(found.get_frozen_credentials(), SERVICE, where, expires=LIFETIME_S).add_auth(request)
        signed = f"{request.url}&User-Agent={quote('fastwire')}"
        return base64.urlsafe_b64encode(signed.encode()).rstrip(b"=").decode()

    return token
