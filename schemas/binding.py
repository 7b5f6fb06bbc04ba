"""Bindings: how one tool's arguments become one call to the service behind it.

A binding is data. It is stored as JSON in `tool_t.binding`, discriminated by its `type` tag, and
executed by the upstream that `gateway/app/` registers for its class. Behaviour that differs
between kinds is read from the binding: its `facts`, and the properties of `Binding`.
"""

from typing import Any, ClassVar, Literal

from msgspec import UNSET, Raw, Struct, UnsetType, field

from schemas.hybrid import Side
from schemas.mcp.snapshot import Eras

Language = Literal["python", "javascript"]  # of scripts
# "querystring" (3.2, section 4.12) is the whole query string, serialised as its `media_type`.
Location = Literal["path", "query", "querystring", "header", "cookie"]
# "tabDelimited" is the `tsv` of Swagger 2.0, "cookie" the style of 3.2.
Style = Literal[
    "simple", "label", "matrix", "form", "cookie",
    "spaceDelimited", "pipeDelimited", "tabDelimited", "deepObject",
]  # fmt: skip

NO_ADDRESS = "(no address)"


class Parameter(Struct, frozen=True, omit_defaults=True):
    """One OpenAPI parameter (OpenAPI 3.1, section 4.8.12) and the tool argument that feeds it."""

    argument: str  # key in the tool's arguments; "" where the value is `fixed`
    name: str  # name on the wire
    location: Location
    style: Style
    explode: bool
    allow_reserved: bool = False
    media_type: str | None = None  # a `content` parameter: the value is serialised as this type
    allow_empty: bool = False  # `allowEmptyValue`: null and "" are sent, as `name=`
    fixed: Raw | UnsetType = UNSET  # hidden from callers: always this JSON value


class Part(Struct, frozen=True, omit_defaults=True):
    """Encoding of one form property (Encoding Object: OpenAPI 3.1, section 4.8.15)."""

    name: str  # the property
    content_type: str | None = None  # of a part, and its serialisation; None: by its type
    style: Style | None = None  # form-urlencoded, or multipart that states one; None: by its type
    explode: bool = True
    allow_reserved: bool = False
    file: bool = False  # the value is a file, or an array of files
    headers: tuple[Parameter, ...] = ()  # of a multipart part
    transfer_encoding: str | None = None  # of a multipart part whose text is encoded: base64


class Xml(Struct, frozen=True, omit_defaults=True):
    """XML serialisation of a value (XML Object: OpenAPI 3.1, section 4.8.26), as one tree for each
    value; recursive types refer to `Body.xml_types` by name."""

    name: str | None = None  # of the element or attribute; None: the property's
    namespace: str | None = None
    prefix: str | None = None
    attribute: bool = False
    text: bool = False  # 3.2, `nodeType: text`: content of the element around it
    wrapped: bool = False
    properties: dict[str, "Xml"] = field(default_factory=dict)
    items: "Xml | None" = None
    type: str | None = None  # a name in `Body.xml_types`, which defines the rest


class Body(Struct, frozen=True, omit_defaults=True):
    """The request body. Exactly one of `properties` and `argument` is set."""

    media_type: str
    required: bool = False
    properties: tuple[tuple[str, str], ...] | None = None  # (argument, body property): hoisted
    argument: str | None = None  # the whole body is this one argument
    additional: str | None = None  # hoisted only: argument with further members of the body
    parts: tuple[Part, ...] = ()  # forms only: the properties not encoded by default
    file: bool = False  # `argument` is a file
    xml: Xml | None = None
    xml_types: dict[str, Xml] = field(default_factory=dict)
    fixed: dict[str, Any] = field(default_factory=dict)  # body properties hidden from callers


class Credential(Struct, frozen=True, omit_defaults=True):
    """One security scheme that a call has to satisfy (OpenAPI 3.1, section 4.8.27)."""

    scheme: str  # its name in the description, and in `sources.NAME.credentials`
    kind: Literal["apiKey", "basic", "bearer", "oauth2", "openIdConnect", "mutualTLS", "http"]
    location: Literal["header", "query", "cookie"] = "header"
    name: str = "Authorization"  # of the header, query parameter or cookie
    scopes: tuple[str, ...] = ()  # that the operation needs
    bare: bool = False  # described as an ordinary parameter: a token is sent without "Bearer"


