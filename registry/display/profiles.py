"""Client profiles: what clients, and the providers of their models, accept of a tool; and which
client has which profile.

A provider rejects a whole request for one unacceptable tool, so lists are written per client. The
facts stand beside the rules with a public report of each; they change, and the settings override
them.
"""

from collections.abc import Iterator, Mapping
from functools import lru_cache

from msgspec import Struct
from msgspec.structs import replace

from config.settings import Profile, ProfilesSettings
from registry.names.tool_names import LIMIT
from schemas.globs import Globs

PLAIN = "plain"  # no rewriting
AUTO = "auto"
SHORTEST_NAME = 16  # characters that are always left to the name of a tool
CACHED_CLIENTS = 10_000  # client names cached: clients choose them freely
CLIENT_LENGTH = 200  # characters of a client name that are compared

# What models of all providers accept.
_ANY_MODEL = Profile(
    arguments="^[a-zA-Z0-9_.-]{1,64}$",
    root_unions=False,
    patterns="portable",
    unions=("anyOf",),
    references=False,
    items=True,
)
# Patterns: Anthropic 400 for what its engine does not read ("JSON schema is invalid"), OpenAI 400
# for look-around, Gemini reads RE2; clients hand them on, so all profiles have portable ones.
# Anthropic 400: "does not support oneOf, allOf, or anyOf at the top level" (python-sdk #494,
# notion-mcp-server #341); property keys of the arguments are checked (claude-code #79418); names
# had at most 64 characters with Claude Code's prefix (claude-code #2326, cloudflare/skills #11).
_CLAUDE = Profile(
    clients=("*claude*", "*anthropic*"),
    name_prefix="mcp__{server}__",
    arguments="^[a-zA-Z0-9_.-]{1,64}$",
    root_unions=False,
    patterns="portable",
)
# OpenAI 400: no union at the top (langchainjs #9804, imagekit-nodejs #150), `allOf` and `oneOf` not
# permitted inside either (notion-mcp-server #102, oh-my-pi #920). VS Code: "array type must have
# items" (vscode #246119), names too long with its prefix (vscode #243602), `$defs` dropped, so that
# references lead nowhere (fastmcp #2808).
_OPENAI = replace(
    _ANY_MODEL,
    clients=("*openai*", "*chatgpt*", "visual studio code*", "*vscode*", "*copilot*"),
    name_prefix="mcp_{server}_",
)
# What has a `$ref` or an `anyOf` reaches the model as a text (codex #3152, #13768).
_CODEX = replace(
    _ANY_MODEL,
    clients=("*codex*",),
    name_prefix="mcp__{server}__",
    unions=(),
)
# Gemini 400: unknown `$ref` and `$defs` (gemini-cli #13326), `additionalProperties` (promptfoo
# #6902), lists of types (gitlab-mcp #166), formats (cherry-studio #4153), no `items` (cline #7339),
# "exceeds the maximum allowed nesting depth" (gemini-cli #5923: of 6 levels; portkey #1616 found
# 4); names begin with a letter or "_" (gemini-cli #7869) and have 63 characters (gemini-cli
# #20987). Keywords: the Schema of https://ai.google.dev/api/caching#Schema.
_GEMINI = Profile(
    clients=("*gemini*",),
    name_limit=63,
    name_prefix="mcp_{server}_",
    name_letter=True,
    arguments="^[a-zA-Z_][a-zA-Z0-9_.-]{0,63}$",
    root_unions=False,
    patterns="portable",
    unions=("anyOf",),
    references=False,
    nullable=True,
    text_enums=True,
    items=True,
    formats=("enum", "date-time", "float", "double", "int32", "int64"),
    keywords=(
        *("type", "format", "title", "description", "nullable", "enum", "items", "minItems"),
        *("maxItems", "properties", "required", "minProperties", "maxProperties", "minLength"),
        *("maxLength", "pattern", "anyOf", "minimum", "maximum"),
    ),
    depth=4,
)
# Converse: names `[a-zA-Z0-9_-]{1,64}` and no empty description (litellm #24668, opencode #48582);
# `$ref` and `oneOf` not understood, arrays need items (fastmcp #3655, opensre #2381).
_BEDROCK = replace(
    _ANY_MODEL,
    clients=("*bedrock*", "*amazon*q*", "q dev*", "*kiro*"),
    describes=True,
)
# Cursor hides tools whose name has more than 60 characters together with the server's
# (mcp-playwright #145, composio #2788); its models are those of all providers.
_CURSOR = replace(
    _ANY_MODEL,
    clients=("*cursor*",),
    name_limit=60,
    name_prefix="{server}:",
)
# Frameworks hand tools to models of all providers.
_FRAMEWORKS = replace(
    _ANY_MODEL,
    clients=("mcp-use", "ai-sdk-*", "@langchain/*", "google-adk"),
    describes=True,
)
# The default name of the Python SDK, which programs keep and frameworks, too (LangChain, OpenAI
# Agents): tools as they are, without references and patterns that few read.
# llama-index-tools-mcp 0.6.0 takes a definition that is an enum for an object, smolagents 1.26.0
# loses the description beside a `$ref`.
_SDK = Profile(clients=("mcp",), name_limit=LIMIT, patterns="portable", references=False)
BUILT_IN: Mapping[str, Profile] = {
    PLAIN: Profile(name_limit=LIMIT),
    "cursor": _CURSOR,  # before openai: it calls itself cursor-vscode
    "codex": _CODEX,
    "claude": _CLAUDE,
    "gemini": _GEMINI,
    "bedrock": _BEDROCK,
    "openai": _OPENAI,
    "frameworks": _FRAMEWORKS,
    "sdk": _SDK,
}


