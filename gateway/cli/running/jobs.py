"""`toolgate jobs`: jobs of a running gateway, and waiting for one with its progress."""

import sys
from collections.abc import Callable
from typing import Any

import click

from config.access import ADMIN_TOOLSET
from config.settings import Settings
from gateway.cli.common.database import run, settings_option
from gateway.cli.common.lazy import LazyGroup
from gateway.cli.common.options import json_option
from gateway.cli.common.output import print_json, print_rows
from gateway.cli.running.admin import asked, finish, gateway_address, progress_of, waited

COMMANDS = {
    "list": ("gateway.cli.running.jobs:list_", "List jobs, the newest first."),
    "show": ("gateway.cli.running.jobs:show", "Show a job: its progress, or its result."),
    "cancel": ("gateway.cli.running.jobs:cancel", "Cancel a job."),
    "wait": ("gateway.cli.running.jobs:wait", "Wait until a job has ended."),
}
COLUMNS = ("JOB", "OPERATION", "STATE", "PROGRESS", "BY", "CREATED")

Json = dict[str, Any]


@click.group(cls=LazyGroup, lazy=COMMANDS)
def jobs() -> None:
    """Jobs of a running gateway: imports and other work that takes long.

    The gateway serves them where admin.tools is true, to tokens that may call the operation of a
    job.
    """


def _gateway_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add --token and --url; pass the address and the token."""
    token = click.option(
        "--token", metavar="TEXT", required=True, help="A bearer token; - reads it."
    )
    url = click.option(
        "--url", metavar="URL", help="The gateway [default: as the settings have it]."
    )
    return token(url(command))


@click.command(name="list")
@click.option("--limit", type=click.IntRange(1), default=50, show_default=True)
@_gateway_options
@json_option
@settings_option
def list_(settings: Settings, limit: int, token: str, url: str | None, as_json: bool) -> None:
    """List jobs, the newest first."""
    found = run(asked(*_where(settings, token, url), "listJobs", {"limit": limit}))["items"]
    if as_json:
        print_json(found)
    else:
        print_rows(COLUMNS, [_row(one) for one in found])


@click.command()
@click.argument("job")
@_gateway_options
@settings_option
def show(settings: Settings, job: str, token: str, url: str | None) -> None:
    """Show a job: its progress, or its result, as JSON."""
    print_json(run(asked(*_where(settings, token, url), "getJob", {"job": job})))


@click.command()
@click.argument("job")
@_gateway_options
@settings_option
def cancel(settings: Settings, job: str, token: str, url: str | None) -> None:
    """Cancel a job. One that runs ends a moment later; one that has ended stays."""
    print_json(run(asked(*_where(settings, token, url), "cancelJob", {"job": job})))


@click.command()
@click.argument("job")
@_gateway_options
@settings_option
def wait(settings: Settings, job: str, token: str, url: str | None) -> None:
    """Wait until a job has ended, and print it as JSON. Fails if the job did.

    Ctrl-C stops waiting; the job goes on.
    """
    finish(run(waited(*_where(settings, token, url), job)))


def _where(settings: Settings, token: str, url: str | None) -> tuple[str, str]:
    """Address and token for `asked`."""
    secret = sys.stdin.read().strip() if token == "-" else token  # noqa: S105 - stdin
    return f"{gateway_address(settings, url)}{settings.rpc.path}/{ADMIN_TOOLSET}", secret


def _row(job: Json) -> tuple[str, ...]:
    state = "cancelling" if job.get("cancelling") else job["state"]
    return (job["job"], job["operation"], state, progress_of(job), job["principal"], job["created"])
