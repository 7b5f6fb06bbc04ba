"""Words for people about the members of requests of the knowledge."""

from gateway.operations.member_texts import MemberText, MemberTexts

_COLLECTION = MemberText(
    "Collection",
    "A name for documents that belong together; a new name makes a new one.",
    "handbook",
    choices="collections",
)

COLLECTION_SETTINGS: MemberTexts = {
    "kind": MemberText("Kind", "What its documents are; it decides how they are cut."),
    "description": MemberText(
        "Description", "People and agents choose a collection by it.", "Rules of our shop."
    ),
    "grants": MemberText(
        "Access",
        "Roles and callers that may read or write it; empty: as before.",
        '{"role:support": "read"}',
    ),
    "on_same_source": MemberText(
        "Another text of a path",
        "It is a new version, is appended, or is refused.",
        rarely=True,
    ),
    "skip_trivial": MemberText(
        "Leave out greetings", "In conversations nothing is stored of them.", rarely=True
    ),
}

NEW_DOCUMENT: MemberTexts = {
    "collection": _COLLECTION,
    "text": MemberText("Text", "The whole text of the document.", "# Refunds\nWithin 30 days."),
    "path": MemberText(
        "Path", "A label; its ending says what kind of text it is.", "shop/refunds.md"
    ),
    "metadata": MemberText(
        "Metadata",
        "Members of your own, by which searches filter.",
        '{"author": "Ann"}',
        rarely=True,
    ),
    "kind": MemberText(
        "Kind of the collection", "It counts where the collection is new.", rarely=True
    ),
    "replace": MemberText(
        "Replace", "Another text of the path goes, whatever the collection does.", rarely=True
    ),
    "track_id": MemberText(
        "Batch",
        "Texts of one batch share it.",
        "insert_0123456789abcdef0123456789abcdef",
        rarely=True,
    ),
}

INGESTION: MemberTexts = {
    "collection": _COLLECTION,
    "type": MemberText("Kind of place", "A git repository, a bucket (S3) or a URL."),
    "location": MemberText(
        "Address",
        "A URL without credentials, or s3://BUCKET/PREFIX.",
        "https://github.com/example/handbook.git",
    ),
    "filter": MemberText(
        "Only these files", "Patterns as in .gitignore; empty: all files.", "docs/**/*.md"
    ),
    "ref": MemberText("Branch or tag", "Of git; empty: the default branch.", "main"),
    "below": MemberText(
        "Folder", "The paths of its documents begin with it.", "handbook", rarely=True
    ),
}

DOCUMENTS: MemberTexts = {
    "collection": MemberText(
        "Collection", "The collection that has the documents.", "handbook", choices="collections"
    ),
    "documents": MemberText(
        "Documents",
        "The ids of the documents to delete.",
        "0190c2a4-6f1e-7c3a-9d52-3f6f2a7b1c55",
    ),
}
