"""`toolgate import graphql`: create tools from the queries and mutations of a service."""

from pathlib import Path

import click

from config.decode import absolute
from config.settings import Settings
from config.value_types import HttpUrl
from gateway.cli.common.settings import settings_option
from gateway.cli.imports.report import ReportingCommand
from gateway.cli.imports.shared import (
    ImportChoice,
    ImportCommand,
    SettingType,
    import_and_report,
    import_options,
    name_option,
)
from schemas.source import GraphQLOptions

_USUAL = GraphQLOptions()


@click.command(cls=ReportingCommand, short_help="Import a GraphQL service.")
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
@import_options
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
    choice: ImportChoice,
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
    command = ImportCommand(
        name=name, location=source, kind="graphql", options=options, base_url=base_url
    )
    import_and_report(settings, command, choice)
