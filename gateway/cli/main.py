"""`toolgate`: the root command group, and error handling."""

import os
import sys

import click

from gateway.cli.common.failure import FAILED, INTERRUPTED, CommandFailure
from gateway.cli.common.lazy import LazyGroup
from gateway.cli.common.options import CONFIG_FILE, config_option
from gateway.wings.table import WINGS

COMMANDS = {
    "init": ("gateway.cli.installation:init", "Write a commented settings file."),
    "import": (
        "gateway.cli.imports.command:import_",
        "Import tools from a service or an MCP server.",
    ),
    "serve": ("gateway.cli.serve.command:serve", "Serve tools to MCP and JSON-RPC clients."),
    "login": ("gateway.cli.running.login:login", "Log in at a gateway with your account."),
    "logout": ("gateway.cli.running.login:logout", "End your login at a gateway."),
    "connect": (
        "gateway.cli.running.connect:connect",
        "Connect a stdio client to a server of streamable HTTP.",
    ),
    "tools": ("gateway.cli.operations:tools", "List, show, search, call and accept tools."),
    "sources": (
        "gateway.cli.operations:sources",
        "List, compare, update and remove sources.",
    ),
    "search": ("gateway.cli.search.command:search", "Measure and explain the search for tools."),
    "embed": (
        "gateway.cli.operations:embed",
        "Show and repair the embeddings of tools and skills.",
    ),
    "worker": ("gateway.cli.serve.worker:worker", "Run a worker process for embeddings and jobs."),
    "models": ("gateway.cli.models:models", "List, check and ask chat models."),
    "skills": (
        "gateway.cli.operations:skills",
        "Import, list and change skills.",
    ),
    "agents": ("gateway.cli.operations:agents", "List and change agents and their skills."),
    "policy": ("gateway.cli.operations:policy", "List, explain and change policy rules."),
    "toolsets": ("gateway.cli.operations:toolsets", "List, store and delete toolsets."),
    "approvals": (
        "gateway.cli.operations:approvals",
        "Approve or deny calls that wait for approval.",
    ),
    "hooks": ("gateway.cli.hooks:hooks", "List and try the hooks around calls."),
    "registry": (
        "gateway.cli.operations:registry",
        "Find MCP servers in registries, update added ones.",
    ),
    "secrets": ("gateway.cli.operations:secrets", "Store encrypted credentials of sources."),
    "token": ("gateway.cli.access.token:token", "Create, inspect and revoke tokens."),
    "keys": ("gateway.cli.operations:keys", "Create, list and revoke API keys."),
    "users": ("gateway.cli.operations:users", "Add and change users who have a password."),
    "people": ("gateway.cli.operations:people", "List and disable people who have logged in."),
    "logins": ("gateway.cli.operations:logins", "List and end logins of people."),
    "clients": ("gateway.cli.operations:clients", "List and remove clients of the login."),
    "connections": (
        "gateway.cli.operations:connections",
        "List and end connections of people to sources.",
    ),
    "admin": (
        "gateway.cli.admin:admin",
        "Call operations of the admin API by their names.",
    ),
    "jobs": ("gateway.cli.operations:jobs", "List, await and cancel jobs of a running gateway."),
    "erasures": (
        "gateway.cli.operations:erasures",
        "Erase a person everywhere, and list the reports.",
    ),
    "sessions": (
        "gateway.cli.operations:sessions",
        "List and end sessions at a running gateway.",
    ),
    "status": ("gateway.cli.operations:status", "Show the status of a running gateway."),
    "health": ("gateway.cli.running.health:health", "Tell whether a gateway takes requests."),
    "top": ("gateway.cli.running.top:top", "Show requests, times and errors of gateways."),
    "audit": ("gateway.cli.operations:audit", "Search, verify and export the audit log."),
    "costs": ("gateway.cli.operations:costs", "Show tokens and money by caller and model."),
    "portal": ("gateway.cli.operations:portal", "Report who still sends legacy payloads."),
    "webhooks": ("gateway.cli.operations:webhooks", "List, add and test webhooks for events."),
    "notifications": (
        "gateway.cli.operations:notifications",
        "Say where messages about incidents go, and test it.",
    ),
    "parity": ("gateway.cli.parity:parity", "Test a server with the parity vectors."),
    "config": ("gateway.cli.installation:config", "Show and check the settings."),
    "migrate": ("gateway.cli.databases:migrate", "Migrate the database to this release."),
    "backup": ("gateway.cli.backups:backup", "Back up the database; list and verify backups."),
    "restore": ("gateway.cli.databases:restore", "Restore a backup into an empty database."),
    "export": (
        "gateway.cli.stored.command:export",
        "Write everything that is stored to a file, for Git.",
    ),
    "apply": ("gateway.cli.stored.command:apply", "Bring a gateway to what such a file has."),
    "database": (
        "gateway.cli.database_move:database",
        "Move the database to another server.",
    ),
    "doctor": (
        "gateway.cli.doctor.command:doctor",
        "Check the installation and suggest remedies.",
    ),
    "completion": ("gateway.cli.installation:completion", "Print a script for shell completion."),
}
COMMANDS |= {
    name: (f"gateway.cli.wings:{name}", row.summary)
    for name, row in WINGS.items()
    if name not in COMMANDS  # a wing whose operations are for operators alone
}

ALIASES = {
    **dict.fromkeys(("run", "start", "up", "server"), "serve"),
    **dict.fromkeys(("add", "load"), "import"),
    "check": "doctor",
}


@click.group(
    cls=LazyGroup,
    lazy=COMMANDS,
    aliases=ALIASES,
    context_settings={"help_option_names": ["-h", "--help"]},
    invoke_without_command=True,
)
@config_option
@click.version_option(package_name="toolgate", prog_name="toolgate")
@click.pass_context
def cli(ctx: click.Context, config_file: str | None) -> None:
    """Toolgate is one gateway in front of all your services and MCP servers.

    \b
    A first run:
      toolgate import openapi petshop.yaml --name pets   make tools of an API
      toolgate tools list                                see them
      toolgate tools call listPets limit=3               call one
      toolgate serve                                     serve them to clients

    \b
    Exit codes: 0 done, 1 failed, 2 wrong usage or settings, 3 no database,
    4 done, but an outcome of --fail-on occurred, 130 interrupted.
    """
    ctx.meta[CONFIG_FILE] = config_file
    if ctx.invoked_subcommand is None:
        from gateway.cli.first_look import print_first_look  # `--help` does not import settings

        print_first_look(config_file)


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
