"""A server of MCP that asks for a colour during the call of its tool."""

from tests.servers.mcp_wire import Scripted, Turn, discovery_result

FORM = {"type": "object", "properties": {"colour": {"type": "string"}}, "required": ["colour"]}


class Painter(Scripted):
    """A server of 2026-07-28 whose only tool reads, asks for a colour, and names it."""

    def __init__(self) -> None:
        self.calls = 0
        plays = {"server/discover": self.discover, "initialize": self.refuse}
        super().__init__({**plays, "tools/list": self.tools, "tools/call": self.call})

    async def discover(self, turn: Turn) -> None:
        await turn.result(**discovery_result())

    async def refuse(self, turn: Turn) -> None:
        await turn.error(-32022, status=400)

    async def tools(self, turn: Turn) -> None:
        hints = {"readOnlyHint": True}
        tool = {"name": "paint", "inputSchema": {"type": "object"}, "annotations": hints}
        await turn.result(resultType="complete", tools=[tool], ttlMs=0, cacheScope="private")

    async def call(self, turn: Turn) -> None:
        self.calls += 1
        given = turn.params.get("inputResponses")
        if given is None:
            params = {"mode": "form", "message": "Which colour?", "requestedSchema": FORM}
            asked = {"q": {"method": "elicitation/create", "params": params}}
            await turn.result(resultType="input_required", inputRequests=asked)
            return
        answer = given["q"]
        text = f"{answer['action']} {answer.get('content', {}).get('colour', '')}".strip()
        await turn.result(resultType="complete", content=[{"type": "text", "text": text}])
