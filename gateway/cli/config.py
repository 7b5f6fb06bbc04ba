"""`toolgate config`: what is in effect, and what may stand in the file."""

import os
import sys

import click
import yaml

from config.load import masked, settings_file
from config.schema import json_schema
from config.settings import Settings
from gateway.cli.common.database import run
from gateway.cli.common.options import CONFIG_FILE, json_option
from gateway.cli.common.output import print_json, say
from gateway.cli.common.settings import settings_option
from gateway.cli.doctor.local import gathered
from gateway.cli.doctor.sources import unimported
from gateway.cli.doctor.world import world
from gateway.cli.idle import idle_in_registry
from gateway.cli.serve.exposure import check_exposure


@click.group()
def config() -> None:
    """Show and check the settings.

    The defaults, then the settings file, then variables such as TOOLGATE_SERVER__PORT for
    server.port; each over the last.
    """


@config.command(short_help="Print the effective settings.")
@json_option
@settings_option
@click.pass_context
def show(ctx: click.Context, settings: Settings, as_json: bool) -> None:
    """Print the effective settings; secrets are masked."""
    plain = masked(settings)
    if as_json:
        print_json(plain)
    else:
        sys.stdout.write(f"# {_origin(ctx)}\n")
        sys.stdout.write(yaml.safe_dump(plain, sort_keys=False, allow_unicode=True))


@config.command(short_help="Check the settings; exit code 2 names every mistake.")
@settings_option
@click.pass_context
def check(ctx: click.Context, settings: Settings) -> None:
    """Check the settings file and the environment; exit code 2 names every mistake.

    A server.host where `toolgate serve` would not listen is one. Warned of are files that are not
    there, addresses that do not answer, a Redis that is away, sources that are not imported yet or
    no longer named, and patterns of rules, limits, guardrails and toolsets that match nothing in
    the database, as far as that can be read. `toolgate doctor` looks further.
    """
    check_exposure(settings.server.host, settings.auth)
    _warn_of_the_world(settings)
    _warn_of_idle(settings)
    count = len(settings.sources)
    say(f"Valid: {_origin(ctx)}; {'1 source' if count == 1 else f'{count} sources'}.")


@config.command(short_help="Print the JSON Schema of the settings file.")
def schema() -> None:
    """Print the JSON Schema of the settings file, from which editors complete it."""
    print_json(json_schema())


def _warn_of_the_world(settings: Settings) -> None:
    found = [one for one in run(gathered(world(settings))) if one.status != "ok"]
    for one in [*found, *(run(unimported(settings)) if settings.sources else ())]:
        click.echo(f"toolgate: warning: {one.detail}", err=True)


def _warn_of_idle(settings: Settings) -> None:
    found = run(idle_in_registry(settings))
    for one in found or ():
        click.echo(f"toolgate: warning: {one}", err=True)
    if found is None:
        text = "whether rules and toolsets match anything is not known: the database cannot be read"
        click.echo(f"toolgate: {text}", err=True)


def _origin(ctx: click.Context) -> str:
    """Where the settings come from."""
    file = settings_file(ctx.meta.get(CONFIG_FILE), os.environ)
    return f"{file} over the defaults" if file else "the defaults; there is no settings file"
