"""A dashboard in one request: a JSON-RPC batch, of which each part may fail on its own.

    .venv/bin/python examples/portal/dashboard.py [URL] [HOST_ID]

A portal of light-hybrid-4j needs one GET for each part. Needs the package `aiohttp`.
"""

import asyncio
import json
import sys
from typing import Any

import aiohttp

GATEWAY = "http://127.0.0.1:8765"


def parts(host_id: str) -> dict[str, tuple[str, dict[str, Any] | None]]:
    """Title, action and data of each part; two of them show what a failure does to the others."""
    host = {"hostId": host_id}
    return {
        "Rules in all": ("getRuleCount", None),
        "Newest page": ("getRule", host | {"offset": 0, "limit": 5}),
        "Select box": ("getRuleLabel", host),
        "Bad request": ("getRule", host | {"offset": -1, "limit": 5}),
        "Not there": ("getFreshRule", host | {"ruleId": "nobody knows"}),
    }


def batch(host_id: str) -> list[dict[str, Any]]:
    """The requests; their ids are the titles, by which the answers are found again."""
    return [
        {"jsonrpc": "2.0", "id": title, "method": f"lightapi.net/rule/{action}/0.1.0"}
        | ({} if data is None else {"params": data})
        for title, (action, data) in parts(host_id).items()
    ]


async def load(base_url: str, host_id: str) -> dict[str, Any]:
    """What the service said, or why not, by title."""
    async with (
        aiohttp.ClientSession(raise_for_status=True) as http,
        http.post(f"{base_url}/portal/query", json=batch(host_id)) as response,
    ):
        answers = {answer["id"]: answer for answer in await response.json()}
    return {title: shown(answers.get(title, {})) for title in parts(host_id)}


def shown(answer: dict[str, Any]) -> str:
    if "result" in answer:
        return json.dumps(answer["result"], ensure_ascii=False)
    error = answer.get("error", {"message": "was not answered"})
    status = error.get("data") or {}
    return f"! {status.get('code', '')} {status.get('description') or error['message']}"


async def main(base_url: str = GATEWAY, host_id: str = "1234567") -> None:
    for title, text in (await load(base_url, host_id)).items():
        print(f"{title:14} {text}")


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
