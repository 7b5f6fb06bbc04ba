"""`toolgate status` and `toolgate sessions`: state of a running gateway, through its admin API.

Open sessions are not in a database that every installation has, so the gateway is queried.
"""

import http.client
import json
import ssl
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, TypeVar
from urllib.parse import quote, urlencode, urlsplit

import click

from config.settings import Settings
from gateway.cli.common.database import settings_option
from gateway.cli.common.failure import USAGE, fail
from gateway.cli.common.lazy import LazyGroup
from gateway.cli.common.options import ask, json_option, yes_option
from gateway.cli.common.output import one_line, print_json, print_rows, remark, say

F = TypeVar("F", bound=Callable[..., Any])

COMMANDS = {
    "list": ("gateway.cli.running.sessions:list_", "List the open sessions."),
    "end": ("gateway.cli.running.sessions:end", "End a session."),
}
TIMEOUT_S = 10
ANSWER_BYTES = 2**24
KEY_BYTES = 65536
ANYWHERE = {"0.0.0.0": "127.0.0.1", "::": "::1"}  # noqa: S104 - what listens there is asked here


def gateway_options(command: F) -> F:
    url = click.option(
        "--url", metavar="URL", help="The gateway [default: the one of these settings, here]."
    )
    key = click.option(
        "--key-file", metavar="FILE", type=click.File("r"), required=True,
        help="With a key or a token that may; - reads it from standard input.",
    )  # fmt: skip
    return url(key(command))


@click.group(cls=LazyGroup, lazy=COMMANDS)
def sessions() -> None:
    """List and end the sessions of clients, by the admin API of a gateway that runs."""


@click.command()
@gateway_options
@json_option
@settings_option
def status(settings: Settings, url: str | None, key_file: Any, as_json: bool) -> None:
    """Show how a running gateway is, by its admin API.

    \b
    Examples:
      toolgate keys create ops --scope admin:read > ops.key
      toolgate status --key-file ops.key
    """
    found = _opened(settings, url, key_file).ask("GET", "/status")
    if as_json:
        print_json(found)
        return
    sources = found.pop("sources", {})
    print_rows(("what", "value"), [(name, _shown(one)) for name, one in found.items()])
    print_rows(("source", "state"), [(name, _shown(one)) for name, one in sources.items()])


@click.command(name="list")
@click.option("--principal", metavar="ID", help="Only those of this principal.")
@gateway_options
@json_option
@settings_option
def list_(
    settings: Settings, principal: str | None, url: str | None, key_file: Any, as_json: bool
) -> None:
    """List the open sessions at all gateways that share their state.

    In a pipe one line each: id, principal, client, revision, toolset. The id is good for `sessions
    end` only.
    """
    gateway = _opened(settings, url, key_file)
    found = list(gateway.pages("/sessions", {"principal": principal} if principal else {}))
    if as_json:
        print_json(found)
        return
    columns = ("id", "principal", "client", "revision", "toolset")
    print_rows(columns, [tuple(_shown(one.get(name)) for name in columns) for one in found])
    if not found:
        remark("No sessions are open.")


@click.command()
@click.argument("session")
@yes_option
@gateway_options
@settings_option
def end(settings: Settings, session: str, yes: bool, url: str | None, key_file: Any) -> None:
    """End SESSION, an id of `sessions list`, at all gateways."""
    if not yes:
        ask("end", f"the session {session}")
    _opened(settings, url, key_file).ask("DELETE", f"/sessions/{quote(session, safe='')}")
    say(f"Ended {session}.")


@dataclass(frozen=True, slots=True)
class RunningGateway:
    url: str
    root: str  # path of the admin API
    key: str

    def pages(self, path: str, query: dict[str, str]) -> Iterator[dict[str, Any]]:
        """The entries of a list, page by page."""
        after: dict[str, str] = {}
        while True:
            page = self.ask("GET", f"{path}?{urlencode({**query, **after})}")
            yield from page["items"]
            if not page.get("next"):
                return
            after = {"after": page["next"]}

    def ask(self, method: str, path: str) -> Any:
        """The answer; None where it is empty. Fails with the gateway's error."""
        connection = self._connected()
        try:
            headers = {"Authorization": f"Bearer {self.key}"}
            connection.request(method, f"{self.root}{path}", headers=headers)
            response = connection.getresponse()
            data = response.read(ANSWER_BYTES)
            answer = json.loads(data) if data else None
        except (OSError, http.client.HTTPException) as error:
            fail(f"no gateway answers at {self.url}: {error}")
        except ValueError:
            fail(f"{self.url} answers with no JSON: is that a gateway?")
        finally:
            connection.close()
        if response.status >= 400:
            said = answer.get("detail") if isinstance(answer, dict) else None
            fail(f"{self.url}: {response.status} {one_line(str(said or response.reason))}")
        return answer

    def _connected(self) -> http.client.HTTPConnection:
        parts = urlsplit(self.url)
        if parts.scheme == "https":
            context = ssl.create_default_context()
            return http.client.HTTPSConnection(parts.netloc, timeout=TIMEOUT_S, context=context)
        return http.client.HTTPConnection(parts.netloc, timeout=TIMEOUT_S)


def _opened(settings: Settings, url: str | None, key_file: Any) -> RunningGateway:
    key = key_file.read(KEY_BYTES).strip()
    if not key or not key.isascii() or not key.isprintable():
        fail("--key-file: expected a key or a token on one line", USAGE)
    if url is None:
        host = ANYWHERE.get(settings.server.host, settings.server.host)
        url = f"http://{f'[{host}]' if ':' in host else host}:{settings.server.port}"
    try:
        good = urlsplit(url).scheme in {"http", "https"} and urlsplit(url).port != 0
    except ValueError:
        good = False
    if not good:
        fail(f"--url: expected a URL such as http://localhost:8765, not {url!r}", USAGE)
    return RunningGateway(url.rstrip("/"), settings.admin.path, key)


def _shown(value: Any) -> str:
    return "-" if value is None else one_line(str(value))
