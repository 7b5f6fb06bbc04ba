"""Shared by the import commands: their options, and the import itself."""

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import wraps
from pathlib import Path
from typing import Any, cast

import click
import msgspec

from config.decode import kind_of
from config.settings import Settings
from config.value_types import SourceName
from gateway.cli.commands import RESOURCES
from gateway.cli.common.event_loop import run
from gateway.cli.common.failure import USAGE, CommandFailure, fail
from gateway.cli.common.output import say
from gateway.cli.common.progress import progress_of
from gateway.cli.connections import ConnectChoice, connect_advice, connect_options
from gateway.cli.imports.report import (
    F,
    Json,
    ReportOptions,
    check,
    print_markdown,
    print_report,
    print_report_json,
    print_table,
    telling_options,
)
from gateway.cli.operations import Connect, hinting, open_client
from gateway.upstreams.mcp.stdio import NOT_STARTED
from schemas.description_kinds import DESCRIPTIONS, DETECTION_BYTES, looks_like
from schemas.source import Options as SourceOptions
from schemas.source import facts_of
from schemas.urls import without_credentials


class SettingType(click.ParamType):  # type: ignore[type-arg]  # click 8.2 has no arguments
    """Click type that accepts what the settings file accepts."""

    def __init__(self, name: str, annotation: Any) -> None:
        self.name = name
        self._kind = kind_of(annotation)

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        try:
            return msgspec.convert(value, self._kind.annotation)
        except msgspec.ValidationError:
            actual = without_credentials(str(value))
            hint = _file_hint(str(value)) if self.name == "url" else ""
            self.fail(f"expected {self._kind.expectation}, found {actual!r}{hint}", param, ctx)


def _file_hint(value: str) -> str:
    """Hint for a file given instead of a URL: the importer that takes it."""
    try:
        with Path(value).open("rb") as file:
            kind = looks_like(file.read(DETECTION_BYTES))
    except (OSError, ValueError):
        return ""
    hint = f" that looks like {DESCRIPTIONS[kind]}: use `toolgate import {kind}`" if kind else ""
    return f", a file{hint}"


name_option = click.option(
    "--name",
    required=True,
    type=SettingType("name", SourceName),
    help="Name of the source: lower-case letters, digits, _ and -.",
)
_include_option = click.option(
    "--include",
    multiple=True,
    metavar="PATTERN",
    help="Import only matching operations; repeatable.",
)
_exclude_option = click.option(
    "--exclude", multiple=True, metavar="PATTERN", help="Skip matching operations; repeatable."
)
_dry_run_option = click.option(
    "--dry-run", is_flag=True, help="Print the outcome; needs no database."
)


@dataclass(frozen=True, slots=True)
class ImportChoice:
    """Options that all import commands share."""

    include: tuple[str, ...]
    exclude: tuple[str, ...]
    dry_run: bool
    telling: ReportOptions
    connect: ConnectChoice | None = None


def import_options(command: F) -> F:
    """--include, --exclude, --dry-run and the options of connections and reports; the command
    receives them as `choice`."""

    @wraps(command)
    def call_with_choice(*args: Any, telling: ReportOptions, dry_run: bool, **others: Any) -> Any:
        patterns = others.pop("include"), others.pop("exclude")
        preset = others.pop("connect")
        client = others.pop("client_id") or "", others.pop("client_secret_file") or ""
        if any(client) and preset is None:
            fail("--client-id and --client-secret-file belong to --connect PRESET", USAGE)
        connect = ConnectChoice(preset, *client) if preset else None
        choice = ImportChoice(*patterns, dry_run=dry_run, telling=telling, connect=connect)
        return command(*args, choice=choice, **others)

    decorated: Any = connect_options(telling_options(call_with_choice))
    for option in (_dry_run_option, _exclude_option, _include_option):
        decorated = option(decorated)
    return cast("F", decorated)


@dataclass(frozen=True, slots=True, kw_only=True)
class ImportCommand:
    """Source, location and options that an import command was given."""

    name: str
    location: str
    kind: str
    options: SourceOptions
    base_url: str | None = None


def import_and_report(settings: Settings, command: ImportCommand, choice: ImportChoice) -> None:
    mcp = command.location if facts_of(command.kind).server else ""
    advice = connect_advice(settings, command.name, choice.connect, mcp)
    try:
        report = run(_import(settings, command, choice))
    except CommandFailure as failure:
        if choice.connect is None:
            raise
        raise CommandFailure(f"{failure.message}\n{advice}", failure.exit_code) from failure
    report_import(report, choice.telling)
    if advice and choice.telling.format is None:
        say(advice)


async def _import(settings: Settings, command: ImportCommand, choice: ImportChoice) -> Json:
    body = {
        "kind": "machine",
        "name": command.name,
        "importer": command.kind,
        "location": command.location,
        "include": list(choice.include),
        "exclude": list(choice.exclude),
        "choices": msgspec.to_builtins(command.options),
    }
    if command.base_url is not None:
        body["base_url"] = command.base_url
    operation = "previewImport" if choice.dry_run else "importSource"
    with progress_of(command.name) as job, _advising(command):
        opened = open_client(
            settings,
            url=None,
            key_file=None,
            resources=(RESOURCES + "sources:SourceOperations",),
            job=job,
            has_database=not choice.dry_run,
        )
        async with opened as client:
            return whole_report(
                (await client.call(operation, {"body": body, "report": True})).value
            )


def refresh_and_report(connect: Connect, name: str, telling: ReportOptions) -> None:
    """Import the source again; its settings take precedence."""
    report_import(run(_refresh(connect, name)), telling)


async def _refresh(connect: Connect, name: str) -> Json:
    arguments = {"source": name}
    with progress_of(name) as job:
        async with connect(job=job) as client:

            async def refresh() -> Json:
                answer = await client.call("refreshSource", {**arguments, "report": True})
                return whole_report(answer.value)

            return await hinting(client, arguments, refresh)


def whole_report(result: dict[str, Any]) -> Json:
    """An import's answer, with the members of its report."""
    return {**result, **result["report"]}


def report_import(report: Json, telling: ReportOptions) -> None:
    printers = {"table": print_table, "json": print_report_json, "md": print_markdown}
    printer = printers[telling.format] if telling.format else print_report
    printer(report)
    counts = Counter(operation["status"] for operation in report["operations"])
    check(telling.fail_on, {status: counts[status] for status in ("degraded", "skipped")})


@contextmanager
def _advising(command: ImportCommand) -> Iterator[None]:
    """Adds advice to the error of an MCP server that cannot be imported."""
    try:
        yield
    except CommandFailure as failure:
        advice = _advice(failure.message, command.name) if facts_of(command.kind).server else ""
        raise CommandFailure(f"{failure.message}{advice}", failure.exit_code) from failure


def _advice(reason: str, name: str) -> str:
    if NOT_STARTED in reason:
        return "\nUse the whole path of the command, or add its folder to PATH."
    if "HTTP 401" in reason or "HTTP 403" in reason:
        return (
            f"\nThe server requires credentials: add them to the settings, as in\n"
            f'  sources: {{{name}: {{headers: {{Authorization: "Bearer ${{TOKEN}}"}}}}}}'
        )
    if "HTTP 4" in reason or "HTTP 5" in reason or "as an MCP server" in reason:
        return (
            "\nIs it the whole URL of an MCP endpoint (many end in /mcp or /sse), or a command "
            "that speaks MCP over its standard input and output?"
        )
    return ""
