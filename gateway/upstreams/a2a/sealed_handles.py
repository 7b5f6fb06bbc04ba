"""Handles of agents' contexts and tasks, for callers.

Ids of contexts and tasks are the agent's, and callers of a gateway may share its credentials there:
so callers get sealed handles, which are good for their principal and source alone.
"""

from collections.abc import Awaitable, Callable

from msgspec import Struct

from gateway.context import Context
from gateway.protocol.sealed_state import Sealer
from gateway.upstreams.a2a.conversation import Conversation
from gateway.upstreams.a2a.results import Handles
from schemas.errors import InvalidParams
from schemas.jsonrpc import encode
from schemas.source import Source

HANDLE = "agent handle"
HANDLE_TTL_S = 30 * 86_400.0  # the agent forgets its task earlier


class AgentHandle(Struct, frozen=True, array_like=True):
    """The content of a handle: a context, or a task in it, at the agent of a source."""

    source: str  # its id
    context: str
    task: str = ""
    question: str = ""  # key of the one at which the task waits


class SealedHandles:
    def __init__(self, sealer: Callable[[], Awaitable[Sealer]]) -> None:
        self._sealer = sealer

    async def seal(self, talk: Conversation, context: Context) -> Handles:
        sealer, source = await self._sealer(), talk.agent.source.id

        def seal(handle: AgentHandle) -> str:
            return sealer.seal(HANDLE, handle, _owner(context), HANDLE_TTL_S)

        shared = seal(AgentHandle(source, talk.context_id)) if talk.context_id else ""
        task = AgentHandle(source, talk.context_id, talk.task_id, talk.question_key)
        return Handles(shared, seal(task) if talk.is_running else "")

    async def open(self, argument: str, text: str, source: Source, context: Context) -> AgentHandle:
        """Raises InvalidParams."""
        sealer = await self._sealer()
        expected = f"{argument}: expected that of an earlier answer of {source.name} to you"
        try:
            handle = sealer.unseal(HANDLE, text, AgentHandle, _owner(context))
        except InvalidParams as error:
            raise InvalidParams(expected) from error
        if handle.source != source.id or bool(handle.task) != (argument == "task"):
            raise InvalidParams(expected)
        return handle


def _owner(context: Context) -> bytes:
    return encode([*context.principal.key])
