"""`toolgate tools add`: create manual tools."""

import asyncio
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import click

from config.settings import Settings
from gateway.cli.commands import RESOURCES
from gateway.cli.common.event_loop import run
from gateway.cli.common.failure import USAGE, fail, warn
from gateway.cli.common.operation_parameters import given_members, members_of_call, option
from gateway.cli.common.options import json_option
from gateway.cli.common.output import print_json, remark, say
from gateway.cli.common.parameter_types import DOCUMENT
from gateway.cli.operations import Connect, client_option, declared_operations
from gateway.sandbox.script_runner import Sandbox
from gateway.upstreams.script import OFF

RESOURCE = "manual_tools:ManualToolOperations"
OPERATION = declared_operations((RESOURCES + RESOURCE,))["createTool"]
MEMBERS = {
    name: member
    for name, member in members_of_call(OPERATION).items()
    if name not in {"name", "code"}
}

Json = Mapping[str, Any]


@click.command()
@click.argument("name", required=False)
@click.option(
    "--script", metavar="FILE", help="File with source code that defines main(arguments)."
)
@click.option("--from", "file", metavar="FILE", help="YAML or JSON file with one tool or several.")
@click.option("--dry-run", is_flag=True, help="Print the tool; write nothing.")
@json_option
@client_option(RESOURCE)
def add(
    settings: Settings,
    connect: Connect,
    name: str | None,
    script: str | None,
    file: str | None,
    dry_run: bool,
    as_json: bool,
    **values: Any,
) -> None:
    """Add the manual tool NAME.

    Exactly one of --rest, --graphql, --hybrid, --mcp, --function and --script defines its call.

    Arguments of --rest replace their names in braces; the others are sent in the query, or for
    POST, PUT and PATCH in a JSON body. A request with a path only, as "GET /pets/{id}", is sent to
    --source NAME with its base URL, headers and credentials. A request with a whole URL makes a
    source, named by its host or by --source; its headers are sources.NAME.headers in the settings.

    A function gets the arguments by name: its parameters and annotations are the input schema,
    unless --input-schema is given; a parameter with the annotation gateway.hybrid.Call gets the
    caller.

    A FILE has `tools`: a list of objects with the names of these options in snake_case
    (input_schema, tags). Either all tools are added or none.

    \b
    Examples:
      toolgate tools add weather --description "The weather of a city" \\
          --rest "GET https://api.example.com/weather?city={city}"
      toolgate tools add findPet --rest "GET /pets/{id}" --source pets
      toolgate tools add countWords --function count-words
      toolgate tools add slug --script slug.py --language python \\
          --input-schema slug.json
      toolgate tools add --from tools.yaml --dry-run
    """
    if (name is None) == (file is None):
        fail("expected the NAME of a tool, or --from FILE", USAGE)
    members = given_members(MEMBERS, values) | ({} if script is None else {"script": script})
    if file and members:
        fail("--from FILE takes no other options than --dry-run and --json", USAGE)
    objects = _objects(file) if file else [{"name": name, **members}]
    folder = Path(file).parent if file else Path()
    drafts = [_with_code(tool, folder, settings) for tool in objects]
    tools = run(_create(connect, {"tools": drafts, "dry_run": dry_run}))
    if as_json:
        print_json(tools)
    for tool in tools if not as_json else ():
        where = f", through the source {tool['source']}" if tool["source"] else ""
        say(f"{'Would add' if dry_run else 'Added'} {tool['name']}{where}.")
    for warning in _warnings(settings, drafts):
        warn(warning)
    if not dry_run and not as_json:
        remark(f"Try it: toolgate tools show {tools[0]['name']}")


WORDS = {"url": "target"}  # --url is that of the gateway
add.params += [option(member, WORDS.get(name, "")) for name, member in MEMBERS.items()]


def _objects(file: str) -> list[Any]:
    document = DOCUMENT.convert(file, None, None)
    if not isinstance(document, dict) or "tools" not in document:
        return [document]
    if not isinstance(document["tools"], list) or not document["tools"] or len(document) > 1:
        fail(f"{file}: expected `tools`, a list of tools, and nothing beside it")
    return list(document["tools"])


def _with_code(tool: Any, folder: Path, settings: Settings) -> Any:
    """The tool with the source code instead of its file path."""
    if not isinstance(tool, dict) or not isinstance(tool.get("script"), str):
        return tool
    others = {name: value for name, value in tool.items() if name != "script"}
    try:
        with (folder / tool["script"]).open("rb") as file:
            return {**others, "code": file.read(settings.scripts.source_bytes + 1).decode()}
    except OSError as error:
        fail(f"{tool['script']}: {(error.strerror or str(error)).lower()}")
    except UnicodeDecodeError:
        fail(f"{tool['script']} is not UTF-8 text")


async def _create(connect: Connect, arguments: Json) -> Sequence[Json]:
    async with connect() as client:
        tools: Sequence[Json] = (await client.call("createTools", arguments)).value["tools"]
        return tools


def _warnings(settings: Settings, tools: Sequence[Json]) -> Iterator[str]:
    languages = {tool["language"] for tool in tools if "code" in tool}
    if languages and not settings.scripts.enabled:
        yield f"{OFF}: script tools cannot be called until scripts.enabled is true"
    for language in sorted(languages if settings.scripts.enabled else ()):
        if reason := asyncio.run(Sandbox(lambda: settings.scripts).missing(language)):
            yield f"{language} {reason}"
    if any("function" in tool for tool in tools):
        yield "a running gateway needs the function in its settings (SIGHUP reloads them)"
