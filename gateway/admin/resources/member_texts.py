"""Words for people about the members of requests of the admin API."""

from gateway.operations.member_texts import MemberText, MemberTexts

MATCHING: MemberTexts = {
    "tools": MemberText(
        "Tools",
        "Names of tools, or patterns with *; without any, all tools.",
        "delete*",
        choices="tools",
    ),
    "sources": MemberText(
        "Sources", "The rule is about tools of these sources alone.", "petshop", choices="sources"
    ),
}

RULE: MemberTexts = {
    "effect": MemberText(
        "Effect", "A denial goes before an approval, and an approval before a permission."
    ),
    **MATCHING,
    "destructive": MemberText(
        "Destructive tools",
        "Yes: only tools that may change or delete something; no: only the others.",
    ),
    "roles": MemberText(
        "Roles", "The rule is about callers with one of these roles.", "support", choices="roles"
    ),
    "principals": MemberText(
        "Callers", "The rule is about these callers alone.", "key:billing", choices="principals"
    ),
    "reason": MemberText(
        "Reason", "The caller reads it with the decision.", "Refunds are made by the finance team."
    ),
    "when": MemberText(
        "Condition",
        "A CEL expression that has to be true, over principal, tool, source, arguments, context "
        "and connection.",
        "arguments.amount > 100",
    ),
    "scopes": MemberText(
        "Scopes",
        "The rule is about callers with one of these scopes.",
        "orders:write",
        choices="scopes",
        rarely=True,
    ),
    "toolsets": MemberText(
        "Toolsets",
        "The rule is about calls at the addresses of these toolsets.",
        "support",
        choices="toolsets",
        rarely=True,
    ),
    "tiers": MemberText(
        "Tiers",
        "The rule is about tools of these sensitivity tiers (policy.tiers).",
        "restricted",
        choices="tiers",
        rarely=True,
    ),
}

_KEY_END = MemberText(
    "Ends", "The time when the key stops to work; empty: never.", "2030-01-31T12:00:00Z"
)

NEW_KEY: MemberTexts = {
    "name": MemberText("Name", "Lists and the audit log show it.", "billing"),
    "scopes": MemberText(
        "Scopes",
        "What the key may do, of what you may do yourself; without any it calls tools only.",
        "admin:read",
        choices="scopes",
    ),
    "roles": MemberText(
        "Roles", "Rules decide by them; of your own roles.", "support", choices="roles"
    ),
    "expires": _KEY_END,
    "principal": MemberText(
        "Caller",
        "Who its calls are made as; empty: a caller of its own, key:NAME.",
        "key:billing",
        choices="principals",
        rarely=True,
    ),
    "any_scope": MemberText(
        "Unknown scopes", "Allow scopes that nothing asks for yet.", rarely=True
    ),
}

KEY_ROTATION: MemberTexts = {
    "overlap_s": MemberText(
        "Overlap in seconds", "The earlier key works for so long beside the new one.", "86400"
    ),
    "expires": MemberText(
        "Ends",
        "The time when the new key stops to work; empty: as the earlier one.",
        "2030-01-31T12:00:00Z",
    ),
}

REVOCATION: MemberTexts = {
    "subject": MemberText(
        "Caller", "All tokens of this caller are revoked.", "corp#ann", choices="principals"
    ),
    "jti": MemberText("Token", "The id (jti) of a single token, instead of a caller.", "8f14e45f"),
    "expires": MemberText(
        "Ends",
        "The time when the revoked tokens have expired anyway.",
        "2030-01-31T12:00:00Z",
    ),
    "issued_before": MemberText(
        "Issued before",
        "Only tokens that were issued before this time; empty: before now.",
        "2030-01-31T12:00:00Z",
        rarely=True,
    ),
    "reason": MemberText("Reason", "People who look at the list read it.", "A lost laptop."),
}

