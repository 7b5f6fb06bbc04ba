"""The generated pages of the reference, in `docs/reference/`: settings, commands, admin API, RPC,
metrics, events, errors.

`python .ci/reference.py` writes them; tests/documentation/test_reference.py compares them with what
the code has. Metrics and log events are read from the source text, because a gateway has those of
wings only while they are on.
"""

import ast
import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import cache, reduce
from pathlib import Path
from typing import Any

import click
import yaml
from msgspec import UNSET

from config.load import DEFAULTS, load
from config.mcp_clients import read_clients
from config.published_schema import descriptions
from config.yaml_document import KeyPath
from gateway.admin.http_api import AdminApi
from gateway.admin.scopes import OWN
from gateway.app.gateway import Gateway
from gateway.cli.common.lazy import LazyGroup
from gateway.cli.main import cli
from gateway.methods.rpc_discover import openrpc
from gateway.protocol.dispatcher import METHODS
from gateway.wings.events.asyncapi import document
from schemas import errors
from schemas.errors import Fault

ROOT = Path(__file__).resolve().parents[1]
FOLDER = ROOT / "docs" / "reference"
SCHEMA = ROOT / "schemas" / "json" / "config.schema.json"
PREFIX = "toolgate_"  # of the names of metrics
PACKAGES = ("config", "gateway", "registry", "schemas")
FAMILIES = {
    "CounterMetricFamily": "counter", "Counter": "counter", "GaugeMetricFamily": "gauge",
    "gauge": "gauge", "Gauge": "gauge", "HistogramMetricFamily": "histogram",
    "Histogram": "histogram",
}  # fmt: skip
LABELS = ("labels", "labelnames")  # of families, and of metrics
LEVELS = ("debug", "info", "warning", "error", "exception")
MADE = "<!-- Made by `make reference`; do not edit. -->\n"
NOT_ANSWERED = {"Fault", "RelayedFault", "Denied"}  # bases, and what each front answers its own way
Json = Mapping[str, Any]

