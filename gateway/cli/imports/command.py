"""`toolgate import`: create tools from a description. `toolgate sources refresh`: repeat it."""

from pathlib import Path
from typing import Literal

import click

from config.decode import absolute
from config.settings import Settings
from config.value_types import EntryName, HttpUrl
from gateway.cli.common.failure import USAGE, fail
from gateway.cli.common.lazy import Group
from gateway.cli.common.settings import settings_option
from gateway.cli.imports.a2a import a2a
from gateway.cli.imports.graphql import graphql
from gateway.cli.imports.mcp import mcp
from gateway.cli.imports.report import ReportingCommand, ReportOptions, telling_options
from gateway.cli.imports.shared import (
    ImportChoice,
    ImportCommand,
    SettingType,
    import_and_report,
    import_options,
    name_option,
    refresh_and_report,
)
from gateway.cli.operations import Connect, client_option
from schemas.hybrid import Side
from schemas.source import HybridOptions, OpenAPIOptions


@click.group(name="import", cls=Group)
def import_() -> None:
    """Import tools from the description of a service or from an MCP server."""


@import_.command(cls=ReportingCommand, short_help="Import an OpenAPI or Swagger description.")
@click.argument("source", type=click.Path())
@name_option
@click.option(
    "--base-url",
    metavar="URL",
    type=SettingType("url", HttpUrl),
    help="Base URL of calls [default: the description's first server].",
)
@click.option(
    "--entry",
    metavar="FILE",
    type=SettingType("file", EntryName),
    help="Root file in a directory or an archive.",
)
@click.option("--overlay", metavar="FILE", help="File with x-toolgate metadata for SOURCE.")
@click.option("--only-marked", is_flag=True, help="Import only operations marked as enabled.")
@click.option(
    "--media-type",
    "media_types",
    multiple=True,
    metavar="TYPE",
    help="Preferred type of request bodies; repeatable.",
)
@import_options
@settings_option
def openapi(
    settings: Settings,
    source: str,
    name: str,
    base_url: str | None,
    entry: str | None,
    overlay: str | None,
    only_marked: bool,
    media_types: tuple[str, ...],
    choice: ImportChoice,
) -> None:
    """Import the description SOURCE: OpenAPI 3.0 to 3.2 or Swagger 2.0, JSON or YAML, a path or a
    URL. Referenced files are read, too. The root file of a directory or a zip archive is
    openapi.yaml or the like, unless --entry names another.

    A repeated import updates the source: tools keep their ids, and tools of removed operations are
    removed. An import is atomic; running gateways serve the result at once.

    A PATTERN is a glob for the operation id, the tool name or the request line, as in
    'GET /path/{id}'; 'tag:NAME' matches a tag. Both options are repeatable.

    The extension `x-toolgate` of an operation sets whether it is enabled, its name, description
    and group; --overlay FILE has the same metadata in a file of its own.

    \b
    Examples:
      toolgate import openapi petshop.yaml --name pets \\
          --base-url http://localhost:8766
      toolgate import openapi https://example.com/openapi.json --name example \\
          --dry-run
      toolgate import openapi github.json --name github \\
          --include 'tag:issues' --exclude 'DELETE *'
      toolgate import openapi github.json --name github --connect github \\
          --client-id ID --client-secret-file github.secret
      toolgate import openapi ./descriptions --name shop --entry v2/openapi.yaml \\
          --overlay shop-tools.yaml --only-marked
    """
    beside = absolute(overlay, Path.cwd()) if overlay else None
    options = OpenAPIOptions(entry, beside, only_marked, media_types)
    command = ImportCommand(
        name=name, location=source, kind="openapi", options=options, base_url=base_url
    )
    import_and_report(settings, command, choice)


@import_.command(
    cls=ReportingCommand, short_help="Import a hybrid service's spec.yaml or schema.json."
)
@click.argument("source", metavar="SPEC", type=click.Path())
@name_option
@click.option(
    "--base-url",
    required=True,
    metavar="URL",
    type=SettingType("url", HttpUrl),
    help="Base URL of the service.",
)
@click.option(
    "--side",
    type=click.Choice(["query", "command"]),
    help="Portal path of its actions [default: both].",
)
@click.option(
    "--dialect",
    type=click.Choice(["jsonrpc", "legacy"]),
    default="jsonrpc",
    show_default=True,
    help="Format of its calls.",
)
@click.option(
    "--batch",
    type=click.IntRange(min=1),
    default=1,
    show_default=True,
    help="Most calls in one JSON-RPC batch.",
)
@import_options
@settings_option
def hybrid(
    settings: Settings,
    source: str,
    name: str,
    base_url: str,
    side: Side | None,
    dialect: Literal["jsonrpc", "legacy"],
    batch: int,
    choice: ImportChoice,
) -> None:
    """Import the actions of a hybrid service (light-hybrid-4j) from SPEC: a path or a URL of its
    spec.yaml, or of the older schema.json.

    Each action becomes a tool, such as rule_deleteRule for lightapi.net/rule/deleteRule/0.1.0; its
    id calls the tool, too. The schema, scope and skipAuth of an action apply. A repeated import
    updates the source: tools keep their ids, and tools of removed actions are removed.

    Calls are sent to /portal/query or /portal/command below the base URL, as --side selects;
    /portal/command is the default. A base URL with a path is the whole address.

    --side query also marks the actions as read-only. --batch is for services that support JSON-RPC
    batches; light-hybrid-4j itself does not.

    A PATTERN is a glob for the action id or the tool name. Both options are repeatable.

    \b
    Examples:
      toolgate import hybrid rule/spec.yaml --name rules \\
          --base-url http://localhost:8439 --side command
      toolgate import hybrid user/spec.yaml --name users \\
          --base-url http://localhost:8440 --side query --dialect legacy
      toolgate import hybrid spec.yaml --name rules --dry-run \\
          --base-url http://localhost:8439/api/json --include '*/delete*'
    """
    if dialect == "legacy" and batch > 1:
        fail(f"--batch {batch}: --dialect legacy has no batches; remove one of the options", USAGE)
    options = HybridOptions(side, dialect, batch)
    command = ImportCommand(
        name=name, location=source, kind="hybrid", options=options, base_url=base_url
    )
    import_and_report(settings, command, choice)


@click.command(cls=ReportingCommand, short_help="Import a source again.")
@click.argument("name")
@telling_options
@client_option("sources:SourceOperations")
def refresh(_settings: Settings, connect: Connect, name: str, telling: ReportOptions) -> None:
    """Import the source NAME again, from its location and with its options.

    The settings of NAME take precedence; a source that only the settings have is imported, too.
    """
    refresh_and_report(connect, name, telling)


import_.add_command(a2a)
import_.add_command(graphql)
import_.add_command(mcp)
