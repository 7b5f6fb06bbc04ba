"""The conformance table: each feature, the versions in which it is tested, and what two others do.

`python -m tests.registry.importers.features.table` prints it. What FastMCP 4.1.2 and ContextForge
1.0.6 do was found by running the first and reading both; "-" was not examined, or is a thing of our
own. ContextForge has no import of descriptions: where it says something, an administrator who
describes each tool by hand gets as far as that.
"""

from dataclasses import dataclass

from tests.registry.importers.features.case import VERSIONS
from tests.registry.importers.features.cases import CASES

YES, PART, NO, UNKNOWN = "yes", "part", "no", "-"

# row: versions (those that have the feature), FastMCP, ContextForge
_ALL = "2.0 3.0 3.1 3.2"
_THREE = "3.0 3.1 3.2"

ROWS: dict[str, dict[str, tuple[str, str, str]]] = {
    "Documents": {
        "JSON and YAML": (_ALL, UNKNOWN, PART),
        "many files": (_ALL, NO, NO),
        "a directory": (_ALL, NO, NO),
        "a zip archive": (_ALL, NO, NO),
        "a URL with relative references": (_ALL, NO, NO),
        "circular references": (_ALL, PART, UNKNOWN),
        "pointers with ~1 and %-escapes": (_ALL, NO, NO),
        "references of path items": (_ALL, UNKNOWN, NO),
        "components of every kind": (_ALL, PART, NO),
        "all methods": (_ALL, UNKNOWN, UNKNOWN),
        "QUERY and additionalOperations (3.2)": ("3.2", NO, NO),
        "servers of document, path and operation": (_ALL, NO, NO),
        "variables of servers": (_THREE, UNKNOWN, UNKNOWN),
        "dialects of schemas": (_ALL, PART, UNKNOWN),
        "oneOf, anyOf, allOf, discriminator": (_ALL, PART, PART),
        "x-toolgate": (_ALL, UNKNOWN, UNKNOWN),
        "marks in a file beside the description": (_ALL, UNKNOWN, UNKNOWN),
        "only what is marked": (_ALL, UNKNOWN, UNKNOWN),
    },
    "Parameters": {
        "path: simple": (_ALL, PART, PART),
        "path: label": (_THREE, NO, NO),
        "path: matrix": (_THREE, NO, NO),
        "path: several in a segment": (_ALL, UNKNOWN, PART),
        "query: form": (_ALL, YES, PART),
        "query: spaceDelimited": (_THREE, YES, NO),
        "query: pipeDelimited": (_THREE, YES, NO),
        "query: deepObject": (_THREE, YES, NO),
        "query: deepObject, nested": (_THREE, NO, NO),
        "querystring (3.2)": ("3.2", NO, NO),
        "collectionFormat (2.0)": ("2.0", NO, NO),
        "allowReserved": (_THREE, UNKNOWN, UNKNOWN),
        "allowEmptyValue": (_ALL, UNKNOWN, UNKNOWN),
        "empty arrays and null": (_ALL, UNKNOWN, UNKNOWN),
        "content parameters": (_THREE, UNKNOWN, NO),
        "header: simple": (_ALL, PART, PART),
        "cookie: form": (_THREE, YES, NO),
        "cookie: cookie (3.2)": ("3.2", NO, NO),
        "parameters of the path": (_ALL, UNKNOWN, NO),
        "one name in several places": (_ALL, YES, UNKNOWN),
        "defaults stay with the service": (_ALL, UNKNOWN, UNKNOWN),
    },
    "Bodies": {
        "JSON": (_ALL, YES, YES),
        "+json": (_ALL, UNKNOWN, UNKNOWN),
        "JSON Patch and merge-patch": (_ALL, UNKNOWN, UNKNOWN),
        "JSON Lines (3.2)": ("3.2", NO, NO),
        "explicit null and empty arrays": (_ALL, NO, UNKNOWN),
        "readOnly is no input": (_ALL, NO, NO),
        "form-urlencoded": (_ALL, YES, YES),
        "form-urlencoded with encoding": (_THREE, UNKNOWN, UNKNOWN),
        "multipart": (_ALL, PART, PART),
        "multipart with files": (_ALL, NO, NO),
        "multipart with encoding": (_THREE, UNKNOWN, UNKNOWN),
        "files from a URL": (_ALL, NO, NO),
        "files from a resource": (_ALL, NO, NO),
        "octet-stream and other bytes": (_ALL, NO, NO),
        "text": (_ALL, UNKNOWN, UNKNOWN),
        "XML": (_ALL, UNKNOWN, UNKNOWN),
        "the best media type, or another": (_ALL, NO, PART),
    },
    "Security": {
        "apiKey": (_ALL, NO, PART),
        "http basic and bearer": (_ALL, NO, PART),
        "oauth2 and openIdConnect": (_ALL, NO, PART),
        "AND and OR": (_ALL, NO, NO),
        "security of the document, none and optional": (_ALL, NO, NO),
        "credentials are no arguments": (_ALL, NO, UNKNOWN),
        "missing credentials refuse the call": (_ALL, NO, UNKNOWN),
    },
    "Answers": {
        "status classes": (_ALL, PART, PART),
        "JSON and text": (_ALL, YES, UNKNOWN),
        "images, audio and other bytes": (_ALL, NO, NO),
        "downloads by resource_link": (_ALL, NO, NO),
        "output schemas": (_ALL, YES, PART),
        "writeOnly is no output": (_THREE, YES, NO),
        "answers are compared, and given all the same": (_ALL, PART, UNKNOWN),
        "pagination: Link": (_ALL, NO, NO),
        "pagination: cursor": (_ALL, NO, NO),
        "pagination: offset": (_ALL, NO, NO),
        "_fields": (_ALL, NO, PART),
        "long answers in parts": (_ALL, PART, PART),
    },
}

# tested in `test_kept.py`, in all versions
OF_SEVERAL_CALLS = frozenset(
    {"files from a resource", "downloads by resource_link", "long answers in parts"}
)


@dataclass(frozen=True)
class Row:
    feature: str
    versions: tuple[str, ...]
    fastmcp: str
    contextforge: str


def rows(area: str) -> list[Row]:
    return [Row(name, tuple(said.split()), *peers) for name, (said, *peers) in ROWS[area].items()]


def covered_versions() -> dict[str, set[str]]:
    """The versions in which each feature is tested."""
    found = {feature: set(VERSIONS) for feature in OF_SEVERAL_CALLS}
    for case in CASES:
        found.setdefault(case.row, set()).update(case.versions)
    return found


def markdown() -> str:
    head = ["feature", *VERSIONS, "FastMCP 4.1.2", "ContextForge 1.0.6"]
    lines = [_line(head), _line(["---"] * len(head))]
    for area in ROWS:
        lines.append(_line([f"**{area}**", *[""] * (len(head) - 1)]))
        for row in rows(area):
            marks = [YES if version in row.versions else "" for version in VERSIONS]
            lines.append(_line([row.feature, *marks, row.fastmcp, row.contextforge]))
    return "\n".join(lines) + "\n"


def _line(cells: list[str]) -> str:
    return f"| {' | '.join(cells)} |"


if __name__ == "__main__":
    print(markdown(), end="")
