"""`toolgate`: the root command group, and error handling."""

import os
import sys

import click

from gateway.cli.common.failure import FAILED, INTERRUPTED, CommandFailure
from gateway.cli.common.lazy import LazyGroup
from gateway.cli.common.options import CONFIG_FILE, config_option
from gateway.wings.table import WINGS

COMMANDS = {
    "init": ("gateway.cli.installation:init", "Write a settings file to begin with."),
    "import": (
        "gateway.cli.imports.command:import_",
        "Turn a service, or an MCP server, into tools.",
    ),
    "serve": ("gateway.cli.serve.command:serve", "Serve the tools to MCP and JSON-RPC clients."),
    "tools": ("gateway.cli.tools.command:tools", "List, show, search, call and approve tools."),
    "sources": (
        "gateway.cli.sources.command:sources",
        "List, compare and care for what was imported.",
    ),
    "search": ("gateway.cli.search.command:search", "Measure and explain how tools are found."),
    "embed": ("gateway.cli.embed.command:embed", "Look after the vectors that tools are found by."),
    "worker": ("gateway.cli.embed.worker:worker", "Make vectors and run jobs beside the gateways."),
    "skills": (
        "gateway.cli.skills.command:skills",
        "Instructions for a kind of work, with its tools.",
    ),
    "agents": ("gateway.cli.skills.agents:agents", "Who has which skills."),
    "policy": ("gateway.cli.access.policy:policy", "Say who may do what, and why."),
    "approvals": ("gateway.cli.access.approvals:approvals", "Agree to calls that wait for it."),
    "secrets": ("gateway.cli.access.secrets:secrets", "Store secrets of sources, encrypted."),
    "token": ("gateway.cli.access.token:token", "Make, show and revoke tokens."),
    "keys": ("gateway.cli.access.keys:keys", "API keys for machines."),
    "admin": (
        "gateway.cli.running.admin:admin",
        "Call operations of a running gateway's admin API.",
    ),
    "jobs": ("gateway.cli.running.jobs:jobs", "Imports and other long work of a running gateway."),
    "sessions": ("gateway.cli.running.sessions:sessions", "Open sessions at a gateway that runs."),
    "status": ("gateway.cli.running.sessions:status", "Show how a gateway is that runs."),
    "audit": ("gateway.cli.audit:audit", "Look into the log of calls and decisions."),
    "parity": ("gateway.cli.parity:parity", "Test a server with the parity vectors."),
    "config": ("gateway.cli.installation:config", "Show and check the settings."),
    "migrate": ("gateway.cli.installation:migrate", "Bring the database to this release."),
    "doctor": (
        "gateway.cli.doctor.command:doctor",
        "Find out what is wrong, and what to do about it.",
    ),
    "completion": ("gateway.cli.installation:completion", "Complete commands in your shell."),
}
COMMANDS |= {name: (f"gateway.cli.wings:{name}", row.summary) for name, row in WINGS.items()}

MEANT = {
    **dict.fromkeys(("run", "start", "up", "server"), "serve"),
    **dict.fromkeys(("add", "load"), "import"),
    **dict.fromkeys(("check", "health"), "doctor"),
}


@click.group(
    cls=LazyGroup,
    lazy=COMMANDS,
    meant=MEANT,
    context_settings={"help_option_names": ["-h", "--help"]},
)
@config_option
@click.version_option(package_name="toolgate", prog_name="toolgate")
@click.pass_context
def cli(ctx: click.Context, config_file: str | None) -> None:
    """One gateway in front of all your services, MCP servers among them.

    \b
    A first run:
      toolgate import openapi petshop.yaml --name pets   make tools of an API
      toolgate tools list                                see them
      toolgate tools call listPets limit=3               call one
      toolgate serve                                     serve them to clients

    \b
    Exit codes: 0 done, 1 failed, 2 wrong usage or settings, 3 no database,
    4 done, but there is what --fail-on names, 130 interrupted.
    """
    ctx.meta[CONFIG_FILE] = config_file


def main() -> None:
    """Run the command line. Expected errors print a sentence, not a traceback."""
    try:
        code = _outcome()
        sys.stdout.flush()
    except BrokenPipeError:  # the reader closed the pipe, as `head` does
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        code = FAILED
    except OSError as error:  # such as a full disk
        CommandFailure(_reason(error)).show()
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        code = FAILED
    sys.exit(code)


def _outcome() -> int:
    try:
        code: int | None = cli.main(prog_name="toolgate", standalone_mode=False)
    except click.Abort:
        CommandFailure("interrupted").show()
        return INTERRUPTED
    except click.ClickException as error:
        error.show()
        return error.exit_code
    return code or 0


def _reason(error: OSError) -> str:
    subject = f"{error.filename}: " if error.filename else ""
    return subject + (error.strerror or str(error)).lower()