SECRET: MemberTexts = {
    "value": MemberText("API key", "For schemes that send a key in a header or the URL.", "sk-..."),
    "token": MemberText("Token", "For schemes that send a bearer token.", "eyJhbGciOi..."),
    "username": MemberText("User name", "For schemes with a user name and a password.", "toolgate"),
    "password": MemberText("Password", "The password of the user name.", "a long random text"),
    "client_id": MemberText(
        "Client id", "For OAuth: the gateway asks for tokens with it.", "toolgate-prod"
    ),
    "client_secret": MemberText(
        "Client secret", "The secret of the client id.", "a long random text"
    ),
    "token_url": MemberText(
        "Token URL",
        "The OAuth endpoint that gives tokens; empty: that of the description.",
        "https://login.example.com/oauth/token",
        rarely=True,
    ),
    "scopes": MemberText(
        "Scopes", "The scopes to ask the OAuth endpoint for.", "orders.read", rarely=True
    ),
    "client_auth": MemberText(
        "Place of the client secret",
        "Where the OAuth endpoint expects it: in the header or in the body.",
        rarely=True,
    ),
}

ROLES: MemberTexts = {
    "roles": MemberText(
        "Roles", "Rules decide by them; without any, no roles.", "support", choices="roles"
    )
}

NEW_USER: MemberTexts = {
    "name": MemberText("Name", "The user logs in with it.", "ann"),
    **ROLES,
    "again": MemberText(
        "Reuse the name",
        "Give the name of a removed user to another one, who gets what belongs to that name.",
        rarely=True,
    ),
}

SHARED_ROLES: MemberTexts = {
    "roles": MemberText(
        "Roles",
        "People with one of these roles use the connection, too; without any, its owner alone.",
        "support",
        choices="roles",
    )
}

DESCRIPTION: MemberTexts = {
    "text": MemberText(
        "Description",
        "Models read it to decide on a call, and searches find the tool by it.",
        "Adds a pet to the shop. Use listPets to see the present ones.",
    )
}

METADATA: MemberTexts = {
    "keywords": MemberText(
        "Keywords", "Words by which searches find the tool, too.", "refund\nmoney back"
    ),
    "domain": MemberText("Domain", "Searches can be limited to a domain.", "payments"),
    "tier": MemberText(
        "Tier", "How sensitive the tool is (policy.tiers).", "restricted", choices="tiers"
    ),
    "lifecycle": MemberText("Lifecycle", "Searches do not find retired tools."),
    "weight": MemberText("Weight", "Above 1 the tool ranks higher in searches.", "1.5"),
    "namespace": MemberText(
        "Namespace", "Searches can be limited to a namespace.", "shop", rarely=True
    ),
    "personas": MemberText(
        "Audience", "The people or agents that the tool is made for.", "support staff", rarely=True
    ),
    "cost": MemberText("Cost", "How dear a call is, for models that weigh it.", rarely=True),
}

