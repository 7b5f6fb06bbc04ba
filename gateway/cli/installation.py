"""`toolgate config | init | completion | migrate`: set up an installation."""

import os
import sys
from pathlib import Path

import click
import yaml
from click.shell_completion import get_completion_class

from config.load import mask_secrets, settings_file
from config.published_schema import json_schema
from config.settings import Settings
from gateway.cli.common.checks import collect
from gateway.cli.common.event_loop import run
from gateway.cli.common.failure import USAGE, fail, warn
from gateway.cli.common.lazy import Group
from gateway.cli.common.options import CONFIG_FILE, json_option
from gateway.cli.common.output import print_json, say
from gateway.cli.common.settings import settings_option
from gateway.cli.common.unmatched_patterns import idle_in_registry
from gateway.cli.doctor.environment import missing_imports, missing_resources, wings_of_installation
from gateway.cli.serve.exposure import check_exposure
from gateway.wings.table import mistakes

USUAL = Path("toolgate.yaml")
STARTER = """\
# Toolgate settings. Every key is optional; `toolgate config show` prints what is in effect.
# ${NAME} and ${NAME:-default} take values from the environment.

server:
  port: 8765

# "embedded" needs nothing installed; or name a PostgreSQL 16+ with pgvector:
# database:
#   url: postgresql://toolgate:${DB_PASSWORD}@db.example.com/toolgate

# APIs to serve, by a name of your choice. They are imported when the gateway starts.
sources: {}
#  petshop:
#    openapi: petshop.yaml                   # path or URL of the OpenAPI description
#    base_url: https://petshop.example.com   # where calls go
#    credentials:                            # by the names of its security schemes
#      api_key: {value: "${PETSHOP_KEY}"}
#    headers:                                # sent with every call
#      X-Client: toolgate
#    exclude: ["tag:internal", "DELETE *"]
"""


@click.command()
@click.argument("path", default=USUAL, type=click.Path(dir_okay=False, path_type=Path))
@click.option("--force", is_flag=True, help="Overwrite an existing file.")
def init(path: Path, force: bool) -> None:
    """Write a commented settings file to PATH [default: toolgate.yaml].

    The file is optional: all settings have defaults.
    """
    try:
        with path.open("w" if force else "x", encoding="utf-8") as file:
            file.write(STARTER)
    except FileExistsError:
        fail(f"{path} exists already; use --force to overwrite it")
    except OSError as error:
        fail(f"{path} cannot be written: {(error.strerror or str(error)).lower()}")
    option = "" if path == USUAL else f" -c {path}"
    click.echo(f"Wrote {path}. Name your APIs in it, then: toolgate serve{option}")
    click.echo(f"Or import one now: toolgate import openapi YOUR-API.yaml --name api{option}")


SHELLS = ("bash", "fish", "zsh")


@click.command(short_help="Print a script for shell completion.")
@click.argument("shell", type=click.Choice(SHELLS))
@click.pass_context
def completion(ctx: click.Context, shell: str) -> None:
    """Print the script that makes SHELL complete commands and options of toolgate.

    \b
    To have it in every new shell:
      bash  echo 'eval "$(toolgate completion bash)"' >> ~/.bashrc
      zsh   echo 'eval "$(toolgate completion zsh)"' >> ~/.zshrc
      fish  toolgate completion fish > ~/.config/fish/completions/toolgate.fish
    """
    writer = get_completion_class(shell)
    if writer is None:
        raise click.UsageError(f"{shell} is not known to this version of click")
    click.echo(writer(ctx.find_root().command, {}, "toolgate", "_TOOLGATE_COMPLETE").source())


@click.group(cls=Group)
def config() -> None:
    """Show and check the settings.

    Environment variables such as TOOLGATE_SERVER__PORT override the settings file, which overrides
    the defaults.
    """


@config.command(short_help="Print the effective settings.")
@json_option
@settings_option
@click.pass_context
def show(ctx: click.Context, settings: Settings, as_json: bool) -> None:
    """Print the effective settings; secrets are masked."""
    plain = mask_secrets(settings)
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

    A server.host where `toolgate serve` refuses to listen is a mistake. Warnings name missing
    files, unreachable addresses and Redis servers, sources that are not imported yet or no longer
    in the settings, and patterns of rules, limits, guardrails and toolsets without a match in the
    database, if that can be read. `toolgate doctor` checks more.
    """
    check_exposure(settings.server.host, settings.auth)
    if texts := mistakes(settings):
        fail("\n  ".join(texts), USAGE)
    _warn_of_environment(settings)
    _warn_of_patterns(settings)
    count = len(settings.sources)
    say(f"Valid: {_origin(ctx)}; {'1 source' if count == 1 else f'{count} sources'}.")


@config.command(short_help="Print the JSON Schema of the settings file.")
def schema() -> None:
    """Print the JSON Schema of the settings file, for completion in editors."""
    print_json(json_schema())


def _warn_of_environment(settings: Settings) -> None:
    checks = [*run(collect(missing_resources(settings))), *run(wings_of_installation(settings))]
    check = [check for check in checks if check.status != "ok"]
    for finding in [*check, *(run(missing_imports(settings)) if settings.sources else ())]:
        warn(f"warning: {finding.detail}")


def _warn_of_patterns(settings: Settings) -> None:
    patterns = run(idle_in_registry(settings))
    for pattern in patterns or ():
        warn(f"warning: {pattern}")
    if patterns is None:
        text = "patterns of rules and toolsets are unchecked: the database cannot be read"
        warn(text)


def _origin(ctx: click.Context) -> str:
    """Source of the settings."""
    file = settings_file(ctx.meta.get(CONFIG_FILE), os.environ)
    return f"{file} over the defaults" if file else "the defaults; there is no settings file"
