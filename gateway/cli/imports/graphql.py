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
    import_and_tell,
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
    help="Where calls go [default: SOURCE, if that is an endpoint].",
)
@click.option(
    "--depth",
    type=click.IntRange(1, 10),
    default=_USUAL.depth,
    show_default=True,
    help="Levels of objects that a tool asks for.",
)
@click.option(
    "--cost",
    type=click.IntRange(min=1),
    default=_USUAL.cost,
    show_default=True,
    help="Most fields that a tool asks for; one in a list counts fourfold.",
)
@click.option("--overlay", metavar="FILE", help="A file that says more about single fields.")
@click.option("--only-marked", is_flag=True, help="Import only what FILE marks as enabled.")
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
    """Import the queries and mutations of a GraphQL service. SOURCE is its endpoint, which is asked
    for its schema; or the schema, as a path or a URL that ends in .graphql, .graphqls, .gql, .sdl,
    .json or .txt: SDL, or the JSON answer of an introspection.

    Each field of Query and Mutation becomes a tool. What it asks for is chosen: names and plain
    values first, then objects, within --depth and --cost. A caller changes that for one call with
    the argument _fields, as in ["id", "owner.login"]; --overlay FILE changes it for a tool:

    \b
      operations:
        Query.pets: {name: listPets, selection: "{ id name owner { login } }"}
        Mutation.deletePet: {enabled: false}

    Credentials go into the settings, as sources.NAME.headers; the endpoint is asked with them, too.

    A PATTERN is a glob over fields, as in pets or 'Query.*', or over the names of tools;
    'tag:mutation' matches all mutations. Both options can be given several times.

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
    import_and_tell(settings, spec, dry_run, telling)