class SelectedProfile(Struct, frozen=True):
    """Profile selected for a client, by name."""

    name: str
    profile: Profile
    prefix: str = ""  # that the client puts before names
    tool_tokens: int | None = None  # per tool in a list; None: the default

    @property
    def name_limit(self) -> int:
        """Characters left for a tool's name; never so few that it becomes meaningless."""
        return max(self.profile.name_limit - len(self.prefix), SHORTEST_NAME)


PLAIN_PROFILE = SelectedProfile(PLAIN, BUILT_IN[PLAIN])


class Profiles:
    """All profiles, and the clients that they apply to."""

    def __init__(self, settings: ProfilesSettings | None = None) -> None:
        custom: Mapping[str, Profile] = settings.custom if settings else {}
        server = settings.server_name if settings else ""
        tool_tokens: Mapping[str, int] = settings.tool_tokens if settings else {}
        every = {
            **custom,
            **{name: profile for name, profile in BUILT_IN.items() if name not in custom},
        }
        self._profiles = {
            name: SelectedProfile(
                name,
                profile,
                profile.name_prefix.replace("{server}", server),
                tool_tokens.get(name),
            )
            for name, profile in every.items()
        }
        self._clients = [
            (Globs(selected.profile.clients), selected) for selected in self._profiles.values()
        ]
        default = settings.default if settings else PLAIN
        self._auto = default == AUTO
        self.default = self._profiles.get(default, PLAIN_PROFILE)
        self._of_client = lru_cache(CACHED_CLIENTS)(self._matching)

    def __iter__(self) -> Iterator[SelectedProfile]:
        return iter(self._profiles.values())

    def profile(self, name: str) -> SelectedProfile | None:
        return self._profiles.get(name)

    def of(self, client: object) -> SelectedProfile:
        """The profile of a client by the name that it reports; the default without one."""
        if not self._auto or not isinstance(client, str):
            return self.default
        return self._of_client(client[:CLIENT_LENGTH])

    def _matching(self, client: str) -> SelectedProfile:
        matches = (profile for clients, profile in self._clients if clients.match(client))
        return next(matches, self.default)
