"""Lifecycle rules of a bucket of S3, which may delete what a dataset needs."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any
from urllib.parse import urlsplit

from ...config.sinks.store import ARCHIVES

_DAY_S = 86_400
_NO_RULES = "NoSuchLifecycleConfiguration"


class UnreadableRulesError(Exception):
    """The store does not tell its rules; the message says why."""


def rules_of(url: str, settings: Mapping[str, str]) -> Sequence[Mapping[str, Any]]:
    """Return the rules of the bucket in ``url``, as the API of S3 has them.

    ``settings`` are those of ``open_bucket``. Raises UnreadableRulesError, and ModuleNotFoundError without botocore.
    """
    import botocore.config
    import botocore.exceptions
    import botocore.session

    client = botocore.session.Session(profile=settings.get("profile")).create_client(
        "s3",
        region_name=settings.get("region"),
        endpoint_url=settings.get("endpoint"),
        verify=settings.get("ca"),
        aws_access_key_id=settings.get("access_key_id"),
        aws_secret_access_key=settings.get("secret_access_key"),
        aws_session_token=settings.get("session_token"),
        config=botocore.config.Config(connect_timeout=5, read_timeout=10, retries={"total_max_attempts": 2}),
    )
    try:
        told = client.get_bucket_lifecycle_configuration(Bucket=urlsplit(url).netloc)
    except botocore.exceptions.ClientError as exc:
        if exc.response["Error"]["Code"] == _NO_RULES:
            return ()
        raise UnreadableRulesError(exc.response["Error"]["Code"]) from exc
    except botocore.exceptions.BotoCoreError as exc:
        raise UnreadableRulesError(str(exc)) from exc
    rules: Sequence[Mapping[str, Any]] = told["Rules"]
    return rules


def harmful(rules: Sequence[Mapping[str, Any]], prefix: str, *, age_s: float) -> list[str]:
    """Return what is wrong with each of the rules that harm the dataset below ``prefix``, with rolls up to ``age_s``.

    ``prefix`` is "" for a dataset that is the whole bucket, and ends with "/" otherwise.
    """
    found = []
    for rule in rules:
        if rule.get("Status") != "Enabled":
            continue
        name = f'the lifecycle rule "{rule.get("ID", "")}"'
        if _reaches(rule, f"{prefix}_fastwire/"):
            found += [f"{name} {what}" for what in _harm(rule)]
        days = rule.get("AbortIncompleteMultipartUpload", {}).get("DaysAfterInitiation")
        if days is not None and days * _DAY_S <= age_s and _reaches(rule, prefix):
            taken = f"a roll may take {age_s / _DAY_S:.1f} (roll.age)"
            found.append(f"{name} aborts uploads after {_days(days)}, and {taken}")
    return found


def _harm(rule: Mapping[str, Any]) -> Iterator[str]:
    """Yield what a rule does to objects below the commit log."""
    expiration = rule.get("Expiration", {})
    if "Days" in expiration or "Date" in expiration:
        yield f"deletes the commit log ({_when(expiration)}): leave out what is below _fastwire/"
    for move in rule.get("Transitions", ()):
        if move.get("StorageClass") in ARCHIVES:
            yield f"archives the commit log ({_when(move)}): leave out what is below _fastwire/"


def _reaches(rule: Mapping[str, Any], folder: str) -> bool:
    """Return True if a rule may be for objects below ``folder``; those of a dataset have no tags."""
    chosen = rule.get("Filter", {})
    both = chosen.get("And", {})
    if "Tag" in chosen or both.get("Tags"):
        return False
    prefix = chosen.get("Prefix") or both.get("Prefix") or rule.get("Prefix") or ""
    return bool(prefix.startswith(folder) or folder.startswith(prefix))


def _when(action: Mapping[str, Any]) -> str:
    return f"after {_days(action['Days'])}" if "Days" in action else f"on {action['Date']:%Y-%m-%d}"


def _days(count: int) -> str:
    return f"{count} day{'' if count == 1 else 's'}"
