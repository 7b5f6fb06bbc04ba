"""Words for people about members of requests: forms, help of commands and OpenAPI show them.

A tool's schema has the descriptions of types alone, which models pay for.
"""

from collections.abc import Mapping
from typing import Literal

from msgspec import Struct

ChoiceKind = Literal[
    "",
    "agents",
    "collections",
    "principals",
    "roles",
    "scopes",
    "skills",
    "sources",
    "tiers",
    "tools",
    "toolsets",
]
"""Kinds of things that exist and that a form offers while a person types."""


class MemberText(Struct, frozen=True):
    """A title, a sentence of help and an example of a value; several lines for a list."""

    title: str
    help: str
    example: str = ""
    choices: ChoiceKind = ""
    rarely: bool = False  # few people need it: forms fold it
    alternative: bool = False  # one of several members, of which one is needed
    files: str = ""  # endings of files that may fill it; "": none


MemberTexts = Mapping[str, MemberText]
"""Texts by the name of a member; those of an object in a member by "member/inner"."""

NAME_TEXTS: MemberTexts = {
    "source": MemberText(
        "Source", "The service whose operations are tools.", "petshop", choices="sources"
    ),
    "tool": MemberText("Tool", "The tool, as models see its name.", "createPet", choices="tools"),
    "toolset": MemberText(
        "Toolset",
        "A part of the catalog with an address of its own.",
        "support",
        choices="toolsets",
    ),
    "rule": MemberText(
        "Name of the rule", "It is shown where the rule decides on a call.", "no-deletes"
    ),
    "scheme": MemberText(
        "Security scheme", "The name of the scheme in the description of the source.", "api_key"
    ),
    "skill": MemberText("Skill", "The skill that is changed.", "refund-an-order", choices="skills"),
    "dependency": MemberText(
        "Other skill", "The skill that this one builds on.", "look-up-an-order", choices="skills"
    ),
    "agent": MemberText(
        "Agent", "The name of a caller to whom skills are granted.", "support-bot", choices="agents"
    ),
    "key": MemberText("Key", "The id of the key, as the list shows it.", "y1LUq6lLf5qz"),
    "session": MemberText("Session", "The id of the session, as the list shows it.", "s-4f9a"),
    "approval": MemberText(
        "Approval", "The id of the call that waits.", "0190c2a4-6f1e-7c3a-9d52-3f6f2a7b1c55"
    ),
    "revocation": MemberText(
        "Revocation",
        "The id of the revocation, as the list shows it.",
        "0190c2a4-6f1e-7c3a-9d52-3f6f2a7b1c55",
    ),
    "job": MemberText(
        "Job",
        "The id of the job, as the list shows it.",
        "0190c2a4-6f1e-7c3a-9d52-3f6f2a7b1c55",
    ),
    "user": MemberText("User", "The name that the user logs in with.", "ann"),
    "person": MemberText("Person", "The id of the person, as the list shows it.", "p-12"),
    "login": MemberText("Login", "The id of the login, as the list shows it.", "l-12"),
    "client": MemberText("Client", "The id of the program, as the list shows it.", "c-12"),
    "connection": MemberText(
        "Connection",
        "The id of the connection, as the list shows it.",
        "0190c2a4-6f1e-7c3a-9d52-3f6f2a7b1c55",
    ),
    "collection": MemberText(
        "Collection",
        "A name for documents that belong together.",
        "handbook",
        choices="collections",
    ),
    "memory": MemberText(
        "Memory",
        "The id of the memory, as the list shows it.",
        "0190c2a4-6f1e-7c3a-9d52-3f6f2a7b1c55",
    ),
    "invocation": MemberText(
        "Invocation",
        "The id of the invocation, as the list shows it.",
        "0190c2a4-6f1e-7c3a-9d52-3f6f2a7b1c55",
    ),
    "conversation": MemberText(
        "Conversation",
        "The id of the conversation, as the list shows it.",
        "0190c2a4-6f1e-7c3a-9d52-3f6f2a7b1c55",
    ),
    "run": MemberText(
        "Run",
        "The id of the run, as the list shows it.",
        "0190c2a4-6f1e-7c3a-9d52-3f6f2a7b1c55",
    ),
    "task": MemberText(
        "Task",
        "The id of the task, as the list shows it.",
        "0190c2a4-6f1e-7c3a-9d52-3f6f2a7b1c55",
    ),
}
"""Texts of names in paths, which mean the same in all operations."""
