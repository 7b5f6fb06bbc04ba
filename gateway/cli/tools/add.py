"""`toolgate tools add`: create manual tools."""

import asyncio
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, get_args

import click
import msgspec
from msgspec.structs import replace

from config.settings import Settings
from gateway.cli.common.acts import Act
from gateway.cli.common.database import open_registry, run, settings_option
from gateway.cli.common.failure import USAGE, fail, warn
from gateway.cli.common.options import check_tier, finding_options, json_option
from gateway.cli.common.output import print_json, remark, say
from gateway.hybrid.functions import load_functions
from gateway.sandbox.runner import Sandbox
from gateway.upstreams.script import OFF
from registry.importers.openapi import parse
from registry.tools.manual_bindings import make_tool, tool_kind
from registry.tools.manual_edits import (
    Cost,
    KnownFunction,
    KnownSources,
    Lifecycle,
    NewTool,
    ToolRefused,
    ToolRequest,
)
from registry.tools.manual_tools import ManualTools
from schemas.binding import Language
from schemas.errors import Fault, ImportRejected
from schemas.jsonrpc import decode_strict
from schemas.mismatch import mismatch_text

FILE_BYTES = 10 * 2**20

_OPTIONS = [
    click.option("--description", metavar="TEXT", default="", help="Description for the model."),
    click.option("--title", metavar="TEXT", help="Name for people."),
    click.option("--input-schema", metavar="FILE|JSON", help="JSON Schema of the arguments."),
    click.option(
        "--rest", metavar="REQUEST", help='HTTP request, as "GET https://example.com/pets/{id}".'
    ),
    click.option("--graphql", metavar="DOCUMENT", help="GraphQL operation with one field."),
    click.option(
        "--hybrid", metavar="ID", help="Action of a hybrid service: host/service/action/version."
    ),
    click.option("--mcp", metavar="TOOL", help="Tool of the MCP server --source."),
    click.option("--function", metavar="NAME", help="Function of `functions` in the settings."),
    click.option(
        "--script", metavar="FILE", help="File with source code that defines main(arguments)."
    ),
    click.option("--language", type=click.Choice(get_args(Language)), help="Language of --script."),
    click.option("--url", metavar="URL", help="Target of --graphql and --hybrid."),
    click.option(
        "--source", metavar="NAME", help="Source whose base URL and credentials are used."
    ),
    click.option(
        "--scope", metavar="SCOPES", help="Scopes of a hybrid action; one of them is required."
    ),
    click.option("--tag", "tags", metavar="TAG", multiple=True, help="Tag; repeatable."),
    click.option(
        "--toolset",
        "toolsets",
        metavar="NAME",
        multiple=True,
        help="Toolset of the tool; repeatable.",
    ),
    finding_options,
    click.option(
        "--lifecycle", type=click.Choice(get_args(Lifecycle)), help="Lifecycle [default: active]."
    ),
    click.option("--personas", metavar="TEXT", help="Target personas."),
    click.option("--cost", type=click.Choice(get_args(Cost)), help="Cost of a call."),
]


def described_by(command: Any) -> Any:
    for option in reversed(_OPTIONS):
        command = option(command)
    return command


