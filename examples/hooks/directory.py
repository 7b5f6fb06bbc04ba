"""Roles of callers, from a directory: here a file, which may change while the gateway runs."""

import json
from pathlib import Path
from typing import Any

PEOPLE = Path("people.json")  # {"key:ann": ["desk"]}


def roles(event: dict[str, Any]) -> dict[str, Any]:
    people = json.loads(PEOPLE.read_text())
    if event["principal"] not in people:
        return {"refuse": "not in the directory"}
    return {"roles": people[event["principal"]], "attributes": {"directory": str(PEOPLE)}}