class Pagination(Struct, frozen=True, omit_defaults=True):
    """Pagination: the announcement of a next page in a response, and the argument that requests
    it."""

    kind: Literal["link", "cursor", "last", "offset", "page"]
    argument: str  # that takes the position of the next page
    path: tuple[str, ...] = ()  # in the answer: of the next position (cursor), of the next URL
    # (link; none: the Link header has it), or of the members (last, offset; none: the answer is)
    more: tuple[str, ...] = ()  # in the answer: true while more follows
    key: str = "id"  # "last": the member of the last entry that is the next position
    limit: str | None = None  # the argument that takes the size of a page
    total: tuple[str, ...] = ()  # in the answer: how many members (offset) or pages (page)
    first: int = 1  # number of the first page
    also: tuple[str, ...] = ()  # "link": further arguments that the URL may set
    integers: tuple[str, ...] = ()  # of these arguments, those that are whole numbers


class KindFacts(Struct, frozen=True, kw_only=True):
    """Facts of a kind of tool, on which the gateway's behaviour depends; by default none is
    special."""

    remote: bool = False  # its calls leave the gateway: the circuit breaker counts them
    relayed: bool = False  # another MCP server's: handed on as it came, and checked there as well
    own: bool = False  # the gateway's own: stored nowhere, and no rule judges it
    typed: bool = False  # its input schema is of our types, whose descriptions complete "expected"
    loaded: bool = False  # code that the settings name: it runs only in a gateway that has them
    keeps_answers: bool = False  # an answer too long for a model is cut, and the rest is kept
    projects: Literal["answer", "selection"] | None = None  # what `_fields` narrows
    takes_headers: bool = False  # those of hooks reach its service
    reports: bool = False  # long calls report their progress to a client that wants it
    lasts: bool = False  # calls may take minutes: a client that knows tasks of MCP gets one


class MirroredArgument(Struct, frozen=True):
    """Mirrored argument, which 2026-07-28 clients repeat in a header (its `x-mcp-header`)."""

    path: tuple[str, ...]  # names of properties, from the arguments down to the value
    header: str  # what follows `Mcp-Param-`


class Binding(Struct, frozen=True, omit_defaults=True):
    """Base of all bindings: defaults, which a kind overrides by a field of the same name."""

    facts: ClassVar[KindFacts] = KindFacts()

    @property
    def action(self) -> "ServiceBinding | None":
        """This binding, if it can also be called by the id of a hybrid action; else None."""
        return None

    @property
    def method(self) -> str:
        """The HTTP method that expresses its effect (safe, idempotent or neither)."""
        return "POST"

    @property
    def operation_name(self) -> str:
        """Name of its calls in traces, the same for all arguments; "": that of the tool."""
        return ""

    @property
    def security(self) -> tuple[tuple[Credential, ...], ...]:
        """Credentials that a call requires: all of any one list; empty: not specified."""
        return ()

    @property
    def scopes(self) -> tuple[str, ...]:
        """Scopes of which a caller needs one; empty: none."""
        return ()

    @property
    def mirrored(self) -> tuple[MirroredArgument, ...]:
        """The arguments that clients repeat in headers."""
        return ()

    @property
    def without_null(self) -> frozenset[str]:
        """The arguments whose place in a request has no null: one that is null is not given."""
        return frozenset()

    @property
    def peer_name(self) -> str:
        """Name of the tool at its own MCP server; "" for tools of no other server."""
        return ""

    @property
    def pinned_facts(self) -> dict[str, Any]:
        """Facts that the acceptance of a pinned tool covers, besides its definition."""
        return {}

    @property
    def wing(self) -> str:
        """Name of the wing of the gateway that it is an operation of; "" for all other tools."""
        return ""

    @property
    def forwards(self) -> str:
        """Name of the argument that names the tool that a call makes later; "": it makes none."""
        return ""

    @property
    def language(self) -> Language | None:
        """Language of the source code that it runs in a sandbox; None: it runs none."""
        return None

    def target(self, address: str | None) -> str:
        """Target of a call, in words; `address` is that of its source."""
        return address or NO_ADDRESS


_OUTSIDE_BODIES = frozenset(("query", "header", "cookie"))
_FORMS = ("application/x-www-form-urlencoded", "multipart/")


