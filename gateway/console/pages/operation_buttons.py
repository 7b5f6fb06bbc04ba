"""Buttons of pages: links to the forms of operations that the visitor may call."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from gateway.console.page_request import PageRequest
from gateway.operations.operation import Operation

NAMES = "name."  # prefix of fields for path parameters
TITLES: Mapping[str, str] = {
    "importSkills": "Import skills",
    "linkTools": "Link tools",
    "unlinkTools": "Unlink a tool",
    "dependSkill": "Add a dependency",
    "undependSkill": "Remove a dependency",
    "rollBackSkill": "Roll back",
    "deleteSkill": "Delete",
    "putAgent": "New agent",
    "grantSkills": "Grant skills",
    "revokeSkills": "Revoke a skill",
    "deleteAgent": "Delete",
    "endSession": "End",
    "deleteConnection": "Disconnect",
    "createKey": "New key",
    "revokeKey": "Revoke",
    "rotateKey": "Rotate",
    "revokeTokens": "Revoke tokens",
    "deleteRevocation": "Delete",
    "putSecret": "Store a secret",
    "deleteSecret": "Delete a secret",
    "cancelJob": "Cancel the job",
    "removeEndedJobs": "Remove ended jobs",
    "putToolset": "New toolset",
    "deleteToolset": "Delete",
    "putRule": "New rule",
    "putTarget": "New target",
    "testTarget": "Test",
    "deleteTarget": "Delete",
    "deleteRule": "Delete",
    "disableTool": "Disable",
    "enableTool": "Enable",
    "acceptTool": "Accept the definition",
    "describeTool": "Change the description",
    "resetDescription": "Reset the description",
    "changeMetadata": "Change the metadata",
    "deleteTool": "Delete",
    "createTool": "New tool",
    "refreshSource": "Import again",
    "uploadDocument": "Upload a description",
    "rollBack": "Roll back",
    "deleteSource": "Delete",
    "refreshEmbeddings": "Embed again",
    "retryEmbeddings": "Retry failed ones",
    "backfillEmbeddings": "Embed all that is missing",
    "verifyAudit": "Verify the chain",
    "runBackup": "Back up now",
    "erasePerson": "Erase a person",
    "memory_add": "Remember",
    "memory_update": "Change",
    "memory_forget": "Forget",
    "events_invoke": "Call",
    "events_cancel": "Cancel the call",
    "events_redrive": "Redrive",
    "events_test_webhook": "Send a test event",
    "events_redeliver": "Send again",
    "events_delete_webhook": "Delete",
    "events_erase": "Erase a caller",
    "agent_cancel_run": "Cancel the run",
    "memory_promote": "Promote",
    "knowledge_put_collection": "New collection",
    "knowledge_delete_collection": "Delete",
    "knowledge_ingest": "Add from a URL",
    "knowledge_add": "Add a text",
    "knowledge_delete": "Delete",
    "createUser": "New user",
    "inviteUser": "Invite again",
    "setUserRoles": "Change the roles",
    "disableUser": "Disable",
    "enableUser": "Enable",
    "resetUserTotp": "Reset the one-time codes",
    "deleteUser": "Delete",
    "disablePerson": "Disable",
    "enablePerson": "Enable",
    "endLogin": "End",
    "deleteClient": "Delete",
    "shareConnection": "Share",
    "librarian_query": "Ask a question",
    "librarian_search": "Find passages",
    "librarian_add_source": "Track a source",
    "librarian_refresh": "Read again",
    "librarian_delete_source": "Delete",
    "librarian_research": "Research a question",
    "a2a_cancel_task": "Cancel the task",
    "agent_delete_conversation": "Delete",
}
"""Short names of operations, for buttons; others have their summary."""
PAGES: Mapping[str, tuple[str, ...]] = {"putToolset": ("toolsets", "new")}
"""Pages made by hand that add an entry, by their operation; others have a generated form."""


@dataclass(frozen=True, slots=True)
class Button:
    """A link to the page of an operation."""

    title: str
    url: str
    removes: bool


def buttons(visit: PageRequest, ids: Sequence[str], names: Mapping[str, str]) -> list[Button]:
    """Links to the operations that the visitor may call."""
    operations = (
        (id_, visit.operations.operation(id_)) for id_ in ids if visit.operations.may(id_)
    )
    return [
        Button(
            title_of(visit, operation, replaces=bool(names)),
            visit.url(*PAGES[id_])
            if id_ in PAGES and not names
            else visit.url("do", id_, **{NAMES + name: value for name, value in names.items()}),
            operation.effect == "remove",
        )
        for id_, operation in operations
        if operation is not None
    ]


def title_of(visit: PageRequest, operation: Operation, *, replaces: bool = False) -> str:
    """The short name of an operation, which may replace an entry; else its summary."""
    if replaces and operation.method == "PUT" and TITLES.get(operation.id, "").startswith("New "):
        return visit.texts("Edit")
    return visit.texts(TITLES.get(operation.id) or operation.summary.rstrip("."))