SETTINGS = """\
# Settings

This page lists every setting with its type, its default and its reason. A settings file needs only
the keys that differ; [Operations](../operations.md#settings) says how it is read again. `NAME`
stands for a name of your own. The variable of a setting in the environment is `TOOLGATE_` and its
key in capitals, with two underscores for each dot ([Environment](environment.md)).
"""
CLIENTS = """\
# Clients

This page has the configuration of each MCP client that `toolgate clients setup` knows. `--write`
adds it to the file, keeps all else in it, and leaves the former file beside it as `.bak`. Keys are
neither printed nor written: the client reads a variable, asks, or a person puts the key in.
"""
ENVIRONMENT = """\
# Environment

The environment can set every [setting](settings.md), and a few variables are read beside them. A
variable takes precedence over the settings file.

| variable | sets |
| --- | --- |
| `TOOLGATE_SERVER__PORT=9000` | `server.port` |
| `TOOLGATE_SOURCES__PETSHOP__BASE_URL=https://pets.example.com` | `sources.petshop.base_url` |
| `TOOLGATE_SERVER__ALLOWED_HOSTS='[a.example.com]'` | a list, as YAML or JSON |

A value in a settings file may name any variable: `${NAME}`, or `${NAME:-default}` for one that is
unset or empty; `$$` is one `$`.

Variables that are no settings:

| variable | what it is |
| --- | --- |
| `TOOLGATE_CONFIG` | the settings file, where no `-c` names one |
| `NO_COLOR` | not empty: output and logs have no colours (https://no-color.org) |
| `XDG_DATA_HOME` | the folder of the embedded database, if the gateway does not run as root |
"""
COMMANDS = """\
# Commands and options

This page is the help of every command. [Command line](../cli.md) has the list of commands and the
exit codes.
"""
ADMIN = """\
# Operations of the admin API

This page lists the operations of the [admin API](../admin-api.md). A gateway describes them in
full, with the types of requests and responses, at `/admin/v1/openapi.json`; the operations of a
wing are described below its own path, as at `/memory/v1/openapi.json`.

"""
SCOPES = """\
# Scopes

This page lists the scopes that operations of the gateway ask for. A key has those of
`toolgate keys create NAME --scope SCOPE`, a token those of its claim. Where a caller needs several
scopes, the page of the part says so. Tools and policy rules may ask for scopes of your own.

"""
PERMITTED = {  # beside the scopes of operations that the admin API has by default
    "admin": "all operations of the admin API, and none of wings, which have scopes of their own, "
    "such as `events:admin`",
    "admin:read": "all operations of the admin API that read, except contents of memories",
    "admin:backups:read": "listing and fetching backups: [Operations](../operations.md)",
    "admin:backups:write": "making and removing backups: [Operations](../operations.md)",
    "admin:connections:read": "listing accounts of all people: [Connections](../connections.md)",
    "admin:connections:write": "changing accounts of all people: [Connections](../connections.md)",
    "admin:logins:read": "listing users, people, clients and logins: [Log in](../login.md)",
    "admin:logins:write": "changing users, people, clients and logins: [Log in](../login.md)",
    "admin:notifications:read": "listing targets and incidents: "
    "[Notifications](../how-to/notifications.md)",
    "admin:notifications:write": "changing and testing targets: "
    "[Notifications](../how-to/notifications.md)",
    "admin:memory": "reading memories of any person: [Memory](../memory.md)",
    "admin:memory:erase": "erasing memories of any person: [Memory](../memory.md)",
    "a2a:read": "agents for other agents, and their tasks: [A2A](../a2a.md)",
    "a2a:write": "sending messages to agents, and cancelling their tasks: [A2A](../a2a.md)",
    "agent:approve": "approving and denying calls that a run waits for: [The agent](../agent.md)",
    "agent:read": "conversations and runs of the caller: [The agent](../agent.md)",
    "agent:reasoning": "the traffic of a run with its model: [The agent](../agent.md)",
    "agent:write": "asking the agent, and cancelling runs: [The agent](../agent.md)",
    "code:read": "programs of the caller, and their results: [Code mode](../code-mode.md)",
    "code:write": "running programs: [Code mode](../code-mode.md)",
    "events:admin": "invocations of all callers, their erasure; webhooks: [Events](../events.md)",
    "events:invoke": "calling tools later, and cancelling such calls: [Events](../events.md)",
    "events:read": "invocations of the caller, and their results: [Events](../events.md)",
    "events:work": "taking invocations of skills, to run them elsewhere: [Events](../events.md)",
    "knowledge:read": "collections and their passages: [Knowledge](../knowledge.md)",
    "knowledge:write": "storing and deleting documents and names: [Knowledge](../knowledge.md)",
    "librarian:audit": "questions of all callers: [The librarian](../librarian.md)",
    "librarian:read": "questions to documents and code: [The librarian](../librarian.md)",
    "librarian:write": "sources that collections follow: [The librarian](../librarian.md)",
    "memory:erase": "erasing and exporting another user: [Memory](../memory.md)",
    "memory:on_behalf": "acting for another user: [Memory](../memory.md)",
    "memory:org:write": "changing memories of the organisation: [Memory](../memory.md)",
    "memory:read": "finding and reading memories: [Memory](../memory.md)",
    "memory:write": "writing and deleting memories: [Memory](../memory.md)",
}
RPC = """\
# Methods of JSON-RPC and MCP

This page lists the methods that every gateway has at `/rpc`, and those of MCP. Beside them each
tool is a method of `/rpc` by its name, and each hybrid action by its id. `rpc.discover` answers an
OpenRPC 1.3.2 document of all that the caller may call:

```sh
curl -s http://127.0.0.1:8765/rpc -H 'Content-Type: application/json' \\
  -d '{"jsonrpc": "2.0", "id": 1, "method": "rpc.discover"}'
```

## Methods of /rpc

"""
MCP = """
## Methods of MCP

[Clients and protocol](../clients-and-protocol.md#revisions-of-mcp) tells which revision has what.

"""
METRICS = """\
# Metrics

This page lists the metrics that `/metrics` serves in the format of Prometheus. A histogram has
samples that end in `_bucket`, `_sum` and `_count`. With several workers (`server.workers`) each
sample has a label `worker`. Metrics of a wing are there while it is on.

"""
EVENTS = """\
# Events

This page lists the events that programs receive, and those in the log.

## CloudEvents

The wing [Events](../events.md) takes and sends these types; `/events/v1/asyncapi.json` describes
them by AsyncAPI 3.

"""
LOG = """
## Events in the log

A line of the log has the name of its event and keys with the facts. With `logging.format: json` it
is one JSON object.

"""
ERRORS = """\
# Errors

This page lists the errors of JSON-RPC and MCP, with the HTTP status of a request that fails as a
whole. A tool that ran and failed is no error but a result with `isError`; errors of other servers
are passed on as they are. The admin API and the REST APIs of wings answer problems of RFC 9457
instead. `data` of an error names what helps: `retryAfter` seconds, the `limit` that was exceeded,
the `approval` to wait for.

"""


