"""Settings of other products that newcomers try, and where Toolgate has them: explanations with an
example, for error messages."""

from collections.abc import Mapping

SERVERS = "MCP servers are sources, as in `sources: {github: {mcp: https://mcp.example.com/mcp}}`"
TOOLS = "tools come from sources, as in `sources: {pets: {openapi: https://pets.example.com/openapi.json}}`"
KEYS = "callers have tokens or keys (toolgate keys create NAME), as in `auth: {mode: keys}`"
MODELS = (
    "chat models are strategies, as in `models: {strategies: {mine: "
    "{url: https://api.openai.com/v1, model: gpt-5, api_key: '${OPENAI_API_KEY:-}'}}}`"
)
RATES = "rates have calls and seconds, as in `limits: {principal_calls: 60, per_s: 60}`"
RATES_OF_TOOLS = (
    "limits of a tool have its name, as in `limits: {tools: {deletePet: {calls: 3, per: caller}}}`"
)

# by section, "" for the whole file, and by key without "-", "_" and capitals
ELSEWHERE: Mapping[str, Mapping[str, str]] = {
    "": {
        **dict.fromkeys(("mcpservers", "mcpserver", "mcp", "servers", "upstreams"), SERVERS),
        **dict.fromkeys(("tools", "tool", "apis", "openapi", "plugins"), TOOLS),
        **dict.fromkeys(("users", "user", "apikeys", "keys", "clients", "tokens"), KEYS),
        **dict.fromkeys(("openai", "anthropic", "llm", "llms", "model", "providers"), MODELS),
        **dict.fromkeys(("ratelimit", "ratelimits", "perminute"), RATES),
    },
    "limits": {
        **dict.fromkeys(("perminute", "rpm", "requestsperminute", "rate", "calls"), RATES),
        **dict.fromkeys(("perhour", "perday", "persecond", "requests"), RATES),
        **dict.fromkeys(("tool", "pertool"), RATES_OF_TOOLS),
    },
    "auth": dict.fromkeys(("users", "user", "keys", "tokens"), KEYS),
    "models": dict.fromkeys(("openai", "anthropic", "providers", "model"), MODELS),
}


def explanation(section: str, key: str) -> str:
    """Where Toolgate has a setting that `key` of a section is elsewhere; "" if that is unknown."""
    plain = key.lower().replace("-", "").replace("_", "")
    return ELSEWHERE.get(section, {}).get(plain, "")
