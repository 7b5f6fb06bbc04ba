"""`toolgate tools call`: calls a tool through the same pipeline as a client."""

import sys
from typing import Any

import click
import msgspec
from msgspec.structs import replace
from rich.json import JSON

from config.settings import Settings
from gateway.app.gateway import Gateway
from gateway.cli.common.database import open_registry
from gateway.cli.common.event_loop import run
from gateway.cli.common.failure import fail, no_such
from gateway.cli.common.options import json_option
from gateway.cli.common.output import out, print_json
from gateway.cli.common.settings import settings_option
from gateway.cli.common.text import harmless
from gateway.cli.common.tool_arguments import parse_arguments, read_object, read_pairs
from gateway.context import Context, Identity, new_request_id
from schemas.jsonrpc import ErrorReply, Request
from schemas.mcp.revisions import V2026_07_28
from schemas.tool import Tool


@click.command()
@click.argument("name")
@click.argument("arguments", nargs=-1, metavar="[NAME=VALUE]...")
@click.option(
    "--args", "args_json", metavar="JSON", help="Arguments as one object; - reads standard input."
)
@json_option
@settings_option
def call(
    settings: Settings,
    name: str,
    arguments: tuple[str, ...],
    args_json: str | None,
    as_json: bool,
) -> None:
    """Call the tool NAME and print its result. Exit code 1 if the tool reports an error. NAME can
    also be the id of a hybrid action, host/service/action/version.

    A VALUE that is JSON is parsed, unless the input schema of the tool expects text.

    \b
    Examples:
      toolgate tools call listPets limit=3 species=cat
      toolgate tools call createPet name=Rex tags='["good", "boy"]'
      toolgate tools call createPet --args '{"name": "Rex"}'
      echo '{"name": "Rex"}' | toolgate tools call createPet --args -
    """
    pairs = read_pairs(arguments)
    text = sys.stdin.read() if args_json == "-" else args_json
    members = {} if text is None else read_object(text)
    result, refused = run(_call(settings, name, pairs, members))
    if as_json:
        print_json(result)
    else:
        for item in result["content"]:
            _print_content(item)
    if result.get("isError"):
        advice = f" Its arguments: toolgate tools show {name}" if refused else ""
        fail(f"{name} reported an error.{advice}")


def _print_content(item: dict[str, Any]) -> None:
    """Print text, readable and escaped at a terminal; binary content by its type."""
    if "text" not in item:
        part = item.get("resource", item)
        encoded = part.get("data") or part.get("blob") or ""
        size = len(encoded) * 3 // 4
        out.print(f"({part.get('mimeType', item['type'])}, about {size} bytes; --json has them)")
    elif not out.is_terminal:
        sys.stdout.write(item["text"] + "\n")
    elif item["text"].startswith(("{", "[")):
        out.print(_readable(item["text"]))
    else:
        out.print(harmless(item["text"]))


def _readable(text: str) -> JSON | str:
    try:
        return JSON(text)
    except ValueError:
        return harmless(text)


def _uncut(settings: Settings) -> Settings:
    """Settings without truncation: the command's process keeps no answers to fetch later."""
    answers = settings.answers
    uncut_answers = replace(answers, tokens=0, inline_bytes=answers.download_bytes)
    return replace(settings, answers=uncut_answers)


async def _call(
    settings: Settings, name: str, pairs: dict[str, str], members: dict[str, Any]
) -> tuple[dict[str, Any], bool]:
    """The result, and whether it is an error in the arguments."""
    gateway = Gateway(_uncut(settings))
    try:
        async with open_registry(settings) as registry:
            await gateway.secrets.load(registry.database.pool)
            await gateway.catalogs.reload(registry.store, registry.host_id)
        return await _dispatch(gateway, name, pairs, members)
    finally:
        await gateway.upstreams.client.close()


async def _dispatch(
    gateway: Gateway, name: str, pairs: dict[str, str], members: dict[str, Any]
) -> tuple[dict[str, Any], bool]:
    catalog = gateway.catalogs.of(gateway.principal.tenant)
    tool = catalog.get(name) or catalog.service(name)
    if tool is None:
        ids = [action.service for each in catalog.services if (action := each.binding.action)]
        no_such("tool", name, [*(each.name for each in catalog.tools), *ids])
    _check_loaded(tool, gateway)
    checker = catalog.checker(tool)
    arguments = parse_arguments(pairs, members, checker)
    context = Context(Identity(gateway.principal), V2026_07_28, new_request_id())
    request = Request("2.0", "tools/call", {"name": tool.name, "arguments": arguments}, 1)
    reply = await gateway.dispatcher.dispatch(context, request)
    if reply is None or isinstance(reply, ErrorReply):
        fail(reply.error.message if reply else "no answer")
    result: dict[str, Any] = msgspec.json.decode(reply.result)
    return result, not checker.accepts(arguments)


def _check_loaded(tool: Tool, gateway: Gateway) -> None:
    """Python tools run only where the settings name their code."""
    if tool.source and tool.binding.facts.loaded and tool.source not in gateway.upstreams.services:
        fail(
            f"{tool.name} is a Python tool, and these settings do not have its source "
            f"{tool.source}: use the settings file that has it, as in "
            f"toolgate -c FILE tools call {tool.name}"
        )
