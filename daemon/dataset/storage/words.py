"""Errors of an object store in words for operators: what it has said, or why it has said nothing, and what to do."""

import re

NO_STORE = (
    "what answers is not an object store, because an ETag is missing: check store.endpoint, and for a proxy or a login "
    "page before it"
)

_CODE = re.compile(r"<Code>(.*?)</Code>")
_MESSAGE = re.compile(r"<Message>(.*?)</Message>", re.DOTALL)
# Why there was no answer is only in the library's account of its own errors.
_PLACE = re.compile(r"https?://[^/\s]+")
_CERTIFICATE = re.compile(r"InvalidCertificate\(\s*(\w+)")
_CAUSE = re.compile(r'\b(?:message|error): "([^"]+)"')
_SECONDS = re.compile(r" in (\d+)(?:\.\d+)?s - ")
# The services of machines that give credentials and tokens.
_OF_MACHINE = re.compile(r"https?://(?:169\.254\.\d+\.\d+|\[fd00:ec2::\d+\]|metadata\.google\.internal)\b")

_CLOCK = "the clock of this machine is wrong: set it"
_REGION = "set store.region to that of the bucket"
_KEY = "check the key and its secret"
_RENEW = "get a new one, or use a profile or a role that renews it"
_BUCKET = "create it, or correct the path"
_RIGHTS = "the key needs the rights to list, and to get, put and delete objects"
_HINTS = {
    "AccessDenied": _RIGHTS,
    "AuthenticationFailed": f"{_KEY}, and the clock of this machine",
    "AuthorizationHeaderMalformed": _REGION,
    "AuthorizationPermissionMismatch": _RIGHTS,
    "ContainerNotFound": _BUCKET,
    "ExpiredToken": _RENEW,
    "IllegalLocationConstraintException": _REGION,
    "InvalidAccessKeyId": _KEY,
    "InvalidToken": _RENEW,
    "NoSuchBucket": _BUCKET,
    "PermanentRedirect": _REGION,
    "RequestExpired": _CLOCK,
    "RequestTimeTooSkewed": _CLOCK,
    "SignatureDoesNotMatch": _KEY,
}


def said(text: str) -> str:
    """Return in one line what an error of the library says."""
    code, message = _CODE.search(text), _MESSAGE.search(text)
    if code and message:
        hint = _HINTS.get(code[1], "")
        return f"the store refuses it: {code[1]}: {message[1].strip()}" + (f" ({hint})" if hint else "")
    if _OF_MACHINE.search(text):
        return (
            "there are no credentials: store and the environment have none, and the machine, which was asked last, "
            f"gives none: {_first(text)}"
        )
    place = _PLACE.search(text)
    if "without LOCATION" in text:
        return f"{'the store' if place is None else place[0]} refers to another region: {_REGION}"
    if "ETag Header missing" in text:
        return NO_STORE
    if "error sending request" in text and place:
        if invalid := _CERTIFICATE.search(text):
            return f"the certificate of {place[0]} is not accepted: {invalid[1]}"
        if "InvalidMessage(" in text:
            return f"{place[0]} does not speak TLS"
        if why := _CAUSE.search(text):
            return f"cannot connect to {place[0]}: {why[1]}"
        if "TimedOut" in text:
            took = _SECONDS.search(text)
            return f"{place[0]} has not answered" + (f" within {took[1]} s" if took else "")
    return _first(text)


def _first(text: str) -> str:
    return text.partition("\n")[0].strip()