def cell(text: object) -> str:
    """Text of one cell of a table."""
    line = " ".join(str(text).split())
    return re.sub(r"<(?=[a-zA-Z/!])", "&lt;", line).replace("|", "\\|")


def table(head: Iterable[str], rows: Iterable[Iterable[object]]) -> str:
    titles = tuple(head)
    lines = [titles, ("---",) * len(titles), *rows]
    return "".join(f"| {' | '.join(cell(one) for one in row)} |\n" for row in lines)


# Settings


def settings() -> str:
    schema = json.loads(SCHEMA.read_text())
    described = dict(descriptions(DEFAULTS.read_text(encoding="utf-8")))
    defaults = yaml.safe_load(DEFAULTS.read_bytes())
    parts = [SETTINGS]
    for name, section in schema["properties"].items():
        rows = [
            (f"`{key}`", _kind(schema, kind), *_facts(key, kind, described, defaults))
            for key, kind in _keys(schema, section, name)
        ]
        parts.append(f"\n## {name}\n\n{cell(section.get('description', ''))}\n\n")
        parts.append(table(("key", "type", "default", "what it is"), rows))
    return "".join(parts)


def _facts(
    key: str, kind: Json, described: Mapping[KeyPath, str], defaults: Any
) -> tuple[str, str]:
    """Default and description of a setting; those of `defaults.yaml` come first."""
    path = tuple(key.split("."))
    named = tuple(part for part in path if part != "NAME")
    default = kind.get("default", UNSET)
    if "NAME" not in path:
        default = reduce(lambda found, part: found[part], path, defaults)
    shown = "" if default is UNSET else f"`{json.dumps(default, ensure_ascii=False)}`"
    return shown, described.get(named) or kind.get("description", "")


def _keys(
    schema: Json, found: Json, path: str, seen: tuple[str, ...] = ()
) -> Iterator[tuple[str, Json]]:
    """Key and schema of each setting from `path` down."""
    kind = _definition(schema, found)
    name = kind.get("title", "")
    if "properties" in kind and name not in seen:
        for key, inner in kind["properties"].items():
            yield from _keys(schema, inner, f"{path}.{key}", (*seen, name))
        return
    yield path, found
    entry = kind.get("additionalProperties")
    if isinstance(entry, dict) and "properties" in _definition(schema, entry):
        yield from _keys(schema, entry, f"{path}.NAME", seen)


def _definition(schema: Json, found: Json) -> Json:
    """What a reference refers to; of alternatives the one that is an object."""
    for one in found.get("anyOf", [found]):
        if "$ref" in one and not one["$ref"].endswith("/Interpolated"):
            named: Json = schema["$defs"][one["$ref"].rpartition("/")[2]]
            return named
        if one.get("type") == "object":
            return one  # type: ignore[no-any-return]
    return found


def _kind(schema: Json, found: Json) -> str:
    """The type of a setting in words."""
    if "anyOf" in found:
        kinds = [_kind(schema, one) for one in found["anyOf"]]
        return " or ".join(dict.fromkeys(one for one in kinds if one))
    if "enum" in found:
        return ", ".join(f"`{one}`" for one in found["enum"])
    if "$ref" in found:
        name = found["$ref"].rpartition("/")[2]
        return "" if name == "Interpolated" else _kind(schema, schema["$defs"][name]) or "object"
    kind = found.get("type", "")
    if kind == "array":
        return f"list of {_kind(schema, found.get('items', {})) or 'values'}"
    if kind == "object" and isinstance(found.get("additionalProperties"), dict):
        return f"mapping to {_kind(schema, found['additionalProperties']) or 'values'}"
    return "text" if isinstance(kind, list) else str(kind)


def environment() -> str:
    return ENVIRONMENT


# Commands


def commands() -> str:
    root = cli.make_context("toolgate", [], resilient_parsing=True)
    return COMMANDS + "".join(_commands(cli, "", root))


