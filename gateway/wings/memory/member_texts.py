"""Words for people about the members of requests of the memory."""

from gateway.operations.member_texts import MemberText, MemberTexts

_SESSION = MemberText(
    "Session", "A name for the session, where the connection has none.", "tuesday", rarely=True
)
_METADATA = MemberText(
    "Metadata", "Members of your own, by which searches filter.", '{"ticket": 17}', rarely=True
)
_IMPORTANCE = MemberText("Importance", "From 0 to 1; high ones are found first.", "0.8")
_PIN_TEXT = MemberText("Pinned", "It is never forgotten by itself.")

NEW_MEMORIES: MemberTexts = {
    "content": MemberText("Text", "What is to be remembered.", "Ann prefers mail to phone."),
    "scope": MemberText(
        "Belongs to", "The session, the user, the agent or the whole organisation."
    ),
    "kind": MemberText("Kind", "A fact, a preference, something learned and so on."),
    "importance": _IMPORTANCE,
    "pinned": _PIN_TEXT,
    "slot": MemberText(
        "Slot", "What it is the value of: a new value retires the one before.", "home.city"
    ),
    "audience": MemberText(
        "Agents", "The agents that may read it; empty: all.", "support-bot", choices="agents",
        rarely=True,
    ),
    "confidence": MemberText("Confidence", "From 0 to 1: how sure it is.", "0.9", rarely=True),
    "trust": MemberText("Told by", "Who said it; agents say what they concluded.", rarely=True),
    "speaker": MemberText("Speaker", "The name of who said it.", "Ann", rarely=True),
    "keep": MemberText(
        "Keep", "Keep a memory of the session for the user when it ends.", rarely=True
    ),
    "source": MemberText("Source", "Where it comes from.", '{"url": "..."}', rarely=True),
    "metadata": _METADATA,
    "valid_from": MemberText(
        "True from", "The time since which it is true.", "2026-05-08T12:00:00Z", rarely=True
    ),
    "valid_to": MemberText(
        "True until", "The time until which it is true.", "2026-05-08T12:00:00Z", rarely=True
    ),
    "expires_s": MemberText(
        "Life in seconds", "It is forgotten after so long.", "86400", rarely=True
    ),
    "replaces": MemberText(
        "Corrects", "The id of a memory that this one corrects.",
        "0190c2a4-6f1e-7c3a-9d52-3f6f2a7b1c55", rarely=True,
    ),
    "items": MemberText(
        "Several", "A list of memories, instead of one text.", '[{"content": "..."}]', rarely=True
    ),
    "document": MemberText(
        "Document", "The document whose parts the memories are: they replace all that it had.",
        rarely=True,
    ),
    "document/id": MemberText("Id", "A name for the document.", "handbook.md"),
    "document/version": MemberText("Version", "The version of its text.", "2026-05"),
    "similar": MemberText(
        "Name similar ones", "The answer has memories that are near to it.", rarely=True
    ),
    "session": _SESSION,
    "user_id": MemberText(
        "Another user", "Act for this user; takes the scope memory:on_behalf.", "corp#ann",
        choices="principals", rarely=True,
    ),
}  # fmt: skip

MEMORY_CHANGE: MemberTexts = {
    "content": MemberText(
        "Text", "The new text; the one before stays in the history.", "Ann prefers mail to phone."
    ),
    "version": MemberText("Version", "The version that you have seen.", "1"),
    "importance": _IMPORTANCE,
    "pinned": _PIN_TEXT,
    "metadata": _METADATA,
    "session": _SESSION,
}

FORGET: MemberTexts = {
    "ids": MemberText(
        "Memories", "The ids of the memories to forget.", "0190c2a4-6f1e-7c3a-9d52-3f6f2a7b1c55"
    ),
    "subject": MemberText(
        "Person", "Erases all that is held of this person.", "corp#ann", choices="principals"
    ),
    "dry_run": MemberText("Only count", "Tell how many it would be, and forget none."),
    "filter": MemberText(
        "Filter", "Conditions on the memories to forget.", '{"kind": "scratchpad"}', rarely=True
    ),
    "scopes": MemberText(
        "Belonging to",
        "The filter looks at these; empty: at all.",
        '["session"]',
        rarely=True,
    ),
    "expect": MemberText("Expected count", "Forget only if so many match.", "3", rarely=True),
    "session": _SESSION,
}

PROMOTION: MemberTexts = {
    "ids": MemberText(
        "Memories", "The ids of the memories to keep; empty: all of the session.",
        "0190c2a4-6f1e-7c3a-9d52-3f6f2a7b1c55",
    ),
    "session": MemberText(
        "Session", "A name for the session, where the connection has none.", "tuesday"
    ),
}  # fmt: skip
