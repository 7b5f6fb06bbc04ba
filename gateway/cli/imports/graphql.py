"""`toolgate import graphql`: create tools from the queries and mutations of a service."""

from pathlib import Path

import click

from config.decode import absolute
from config.settings import Settings
from config.types import HttpUrl
from gateway.cli.common.database import settings_option
from gateway.cli.imports.report import Reporting, ReportOptions, telling_options
from gateway.cli.imports.shared import (
    SettingType,
    dry_run_option,
    exclude_option,
    import_and_report,
    include_option,
    name_option,
)
from registry.sources.source_reader import ImportSpec
from schemas.source import GraphQLOptions

_USUAL = GraphQLOptions()


@click.command(cls=Reporting, short_help="Import a GraphQL service.")
@click.argument("source", type=click.Path())
@name_option
@click.option(
    "--base-url",
    metavar="URL",
    type=SettingType("url", HttpUrl),
    help="Endpoint of calls [default: SOURCE, if it is an endpoint].",
)
@click.option(
    "--depth",
    type=click.IntRange(1, 10),
    default=_USUAL.depth,
    show_default=True,
    help="Levels of objects in a selection.",
)
@click.option(
    "--cost",
    type=click.IntRange(min=1),
    default=_USUAL.cost,
    show_default=True,
    help="Most fields in a selection; a field in a list counts fourfold.",
)
@click.option("--overlay", metavar="FILE", help="File with metadata of single fields.")
@click.option("--only-marked", is_flag=True, help="Import only fields that FILE marks as enabled.")
@include_option
@exclude_option
@dry_run_option
@telling_options
@settings_option
def graphql(
    settings: Settings,
    source: str,
    name: str,
    base_url: str | None,
    depth: int,
    cost: int,
    overlay: str | None,
    only_marked: bool,
    include: tuple[str, ...],
    exclude: tuple[str, ...],
    dry_run: bool,
    telling: ReportOptions,
) -> None:
    """Import the queries and mutations of a GraphQL service. SOURCE is its endpoint, which is
    introspected; or its schema, a path or a URL that ends in .graphql, .graphqls, .gql, .sdl, .json
    or .txt: SDL, or the JSON result of an introspection.

    Each field of Query and Mutation becomes a tool. Its selection has scalar fields first, then
    objects, within --depth and --cost. The argument _fields of a call replaces the selection, as in
    ["id", "owner.login"]; --overlay FILE replaces it for a tool:

    \b
      operations:
        Query.pets: {name: listPets, selection: "{ id name owner { login } }"}
        Mutation.deletePet: {enabled: false}

    Credentials belong in the settings, in sources.NAME.headers; introspection uses them, too.

    A PATTERN is a glob for fields, as in pets or 'Query.*', or for tool names; 'tag:mutation'
    matches all mutations. Both options are repeatable.

    \b
    Examples:
      toolgate import graphql https://example.com/graphql --name example
      toolgate import graphql schema.graphql --name shop \\
          --base-url http://localhost:4000/graphql --exclude tag:mutation
      toolgate import graphql schema.json --name shop --dry-run --depth 2
    """
    beside = absolute(overlay, Path.cwd()) if overlay else None
    options = GraphQLOptions(beside, only_marked, depth, cost)
    spec = ImportSpec(
        name,
        source,
        base_url=base_url,
        include=include,
        exclude=exclude,
        kind="graphql",
        options=options,
    )
    import_and_report(settings, spec, dry_run, telling)