def _commands(command: click.Command, name: str, root: click.Context) -> Iterator[str]:
    if not isinstance(command, LazyGroup) or command.invoke_without_command:
        # below the context of `toolgate`, whose settings name the options for help
        with click.Context(command, info_name=name, parent=root, terminal_width=100) as context:
            yield f"\n## toolgate {name}\n\n```text\n{command.get_help(context)}\n```\n"
    if isinstance(command, LazyGroup):
        for inner in command.list_commands(root):
            yield from _commands(command.load(inner), f"{name} {inner}".strip(), root)


# Admin API and RPC


def admin_api() -> AdminApi:
    gateway = Gateway(load(None, {"TOOLGATE_AUTH__MODE": "keys", "TOOLGATE_AUTH__API_KEYS": "yes"}))
    gateway.app()
    if gateway.admin is None:
        raise LookupError("the admin API is off")
    return gateway.admin


def scopes() -> str:
    by_scope: dict[str, list[str]] = {}
    for operation in sorted(admin_api().operations.by_id.values(), key=lambda each: each.id):
        by_scope.setdefault(operation.scope, []).append(f"`{operation.id}`")
    rows = [
        (f"`{scope}`", PERMITTED.get(scope) or ", ".join(by_scope[scope]))
        for scope in sorted(OWN)
        if scope in PERMITTED or scope in by_scope
    ]
    return SCOPES + table(("scope", "permits"), rows)


def admin() -> str:
    api = admin_api()
    root = load(None, {}).admin.path
    found = sorted(api.operations.by_id.values(), key=lambda one: (one.path, one.method))
    rows = [
        (
            f"`{one.id}`",
            f"`{one.method} {root}{one.path}`",
            f"`{one.scope}`" if one.scope else "any",
            one.summary,
        )
        for one in found
    ]
    return ADMIN + table(("operation", "request", "scope", "what it does"), rows)


def rpc() -> str:
    own = [
        (f"`{one['name']}`", _params(one["params"]), one["summary"])
        for one in openrpc([])["methods"]
    ]
    others = "".join(f"- `{name}`\n" for name in sorted(METHODS - {"rpc.discover"}))
    return RPC + table(("method", "parameters", "what it does"), own) + MCP + others


def _params(params: Iterable[Json]) -> str:
    shown = [f"`{one['name']}`" + (" (required)" if one.get("required") else "") for one in params]
    return ", ".join(shown) or "none"


# Metrics and events, from the source text


@cache
def texts_of_modules() -> list[tuple[Path, str]]:
    """The modules of the packages."""
    paths = [path for one in PACKAGES for path in sorted((ROOT / one).rglob("*.py"))]
    return [(path, path.read_text()) for path in paths]


def trees(part: str) -> Iterator[tuple[Path, ast.Module]]:
    """The modules whose text has `part`; to read all of them takes many times as long."""
    return ((path, ast.parse(text)) for path, text in texts_of_modules() if part in text)


def families() -> dict[str, list[str]]:
    """Type, labels and text of each metric, by its name."""
    return {name: row for _, tree in trees(PREFIX) for name, *row in _families(tree)}


def metrics() -> str:
    shown = [(f"`{name}`", *row) for name, row in sorted(families().items())]
    return METRICS + table(("metric", "type", "labels", "what it is"), shown)


def _families(tree: ast.Module) -> Iterator[tuple[str, str, str, str]]:
    """Name, type, labels and text of each metric that a module makes."""
    named = _assigned(tree)
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and (kind := FAMILIES.get(_called(node))):
            name, text = (*(_text(_value(one, named)) for one in node.args[:2]), "", "")[:2]
            if name.startswith(PREFIX):
                suffix = "_total" if kind == "counter" else ""
                yield name + suffix, kind, _labels(node, named), text
        elif isinstance(node, ast.Tuple) and len(node.elts) == 3:  # a row of a table of gauges
            name, text = _text(node.elts[0]), _text(node.elts[1])
            if name.startswith(PREFIX):
                yield name, "gauge", "`profile`" if name.startswith("toolgate_list_") else "", text


Assigned = list[tuple[int, str, ast.expr]]
"""Line, name and value of each assignment of a module."""