class OpenAPIBinding(Binding, frozen=True, tag="openapi", omit_defaults=True):
    """One operation of a REST service."""

    facts: ClassVar[KindFacts] = KindFacts(
        remote=True, keeps_answers=True, projects="answer", takes_headers=True
    )

    method: str  # upper case
    path: str  # template as in the description: /repos/{owner}/{repo}
    parameters: tuple[Parameter, ...] = ()
    body: Body | None = None
    server: str | None = None  # absolute URL of the operation's own server, if it has one
    # alternatives: all members of any one list; an empty list: credentials are optional
    security: tuple[tuple[Credential, ...], ...] = ()
    accept: str | None = None  # media types of its successful answers, the best first
    pagination: Pagination | None = None
    redirects: bool = False  # whether the description has redirects among its answers

    @property
    def operation_name(self) -> str:
        return f"{self.method} {self.path}"

    @property
    def without_null(self) -> frozenset[str]:
        names = {
            parameter.argument
            for parameter in self.parameters
            if parameter.location in _OUTSIDE_BODIES
        }
        if self.body is not None and self.body.media_type.startswith(_FORMS):
            names.update(argument for argument, _ in self.body.properties or ())
        return frozenset(names)

    def target(self, address: str | None) -> str:
        return f"{self.method} {address or NO_ADDRESS}{self.path}"


class Variable(Struct, frozen=True, omit_defaults=True):
    """A variable of a GraphQL operation and the tool argument that feeds it."""

    argument: str
    name: str
    type: str  # as in the document: [ID!]!
    fixed: Raw | UnsetType = UNSET  # hidden from callers: always this JSON value


class GraphQLBinding(Binding, frozen=True, tag="graphql", omit_defaults=True):
    """One root field of a GraphQL service."""

    facts: ClassVar[KindFacts] = KindFacts(
        remote=True, keeps_answers=True, projects="selection", takes_headers=True
    )

    operation: Literal["query", "mutation"]
    field: str  # of Query or Mutation
    variables: tuple[Variable, ...] = ()
    selection: str = ""  # default selection set: "{ id name owner { login } }"
    pagination: Pagination | None = None
    page_size: int | None = None  # sent as `pagination.limit` by a call that gives no size

    @property
    def operation_name(self) -> str:
        return f"{self.operation} {self.field}"

    def target(self, address: str | None) -> str:
        asks = f"\nasks for {self.selection}" if self.selection else ""
        return f"{self.operation} {self.field}  {address or NO_ADDRESS}{asks}"


class ServiceBinding(Binding, frozen=True, omit_defaults=True):
    """One action of a hybrid service, wherever it runs."""

    service: str  # its id: host/service/action/version
    scope: str | None = None  # scopes, separated by blanks; one of them is enough
    skip_auth: bool = False
    side: Side | None = None  # None: answers on both portal paths
    validated: bool = True  # False: the action has no schema, so any data is accepted
    argument: str | None = None  # `data` is not an object: all of it is this one argument

    @property
    def action(self) -> "ServiceBinding":
        return self

    @property
    def operation_name(self) -> str:
        return self.service

    @property
    def scopes(self) -> tuple[str, ...]:
        return () if self.skip_auth else tuple((self.scope or "").split())

    @property
    def positional(self) -> tuple[str, ...]:
        """Names of the arguments that an array of params holds."""
        return ()

    @property
    def rest(self) -> str | None:
        """The argument that takes the remaining members of that array."""
        return None

    def target(self, address: str | None) -> str:
        facts = [
            f"side {self.side or 'query and command'}",
            f"scope {self.scope or 'any'}",
            *(["needs no token"] if self.skip_auth else []),
            *([] if self.validated else ["its data is not checked"]),
        ]
        return f"service {self.service}  {self._where(address)}\n{', '.join(facts)}"

    def _where(self, address: str | None) -> str:
        return address or NO_ADDRESS


class HybridBinding(ServiceBinding, frozen=True, tag="hybrid", omit_defaults=True):
    """An action of a service behind the gateway."""

    facts: ClassVar[KindFacts] = KindFacts(remote=True)


