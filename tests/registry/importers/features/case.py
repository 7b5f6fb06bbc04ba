"""A feature of OpenAPI, described by hand in the versions that have it, and what calls must do."""

import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

Layout = Literal["file", "json", "directory", "zip", "url"]

VERSIONS = ("2.0", "3.0", "3.1", "3.2")
_FULL = {"3.0": "3.0.4", "3.1": "3.1.1", "3.2": "3.2.0"}

JSON = "application/json"


@dataclass(frozen=True)
class Answer:
    """What the service says."""

    body: bytes = b"{}"
    media_type: str | None = JSON
    status: int = 200
    headers: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Call:
    """One `tools/call`, with ORIGIN for the service's address. Where `request` is None, nothing may
    reach the service; where `content`, `structured`, `meta` or `error` is not given, it is not
    looked at."""

    arguments: Mapping[str, Any]
    request: str | None  # the request line, as in "GET /things?a=1"
    headers: Mapping[str, str | None] = field(default_factory=dict)  # None: not sent
    body: bytes = b""  # a boundary of our own stands as BOUNDARY
    answer: Answer = Answer()
    tool: str = ""  # what follows the case's name in the tool's
    content: Sequence[Mapping[str, Any]] | None = None
    structured: Any = None
    meta: Mapping[str, Any] | None = None  # members of `_meta` that must be there
    error: str | None = None  # part of the text of a result that is an error, or of a fault


@dataclass(frozen=True)
class Case:
    """`three` and `two` are YAML below `openapi` and `swagger`, with THIS for the case's name."""

    name: str  # also of the source, and of the tool
    row: str  # of the table
    calls: Sequence[Call]
    three: str = ""
    two: str = ""
    since: str = "3.0"  # of those with `three`
    until: str = "3.2"
    settings: Mapping[str, Any] = field(default_factory=dict)  # of the source
    offers: frozenset[str] | None = None  # names of the tool's arguments
    schema: Mapping[str, Any] | None = None  # of some arguments
    output: Mapping[str, Any] | None = None  # the output schema
    layout: Layout = "file"
    files: Mapping[str, str] = field(default_factory=dict)  # beside the description, of 3.x
    files_2: Mapping[str, str] = field(default_factory=dict)  # of 2.0
    overlay: str = ""

    @property
    def versions(self) -> tuple[str, ...]:
        three = [one for one in VERSIONS[1:] if self.three and self.since <= one <= self.until]
        return (*(["2.0"] if self.two else []), *three)

    def file_texts(self, version: str, origin: str) -> dict[str, str]:
        """All its files; `origin` stands for ORIGIN in them."""
        head = 'swagger: "2.0"' if version == "2.0" else f"openapi: {_FULL[version]}"
        text = textwrap.dedent(self.two if version == "2.0" else self.three)
        info = 'info: {title: T, version: "1"}'
        files = {
            "openapi.yaml": f"{head}\n{info}\n{text}",
            **(self.files_2 if version == "2.0" else self.files),
        }
        return {
            name: textwrap.dedent(text).replace("THIS", self.name).replace("ORIGIN", origin)
            for name, text in files.items()
        }
