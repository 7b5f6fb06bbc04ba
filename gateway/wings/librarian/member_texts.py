"""Words for people about the members of requests of the librarian."""

from gateway.operations.member_texts import MemberText, MemberTexts

_COLLECTIONS = MemberText(
    "Collections",
    "Look in these alone; empty: in all that you may read.",
    "handbook",
    choices="collections",
)

QUESTION: MemberTexts = {
    "question": MemberText("Question", "A whole sentence.", "How long can I return a pet?"),
    "collection": MemberText(
        "Collection", "Look in this one first.", "handbook", choices="collections", rarely=True
    ),
    "collections": _COLLECTIONS,
    "max_chunks": MemberText("Passages", "The most passages that are read.", "10", rarely=True),
    "include_sources": MemberText(
        "Show the places", "The answer has the lines that it is from.", rarely=True
    ),
}

RESEARCH: MemberTexts = {
    **QUESTION,
    "run": MemberText(
        "Run", "The id of a run of yours that goes on.", "0190c2a4-6f1e-7c3a", rarely=True
    ),
    "strategy": MemberText(
        "Chat model", "A strategy of the settings (models.strategies).", "local", rarely=True
    ),
    "limits": MemberText("Limits", "Limits of this run, below those of the settings.", rarely=True),
    "limits/depth": MemberText("Depth", "The most levels of runs within runs.", "1"),
    "limits/iterations": MemberText("Steps", "The most steps of a run.", "10"),
    "limits/calls": MemberText("Model calls", "The most requests to chat models.", "20"),
    "limits/lookups": MemberText("Lookups", "The most searches and reads.", "50"),
    "limits/tokens": MemberText("Tokens", "The most tokens of chat models.", "100000"),
    "limits/cost": MemberText("Cost", "The most money, in the currency of the prices.", "0.5"),
    "limits/seconds": MemberText("Seconds", "The longest time of a run.", "120"),
    "limits/concurrency": MemberText("At once", "The most model calls at the same time.", "4"),
}

PASSAGES: MemberTexts = {
    "query": MemberText("Search", "Words or a sentence; it is found by meaning, too.", "refunds"),
    "collections": _COLLECTIONS,
    "path": MemberText("Paths", "A pattern: * within a folder, ** across folders.", "docs/**/*.md"),
    "limit": MemberText("Limit", "The most passages.", "10", rarely=True),
    "by": MemberText("Show", "Each passage, or the best one of each file.", rarely=True),
}

TRACKED_SOURCE: MemberTexts = {
    "collection": MemberText(
        "Collection",
        "It gets the documents; a new name makes a new one.",
        "handbook",
        choices="collections",
    ),
    "type": MemberText("Kind of place", "A git repository, a bucket (S3) or a URL."),
    "location": MemberText(
        "Address",
        "An https URL or s3://BUCKET/PREFIX; credentials are secrets of the source `knowledge`.",
        "https://github.com/example/handbook.git",
    ),
    "every_s": MemberText("Seconds between readings", "0: it is read when somebody asks.", "3600"),
    "filter": MemberText(
        "Only these files", "Patterns as in .gitignore; empty: all files.", "docs/**/*.md"
    ),
    "ref": MemberText("Branch or tag", "Of git; empty: the default branch.", "main"),
    "below": MemberText(
        "Folder", "The paths of its documents begin with it.", "handbook", rarely=True
    ),
    "webhook": MemberText("Webhook", "A signed webhook has it read again at once.", rarely=True),
}