@click.command()
@click.argument("name", required=False)
@described_by
@click.option("--from", "file", metavar="FILE", help="YAML or JSON file with one tool or several.")
@click.option("--dry-run", is_flag=True, help="Print the tool; write nothing.")
@json_option
@settings_option
def add(
    settings: Settings,
    name: str | None,
    file: str | None,
    dry_run: bool,
    as_json: bool,
    **said: Any,
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
    (input_schema, tags), and also output_schema, annotations, examples, and `code`, the source
    code of a script. Either all tools are added or none.

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
    folder = Path(file).parent if file else Path()
    objects = _objects(file) if file else [_object(name, said)]
    if file and any(value for value in said.values()):
        fail("--from FILE takes no other options than --dry-run and --json", USAGE)
    wanted = [
        _with_code(request, folder, settings) for request in _read(objects, file or "the options")
    ]
    for request in wanted:
        check_tier(request.tier, settings.policy.tiers)
    made = run(_add(settings, wanted, dry_run))
    if as_json:
        print_json([_as_json(new) for new in made])
    for new in made if not as_json else ():
        where = f", through the source {new.address.name}" if new.address else ""
        say(f"{'Would add' if dry_run else 'Added'} {new.draft.name}{where}.")
    for warning in _warnings(settings, made):
        warn(warning)
    if not dry_run and not as_json:
        remark(f"Try it: toolgate tools show {made[0].draft.name}")


def _object(name: str | None, said: dict[str, Any]) -> dict[str, Any]:
    given = {key: value for key, value in said.items() if value not in (None, ())}
    if "input_schema" in given:
        given["input_schema"] = schema_of(given["input_schema"])
    return {"name": name, **given}


def schema_of(text: str) -> Any:
    """JSON, literal or from a file."""
    if text.lstrip().startswith("{"):
        try:
            return decode_strict(text.encode())
        except (Fault, UnicodeEncodeError) as error:
            fail(f"--input-schema: {error}", USAGE)
    return _parse_file(text)


def _parse_file(file: str) -> dict[str, Any]:
    try:
        data = sys.stdin.buffer.read() if file == "-" else Path(file).read_bytes()
        if len(data) > FILE_BYTES:
            fail(f"{file} has more than {FILE_BYTES} bytes")
        return parse(data, file, "expected a JSON or YAML object", unique=True)
    except OSError as error:
        fail(f"{file}: {(error.strerror or str(error)).lower()}")
    except ImportRejected as error:
        fail(str(error))


def _objects(file: str) -> list[Any]:
    document = _parse_file(file)
    if "tools" not in document:
        return [document]
    if not isinstance(document["tools"], list) or not document["tools"] or len(document) > 1:
        fail(f"{file}: expected `tools`, a list of tools, and nothing beside it")
    return list(document["tools"])


def _read(objects: Sequence[Any], place: str) -> Iterator[ToolRequest]:
    for number, value in enumerate(objects):
        try:
            yield msgspec.convert(value, ToolRequest)
        except msgspec.ValidationError as error:
            name = value.get("name") if isinstance(value, dict) else None
            which = f" {name}" if isinstance(name, str) else f" {number + 1}" * (len(objects) > 1)
            fail(f"{place}: tool{which}: {mismatch_text(value, ToolRequest, error)}", USAGE)


def _with_code(wanted: ToolRequest, folder: Path, settings: Settings) -> ToolRequest:
    """The request with the source code instead of its file path."""
    try:
        tool_kind(wanted)
    except ToolRefused as error:
        fail(str(error))
    if wanted.script is None:
        return wanted
    try:
        with (folder / wanted.script).open("rb") as file:
            code = file.read(settings.scripts.source_bytes + 1).decode()
    except OSError as error:
        fail(f"{wanted.script}: {(error.strerror or str(error)).lower()}")
    except UnicodeDecodeError:
        fail(f"{wanted.script} is not UTF-8 text")
    return replace(wanted, script=None, code=code)


async def _add(settings: Settings, wanted: Sequence[ToolRequest], dry_run: bool) -> list[NewTool]:
    functions = {}
    if any(request.function is not None for request in wanted):
        loaded = load_functions(settings.functions)
        functions = {
            name: KnownFunction(function.schema, function.description, function.takes)
            for name, function in loaded.items()
        }
    act = None if dry_run else Act("createTool", ", ".join(request.name for request in wanted))
    async with open_registry(settings, act) as registry:
        sources = await registry.store.sources(registry.host_id)
        tools = await registry.store.tools(registry.host_id)
        by_name = {source.name: source for source in sources}
        known = KnownSources(by_name, tuple(tools), functions, settings.scripts.source_bytes)
        made = [make_tool(request, known) for request in wanted]
        await ManualTools(registry.database.pool, registry.host_id).add(made, dry_run=dry_run)
    return made


def _as_json(new: NewTool) -> dict[str, Any]:
    draft = new.draft
    return {
        "name": draft.name,
        "title": draft.title,
        "description": draft.description,
        "inputSchema": draft.input_schema,
        "binding": draft.binding,
        "source": new.address.name if new.address else None,
        "baseUrl": new.address.base_url if new.address else None,
    }


def _warnings(settings: Settings, made: Sequence[NewTool]) -> Iterator[str]:
    bindings = [new.draft.binding for new in made]
    languages = {binding.language for binding in bindings if binding.language is not None}
    if languages and not settings.scripts.enabled:
        yield f"{OFF}: script tools cannot be called until scripts.enabled is true"
    for language in sorted(languages if settings.scripts.enabled else ()):
        if reason := asyncio.run(Sandbox(lambda: settings.scripts).missing(language)):
            yield f"{language} {reason}"
    if any(binding.facts.loaded for binding in bindings):
        yield "a running gateway needs the function in its settings (SIGHUP reloads them)"
