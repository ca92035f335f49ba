"""The authentication data of a user and a password."""

from pathlib import Path
from typing import Any

import pytest

from fastwire_daemon.config import AuthConfig
from fastwire_daemon.net.auth import AuthError, Credentials
from fastwire_daemon.systems.pulsar.login import login


def configured(**keys: Any) -> Credentials:
    return login(AuthConfig.model_validate(keys), client_certificate=False)


async def test_a_user_with_a_password_file(tmp_path: Path) -> None:
    file = tmp_path / "password"
    user = configured(user="me", password_file=str(file))
    with pytest.raises(AuthError, match="cannot read the password file"):
        user.check()
    file.write_text(" säcret 1 \r\n")
    assert (user.method, await user.data(), user.check()) == (
        "basic",
        "me: säcret 1 ".encode(),
        "user me, password found",
    )
    file.write_text("\n")
    with pytest.raises(AuthError, match="is empty"):
        await user.data()
    file.write_text("a:b")
    with pytest.raises(AuthError, match="contains a colon") as refused:
        await user.data()
    assert "a:b" not in str(refused.value)
    assert await configured(user="me", password="x").data() == b"me:x"
