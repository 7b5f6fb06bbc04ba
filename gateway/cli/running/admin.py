"""`toolgate admin`: the operations of a running gateway's admin API, called by name."""

import asyncio
import sys
from typing import Any

import aiohttp
import click
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

from config.access import ADMIN_TOOLSET
from config.settings import Settings
from gateway.cli.common.database import run, settings_option
from gateway.cli.common.failure import fail
from gateway.cli.common.output import err, print_json, print_rows
from gateway.cli.tools.arguments import json_or_text, read_object, read_pairs
from schemas.errors import ParseError
from schemas.jsonrpc import decode_json

TIMEOUT_S = 60.0  # imports are slow

Json = dict[str, Any]

JOB = frozenset({"job", "operation", "state", "principal", "created"})  # members of each
EVERY_S = 0.5  # polling interval of a job


@click.command()
@click.argument("name", required=False)
@click.argument("arguments", nargs=-1, metavar="[NAME=VALUE]...")
@click.option("--args", "args_json", metavar="JSON", help="Arguments as one object.")
@click.option("--token", metavar="TEXT", required=True, help="A bearer token; - reads it.")
@click.option("--url", metavar="URL", help="The gateway [default: as the settings have it].")
@click.option("--no-wait", is_flag=True, help="Print a job instead of waiting for it.")
@settings_option
def admin(
    settings: Settings,
    name: str | None,
    arguments: tuple[str, ...],
    args_json: str | None,
    token: str,
    url: str | None,
    no_wait: bool,
) -> None:
    """Call the admin operation NAME of a running gateway.

    Its answer is printed as JSON. Without NAME the operations are listed that the token opens. The
    gateway serves them where admin.tools is true. If it runs as a job, the end is waited for;
    Ctrl-C cancels it.

    \b
    Examples:
      toolgate admin --token - < token.txt
      toolgate admin listTools limit=5 --token - < token.txt
      toolgate admin putRule rule=no if_none_match='*' \\
        --args '{"effect": "deny", "tools": ["delete*"]}' --token - < token.txt
    """
    given = {} if args_json is None else read_object(args_json)
    pairs = {key: json_or_text(text) for key, text in read_pairs(arguments).items()}
    params = {**given, **pairs} if name else {}
    secret = sys.stdin.read().strip() if token == "-" else token  # noqa: S105 - stdin
    address = f"{gateway_address(settings, url)}{settings.rpc.path}/{ADMIN_TOOLSET}"
    found = run(asked(address, secret, name or "tools/list", params))
    if name and is_job(found) and not no_wait and "ended" not in found:
        finish(run(waited(address, secret, found["job"], cancels=True)))
    elif name:
        print_json(found)
    else:
        rows = [(one["name"], one["description"]) for one in found["tools"]]
        print_rows(("NAME", "WHAT IT DOES"), rows)


def gateway_address(settings: Settings, url: str | None) -> str:
    """The gateway at `url`, or of these settings."""
    own = settings.server.public_url or f"http://127.0.0.1:{settings.server.port}"
    return (url or own).rstrip("/")


async def asked(address: str, token: str | None, method: str, params: Json) -> Any:
    """The result of a method; fails with the gateway's error, or why it is unreachable."""
    body = {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}
    answer = _read(*await received("POST", address, token, body), address)
    if "error" in answer:
        fail(str(answer["error"]["message"]))
    return answer["result"]


async def received(
    method: str, address: str, token: str | None, body: Json | None = None
) -> tuple[bytes, int]:
    """The body and the status of an HTTP response; fails with the reason why there is none."""
    headers = {} if token is None else {"Authorization": f"Bearer {token}"}
    timeout = aiohttp.ClientTimeout(TIMEOUT_S)
    try:
        async with (
            aiohttp.ClientSession(timeout=timeout) as http,
            http.request(
                method, address, json=body, headers=headers, allow_redirects=False
            ) as response,
        ):
            return await response.read(), response.status
    except (aiohttp.ClientError, TimeoutError, ValueError) as error:
        fail(f"{address} does not answer ({type(error).__name__}). Is the gateway running?")


def _read(data: bytes, status: int, address: str) -> Json:
    if status == 404:
        fail(f"There are no operations at {address}: set admin.tools to true")
    try:
        answer = decode_json(data)
    except ParseError:
        answer = None
    if not isinstance(answer, dict) or not {"result", "error"} & answer.keys():
        fail(f"{address} gave no answer of JSON-RPC (HTTP status {status})")
    return answer


def is_job(answer: object) -> bool:
    """Whether an operation answered with a job."""
    return isinstance(answer, dict) and answer.keys() >= JOB


def finish(job: Json) -> None:
    """Print an ended job; fail if it did."""
    print_json(job)
    if job["state"] == "failed":
        fail(job.get("problem", {}).get("detail", "the job failed"))


async def waited(address: str, token: str | None, job: str, *, cancels: bool = False) -> Json:
    """The job once it has ended, its progress on standard error. `cancels`: an interrupt cancels
    it."""
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn())
    try:
        with Progress(*columns, console=err, transient=True, disable=not err.is_terminal) as bar:
            task, shown = bar.add_task(job, total=None), ""
            while True:
                found: Json = await asked(address, token, "getJob", {"job": job})
                if "ended" in found:
                    return found
                bar.update(task, completed=found.get("done", 0), total=found.get("total"))
                if not err.is_terminal and shown != (shown := progress_of(found)):
                    err.print(f"{found['state']} {shown}".rstrip())
                await asyncio.sleep(EVERY_S)
    except asyncio.CancelledError:
        if cancels:
            await asked(address, token, "cancelJob", {"job": job})
        raise


def progress_of(job: Json) -> str:
    """The progress of a job in a few words."""
    done, total = job.get("done", 0), job.get("total")
    counted = f"{done}/{total}" if total is not None else str(done) if done else ""
    return " ".join(filter(None, (counted, job.get("note", ""))))
