"""Words of the command line for operations: a table of groups and their commands.

A row names an operation. What its path, query and body take, its summary and its details come from
the operation; a row adds what only a command line has.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from gateway.operations.operation import Operation

RESOURCES = "gateway.admin.resources."


@dataclass(frozen=True, slots=True, kw_only=True)
class CommandRow:
    operation: str
    summary: str = ""  # "": that of the operation
    arguments: tuple[str, ...] = ()  # members that are arguments, behind those of the path
    options: Mapping[str, str] = field(default_factory=dict)  # other words for members
    metavars: Mapping[str, str] = field(default_factory=dict)
    given: Mapping[str, Any] = field(default_factory=dict)  # members that the word says
    body: str = ""  # metavar of the argument that is the whole body
    each: bool = False  # the last name of the path may be repeated
    confirms: bool | None = None  # whether a person confirms; None: where something is removed
    columns: tuple[tuple[str, str, str], ...] = ()  # of a list; (): those of the view
    limit: int | None = None  # of a list; None: all
    says: str = ""  # the sentence that is printed; names of members stand in braces
    prints: str = ""  # the member of the answer that is printed, alone
    hint: str = ""  # for a person below a list
    help: str = ""  # beside summary and details of the operation
    examples: tuple[str, ...] = ()

    def asks(self, operation: Operation) -> bool:
        return operation.effect == "remove" if self.confirms is None else self.confirms

    def lists(self, operation: Operation) -> bool:
        return "after" in operation.query.__struct_fields__ and operation.method == "GET"


Hand = tuple[str, str]  # "module:attribute", summary


@dataclass(frozen=True, slots=True, kw_only=True)
class CommandGroup:
    help: str
    resources: tuple[str, ...]  # "module:class" with the rows of the operations
    rows: Mapping[str, CommandRow | Hand]
    view: str = ""  # its key in VIEWS
    remote: bool = False  # the operations are about a gateway that runs


GROUPS: Mapping[str, CommandGroup] = {
    "keys": CommandGroup(
        help="""Create, list, rotate and revoke API keys for machines.

        Clients send a key as "Authorization: Bearer KEY" or "X-API-Key: KEY", if auth.mode is jwt
        or keys. Its principal is key:NAME by default, or key:NAME#ID if the name was used by a
        revoked key; its scopes and roles set its permissions. The creator of a key cannot approve
        calls made with it. The registry stores a hash of the key only.
        """,
        resources=(RESOURCES + "keys:KeyOperations",),
        view="keys",
        rows={
            "create": CommandRow(
                operation="createKey",
                arguments=("name",),
                prints="secret",
                says="The key {key[id]} of {key[principal]}. Store it now: it is not shown again.",
                examples=(
                    "toolgate keys create deploy --scope memory:read --expires 90d",
                    "toolgate keys create audit --role auditor > audit.key",
                ),
            ),
            "list": CommandRow(operation="listKeys"),
            "show": CommandRow(operation="getKey"),
            "rotate": CommandRow(
                operation="rotateKey",
                prints="secret",
                says="The key {key[id]} of {key[principal]}. Store it now: it is not shown again.",
                examples=("toolgate keys rotate deploy --overlap 2h > deploy.key",),
            ),
            "revoke": CommandRow(
                operation="revokeKey", confirms=False, given={"earlier": True},
                says="Revoked {key}.",
            ),
        },
    ),
    "agents": CommandGroup(
        help="""List, show, add and remove agents, and grant skills to them.

        The token's claim skills.agent_claim names the agent of a client; else ?agent=NAME in its
        URL does. An agent sees the skills granted to it, most important first; other clients see
        all skills.
        """,
        resources=(RESOURCES + "agents:AgentOperations",),
        view="agents",
        rows={
            "list": CommandRow(
                operation="listAgents",
                columns=(("name", "Name", "code"), ("skills", "Skills", "text"),
                         ("description", "Description", "text")),
                hint="To add one: toolgate agents add NAME --description TEXT",
            ),
            "show": CommandRow(operation="getAgent"),
            "add": CommandRow(
                operation="putAgent",
                options={"model_name": "model", "model_provider": "provider"},
                says="{written} {name}.",
            ),
            "grant": CommandRow(
                operation="grantSkills", arguments=("skills",),
                says="{agent} has {given[skills]}.",
                help="A grant includes all skills below the skill.",
            ),
            "revoke": CommandRow(
                operation="revokeSkills", each=True, confirms=False,
                says="Revoked from {agent}: {skill}.",
            ),
            "remove": CommandRow(
                operation="deleteAgent", says="Removed {agent}.",
                help="Its clients are refused then.",
            ),
        },
    ),
    "approvals": CommandGroup(
        help="List, approve and deny calls that wait for approval.",
        resources=(RESOURCES + "policy:PolicyOperations",),
        view="approvals",
        rows={
            "list": CommandRow(
                operation="listApprovals", hint="To approve one: toolgate approvals approve ID"
            ),
            "show": CommandRow(
                operation="getApproval",
                help="Arguments that are secret, by their schema or their name, are masked.",
            ),
            "approve": CommandRow(
                operation="decide", summary="Approve a call.", given={"approve": True},
                says="Approved: {principal} may call {tool} once.",
                help="An approved call may be repeated once with these arguments, within "
                "policy.approval_s seconds.",
            ),
            "deny": CommandRow(
                operation="decide", summary="Deny a call.", given={"approve": False},
                says="Denied: {principal} may not make this call of {tool}.",
                help="A denied call waits for approval again when it is repeated.",
            ),
        },
    ),
    "sessions": CommandGroup(
        help="List and end sessions of clients at a running gateway.",
        resources=(RESOURCES + "sessions:SessionOperations",),
        view="sessions",
        remote=True,
        rows={
            "list": CommandRow(
                operation="listSessions",
                help="Sessions of all gateways that share their state are listed. An id is for "
                "`sessions end` only; it is not the session id of MCP.",
            ),
            "show": CommandRow(operation="getSession"),
            "end": CommandRow(operation="endSession", says="Ended {session}."),
        },
    ),
    "jobs": CommandGroup(
        help="""List, show, cancel and await jobs of a running gateway.

        Jobs are imports and other operations of the admin API that take long. A key or token sees
        the jobs whose operation it may call.
        """,
        resources=(RESOURCES + "jobs:JobOperations",),
        view="jobs",
        remote=True,
        rows={
            "list": CommandRow(operation="listJobs", limit=50),
            "show": CommandRow(operation="getJob"),
            "cancel": CommandRow(operation="cancelJob", confirms=False),
            "wait": ("gateway.cli.running.jobs:wait", "Wait for the end of a job."),
        },
    ),
}  # fmt: skip

STATUS = CommandGroup(
    help="",
    resources=(RESOURCES + "status:StatusOperations",),
    remote=True,
    rows={
        "status": CommandRow(
            operation="getStatus",
            examples=(
                "toolgate keys create ops --scope admin:read > ops.key",
                "toolgate status --key-file ops.key",
            ),
        )
    },
)
"""A command that has no group."""