def _assigned(tree: ast.Module) -> Assigned:
    return [
        (node.lineno, target.id, node.value)
        for node in ast.walk(tree)
        if isinstance(node, ast.Assign)
        for target in node.targets
        if isinstance(target, ast.Name)
    ]


def _value(node: ast.expr, named: Assigned) -> ast.expr:
    """An expression, or for a name what was assigned to it last."""
    if not isinstance(node, ast.Name):
        return node
    before = [row for row in named if row[1] == node.id and row[0] < node.lineno]
    return max(before, key=lambda row: row[0])[2] if before else node


def _called(node: ast.Call) -> str:
    return node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")


def _text(node: ast.expr) -> str:
    return node.value if isinstance(node, ast.Constant) and isinstance(node.value, str) else ""


def _labels(node: ast.Call, named: Assigned) -> str:
    given = next((one.value for one in node.keywords if one.arg in LABELS), None)
    found = None if given is None else _value(given, named)
    labels = found.elts if isinstance(found, ast.Tuple) else []
    return ", ".join(f"`{_text(one)}`" for one in labels)


def events() -> str:
    rows: dict[str, set[str]] = {}
    for path, tree in trees("log."):
        for name, level in _logged(tree):
            rows.setdefault(name, set()).add(f"{level} of `{path.relative_to(ROOT).as_posix()}`")
    described = document(load(None, {}).events, "")["components"]["messages"]
    messages = [(f"`{one['name']}`", one["summary"]) for one in described.values()]
    logged = [(f"`{name}`", ", ".join(sorted(rows[name]))) for name in sorted(rows)]
    return (
        EVENTS
        + table(("type", "what it is"), messages)
        + LOG
        + table(("event", "level and module"), logged)
    )


def _logged(tree: ast.Module) -> Iterator[tuple[str, str]]:
    """Name and level of each event that a module logs by a constant name."""
    for node in ast.walk(tree):
        if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute):
            continue
        level, of = node.func.attr, node.func.value
        if level in LEVELS and isinstance(of, ast.Name) and of.id == "log" and node.args:
            for one in ast.walk(node.args[0]):
                if isinstance(one, ast.Constant) and isinstance(one.value, str):
                    yield one.value, "error" if level == "exception" else level


# Errors


def faults() -> str:
    kinds = [kind for kind in vars(errors).values() if _is_fault(kind)]
    rows = [(kind.code, kind.status, kind.__name__, _first(kind.__doc__)) for kind in kinds]
    rows.sort(key=lambda row: (abs(row[0]), row[1], row[2]))
    return ERRORS + table(("code", "HTTP status", "name", "what it is"), rows)


def _is_fault(kind: object) -> bool:
    return isinstance(kind, type) and issubclass(kind, Fault) and kind.__name__ not in NOT_ANSWERED


def _first(text: str | None) -> str:
    """The first sentence of a docstring."""
    return " ".join((text or "").split()).partition(". ")[0].rstrip(".") + "."


def clients() -> str:
    values = {"url": "http://127.0.0.1:8765/mcp", "name": "toolgate", "env": "MCP_KEY_TOOLGATE",
              "command": "toolgate", "key_file": "/home/ann/toolgate.key"}  # fmt: skip
    parts = [CLIENTS]
    for name, client in read_clients().items():
        place = f"`{client.file}`" if client.file else client.where
        source = f"[this page]({client.source})"
        parts.append(
            f"\n## {client.title}\n\n{place}; compared with {source} on {client.checked}.\n"
        )
        for title, with_key in (
            ("with a login, or without authentication", False),
            ("with a key", True),
        ):
            command = f"toolgate clients setup {name}" + (" --key" if with_key else "")
            text = client.text(values, with_key)
            parts.append(f"\n`{command}`, {title}:\n\n```{client.format}\n{text}```\n")
    return "".join(parts)


PAGES: Mapping[str, Callable[[], str]] = {
    "settings": settings,
    "environment": environment,
    "commands": commands,
    "admin-operations": admin,
    "scopes": scopes,
    "rpc": rpc,
    "metrics": metrics,
    "events": events,
    "errors": faults,
    "clients": clients,
}


def texts() -> dict[Path, str]:
    """The contents of the files."""
    return {FOLDER / f"{name}.md": MADE + made() for name, made in PAGES.items()}


if __name__ == "__main__":
    FOLDER.mkdir(parents=True, exist_ok=True)
    for file, text in texts().items():
        file.write_text(text)
