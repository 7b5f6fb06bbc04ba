"""Views of the resources of the admin API: a row for each, for the console and the command line.

A wing brings its own in `WingContributions.pages`.
"""

from collections.abc import Mapping

from gateway.operations.resource_view import ResourceView, StoredEntries, StoredLinks

VIEWS: Mapping[str, ResourceView] = {
    view.path: view
    for view in (
        ResourceView(
            "skills", "Skills", "listSkills",
            (("name", "Name", "code"), ("description", "Description", "text"),
             ("version", "Version", "badge"), ("tools", "Tools", "number")),
            shows="getSkill", key="name", parameter="skill",
            acts=("linkTools", "unlinkTools", "dependSkill", "undependSkill", "rollBackSkill",
                  "deleteSkill"),
            adds=("importSkills",),
            empty="A skill is a text that tells a model how to do a task, and the tools for it.",
            stored=StoredEntries(
                writes="importSkills", removes="deleteSkill", shows="exportSkill", listed="skills",
                updates=True,
                links=(
                    StoredLinks(
                        section="tools", read=(("tools", {}),), adds="linkTools",
                        removes="unlinkTools", parameter="tool", listed="tools",
                        attribute="access",
                    ),
                    StoredLinks(
                        section="dependencies",
                        read=(("requires", {"required": True}), ("suggests", {"required": False})),
                        adds="dependSkill", removes="undependSkill", parameter="dependency",
                    ),
                ),
            ),
        ),
        ResourceView(
            "agents", "Agents", "listAgents",
            (("name", "Name", "code"), ("description", "Description", "text"),
             ("model_name", "Model", "text"), ("skills", "Skills", "text")),
            shows="getAgent", key="name", parameter="agent",
            acts=("putAgent", "grantSkills", "revokeSkills", "deleteAgent"), adds=("putAgent",),
            empty="An agent is a caller to whom skills are granted.",
            stored=StoredEntries(
                writes="putAgent", removes="deleteAgent",
                links=(
                    StoredLinks(
                        section="skills", read=(("skills", {}),), adds="grantSkills",
                        removes="revokeSkills", parameter="skill", listed="skills",
                    ),
                ),
            ),
        ),
        ResourceView(
            "sessions", "Sessions", "listSessions",
            (("id", "Session", "code"), ("principal", "Caller", "text"),
             ("client", "Client", "text"),
             ("revision", "Revision", "badge"), ("toolset", "Toolset", "text"),
             ("subscriptions", "Subscriptions", "number")),
            shows="getSession", key="id", parameter="session", acts=("endSession",),
            empty="A session begins when an MCP client connects.",
        ),
        ResourceView(
            "keys", "API keys", "listKeys",
            (("name", "Name", "code"), ("principal", "Caller", "text"),
             ("scopes", "Scopes", "text"), ("roles", "Roles", "text"),
             ("last_used", "Last used", "time"), ("expires", "Ends", "time"),
             ("revoked", "Revoked", "time")),
            shows="getKey", key="id", parameter="key", names="name", ended="revoked",
            acts=("rotateKey", "revokeKey"), adds=("createKey",),
            empty="A key lets a program call the gateway. It is shown once, when it is made.",
            stored=StoredEntries(
                writes="createKey", removes="revokeKey", only=(("revoked", None),),
                members={"any_scope": True}, prints="secret",
            ),
        ),
        ResourceView(
            "users", "Users", "listUsers",
            (("name", "Name", "code"), ("roles", "Roles", "text"),
             ("has_password", "Password", "badge"), ("has_totp", "One-time codes", "badge"),
             ("invited", "Invited until", "time"),
             ("disabled", "Disabled", "time")),
            shows="getUser", key="name", parameter="user",
            acts=("inviteUser", "setUserRoles", "disableUser", "enableUser", "resetUserTotp",
                  "deleteUser"),
            adds=("createUser",),
            empty="Users of the gateway's own log in with a password.",
        ),
        ResourceView(
            "people", "People", "listPeople",
            (("principal", "Caller", "text"), ("name", "Name", "text"), ("roles", "Roles", "text"),
             ("last", "Last login", "time"), ("disabled", "Disabled", "time")),
            shows="getPerson", key="id", parameter="person", names="principal",
            acts=("disablePerson", "enablePerson"),
            empty="Nobody has logged in yet.",
            about="People who have logged in, with a password or at an identity provider.",
        ),
        ResourceView(
            "backups", "Backups", "listBackups",
            (("name", "Backup", "code"), ("created", "Created", "time"),
             ("bytes", "Bytes", "number")),
            key="name", adds=("runBackup",),
            empty="The database was not backed up yet.",
            about="Copies of the database, to restore it from.",
        ),
        ResourceView(
            "erasures", "Erasures", "listErasures",
            (("pseudonym", "Pseudonym", "code"), ("requester", "Requested by", "text"),
             ("begun", "Started", "time"), ("ended", "Ended", "time")),
            shows="getErasure", key="id", parameter="erasure", names="pseudonym",
            adds=("erasePerson",),
            empty="Nobody was erased yet.",
            about="People whose data was erased, and what was erased of them.",
        ),
        ResourceView(
            "logins", "Logins", "listLogins",
            (("id", "Login", "code"), ("principal", "Caller", "text"),
             ("client_name", "Program", "text"), ("began", "Started", "time"),
             ("used", "Last used", "time"), ("expires", "Ends", "time")),
            shows="getLogin", key="id", parameter="login", acts=("endLogin",),
            empty="Nobody is logged in.",
            about="Programs that act for people who have logged in.",
        ),
        ResourceView(
            "clients", "Clients", "listClients",
            (("name", "Name", "text"), ("kind", "Kind", "badge"), ("client_id", "Client", "code"),
             ("grants", "Grants", "number"), ("used", "Last used", "time")),
            shows="getClient", key="id", parameter="client", names="client_id",
            acts=("deleteClient",),
            empty="No program has registered, or published a document about itself.",
            about="Programs that may ask people to log in.",
        ),
        ResourceView(
            "connections", "Connections", "listConnections",
            (("id", "Connection", "code"), ("source", "Source", "code"),
             ("principal", "Caller", "text"), ("scheme", "Scheme", "code"),
             ("state", "State", "badge"), ("failure", "Failure", "text"),
             ("shared_with", "Shared with", "text"), ("used", "Last used", "time")),
            shows="getConnection", key="id", parameter="connection",
            acts=("shareConnection", "deleteConnection"),
            empty="Nobody has connected an account at a source yet.",
            about="Accounts at sources with which the calls of people are made.",
        ),
        ResourceView(
            "tools", "Tools", "listTools",
            (("name", "Name", "code"), ("source", "Source", "code"),
             ("description", "Description", "text")),
            shows="getTool", key="name", parameter="tool",
            empty="Tools come from sources that are imported.",
            stored=StoredEntries(
                writes="createTool", removes="deleteTool", shows="getTool", only=(("manual", True),)
            ),
        ),
        ResourceView(
            "sources", "Sources", "listSources",
            (("name", "Name", "code"), ("tools", "Tools", "number"), ("kind", "Kind", "badge"),
             ("location", "Description", "text")),
            shows="getSource", key="name", parameter="source",
            empty="A source is a service whose operations are tools.",
            stored=StoredEntries(
                writes="importSource", removes="deleteSource", only=(("in_settings", False),)
            ),
        ),
        ResourceView(
            "catalog", "Registries", "searchCatalog",
            (("name", "Name", "code"), ("version", "Version", "badge"),
             ("registry", "Registry", "text"), ("description", "Description", "text"),
             ("status", "Status", "badge")),
            shows="getCatalogEntry", key="name", parameter="server",
            empty="MCP servers that others publish in registries, to be added by their names.",
            icon="source",
        ),
        ResourceView(
            "approvals", "Approvals", "listApprovals",
            (("id", "Id", "code"), ("expires", "Waits until", "time"),
             ("principal", "Caller", "text"), ("tool", "Tool", "code"),
             ("arguments", "Arguments", "text")),
            shows="getApproval", key="id", parameter="approval",
            empty="No call waits for an approval.",
        ),
        ResourceView(
            "toolsets", "Toolsets", "listToolsets",
            (("name", "Name", "code"), ("tools", "Tools", "number"), ("origin", "Origin", "badge"),
             ("description", "Description", "text"), ("roles", "Roles", "text"),
             ("updated", "Changed", "time")),
            shows="getToolset", key="name", parameter="toolset",
            acts=("deleteToolset",), adds=("putToolset",),
            empty="A toolset is a part of the catalog with an address of its own.",
            stored=StoredEntries(
                writes="putToolset", removes="deleteToolset", only=(("origin", "stored"),)
            ),
        ),
        ResourceView(
            "rules", "Rules", "listRules",
            (("name", "Name", "code"), ("origin", "Origin", "badge"), ("rule", "Rule", "text")),
            shows="getRule", key="name", parameter="rule",
            empty="Without a rule that matches, policy.default decides on a call.",
            stored=StoredEntries(
                writes="putRule", removes="deleteRule", body="rule", only=(("origin", "stored"),)
            ),
        ),
        ResourceView(
            "revocations", "Revocations", "listRevocations",
            (("id", "Revocation", "code"), ("subject", "Caller", "text"), ("jti", "Token", "code"),
             ("reason", "Reason", "text"), ("expires", "Ends", "time")),
            shows="getRevocation", key="id", parameter="revocation",
            acts=("deleteRevocation",), adds=("revokeTokens",),
            empty="Tokens that were withdrawn before their end.",
        ),
        ResourceView(
            "secrets", "Secrets", "listSecrets",
            (("source", "Source", "code"), ("scheme", "Scheme", "code"), ("kind", "Kind", "badge"),
             ("updated", "Changed", "time")),
            adds=("putSecret", "deleteSecret"),
            empty="Credentials that sources are called with, encrypted.",
        ),
        ResourceView(
            "jobs", "Jobs", "listJobs",
            (("job", "Job", "code"), ("operation", "Operation", "code"),
             ("state", "State", "badge"), ("done", "Done", "number"), ("total", "Total", "number"),
             ("principal", "Caller", "text"), ("created", "Started", "time")),
            shows="getJob", key="job", parameter="job",
            acts=("cancelJob",), adds=("removeEndedJobs",),
            empty="Work in the background: imports, backups, schedules.",
        ),
        ResourceView(
            "notifications", "Notifications", "listTargets",
            (("name", "Name", "code"), ("kind", "Kind", "badge"), ("place", "Address", "text"),
             ("subjects", "Subjects", "text"), ("state", "State", "badge"),
             ("answer", "Last answer", "text"), ("last", "Last used", "time")),
            shows="getTarget", key="name", parameter="target",
            acts=("testTarget", "putTarget", "deleteTarget"), adds=("putTarget",),
            empty="Targets of messages about waiting approvals, failures and things that expire.",
            icon="inbox",
        ),
        ResourceView(
            "incidents", "Incidents", "listIncidents",
            (("begun", "Started", "time"), ("state", "State", "badge"),
             ("subject", "Subject", "badge"), ("title", "Incident", "sentence"),
             ("detail", "Reason", "sentence"), ("sent", "Sent to", "text"),
             ("failed", "Not sent to", "text")),
            empty="Nothing has failed, waits or is about to end.",
            about="What went wrong, since when, and who was told.",
            icon="inbox",
        ),
    )
}  # fmt: skip
