"""The plain types that settings are made of.

The description of a type completes the sentence "expected ..." in an error message.
"""

from typing import Annotated, Literal

from msgspec import Meta

# Verbatim: text that may look like a number, a boolean or a date, and is kept as written.
VERBATIM = {"verbatim": True}
# Python's `$` also matches before a final newline, which would let "X-A\n" pass.
END = r"$(?!\n)"

Port = Annotated[int, Meta(ge=0, le=65535, description="a TCP port from 0 to 65535")]
Count = Annotated[int, Meta(ge=1, description="a whole number of at least 1")]
Amount = Annotated[int, Meta(ge=0, description="a whole number of at least 0")]
# The recursion limits of Python and of the rule evaluator are not much higher.
JsonDepth = Annotated[int, Meta(ge=1, le=500, description="a whole number from 1 to 500")]
Levels = Annotated[int, Meta(ge=1, le=10, description="a whole number from 1 to 10")]
Connections = Annotated[int, Meta(ge=5, le=1000, description="a whole number from 5 to 1000")]
Retries = Annotated[int, Meta(ge=0, le=10, description="a whole number from 0 to 10")]
Bytes = Annotated[int, Meta(ge=1, description="a whole number of bytes, at least 1")]
Millis = Annotated[int, Meta(ge=0, description="a whole number of milliseconds, at least 0")]
# A year: anything longer, infinity included, breaks timers of the event loop.
Seconds = Annotated[
    float, Meta(gt=0, le=31_536_000, description="a number of seconds, above 0 and within a year")
]
HostAndPort = Annotated[
    str,
    Meta(
        pattern=r"^[^\s/?#@]+" + END,
        description="a host name or an IP address, perhaps with a port",
    ),
]
Host = Annotated[str, Meta(pattern=r"^[^\s/]+" + END, description="a host name or an IP address")]
HostHeader = Annotated[
    str,
    Meta(
        pattern=r"^(\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9][A-Za-z0-9._-]*)" + END,
        description="a host name or an IP address without port, as in gateway.example.com",
    ),
]
Network = Annotated[
    str,
    Meta(
        pattern=r"^[0-9A-Fa-f:.]+(/[0-9]{1,3})?" + END,
        description="an IP address or a network such as 10.0.0.0/8",
    ),
]
Origin = Annotated[
    str,
    Meta(
        pattern=r"^[a-z][a-z0-9+.-]*://[^\s/?#@]+" + END,
        description="an origin such as https://app.example.com, without a path",
    ),
]
HttpPath = Annotated[
    str,
    Meta(
        pattern=r"^(/(?!\.\.?(/|$))[A-Za-z0-9._~-]+)+" + END,
        description='a path such as /mcp, neither "/" nor with a "/" at its end',
    ),
]
Day = Annotated[
    str,
    Meta(
        pattern=r"^([0-9]{4}-[0-9]{2}-[0-9]{2})?" + END,
        description="a date such as 2027-06-30, or nothing",
        extra=VERBATIM,
        extra_json_schema=VERBATIM,
    ),
]
HttpUrl = Annotated[
    str,
    Meta(
        pattern=r"^https?://[^\s/?#@]+(/[^\s?#]*)?" + END,
        description="an http:// or https:// URL without credentials, query and fragment "
        "(credentials go into `headers`)",
    ),
]
# Hosted MCP servers take their options, and some the key, in the query.
McpUrl = Annotated[
    str,
    Meta(
        pattern=r"^https?://[^\s/?#@]+(/[^\s?#]*)?(\?[^\s#]*)?" + END,
        description="an http:// or https:// URL without credentials and fragment "
        "(credentials go into `headers`)",
    ),
]
DatabaseUrl = Annotated[
    str,
    Meta(
        pattern=r"^(embedded|postgres(ql)?://\S*)" + END,
        description='"embedded" or a postgresql:// URL',
    ),
]
ReplicaUrl = Annotated[
    str,
    Meta(
        pattern=r"^(postgres(ql)?://\S*)?" + END,
        description="a postgresql:// URL, or nothing",
    ),
]
MemorySize = Annotated[
    str,
    Meta(pattern=r"^[1-9][0-9]* ?(kB|MB|GB|TB)" + END, description="a size such as 128MB"),
]
SystemUser = Annotated[
    str,
    Meta(pattern=r"^[a-z_][a-z0-9_-]{0,31}" + END, description="the name of a system user"),
]
OptionalInstance = Annotated[
    str,
    Meta(
        pattern=r"^([a-z0-9][a-z0-9_-]{0,30})?" + END,
        description='a name of at most 31 characters out of a-z, 0-9, "_" and "-", or nothing',
    ),
]
HostId = Annotated[
    str,
    Meta(
        pattern=r"^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}" + END,
        description="a UUID in lower case",
    ),
]
SourceName = Annotated[
    str,
    Meta(
        pattern=r"^[a-z0-9][a-z0-9_-]{0,62}" + END,
        description='a name of at most 63 characters out of a-z, 0-9, "_" and "-"',
    ),
]
TopicName = Annotated[
    str,
    Meta(
        pattern=r"^[a-z0-9][a-z0-9._-]{0,62}" + END,
        description='a name of at most 63 characters out of a-z, 0-9, ".", "_" and "-"',
    ),
]
RedisPrefix = Annotated[
    str,
    Meta(
        pattern=r"^[A-Za-z0-9][A-Za-z0-9:._-]{0,62}" + END,
        description='a prefix of keys: at most 63 characters out of letters, digits, ":", ".", "_" '
        'and "-"',
    ),
]
OptionalTopicName = Annotated[
    str,
    Meta(
        pattern=r"^([a-z0-9][a-z0-9._-]{0,62})?" + END,
        description='a name of at most 63 characters out of a-z, 0-9, ".", "_" and "-", or nothing',
    ),
]
SkillKey = Annotated[
    str,
    Meta(
        pattern=r"^[A-Za-z0-9][A-Za-z0-9_.-]{0,62}" + END,
        description='a name of at most 63 characters out of letters, digits, "_", "." and "-"',
    ),
]
CalledName = Annotated[
    str,
    Meta(
        pattern=r"^[A-Za-z0-9_.-]{1,128}" + END,
        description="SOURCE.TOOL, a key of `events.skills`, or the name of a wing's operation",
    ),
]
WebhookSecret = Annotated[
    str,
    Meta(
        pattern=r"^whsec_[A-Za-z0-9+/]{32,88}={0,2}" + END,
        description="whsec_ and the base64 of 24 to 64 bytes",
    ),
]
Workers = Annotated[
    str,
    Meta(
        pattern=r"^(auto|[1-9]|[1-5][0-9]|6[0-4])" + END,
        description='"auto" (one for each CPU core) or a whole number from 1 to 64',
        extra=VERBATIM,
        extra_json_schema=VERBATIM,
    ),
]
# Arguments and environments of processes end at a NUL.
Text = Annotated[
    str,
    Meta(
        pattern=r"^[^\x00]*" + END,
        description="text without NUL characters",
        extra=VERBATIM,
        extra_json_schema=VERBATIM,
    ),
]
VariableName = Annotated[
    str,
    Meta(
        pattern=r"^[A-Za-z_][A-Za-z0-9_]*" + END,
        description="the name of an environment variable",
        extra={"capitals": True},  # case of an entry that a TOOLGATE_... variable adds
    ),
]
Secret = Annotated[
    str,
    Meta(
        pattern=r"^(.{16,})?" + END,
        description="at least 16 characters, or nothing",
        extra=VERBATIM,
        extra_json_schema=VERBATIM,
    ),
]
RedisUrl = Annotated[
    str,
    Meta(
        pattern=r"^((rediss?(\+cluster)?|unix)://\S+)?" + END,
        description="a redis://, rediss://, redis+cluster:// or unix:// URL, or nothing",
    ),
]
# Path below the MCP endpoint, where `sse` and `message` are reserved.
ToolsetName = Annotated[
    str,
    Meta(
        pattern=r"^(?!(sse|message)$)[a-z0-9][a-z0-9_-]{0,62}" + END,
        description='a name of at most 63 characters out of a-z, 0-9, "_" and "-", and not "sse" '
        'or "message"',
    ),
]
ProfileName = SourceName
# A toolset matches each tool with each of its patterns, when it is built.
ToolPatterns = Annotated[
    tuple[Annotated[str, Meta(max_length=200, description="at most 200 characters")], ...],
    Meta(max_length=1000, description="at most 1000 patterns"),
]
SourceNames = Annotated[
    tuple[SourceName, ...], Meta(max_length=1000, description="at most 1000 sources")
]
# server.json has no longer ones.
ShortDescription = Annotated[str, Meta(max_length=100, description="at most 100 characters")]
PurposeName = Annotated[
    str,
    Meta(
        pattern=r"^[a-z][a-z0-9_]{0,31}" + END,
        description='a name of at most 32 characters out of a-z, 0-9 and "_"',
    ),
]
# It becomes part of function names.
ServerName = Annotated[
    str,
    Meta(
        pattern=r"^[A-Za-z0-9_-]{1,32}" + END,
        description='a name of at most 32 characters out of A-Z, a-z, 0-9, "_" and "-"',
    ),
]
# Less leaves no room for a name beside a hash, or for a summary.
NameLimit = Annotated[int, Meta(ge=48, le=128, description="a whole number from 48 to 128")]
ToolTokens = Annotated[int, Meta(ge=250, description="a whole number of at least 250")]
TextLength = Annotated[int, Meta(ge=80, description="a whole number of at least 80")]
# RFC 9110, 5.1 and 5.5: a token; visible characters, spaces and tabs.
HeaderName = Annotated[
    str,
    Meta(
        pattern=r"^[A-Za-z0-9!#$%&'*+.^_`|~-]+" + END,
        description="the name of an HTTP header",
        extra={"dashes": True},  # no "-" in a variable's name: there `_` stands for it
    ),
]
HeaderValue = Annotated[
    str,
    Meta(
        pattern=r"^[\t\x20-\x7e\x80-\xff]*" + END,
        description="the value of an HTTP header, on one line",
        extra=VERBATIM,
        extra_json_schema=VERBATIM,
    ),
]
# As named in a description: mostly identifiers; a ":" means a missing space before the value.
SchemeName = Annotated[
    str,
    Meta(
        pattern=r"^[^\s:{}]([^\n\r:{}]{0,98}[^\s:{}])?" + END,
        description='the name of a security scheme, without ":"',
    ),
]
# `jit: off` is what people write, and what PostgreSQL wants to read.
ServerOption = Annotated[
    str,
    Meta(
        description="text, a number or a switch",
        extra=VERBATIM,
        extra_json_schema=VERBATIM,
    ),
]
# Asymmetric signatures only: the key that verifies an HS* signature can also forge one.
Algorithm = Literal[
    "RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "EdDSA",
]  # fmt: skip
Leeway = Annotated[float, Meta(ge=0, le=600, description="a number of seconds from 0 to 600")]
File = Annotated[str, Meta(description="a path", extra={"file": True})]
PythonModule = Annotated[
    str,
    Meta(
        pattern=r"^([A-Za-z_]\w*(\.[A-Za-z_]\w*)*|.+\.py)" + END,
        description="a module such as company.rules, or the path of a .py file",
        extra={"module": True},
    ),
]
Directory = Annotated[str, Meta(description="a directory", extra={"file": True})]
SocketPath = Annotated[
    str,
    Meta(pattern=r"^(/[^\x00]*)?" + END, description="an absolute path, or nothing"),
]
EntryName = Annotated[
    str,
    Meta(
        pattern=r"^(?!/|\.\.(/|$))[^\x00]+" + END,
        description="the path of a file inside the directory or the archive",
    ),
]
Location = Annotated[str, Meta(pattern=r"\S", description="a path or a URL", extra={"file": True})]
OptionalUrl = Annotated[
    str,
    Meta(
        pattern=r"^(https?://[^\s/?#@]+(/[^\s?#]*)?)?" + END,
        description="an http:// or https:// URL without credentials, query and fragment, "
        "or nothing",
    ),
]
VECTOR_DIMENSION = 384  # of the domain embedding_vector
Dimension = Annotated[
    int,
    Meta(
        ge=VECTOR_DIMENSION,
        le=VECTOR_DIMENSION,
        description=f"{VECTOR_DIMENSION}, the length of stored vectors",
    ),
]
CronSchedule = Annotated[
    str,
    Meta(
        pattern=r"^[0-9*/,-]+( [0-9A-Za-z*/,-]+){4}" + END,
        description="a cron schedule of five fields (minute, hour, day of the month, month, day of "
        'the week), such as "*/5 * * * *"',
    ),
]
Share = Annotated[float, Meta(ge=0, le=1, description="a number from 0 to 1")]
DisclosureMode = Literal["direct", "search", "auto"]
CodeDisclosure = Literal["off", "offered", "only"]
CallWay = Literal["direct", "code"]  # by clients and agents; by programs
CallWays = Annotated[
    tuple[CallWay, ...], Meta(min_length=1, description='"direct", "code", or both, in a list')
]
FunctionName = SourceName
EntryPoint = Annotated[
    str,
    Meta(
        pattern=r"^[A-Za-z_]\w*(\.[A-Za-z_]\w*)*:[A-Za-z_]\w*" + END,
        description="a function such as company.tools:count_words",
    ),
]
OptionalEntryPoint = Annotated[
    str,
    Meta(
        pattern=r"^([A-Za-z_]\w*(\.[A-Za-z_]\w*)*:[A-Za-z_]\w*)?" + END,
        description="a function such as company.tools:count_words, or nothing",
    ),
]
# `iss` is compared verbatim; the name is for settings and messages.
IssuerName = SourceName
RuleName = SourceName
# A client of the login: a name, or the URL of its metadata document.
ClientId = Annotated[
    str,
    Meta(
        pattern=r"^[\x21-\x7e]{1,2000}" + END,
        description="the id of an OAuth client: visible ASCII characters without spaces",
    ),
]
RedirectUri = Annotated[
    str,
    Meta(
        pattern=r"^[a-z][a-z0-9+.-]*:[^\s#]+" + END,
        description="a redirect URI such as https://app.example.com/callback, without fragment",
    ),
]
# NIST SP 800-63B-4: at least 15 characters for a password that is the only factor.
PasswordLength = Annotated[int, Meta(ge=8, le=64, description="a number from 8 to 64")]
TierName = Annotated[
    str,
    Meta(
        pattern=r"^[A-Za-z0-9_-]{1,64}" + END,
        description='a name of at most 64 characters out of A-Z, a-z, 0-9, "_" and "-"',
    ),
]
# A dotted path leads into objects: realm_access.roles. A claim whose name is the whole path goes
# first, because names may be URLs.
ClaimName = Annotated[
    str,
    Meta(
        pattern=r"^[\x21-\x7e]{0,128}" + END,
        description="the name of a claim, or a dotted path to one",
    ),
]
# RFC 6749, section 3.3.
ScopeName = Annotated[
    str,
    Meta(
        pattern=r"^[\x21\x23-\x5b\x5d-\x7e]{1,255}" + END,
        description="a scope: visible characters without quotes and backslashes",
    ),
]
DevelopmentSecret = Annotated[
    str,
    Meta(
        pattern=r"^(.{32,})?" + END,
        description="at least 32 characters, or nothing",
        extra=VERBATIM,
        extra_json_schema=VERBATIM,
    ),
]
CelText = Annotated[
    str,
    Meta(
        max_length=4096,
        description="a CEL expression of at most 4096 characters",
        extra=VERBATIM,
        extra_json_schema=VERBATIM,
    ),
]
SecretKey = Annotated[
    str,
    Meta(
        pattern=r"^([A-Za-z0-9+/_-]{43}=)?" + END,
        description="32 bytes in base64, as of `openssl rand -base64 32`, or nothing",
        extra={**VERBATIM, "outside": True},  # not allowed in a settings file
        extra_json_schema=VERBATIM,
    ),
]
# RFC 8707, section 2.
ResourceUri = Annotated[
    str,
    Meta(
        pattern=r"^([A-Za-z][A-Za-z0-9+.-]*:[^\s#]+)?" + END,
        description="an absolute URI without a fragment, or nothing",
    ),
]
