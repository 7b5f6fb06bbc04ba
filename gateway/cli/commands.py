"""Words of the command line for operations: a table of groups and their commands.

A row names an operation. What its path, query and body take, its summary and its details come from
the operation; a row adds what only a command line has.
"""

from collections.abc import Callable, Mapping
from typing import Any

from msgspec import Struct

from config.settings import Settings
from gateway.operations.operation import Operation

RESOURCES = "gateway.admin.resources."


class CommandRow(Struct, frozen=True, kw_only=True):
    operation: str
    summary: str = ""  # "": that of the operation
    arguments: tuple[str, ...] = ()  # members that are arguments, behind those of the path
    options: Mapping[str, str] = {}  # other words for members
    metavars: Mapping[str, str] = {}
    texts: Mapping[str, str] = {}  # help of members, instead of theirs
    members: Mapping[str, Any] = {}  # members that the word says
    body: str = ""  # metavar of the argument that is the whole body
    each: bool = False  # the last name of the path may be repeated
    confirms: bool | None = None  # whether a person confirms; None: where something is removed
    warns: str = ""  # behind the entry in that question; members of the entry stand in braces
    entries: str = ""  # the member of the answer that is printed as a table
    columns: tuple[tuple[str, str, str], ...] = ()  # of a table; (): those of the view
    limit: int | None = None  # of a list; None: all
    changes: bool = False  # whether one member at least has to be given
    tells: bool = False  # whether the answer is printed below the sentence
    says: str = ""  # the sentence that is printed; names of members stand in braces
    prints: str = ""  # the member of the answer that is printed, alone, where it has one
    fails: str = ""  # the member of the answer that has the reason of a failure
    remarks: Callable[[Settings], str] = lambda _settings: ""  # on what was done here
    hint: str = ""  # for a person below a list
    first: str = ""  # for a person, where a list is empty
    help: str = ""  # beside summary and details of the operation
    examples: tuple[str, ...] = ()

    def asks(self, operation: Operation) -> bool:
        return operation.effect == "remove" if self.confirms is None else self.confirms

    def lists(self, operation: Operation) -> bool:
        return "after" in operation.query.__struct_fields__ and operation.method == "GET"


Hand = tuple[str, str]  # "module:attribute", summary


def _unused_keys(settings: Settings) -> str:
    if settings.auth.mode != "none" and settings.auth.api_keys:
        return ""
    return (
        "Nobody is asked for a key now: keys count if auth.mode is jwt or keys, and auth.api_keys "
        "is true."
    )


