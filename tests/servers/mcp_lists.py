"""An MCP server that lists what stands in a file: `python mcp_lists.py FILE`, over stdio.

FILE is JSON: `tools`, `prompts` and so on, as their lists have them. Any library would refuse half
of what tests want to be listed; so this is none, and speaks 2025-11-25 as far as it has to.
"""

import json
import sys
from pathlib import Path
from typing import Any

LISTS = {
    "tools/list": "tools",
    "prompts/list": "prompts",
    "resources/list": "resources",
    "resources/templates/list": "resourceTemplates",
}


def result(request: dict[str, Any], lists: dict[str, Any]) -> dict[str, Any] | None:
    """None: there is no such method."""
    method = request["method"]
    if method == "initialize":
        return {
            "protocolVersion": "2025-11-25",
            "capabilities": {"tools": {}, "prompts": {}, "resources": {}},
            "serverInfo": {"name": "lists", "version": "1.5"},
        }
    if method in LISTS:
        return {LISTS[method]: lists.get(LISTS[method], [])}
    return {} if method == "ping" else None


def main() -> None:
    lists = json.loads(Path(sys.argv[1]).read_text())
    for line in sys.stdin:
        request = json.loads(line)
        if "id" not in request:
            continue
        found = result(request, lists)
        missing = {"error": {"code": -32601, "message": "Method not found"}}
        answer = missing if found is None else {"result": found}
        print(json.dumps({"jsonrpc": "2.0", "id": request["id"], **answer}), flush=True)


if __name__ == "__main__":
    main()
