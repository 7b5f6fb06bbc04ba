"""One call of the "everything" server: what a tool or prompt may do besides returning a result.

It looks the same in both eras: a question to the client is a request of the server where the
revision has these, and an `input_required` result where it has not.
"""

import json
import warnings
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import anyio
import mcp_types as types
from mcp.server.context import ServerRequestContext
from mcp.server.session import ServerSession
from mcp.server.subscriptions import InMemorySubscriptionBus, ServerEvent
from mcp.shared.exceptions import MCPDeprecationWarning, MCPError
from mcp.shared.message import ServerMessageMetadata
from mcp.shared.subscriptions import event_to_notification
from mcp_types.version import MODERN_PROTOCOL_VERSIONS

Context = ServerRequestContext[Any, Any]
Params = types.CallToolRequestParams | types.GetPromptRequestParams
Questions = Mapping[str, types.InputRequest]

LEVELS = ("debug", "info", "notice", "warning", "error", "critical", "alert", "emergency")
ANSWERS: dict[type, type[types.Result]] = {
    types.ElicitRequest: types.ElicitResult,
    types.CreateMessageRequest: types.CreateMessageResult,
    types.ListRootsRequest: types.ListRootsResult,
}
CAPABILITY: dict[type, str] = {
    types.ElicitRequest: "elicitation",
    types.CreateMessageRequest: "sampling",
    types.ListRootsRequest: "roots",
}


class InputNeeded(Exception):
    """The call cannot go on before the client has answered; carries the result that says so."""

    def __init__(self, result: types.InputRequiredResult) -> None:
        super().__init__("input required")
        self.result = result


@dataclass
class Audience:
    """Who hears of changes: every session of the handshake era, and every listen stream."""

    bus: InMemorySubscriptionBus = field(default_factory=InMemorySubscriptionBus)
    sessions: dict[str, ServerSession] = field(default_factory=dict)  # by session id
    subscribers: dict[str, set[str]] = field(default_factory=dict)  # URI -> session ids
    levels: dict[str, str] = field(default_factory=dict)  # session id -> least level that it hears
    changes: int = 0  # how often the lists were changed

    def notice(self, context: Context) -> None:
        """Remember the session of a request for as long as it lives."""
        key = session_key(context)
        if key is not None and key not in self.sessions:
            self.sessions[key] = context.session
            context.session._connection.exit_stack.callback(self._forget, key)

    def _forget(self, key: str) -> None:
        self.sessions.pop(key, None)
        self.levels.pop(key, None)
        for keys in self.subscribers.values():
            keys.discard(key)

    async def tell(self, event: ServerEvent, only: set[str] | None = None) -> None:
        await self.bus.publish(event)
        notification = event_to_notification(event, {})
        for key, session in list(self.sessions.items()):
            if only is None or key in only:
                await session.send_notification(notification)


def session_key(context: Context) -> str | None:
    """The id of the session that a request belongs to."""
    headers = getattr(context.request, "headers", {})
    return headers.get("mcp-session-id")


@dataclass(frozen=True)
class Call:
    context: Context
    params: Params
    audience: Audience

    @property
    def stateless(self) -> bool:
        return self.context.protocol_version in MODERN_PROTOCOL_VERSIONS

    @property
    def arguments(self) -> dict[str, Any]:
        return self.params.arguments or {}

    def can(self, request: type) -> bool:
        """Whether the client declared that it answers such requests."""
        capabilities = self.context.session.client_capabilities
        return getattr(capabilities, CAPABILITY[request], None) is not None

    async def log(self, level: str, data: str) -> None:
        least = self.audience.levels.get(session_key(self.context) or "", "debug")
        if LEVELS.index(level) >= LEVELS.index(least):
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", MCPDeprecationWarning)  # deprecated is not removed
                said = self.context.session.send_log_message(
                    level, data, related_request_id=self.context.request_id
                )
            await said

    async def ask(self, questions: Questions, *, stateful: bool = False) -> dict[str, Any]:
        """The client's results by the key of their question.

        Answers of earlier rounds travel in `requestState`; with `stateful` the first round has
        one, too.
        """
        if not self.stateless:
            return await self._request(questions)
        self._check_capabilities(questions)
        earlier = json.loads(self.params.request_state or "{}")
        given = self.params.input_responses or {}
        known = {key: given[key].model_dump(mode="json", by_alias=True) for key in given} | earlier
        missing = {key: one for key, one in questions.items() if key not in known}
        if missing:
            state = known if known or stateful else None
            raise InputNeeded(
                types.InputRequiredResult(
                    input_requests=missing,
                    request_state=None if state is None else json.dumps(state),
                )
            )
        return {
            key: ANSWERS[type(one)].model_validate(known[key]) for key, one in questions.items()
        }

    async def _request(self, questions: Questions) -> dict[str, Any]:
        """Ask everything at once."""
        answers: dict[str, Any] = {}
        metadata = ServerMessageMetadata(related_request_id=self.context.request_id)

        async def one(key: str, request: types.InputRequest) -> None:
            answers[key] = await self.context.session.send_request(
                request, ANSWERS[type(request)], metadata=metadata
            )

        try:
            async with anyio.create_task_group() as tasks:
                for key, request in questions.items():
                    tasks.start_soon(one, key, request)
        except* MCPError as refused:
            raise refused.exceptions[0] from None
        return answers

    def _check_capabilities(self, questions: Questions) -> None:
        missing = {
            CAPABILITY[type(one)]: {} for one in questions.values() if not self.can(type(one))
        }
        if missing:
            raise MCPError(
                types.MISSING_REQUIRED_CLIENT_CAPABILITY,
                f"The client has to declare: {', '.join(missing)}",
                {"requiredCapabilities": missing},
            )


def elicit(message: str, properties: dict[str, Any], required: list[str]) -> types.ElicitRequest:
    schema = {"type": "object", "properties": properties, "required": required}
    return types.ElicitRequest(
        params=types.ElicitRequestFormParams(message=message, requested_schema=schema)
    )


def sample(prompt: str, max_tokens: int = 100) -> types.CreateMessageRequest:
    message = types.SamplingMessage(role="user", content=text(prompt))
    return types.CreateMessageRequest(
        params=types.CreateMessageRequestParams(messages=[message], max_tokens=max_tokens)
    )


def text(value: str) -> types.TextContent:
    return types.TextContent(text=value)
