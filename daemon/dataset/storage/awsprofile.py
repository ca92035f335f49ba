"""Keys of a profile of AWS, which the library of object stores does not read."""

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

# Keys that end are renewed ten minutes before, or earlier: so each answer is good for this time.
_GOOD_FOR = timedelta(minutes=5)

Keys = Callable[[], dict[str, Any]]
"""Returns a key as ``credential_provider`` of the library: renewed if it ends soon, from any thread."""


def keys_of(profile: str) -> tuple[Keys, str | None]:
    """Return the keys of a profile in the files of AWS's own tools, and its region, if it has one.

    Raises ValueError for a profile without a key, ModuleNotFoundError without botocore.
    """
    import botocore.exceptions
    import botocore.session

    session = botocore.session.Session(profile=profile)
    try:
        region = session.get_config_variable("region")
        found = session.get_credentials()
    except botocore.exceptions.BotoCoreError as exc:
        raise ValueError(str(exc)) from exc
    if found is None:
        raise ValueError(f"the profile {profile} has no key")

    def key() -> dict[str, Any]:
        until = datetime.now(UTC) + _GOOD_FOR
        frozen = found.get_frozen_credentials()
        return {
            "access_key_id": frozen.access_key,
            "secret_access_key": frozen.secret_key,
            "token": frozen.token,
            "expires_at": until,
        }

    return key, region
