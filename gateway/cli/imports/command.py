"""`toolgate import`: create tools from a description. `toolgate sources refresh`: repeat it."""

from pathlib import Path
from typing import Literal

import click

from config.decode import absolute
from config.settings import Settings
from config.types import EntryName, HttpUrl
from gateway.cli.common.database import settings_option
from gateway.cli.common.failure import USAGE, fail
from gateway.cli.imports.graphql import graphql
from gateway.cli.imports.mcp import mcp
from gateway.cli.imports.report import Reporting, ReportOptions, telling_options
from gateway.cli.imports.shared import (
    SettingType,
    dry_run_option,
    exclude_option,
    import_and_tell,
    include_option,
    name_option,
    refresh_and_tell,
)
from registry.sources.source_reader import ImportSpec
from schemas.hybrid import Side
from schemas.source import HybridOptions, OpenAPIOptions


@click.group(name="import")
def import_() -> None:
    """Turn the description of a service, or what another MCP server has, into tools."""


@import_.command(cls=Reporting, short_help="Import an OpenAPI or Swagger description.")
@click.argument("source", type=click.Path())
@name_option
@click.option(
    "--base-url",
    metavar="URL",
    type=SettingType("url", HttpUrl),
    help="Where calls go [default: the description's first server].",
)
@click.option(
    "--entry",
    metavar="FILE",
    type=SettingType("file", EntryName),
    help="The file to begin with, in a directory or an archive.",
)
@click.option(
    "--overlay", metavar="FILE", help="A file that says what x-toolgate says, for SOURCE."
)
@click.option("--only-marked", is_flag=True, help="Import only what is marked as enabled.")
@click.option(
    "--media-type",
    "media_types",
    multiple=True,
    metavar="TYPE",
    help="Prefer this type of request bodies.",
)
@include_option
@exclude_option
@dry_run_option
@telling_options
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
    include: tuple[str, ...],
    exclude: tuple[str, ...],
    dry_run: bool,
    telling: ReportOptions,
) -> None:
    """Import the description SOURCE: OpenAPI 3.0 to 3.2 or Swagger 2.0, JSON or YAML, a path or a
    URL. Files that it refers to are read too; of a directory or a zip archive, openapi.yaml or the
    like is the one to begin with, unless --entry names another.

    Importing again updates: tools keep their identity, and those whose operation is gone from
    the description go too. It is all or nothing; a running gateway notices by itself.

    A PATTERN is a glob over the operation's id, its tool's name or its request line, as in
    'GET /path/{id}'; 'tag:NAME' matches a tag. Both options can be given several times.

    A description can say about its operations, under `x-toolgate`, whether they are enabled, and
    how they are named, described and grouped; --overlay FILE says the same beside it.

    \b
    Examples:
      toolgate import openapi petshop.yaml --name pets \\
          --base-url http://localhost:8766
      toolgate import openapi https://example.com/openapi.json --name example \\
          --dry-run
      toolgate import openapi github.json --name github \\
          --include 'tag:issues' --exclude 'DELETE *'
      toolgate import openapi ./descriptions --name shop --entry v2/openapi.yaml \\
          --overlay shop-tools.yaml --only-marked
    """
    beside = absolute(overlay, Path.cwd()) if overlay else None
    options = OpenAPIOptions(entry, beside, only_marked, media_types)
    spec = ImportSpec(
        name,
        source,
        base_url=base_url,
        include=include,
        exclude=exclude,
        kind="openapi",
        options=options,
    )
    import_and_tell(settings, spec, dry_run, telling)


@import_.command(cls=Reporting, short_help="Import a hybrid service's spec.yaml or schema.json.")
@click.argument("source", metavar="SPEC", type=click.Path())
@name_option
@click.option(
    "--base-url",
    required=True,
    metavar="URL",
    type=SettingType("url", HttpUrl),
    help="Where the service is; a SPEC does not say.",
)
@click.option(
    "--side",
    type=click.Choice(["query", "command"]),
    help="Which portal path its actions answer on [default: both].",
)
@click.option(
    "--dialect",
    type=click.Choice(["jsonrpc", "legacy"]),
    default="jsonrpc",
    show_default=True,
    help="What its calls go out as.",
)
@click.option(
    "--batch",
    type=click.IntRange(min=1),
    default=1,
    show_default=True,
    help="Most calls that travel in one JSON-RPC batch.",
)
@include_option
@exclude_option
@dry_run_option
@telling_options
@settings_option
def hybrid(
    settings: Settings,
    source: str,
    name: str,
    base_url: str,
    side: Side | None,
    dialect: Literal["jsonrpc", "legacy"],
    batch: int,
    include: tuple[str, ...],
    exclude: tuple[str, ...],
    dry_run: bool,
    telling: ReportOptions,
) -> None:
    """Import the actions of a hybrid service (light-hybrid-4j) from SPEC: a path or a URL of its
    spec.yaml, or of the older schema.json.

    Each action becomes a tool, rule_deleteRule for lightapi.net/rule/deleteRule/0.1.0, and can
    still be called by its id. Its schema, scope and skipAuth hold here as they do there. Importing
    again updates: tools keep their identity, and those whose action is gone go too.

    Calls go to /portal/query or /portal/command below the base URL, by --side, and to
    /portal/command where that is not said. A base URL with a path of its own is the whole address.

    --side query also says that the actions change nothing. --batch is for services that understand
    JSON-RPC batches; light-hybrid-4j itself does not.

    A PATTERN is a glob over an action's id or its tool's name. Both options can be given several
    times.

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
        fail(f"--batch {batch}: --dialect legacy has no batches; leave one of them out", USAGE)
    options = HybridOptions(side, dialect, batch)
    spec = ImportSpec(
        name,
        source,
        base_url=base_url,
        include=include,
        exclude=exclude,
        kind="hybrid",
        options=options,
    )
    import_and_tell(settings, spec, dry_run, telling)


@click.command(cls=Reporting, short_help="Import a source again.")
@click.argument("name")
@settings_option
@telling_options
def refresh(settings: Settings, name: str, telling: ReportOptions) -> None:
    """Import the source NAME again, from where and as it was imported before.

    What the settings say about NAME comes first; so this also imports, without waiting for
    `toolgate serve`, what only the settings know yet.
    """
    refresh_and_tell(settings, name, telling)


import_.add_command(graphql)
import_.add_command(mcp)