class PythonBinding(ServiceBinding, frozen=True, tag="python", omit_defaults=True):
    """An action of a Python service inside the gateway."""

    facts: ClassVar[KindFacts] = KindFacts(loaded=True)

    positional: tuple[str, ...] = ()  # names of the arguments that an array of params holds
    rest: str | None = None  # name of the argument that takes the members after those

    def _where(self, _address: str | None) -> str:
        return "in this gateway"


class McpBinding(Binding, frozen=True, tag="mcp", omit_defaults=True):
    """One tool of another MCP server."""

    facts: ClassVar[KindFacts] = KindFacts(remote=True, relayed=True, takes_headers=True)

    name: str  # its name at that server
    eras: Eras = "both"
    mirrored: tuple[MirroredArgument, ...] = ()

    @property
    def operation_name(self) -> str:
        return f"tools/call {self.name}"

    @property
    def peer_name(self) -> str:
        return self.name

    def target(self, address: str | None) -> str:
        spoken = "" if self.eras == "both" else f", in its {self.eras} era only"
        return f"tool {self.name}  {address or 'of a process'}{spoken}"


class A2aBinding(Binding, frozen=True, tag="a2a", omit_defaults=True):
    """An agent that speaks Agent2Agent, called at one interface of its card."""

    facts: ClassVar[KindFacts] = KindFacts(
        remote=True, keeps_answers=True, reports=True, lasts=True
    )

    url: str  # of the interface
    transport: Literal["JSONRPC", "HTTP+JSON"]
    version: Literal["1.0", "0.3"]
    card: str  # SHA-256 of the card without its signatures
    tenant: str = ""  # sent exactly as the interface has it
    streams: bool = False
    skill: str = ""  # that messages begin with the name of

    @property
    def operation_name(self) -> str:
        return "SendMessage"

    @property
    def pinned_facts(self) -> dict[str, Any]:
        place = f"{self.transport} {self.version} {self.url} {self.tenant}".rstrip()
        return {"card": self.card, "interface": place}

    def target(self, address: str | None) -> str:
        return f"agent at {address or self.url}, A2A {self.version} over {self.transport}"


Does = Literal[
    "describe",
    "search_tools",
    "describe_tools",
    "call_tool",
    "list_skills",
    "use_skill",
    "connections",
]


class FunctionBinding(Binding, frozen=True, tag="function", omit_defaults=True):
    """A Python function inside the gateway, of a tool that was made by hand."""

    facts: ClassVar[KindFacts] = KindFacts(loaded=True)

    name: str  # in `functions` of the settings

    def target(self, _address: str | None) -> str:
        return f"function {self.name} of the settings, in this gateway"


class ScriptBinding(Binding, frozen=True, tag="script", omit_defaults=True):
    """Source code of a tool that was made by hand, run in a process of its own."""

    language: Language
    source: str  # defines main(arguments), which returns what JSON can hold

    def target(self, _address: str | None) -> str:
        return f"a script in {self.language}, {len(self.source)} characters, in a sandbox"


class GatewayBinding(Binding, frozen=True, tag="gateway", omit_defaults=True):
    """A built-in tool of the gateway; none of these is stored."""

    facts: ClassVar[KindFacts] = KindFacts(own=True, keeps_answers=True)

    does: Does

    def target(self, _address: str | None) -> str:
        return "this gateway itself"


class OperationBinding(Binding, frozen=True, tag="operation", omit_defaults=True):
    """An operation of the gateway that is a tool; none of these is stored."""

    facts: ClassVar[KindFacts] = KindFacts(typed=True, reports=True)

    operation: str  # its id

    def target(self, _address: str | None) -> str:
        return "this gateway itself"


class WingBinding(Binding, frozen=True, tag="wing", omit_defaults=True):
    """An operation of a wing, a part of the gateway that settings switch on."""

    facts: ClassVar[KindFacts] = KindFacts(typed=True, reports=True)

    wing: str  # its name, which its source has too
    operation: str  # its id
    scope: str | None = None  # that a caller needs
    forwards: str = ""

    @property
    def scopes(self) -> tuple[str, ...]:
        return (self.scope,) if self.scope else ()

    def target(self, _address: str | None) -> str:
        needs = f"\nscope {self.scope}" if self.scope else ""
        return f"operation {self.operation} of the wing {self.wing}, in this gateway{needs}"