class CommandGroup(Struct, frozen=True, kw_only=True):
    help: str
    resources: tuple[str, ...]  # "module:class" with the rows of the operations
    rows: Mapping[str, CommandRow | Hand]
    view: str = ""  # its key in VIEWS
    remote: bool = False  # the operations are about a gateway that runs
    root: str = ""  # path of their API; "": that of the admin API
    needs: tuple[str, ...] = ()  # settings that have to be on for them


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
                remarks=_unused_keys,
                help="The key is printed once, since the registry stores a hash of it only. "
                "Standard output has the key alone, so that it can go to a file.",
                examples=(
                    "toolgate keys create deploy --scope memory:read --expires 90d",
                    "toolgate keys create audit --role auditor > audit.key",
                ),
            ),
            "list": CommandRow(
                operation="listKeys", first="To make one: toolgate keys create NAME"
            ),
            "show": CommandRow(operation="getKey", help="KEY is an id or a name."),
            "rotate": CommandRow(
                operation="rotateKey",
                prints="secret",
                says="The key {key[id]} of {key[principal]}. Store it now: it is not shown again. "
                "The earlier one, {entry}, is valid for {given[overlap_s]} more.",
                help="""KEY is an id or a name. The new key, which is printed once, has the name,
                the principal, the scopes and the roles of the earlier one, so that memories,
                collections and grants of its principal stay its own. The earlier one is valid for
                --overlap, in which clients take the new one.""",
                examples=("toolgate keys rotate deploy --overlap 2h > deploy.key",),
            ),
            "revoke": CommandRow(
                operation="revokeKey", each=True, confirms=False, members={"earlier": True},
                says="Revoked {typed}.",
                help="""KEY is an id or a name. The keys that it replaced by `keys rotate`, and that
                are still valid, are revoked, too. Gateways refuse them at once, at the latest after
                auth.revocation_s seconds.""",
            ),
        },
    ),
    "users": CommandGroup(
        help="""Add, invite, list, disable and remove users who log in with a password.

        They are for companies without an identity provider (login.users). An invitation is an
        address at which its user sets a password, once; whoever has it can do that. Changes of
        roles and passwords end what the user has by logins.
        """,
        resources=(RESOURCES + "login_users:LoginUserOperations",),
        view="users",
        needs=("login.enabled", "login.users"),
        rows={
            "list": CommandRow(
                operation="listUsers", hint="To add one: toolgate users add NAME --role ROLE"
            ),
            "show": CommandRow(operation="getUser"),
            "add": CommandRow(
                operation="createUser", arguments=("name",), prints="invitation",
                says="The invitation of {user[name]}, good until {user[invited]}. It is not shown "
                "again.",
                examples=("toolgate users add ann --role staff",),
            ),
            "invite": CommandRow(
                operation="inviteUser", prints="invitation",
                says="The invitation of {user[name]}, good until {user[invited]}. It is not shown "
                "again.",
                help="An earlier invitation is good no longer. The password stays until the new "
                "one is set.",
            ),
            "roles": CommandRow(
                operation="setUserRoles", arguments=("roles",), says="{name} has {roles}."
            ),
            "disable": CommandRow(operation="disableUser", says="Disabled {name}."),
            "enable": CommandRow(operation="enableUser", says="Enabled {name}."),
            "reset-totp": CommandRow(
                operation="resetUserTotp", says="Took the one-time codes of {name}."
            ),
            "remove": CommandRow(operation="deleteUser", says="Removed {user}."),
        },
    ),
    "people": CommandGroup(
        help="""List, disable and enable people who have logged in at the gateway.

        A person is named by their principal, such as corp:ann. Disabling ends all that they have
        by logins at once.
        """,
        resources=(RESOURCES + "logins:LoginOperations",),
        view="people",
        needs=("login.enabled",),
        rows={
            "list": CommandRow(
                operation="listPeople",
                columns=(("principal", "Caller", "text"), ("name", "Name", "text"),
                         ("roles", "Roles", "text"), ("last", "Last login", "time"),
                         ("disabled", "Disabled", "time")),
            ),
            "show": CommandRow(operation="getPerson"),
            "disable": CommandRow(operation="disablePerson", says="Disabled {principal}."),
            "enable": CommandRow(operation="enablePerson", says="Enabled {principal}."),
        },
    ),
    "logins": CommandGroup(
        help="List and end logins of people, and what programs have by them.",
        resources=(RESOURCES + "logins:LoginOperations",),
        view="logins",
        needs=("login.enabled",),
        rows={
            "list": CommandRow(operation="listLogins"),
            "show": CommandRow(operation="getLogin"),
            "end": CommandRow(operation="endLogin", says="Ended {login}."),
        },
    ),
    "clients": CommandGroup(
        help="""List and remove clients that registered, or publish a document about themselves.

        A client is named by its client_id. Removing it ends what people gave it; one with a
        document is known again when it comes back, and asks people again.
        """,
        resources=(RESOURCES + "logins:LoginOperations",),
        view="clients",
        needs=("login.enabled",),
        rows={
            "list": CommandRow(operation="listClients"),
            "show": CommandRow(operation="getClient"),
            "remove": CommandRow(operation="deleteClient", each=True, says="Removed {typed}."),
            "setup": (
                "gateway.cli.running.client_setup:setup",
                "Print the configuration of an MCP client for this gateway.",
            ),
        },
    ),
    "connections": CommandGroup(
        help="""List, share and end the accounts that people have connected at sources.

        A source has such connections where sources.NAME.connect is set. Secrets are never shown.
        """,
        resources=(RESOURCES + "connections:ConnectionOperations",),
        view="connections",
        needs=("login.enabled",),
        rows={
            "list": CommandRow(
                operation="listConnections",
                examples=("toolgate connections list --source github",),
            ),
            "show": CommandRow(operation="getConnection"),
            "share": CommandRow(
                operation="shareConnection", says="{id} is shared with {shared_with}."
            ),
            "disconnect": CommandRow(
                operation="deleteConnection", says="Disconnected {connection}.",
                help="The person is asked to connect again at their next call. A token of OAuth is "
                "revoked at its server as far as that is possible.",
            ),
            "presets": (
                "gateway.cli.connections:presets", "List presets of well-known services."
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
                first="To add one: toolgate agents add NAME --description TEXT",
            ),
            "show": CommandRow(operation="getAgent"),
            "add": CommandRow(
                operation="putAgent",
                examples=("toolgate agents add support --description 'Answers customers'",),
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
                summary="Revoke skills of an agent.", says="Revoked from {agent}: {skill}.",
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
                help="Arguments that are secret, by their schema or their name, are masked. Of a "
                "program, its code and the calls that it has made are shown.",
            ),
            "approve": CommandRow(
                operation="decide", summary="Approve a call.", members={"approve": True},
                says="Approved: {principal} may make this call of {tool}.",
                help="An approved call may be repeated once with these arguments, within "
                "policy.approval_s seconds. Approved calls of a program are made by themselves; "
                "--grant lets this run make more calls of one of their tools.",
                examples=(
                    "toolgate approvals approve ID",
                    """toolgate approvals approve ID --grant '{"tool": "pay", "calls": 10}'""",
                ),
            ),
            "deny": CommandRow(
                operation="decide", summary="Deny a call.", members={"approve": False},
                says="Denied: {principal} may not make this call of {tool}.",
                help="A denied call waits for approval again when it is repeated.",
            ),
        },
    ),
    "policy": CommandGroup(
        help="""List, explain and change policy rules.

        Rules of the settings (policy.rules) apply to the gateways with that file; stored rules
        apply to all gateways of the database at once.
        """,
        resources=(RESOURCES + "policy:PolicyOperations",),
        view="rules",
        rows={
            "explain": ("gateway.cli.access.policy:explain_", "Explain the decision on a call."),
            "list": CommandRow(operation="listRules"),
            "show": CommandRow(operation="getRule"),
            "check": ("gateway.cli.access.policy:check", "Find invalid rules."),
            "put": CommandRow(
                operation="putRule", body="RULE", metavars={"rule": "NAME"},
                says="{name}: {rule[effect]} (version {version}).",
                help="""NAME is that of the rule. Gateways apply a stored rule at once. RULE is JSON
                or YAML with the members of an entry of policy.rules, or a file with them; "-" reads
                it from standard input.

                A rule that exists is replaced only with --if-match, by its version (the ETag that
                the API tells) or by *.""",
                examples=(
                    'toolgate policy put no-deletes \'{"effect": "deny", "tools": ["delete_*"]}\'',
                    'toolgate policy put sums \'{"effect": "approve", "when": "arguments.n > 9"}\'',
                ),
            ),
            "remove": CommandRow(operation="deleteRule", says="Removed {rule}."),
        },
    ),
    "toolsets": CommandGroup(
        help="""Show and change toolsets: parts of the catalog with an endpoint each.

        Toolsets of the settings (toolsets) are served by the gateways with that file, and go before
        stored ones of the same name; stored ones are served by all gateways of the database at
        once. Each is at /mcp/NAME.
        """,
        resources=(RESOURCES + "toolsets:ToolsetOperations",),
        view="toolsets",
        rows={
            "list": CommandRow(
                operation="listToolsets", first="To store one: toolgate toolsets put NAME TOOLSET"
            ),
            "show": CommandRow(operation="getToolset"),
            "put": CommandRow(
                operation="putToolset", body="TOOLSET", metavars={"toolset": "NAME"},
                says="{name}: {tools} tools, at /mcp/{name} (version {version}).",
                help="""TOOLSET is JSON or YAML with the members of an entry of `toolsets` in the
                settings, or a file with them; "-" reads it from standard input.

                A toolset that exists is replaced only with --if-match, by its version (the ETag
                that the API tells) or by *.""",
                examples=(
                    'toolgate toolsets put reading \'{"include": ["get*", "list*"]}\'',
                    "toolgate toolsets put billing billing.yaml --if-match '*'",
                ),
            ),
            "tools": CommandRow(
                operation="listToolsetTools", entries="items",
                columns=(("name", "Tool", "code"), ("source", "Source", "code"),
                         ("description", "Description", "text")),
            ),
            "preview": CommandRow(
                operation="previewToolset",
                examples=(
                    'toolgate toolsets preview --toolset \'{"include": ["get*"]}\' --json',
                ),
            ),
            "clients": CommandRow(operation="listToolsetClients"),
            "export": CommandRow(
                operation="exportToolsets", prints="yaml",
                examples=("toolgate toolsets export > toolsets.yaml",),
            ),
            "delete": CommandRow(operation="deleteToolset", says="Deleted {toolset}."),
        },
    ),
    "secrets": CommandGroup(
        help="""Store encrypted credentials of sources in the database.

        They complement `sources.NAME.credentials` of the settings, which take precedence. The
        encryption key is TOOLGATE_SECRETS__KEY, or secrets.key as ${file:PATH}. A running gateway
        uses them at once. Stored values cannot be displayed.
        """,
        resources=(RESOURCES + "secrets:SecretOperations",),
        view="secrets",
        rows={
            "set": ("gateway.cli.access.secrets:set_", "Store a secret of a source."),
            "list": CommandRow(operation="listSecrets"),
            "remove": CommandRow(
                operation="deleteSecret", says="Removed the secret {scheme} of {source}."
            ),
            "rotate": CommandRow(
                operation="rotateSecrets", says="Encrypted {encrypted} with secrets.key."
            ),
        },
    ),
    "skills": CommandGroup(
        help="""Import, generate, list, show, link, export and remove skills.

        A skill is a directory in the format of agentskills.io: SKILL.md, whose front matter has a
        name and a description, and other files. `allowed-tools` names the tools of the skill.

        \b
        Toolgate reads these members of its `metadata`:
          toolgate-requires    names of skills that are loaded before it
          toolgate-suggests    names of skills that it mentions
          toolgate-parent      the skill that it is listed below
          toolgate-access      TOOL=read, TOOL=write or TOOL=execute
        """,
        resources=(RESOURCES + "skills:SkillOperations",),
        view="skills",
        rows={
            "list": CommandRow(
                operation="listSkills", hint="Details of one: toolgate skills show NAME",
                first="To make some: toolgate skills import DIRECTORY",
                columns=(("name", "Name", "code"), ("version", "Version", "badge"),
                         ("tools", "Tools", "number"), ("parent", "Below", "code"),
                         ("description", "Description", "text")),
            ),
            "show": CommandRow(operation="getSkill"),
            "versions": CommandRow(operation="listSkillVersions"),
            "version": CommandRow(operation="getSkillVersion"),
            "import": (
                "gateway.cli.skills.import_and_export:import_",
                "Import directories with a SKILL.md.",
            ),
            "generate": CommandRow(
                operation="generateSkills", examples=("toolgate skills generate --source petshop",),
                help="""Tags come from the operations of its description. The instructions list the
                tools of the tag: tools that read first, destructive tools last. A repetition makes
                a new version; tools that were linked by command stay.""",
            ),
            "export": (
                "gateway.cli.skills.import_and_export:export",
                "Write skills as directories with a SKILL.md.",
            ),
            "link": CommandRow(
                operation="linkTools", arguments=("tools",), says="{skill} may use {given[tools]}.",
                help="""The access level is compared with the annotations of a tool when it is
                linked and at each call: a tool that becomes destructive is withheld from a skill
                that may only write.""",
            ),
            "unlink": CommandRow(
                operation="unlinkTools", each=True, confirms=False,
                summary="Unlink tools from a skill.",
                says="Unlinked from {skill}: {tool}.",
                help="A tool that its SKILL.md names is linked again by the next import; remove it "
                "there.",
            ),
            "depend": CommandRow(
                operation="dependSkill", options={"required": "optional"},
                texts={"required": "The skill only mentions the dependency."},
                says="{skill} depends on {dependency}.",
                help="The dependency is loaded before the skill, unless it is --optional. A cycle "
                "is refused; the message names its chain.",
            ),
            "undepend": CommandRow(
                operation="undependSkill", confirms=False,
                says="{skill} depends no longer on {dependency}.",
            ),
            "rollback": CommandRow(
                operation="rollBackSkill", arguments=("to",), metavars={"to": "NUMBER"},
                says="{name} is version {version} again.",
                help="""`toolgate skills versions SKILL` lists the numbers. Its tools are those
                that this version names, and those linked by command. The next import of other
                contents makes a new version.""",
            ),
            "remove": CommandRow(
                operation="deleteSkill", says="Removed {skill}.", tells=True,
                help="The command is refused while other skills require the skill. Skills below it "
                "move to the top level.",
            ),
        },
    ),
    "tools": CommandGroup(
        help="List, show, search, accept, call, add and change tools.",
        resources=(
            RESOURCES + "tools:ToolOperations", RESOURCES + "manual_tools:ManualToolOperations"
        ),
        view="tools",
        rows={
            "list": ("gateway.cli.tools.command:list_", "List the tools."),
            "search": ("gateway.cli.tools.search:search_", "Search tools by what they do."),
            "show": ("gateway.cli.tools.show:show", "Show a tool and its arguments."),
            "accept": ("gateway.cli.tools.accept:accept", "Accept tools that were held back."),
            "call": ("gateway.cli.tools.call:call", "Call a tool and print its result."),
            "add": ("gateway.cli.tools.add:add", "Add a tool manually."),
            "edit": CommandRow(
                operation="editTool", changes=True, says="Changed {tool}.",
                help="""An empty value "" removes a text, except the description, which models need
                to choose a tool.

                Imported tools take --description, --domain, --namespace, --tier, --weight,
                --lifecycle, --personas, --cost and --keyword. Later imports keep a changed
                description until `toolgate tools reset-description`. Manual tools take all
                options.""",
                examples=(
                    'toolgate tools edit listPets --description "Pets that can be bought"',
                    "toolgate tools edit deletePet --tier confidential --lifecycle deprecated",
                ),
            ),
            "reset-description": CommandRow(
                operation="resetDescription", confirms=False,
                says="{tool} has the description of its source.",
                help="Later imports update it again.",
            ),
            "disable": CommandRow(
                operation="disableTool", each=True, says="Disabled {tool}.",
                summary="Disable tools.",
                help="""Clients neither see nor call it, also after imports, until `toolgate tools
                enable`. `toolgate tools list --disabled` lists them.""",
            ),
            "enable": CommandRow(
                operation="enableTool", each=True, summary="Enable tools.",
                says="Enabled {tool}.",
            ),
            "remove": CommandRow(
                operation="deleteTool", says="Removed {tool}.",
                help="A source that was made for this tool only is removed, too. To hide an "
                "imported tool, use `toolgate tools disable`.",
            ),
        },
    ),
    "sources": CommandGroup(
        help="List, show, compare, roll back, refresh and remove sources.",
        resources=(RESOURCES + "sources:SourceOperations",),
        view="sources",
        rows={
            "list": ("gateway.cli.sources.command:list_", "List the sources."),
            "show": ("gateway.cli.sources.command:show", "Show a source."),
            "versions": CommandRow(
                operation="listVersions",
                columns=(("number", "Number", "number"), ("current", "Served", "badge"),
                         ("kept", "Kept", "badge"), ("imported", "Imported", "time"),
                         ("version", "Version", "badge"), ("outcomes", "Operations", "text")),
                hint="To serve an older one again: toolgate sources rollback NAME --to NUMBER",
            ),
            "diff": (
                "gateway.cli.sources.versions:diff", "Compare a source with another description."
            ),
            "rollback": (
                "gateway.cli.sources.versions:rollback",
                "Serve an older version of a source again.",
            ),
            "refresh": ("gateway.cli.imports.command:refresh", "Import a source again."),
            "prune": (
                "gateway.cli.sources.command:prune", "Remove sources that left the settings."
            ),
            "remove": CommandRow(
                operation="deleteSource", says="Removed {source} and its tools.",
                warns="and its tools ({tools})",
                help="""Its tools get new ids if it is imported again. `toolgate sources refresh`
                updates a source. A source of the settings is removed there, and by `toolgate
                sources prune`.""",
            ),
        },
    ),
    "registry": CommandGroup(
        help="""Find MCP servers in registries, and update those that were added.

        The settings name the registries (registries: {official: {url:
        https://registry.modelcontextprotocol.io}}); nothing is asked before a command. To add a
        server: toolgate import mcp --from NAME --name SOURCE.
        """,
        resources=(RESOURCES + "catalog:CatalogOperations",),
        view="catalog",
        rows={
            "search": CommandRow(
                operation="searchCatalog", arguments=("search",), metavars={"search": "TEXT"},
                limit=50, hint="Details of one: toolgate registry show NAME",
                first="No name contains this text.",
                examples=("toolgate registry search weather",),
            ),
            "show": CommandRow(
                operation="getCatalogEntry", metavars={"server": "NAME"},
                help="NAME is compared exactly. Its texts are its publisher's.",
            ),
            "outdated": CommandRow(
                operation="listOutdated", first="All are what their registries have.",
                columns=(("source", "Source", "code"), ("name", "Name", "text"),
                         ("version", "Version", "badge"), ("latest", "Latest", "badge"),
                         ("status", "Status", "badge"), ("altered", "Altered", "badge")),
                hint="To update one: toolgate registry update SOURCE",
            ),
            "update": ("gateway.cli.sources.update:update", "Update a server of a registry."),
        },
    ),
    "embed": CommandGroup(
        help="""Show and repair the embeddings of tools and skills.

        `toolgate serve` and `toolgate worker` create embeddings in the background. The settings
        under `embedding` choose the model.
        """,
        resources=(RESOURCES + "embeddings:EmbeddingOperations",),
        rows={
            "status": ("gateway.cli.embed.command:status_", "Show the state of embeddings."),
            "backfill": ("gateway.cli.embed.command:backfill", "Create missing embeddings."),
            "refresh": CommandRow(
                operation="refreshEmbeddings", arguments=("tools",), metavars={"tools": "NAME"},
                says="Queued {queued}.",
                help="""NAME is that of a tool. Tools whose embeddings are ready are left as they
                are, unless --force is given. Until they have new ones, tools are found by their
                words.""",
            ),
            "retry": CommandRow(
                operation="retryEmbeddings", arguments=("tools",), metavars={"tools": "NAME"},
                says="Queued {queued} again.",
                help="The default is all texts that have failed, or wait for their next attempt.",
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
    "erasures": CommandGroup(
        help="""Erase a person everywhere, and list the reports.

        The person is named by the id of their principal, as in the audit log.
        """,
        resources=(RESOURCES + "erasures:ErasureOperations",),
        view="erasures",
        remote=True,
        rows={
            "list": CommandRow(operation="listErasures"),
            "show": CommandRow(operation="getErasure"),
            "run": CommandRow(
                operation="erasePerson", arguments=("person",), confirms=False, tells=True,
                help="An erasure that was interrupted is continued by the same command.",
                examples=(
                    "toolgate erasures run ann --dry-run",
                    "toolgate erasures run ann --confirm ann",
                ),
            ),
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
    "webhooks": CommandGroup(
        help="""List, add, test, rotate and remove webhooks, and what was sent to them.

        Completions of invocations are sent to them (`replyTo: webhook:NAME`). The gateway needs
        events.enabled, and the key the scope events:admin.

        \b
        Example:
          toolgate webhooks add crm https://crm.example/hooks --key-file my.key
          toolgate webhooks test crm --key-file my.key
        """,
        resources=(
            "gateway.wings.events.webhook_receivers:WebhookReceivers",
            "gateway.wings.events.webhook_deliveries:WebhookDeliveries",
        ),
        remote=True,
        root="/events/v1",
        rows={
            "list": CommandRow(
                operation="events_webhooks", first="To add one: toolgate webhooks add NAME ADDRESS",
                columns=(("name", "Name", "code"), ("url", "Address", "text"),
                         ("stored", "Added", "badge"), ("disabled", "Disabled", "badge")),
                help="Those of the settings were not added. One is disabled because its receiver "
                "answered 410.",
            ),
            "add": CommandRow(
                operation="events_put_webhook", arguments=("url",), metavars={"url": "ADDRESS"},
                summary="Add a webhook, or change its address.", prints="secret",
                says="The secret of {name}. Store it now: it is not shown again.",
                help="ADDRESS is an https URL. The secret of a new one is printed, once. A "
                "disabled one is enabled.",
                examples=("toolgate webhooks add crm https://crm.example/hooks --key-file my.key",),
            ),
            "test": CommandRow(
                operation="events_test_webhook", fails="error",
                says="{webhook} took the event.",
            ),
            "deliveries": CommandRow(
                operation="events_deliveries", limit=50, first="Nothing was sent there yet.",
                columns=(("id", "Delivery", "code"), ("status", "State", "badge"),
                         ("attempts", "Attempts", "number"), ("created", "Since", "time"),
                         ("due", "Next attempt", "time"), ("error", "Error", "text")),
                examples=("toolgate webhooks deliveries crm --status FAILED --key-file my.key",),
            ),
            "resend": CommandRow(
                operation="events_redeliver", options={"ids": "id"},
                says="Sent again to {webhook}: {count}.",
                examples=("toolgate webhooks resend crm --key-file my.key",),
            ),
            "rotate": CommandRow(
                operation="events_rotate_webhook", prints="secret",
                summary="Give a webhook a new secret.",
                says="The secret of {name}. Store it now: it is not shown again.",
                help="It is printed once. Requests carry a signature of the one before, too, until "
                "the next rotation.",
            ),
            "remove": CommandRow(
                operation="events_delete_webhook", confirms=False, says="Removed {webhook}."
            ),
        },
    ),
    "notifications": CommandGroup(
        help="""List, add, test and remove targets of notifications, and list incidents.

        Messages about waiting approvals, failures and expiry go to signed webhooks, Slack, Teams
        and mail. The gateway needs notifications.enabled, and the key the scope
        admin:notifications:write.

        \b
        Example:
          toolgate notifications send ops --kind slack --address $URL --key-file a.key
          toolgate notifications test ops --key-file a.key
        """,
        resources=("gateway.wings.notifications.operations:TargetOperations",),
        view="notifications",
        remote=True,
        needs=("notifications.enabled",),
        rows={
            "list": CommandRow(
                operation="listTargets",
                first="To add one: toolgate notifications send NAME --kind KIND --address URL",
            ),
            "show": CommandRow(operation="getTarget"),
            "send": CommandRow(
                operation="putTarget", prints="secret",
                options={"url": "address", "recipients": "recipient", "subjects": "subject"},
                says="The target {name} is stored.",
                help="The secret that signs requests to a new webhook is printed, once.",
            ),
            "test": CommandRow(
                operation="testTarget", says="{target} answered: {answer}",
            ),
            "remove": CommandRow(
                operation="deleteTarget", confirms=False, says="Removed {target}."
            ),
            "incidents": CommandRow(
                operation="listIncidents", first="There was no incident.",
                columns=(("begun", "Since", "time"), ("state", "State", "badge"),
                         ("subject", "Subject", "badge"), ("title", "Incident", "text"),
                         ("sent", "Sent to", "text")),
            ),
        },
    ),
    "audit": CommandGroup(
        help="""Search, verify and export the audit log of calls, decisions and outcomes.

        The settings under `audit` choose what is recorded, and for how long.
        """,
        resources=(RESOURCES + "audit:AuditOperations",),
        rows={
            "tail": ("gateway.cli.audit:tail", "Show the last records, and follow new ones."),
            "search": CommandRow(
                operation="searchAudit", options={"subject": "tool"}, limit=100,
                first="No record matches.",
                columns=(("entry.recorded_ts", "Time", "code"),
                         ("entry.principal", "Principal", "text"),
                         ("entry.method", "Method", "text"), ("entry.subject", "Subject", "text"),
                         ("entry.decision", "Decision", "text"), ("entry.rule", "Rule", "text"),
                         ("entry.outcome", "Outcome", "text")),
                examples=("toolgate audit search --decision deny --since 2d",),
            ),
            "verify": ("gateway.cli.audit:verify_", "Verify the hash chains of the log."),
            "export": ("gateway.cli.audit:export_", "Write records as JSON lines."),
        },
    ),
    "costs": CommandGroup(
        help="""Show tokens and money by day, caller, toolset and model.

        They are of requests to chat models, by the prices of models.strategies, and of the lists
        and results that clients were sent. They are recorded with costs.enabled.
        """,
        resources=(RESOURCES + "costs:CostOperations",),
        rows={
            "show": CommandRow(
                operation="sumCosts", entries="rows", members={"format": "json"},
                first="Nothing is recorded of these days. See costs.enabled.",
                columns=(("day", "Day", "text"), ("caller", "Caller", "text"),
                         ("toolset", "Toolset", "text"), ("model", "Model", "text"),
                         ("requests", "Requests", "text"), ("input_tokens", "Input", "text"),
                         ("output_tokens", "Output", "text"),
                         ("definition_tokens", "Definitions", "text"),
                         ("answer_tokens", "Answers", "text"), ("money", "Money", "text")),
                examples=("toolgate costs show --by caller,model --since 7d",),
            ),
            "export": CommandRow(
                operation="sumCosts", summary="Write the sums as CSV.", members={"format": "csv"},
                prints="csv",
                examples=("toolgate costs export --by day,caller,model > costs.csv",),
            ),
        },
    ),
    "portal": CommandGroup(
        help="Look after the move of portals from the legacy payload to JSON-RPC 2.0.",
        resources=(RESOURCES + "audit:AuditOperations",),
        rows={
            "legacy-report": CommandRow(
                operation="reportLegacyPayloads", entries="clients", first="Nobody did.",
                columns=(("principal", "Principal", "text"), ("client", "Address", "text"),
                         ("requests", "Payloads", "text"), ("last_ts", "Last", "time"),
                         ("actions", "Actions", "text")),
                help="The report is read from the audit log, where every payload is recorded "
                "unless audit.mode is never.",
            ),
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