NEW_TOOL: MemberTexts = {
    "name": MemberText("Name", "Models call the tool by it.", "getWeather"),
    "description": DESCRIPTION["text"],
    "rest": MemberText(
        "HTTP request",
        "The method and the URL; names in braces are arguments.",
        "GET https://api.example.com/pets/{id}",
    ),
    "graphql": MemberText(
        "GraphQL operation",
        "A query or a mutation with one field, instead of an HTTP request.",
        "query($id: ID!) { pet(id: $id) { name } }",
    ),
    "code": MemberText(
        "Script",
        "Code that defines main(arguments), instead of a request.",
        "def main(arguments):\n    return arguments",
    ),
    "language": MemberText("Language", "The language of the script."),
    "mcp": MemberText(
        "Tool of an MCP server",
        "Its name at the MCP server that is the source.",
        "search_issues",
        rarely=True,
    ),
    "function": MemberText(
        "Function",
        "A Python function of `functions` in the settings.",
        "convert_currency",
        rarely=True,
    ),
    "hybrid": MemberText(
        "Hybrid action",
        "An action of a hybrid service: host/service/action/version.",
        "lightapi.net/rule/getRule/0.1.0",
        rarely=True,
    ),
    "url": MemberText(
        "Address",
        "Where the GraphQL operation or the hybrid action is called.",
        "https://api.example.com/graphql",
    ),
    "source": MemberText(
        "Source",
        "The tool is called at the base URL and with the credentials of this source.",
        "petshop",
        choices="sources",
    ),
    "input_schema": MemberText(
        "Arguments",
        "JSON Schema of the arguments; empty: as the request has them.",
        '{"type": "object", "properties": {"id": {"type": "string"}}}',
    ),
    "title": MemberText("Title", "The name that people see.", "Weather of a city"),
    "tags": MemberText("Tags", "Toolsets and rules can choose tools by them.", "weather"),
    **METADATA,
    "toolsets": MemberText(
        "Toolsets",
        "The tool is in these toolsets, too.",
        "support",
        choices="toolsets",
        rarely=True,
    ),
    "examples": MemberText(
        "Examples", "Arguments of example calls, as a list.", '[{"city": "Bern"}]', rarely=True
    ),
    "output_schema": MemberText(
        "Result", "JSON Schema of the results.", '{"type": "object"}', rarely=True
    ),
    "scope": MemberText(
        "Scopes of the action",
        "Callers need one of these scopes for the hybrid action.",
        "rule.r",
        rarely=True,
    ),
    "side": MemberText("Side", "The path of the hybrid portal that takes the call.", rarely=True),
    "dialect": MemberText("Dialect", "How the hybrid service is spoken to.", rarely=True),
    "annotations": MemberText(
        "Effect of a call", "Clients ask people before calls that may harm.", rarely=True
    ),
    "annotations/title": MemberText(
        "Title", "The name that people see in clients.", "Weather of a city"
    ),
    "annotations/readOnlyHint": MemberText("Reads only", "A call changes nothing."),
    "annotations/destructiveHint": MemberText(
        "Destructive", "A call may change or delete what is there."
    ),
    "annotations/idempotentHint": MemberText(
        "Idempotent", "A second call with the same arguments changes nothing more."
    ),
    "annotations/openWorldHint": MemberText(
        "Open world", "A call reaches services beyond the source, such as the web."
    ),
}

IMPORT: MemberTexts = {
    "name": MemberText("Name", "Rules and the audit log show this name.", "petshop"),
    "url": MemberText(
        "URL",
        "The address of the description, or of the MCP server or agent.",
        "https://api.example.com/openapi.json",
        alternative=True,
    ),
    "document": MemberText(
        "Description",
        "Its text, where there is no URL. One of URL, text and file is needed.",
        '{"openapi": "3.1.0", ...}',
        alternative=True,
        files=".json,.yaml,.yml,.graphql",
    ),
    "base_url": MemberText(
        "Base URL",
        "Calls go there; empty: as the description says.",
        "https://api.example.com/v1",
    ),
    "include": MemberText(
        "Only these", "Patterns of the operations to import; empty: all.", "pets_*"
    ),
    "exclude": MemberText("Not these", "Patterns of operations to leave out.", "*_internal"),
    "only_marked": MemberText(
        "Marked operations only", "Import what the description marks for models.", rarely=True
    ),
    "media_types": MemberText(
        "Media types", "The preferred types of answers.", "application/json", rarely=True
    ),
    "depth": MemberText("Depth", "Levels of fields that a GraphQL tool selects.", "3", rarely=True),
    "cost": MemberText("Most fields", "Fields that a GraphQL tool selects.", "60", rarely=True),
    "side": MemberText("Side", "The path of the hybrid portal that takes the call.", rarely=True),
    "dialect": MemberText("Dialect", "How the hybrid service is spoken to.", rarely=True),
    "batch": MemberText(
        "Batch", "Calls of hybrid actions that are sent together.", "10", rarely=True
    ),
    "era": MemberText("Protocol", "How the MCP server begins a session.", rarely=True),
    "prefix": MemberText(
        "Prefix of names", "Whether names of tools begin with that of the source.", rarely=True
    ),
    "allowed_hosts": MemberText(
        "Other hosts",
        "Hosts beside that of the card that calls may go to.",
        "agent.example.com",
        rarely=True,
    ),
    "keys": MemberText(
        "Keys",
        "A JWK set, as JSON: a key of it must have signed the card.",
        '{"keys": []}',
        rarely=True,
    ),
    "per_skill": MemberText("A tool for each skill", "Not one for the whole agent.", rarely=True),
}

