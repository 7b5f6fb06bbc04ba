"""`toolgate hooks`: the hooks of the settings, loaded and tried in this process."""

import time
from collections.abc import Mapping
from typing import IO, Any

import click
import msgspec

from config.settings import Settings
from gateway.cli.common.event_loop import run
from gateway.cli.common.failure import FAILED, fail, no_such
from gateway.cli.common.lazy import LazyGroup
from gateway.cli.common.options import json_option
from gateway.cli.common.output import print_json, print_rows
from gateway.cli.common.settings import settings_option
from gateway.middleware.hooks.configured_hook import Hook, HookAnswer, HookFailed, Hooks
from schemas.errors import ToolgateError

COMMANDS = {
    "list": ("gateway.cli.hooks:list_", "List the hooks, in the order in which they are asked."),
    "test": ("gateway.cli.hooks:test", "Ask a hook about a call, and print its answer."),
}
TITLES = ("hook", "at", "order", "code", "version", "changes", "failure")


@click.group(cls=LazyGroup, lazy=COMMANDS)
def hooks() -> None:
    """List and try the hooks of the settings (`hooks`): code of yours around calls."""


@click.command(name="list")
@json_option
@settings_option
def list_(settings: Settings, as_json: bool) -> None:
    """List the hooks, in the order in which they are asked. Loads those in Python."""
    try:
        loaded = Hooks(settings)
    except ToolgateError as error:
        fail(str(error))
    points = dict.fromkeys(hook.settings.at for hook in loaded.all)
    rows = [_row(hook) for point in points for hook in loaded.at(point)]
    if as_json:
        print_json([dict(zip(TITLES, row, strict=True)) for row in rows])
    else:
        print_rows(TITLES, [tuple(map(str, row)) for row in rows])


def _row(hook: Hook) -> tuple[Any, ...]:
    hook_settings = hook.settings
    code = hook_settings.use or hook_settings.url
    return (
        hook.name,
        hook_settings.at,
        hook_settings.order,
        code,
        hook.code.version,
        hook_settings.changes,
        hook_settings.failure,
    )


@click.command()
@click.argument("name")
@click.option(
    "--call",
    "file",
    type=click.File("rb"),
    required=True,
    metavar="FILE",
    help="JSON of the event, such as tool, arguments, roles, result (-: standard input).",
)
@settings_option
def test(settings: Settings, name: str, file: IO[bytes]) -> None:
    """Ask the hook NAME about a call, and print its answer. Fails if the hook does.

    Members of the event that FILE does not have are those of an anonymous call. Nothing else is
    called.

    \b
    Example:
      echo '{"tool": {"name": "createPet"}, "arguments": {"name": "rex"}}' |
        toolgate hooks test pii --call -
    """
    if name not in settings.hooks:
        no_such("hook", name, settings.hooks)
    try:
        members = msgspec.json.decode(file.read(), type=dict[str, Any])
    except msgspec.DecodeError as error:
        fail(f"{file.name}: expected an object of JSON: {error}")
    event = {"tenant": settings.tenant.host_id, "principal": "anonymous", "roles": [], **members}
    answer, seconds = run(_ask(settings, name, event))
    result: dict[str, Any] = {"seconds": round(seconds, 4)}
    if isinstance(answer, HookFailed):
        print_json({**result, "failed": str(answer)})
        raise click.exceptions.Exit(FAILED)
    print_json({**result, "answer": msgspec.to_builtins(answer)})


async def _ask(
    settings: Settings, name: str, event: Mapping[str, Any]
) -> tuple[HookAnswer | HookFailed, float]:
    """The answer, or the failure, also of a hook whose failures pass; and the seconds it took."""
    hook_settings = msgspec.structs.replace(settings.hooks[name], failure="refuse")
    loaded = Hooks(msgspec.structs.replace(settings, hooks={name: hook_settings}))
    began = time.perf_counter()
    try:
        answer: HookAnswer | HookFailed = await loaded.all[0].ask(event)
    except HookFailed as error:
        answer = error
    finally:
        await loaded.close()
    return answer, time.perf_counter() - began
