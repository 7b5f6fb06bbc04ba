"""Logins of a person at gateways, in a file of the user's own (RFC 8252, 8.3: as other credentials
of the account).

    ~/.config/toolgate/logins.json, or where the system keeps settings of programs; mode 0600
"""

import os
import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import click
import msgspec
from msgspec import Struct

from gateway.cli.common.failure import fail
from gateway.cli.common.lazy import import_later

CLIENT_ID = "toolgate-cli"  # known to each gateway with a login
SOON_S = 30.0  # a token that ends within that time is refreshed
post_form = import_later("gateway.cli.running.http_requests:post_form")  # with aiohttp
FINAL_ERRORS = ("invalid_grant", "invalid_client")  # errors after which a login is of no use


class StoredLogin(Struct, frozen=True):
    token_endpoint: str
    revocation_endpoint: str
    access_token: str
    refresh_token: str
    ends: float  # of the access token, seconds since the epoch


def file_of_logins() -> Path:
    return Path(click.get_app_dir("toolgate")) / "logins.json"


def read_logins() -> dict[str, StoredLogin]:
    """The logins by the URL of the gateway; none where the file is missing or unreadable."""
    try:
        return msgspec.json.decode(file_of_logins().read_bytes(), type=dict[str, StoredLogin])
    except (OSError, msgspec.MsgspecError):
        return {}


def keep_login(url: str, login: StoredLogin | None) -> None:
    """Write the login at a gateway; None removes it."""
    logins = {**read_logins()}
    logins.pop(url, None)
    if login is not None:
        logins[url] = login
    path = file_of_logins()
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    draft = path.with_name(f"{path.name}.{os.getpid()}")
    with suppress(FileNotFoundError):
        draft.unlink()
    descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(descriptor, "wb") as file:
        file.write(msgspec.json.format(msgspec.json.encode(logins), indent=2))
    draft.replace(path)


async def token_for(url: str) -> str | None:
    """The access token of the login at a gateway, refreshed where it ends soon; None without a
    login."""
    login = read_logins().get(url)
    if login is None or login.ends > time.time() + SOON_S:
        return None if login is None else login.access_token
    form = {
        "grant_type": "refresh_token",
        "refresh_token": login.refresh_token,
        "client_id": CLIENT_ID,
    }
    status, answer = await post_form(login.token_endpoint, form)
    if answer.get("error") in FINAL_ERRORS:
        keep_login(url, None)
        fail(f"your login at {url} has ended: toolgate login {url}")
    if status != 200 or "access_token" not in answer:
        fail(f"your login at {url} cannot be refreshed: HTTP {status}")
    login = login_of(answer, login.token_endpoint, login.revocation_endpoint)
    keep_login(url, login)
    return login.access_token


def login_of(answer: Mapping[str, Any], token: str, revocation: str) -> StoredLogin:
    """The login by an answer of a token endpoint."""
    return StoredLogin(
        token,
        revocation,
        str(answer["access_token"]),
        str(answer.get("refresh_token", "")),
        time.time() + float(answer.get("expires_in", 3600)),
    )