UPLOAD: MemberTexts = {
    "document": MemberText(
        "Description",
        "The whole text of the new description.",
        '{"openapi": "3.1.0", ...}',
    )
}

ROLLBACK: MemberTexts = {
    "to": MemberText("Version", "The number of the version to serve; empty: the one before.", "3")
}

SKILL_ROLLBACK: MemberTexts = {
    "to": MemberText("Version", "The number of the version to serve.", "3")
}

SKILL_IMPORT: MemberTexts = {
    "skills": MemberText(
        "Skills",
        "A list of skills, each with the text of its SKILL.md.",
        '[{"document": "---\\nname: greet\\ndescription: Greets people.\\n---\\nSay hello."}]',
    ),
    "dry_run": MemberText("Only report", "Tell what would be stored, and store nothing."),
    "strict": MemberText(
        "Strict", "Refuse skills that name tools which are not there.", rarely=True
    ),
}

TOOL_LINKS: MemberTexts = {
    "tools": MemberText("Tools", "The skill loads these tools.", "createPet", choices="tools"),
    "access": MemberText(
        "Access", "The level that the skill needs; empty: what each tool requires.", rarely=True
    ),
}

SKILL_DEPENDENCY: MemberTexts = {
    "required": MemberText(
        "Required", "Yes: it is loaded before the skill; no: the skill only mentions it."
    )
}

AGENT: MemberTexts = {
    "description": MemberText("Purpose", "What the agent is for.", "Answers customers."),
    "model_provider": MemberText("Provider", "Who serves the model of the agent.", "openai"),
    "model_name": MemberText("Model", "The model of the agent.", "gpt-5"),
    "temperature": MemberText(
        "Temperature", "0 is strict, 1 is free; with at most two decimals.", "0.2", rarely=True
    ),
    "max_tokens": MemberText(
        "Longest answer in tokens", "The most tokens of an answer.", "4000", rarely=True
    ),
}

SKILL_GRANT: MemberTexts = {
    "skills": MemberText(
        "Skills", "The agent gets these skills.", "refund-an-order", choices="skills"
    ),
    "priority": MemberText("Priority", "The highest is listed first.", "10", rarely=True),
    "sequence": MemberText(
        "Position",
        "The place of the first one among equal priorities; empty: after the others.",
        "1",
        rarely=True,
    ),
}

FAILED_EMBEDDINGS: MemberTexts = {
    "tools": MemberText("Tools", "These tools are embedded again.", "createPet", choices="tools")
}

EMBEDDINGS: MemberTexts = {
    **FAILED_EMBEDDINGS,
    "force": MemberText("Finished ones, too", "Embed again what is ready already.", rarely=True),
}

TOOLSET: MemberTexts = {
    "description": MemberText(
        "Description", "What the toolset is for, in at most 100 characters.", "Tools of the desk"
    ),
    "sources": MemberText(
        "Sources", "Its tools are of these sources; empty: of all.", "petshop", choices="sources"
    ),
    "include": MemberText(
        "Only these", "Names of tools, or patterns with *; empty: all.", "list*", choices="tools"
    ),
    "exclude": MemberText(
        "Not these", "Names or patterns of tools to leave out.", "delete*", choices="tools"
    ),
    "roles": MemberText("Roles", "Who may use it; empty: everybody.", "support", choices="roles"),
    "instructions": MemberText(
        "Instructions",
        "Clients give them to the model.",
        "Look an order up before you change it.",
    ),
    "mode": MemberText("Mode", "Whether clients see all tools, or search for them.", rarely=True),
    "code": MemberText("Programs", "Whether models may call it by programs.", rarely=True),
    "signatures": MemberText(
        "Signatures", "The language in which programs see the tools.", rarely=True
    ),
    "tool_tokens": MemberText(
        "Tokens of a tool", "Longer definitions are shortened to so many.", "1000", rarely=True
    ),
}
