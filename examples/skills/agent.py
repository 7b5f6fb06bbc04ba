"""What an agent does with skills, without a model: where one would think, this takes the first.

    .venv/bin/python examples/skills/agent.py [URL]

Needs the package `mcp` (2.3), a gateway with the pet shop (make run), and its skills:

    .venv/bin/toolgate -c examples/petshop/toolgate.yaml skills import examples/skills/shop
"""

import asyncio
import sys
from typing import Any

from mcp import Client
from mcp.types import CallToolResult, TextContent

URL = "http://127.0.0.1:8765/mcp?mode=search"
TASK = "Ada Park wants to buy the cheapest cat."


async def main(url: str = URL) -> None:
    async with Client(url) as client:
        listed = await client.list_tools()
        print(f"{len(listed.tools)} tools are listed:", *(tool.name for tool in listed.tools))
        print("The task:", TASK)

        skills = await ask(client, "list_skills", query=TASK)
        chosen = skills["skills"][0]
        print(f"\nlist_skills: {chosen['name']} is for this: {chosen['description']}")

        skill = await ask(client, "use_skill", name=chosen["name"])
        print(f"\nuse_skill: loaded {', '.join(skill['loaded'])}")
        print(*(f"  {line}" for line in skill["instructions"].splitlines()[:6]), sep="\n")
        print("  its tools:", *(tool["name"] for tool in skill["tools"]))

        within = {"skill": skill["skill"]}
        found = await ask(client, "search_tools", query="list the pets of the shop", **within)
        print("\nsearch_tools:", *(tool["name"] for tool in found["tools"]))

        async def call(name: str, /, **arguments: Any) -> Any:
            return await ask(client, "call_tool", name=name, arguments=arguments, **within)

        cats = await call("listPets", species="cat", status="available")
        cat = min(cats["pets"], key=lambda pet: pet["priceCents"])
        print(f"\ncall_tool listPets: {cat['name']} is ${cat['priceCents'] / 100:.2f}")
        owners = await call("listOwners")
        ada = next(owner for owner in owners if owner["name"] == "Ada Park")
        order = await call("placeOrder", petId=cat["id"], ownerId=ada["id"])
        print(f"call_tool placeOrder: order {order['id']} is {order['status']}")
        print("call_tool cancelOrder:", await call("cancelOrder", orderId=order["id"]))

        refused = await client.call_tool("call_tool", {"name": "deletePet", **within})
        print("\nWhat the skill has not been given:", text_of(refused))


async def ask(client: Client, name: str, /, **arguments: Any) -> Any:
    result = await client.call_tool(name, arguments)
    if result.is_error:
        raise SystemExit(f"{name}: {text_of(result)}")
    return result.structured_content or text_of(result)


def text_of(result: CallToolResult) -> str:
    return "\n".join(item.text for item in result.content if isinstance(item, TextContent))


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
