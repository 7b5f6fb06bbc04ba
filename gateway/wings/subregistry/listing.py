"""The versions of servers that the registry lists, in memory. Pure."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import groupby
from operator import attrgetter
from typing import Any

from schemas.mcp.registry_entries import OFFICIAL, ServerDetail

PROVENANCE = "toolgate/provenance"  # in `_meta`, of servers of others
LATEST = "latest"
Place = tuple[str, int]
"""Name and number of a version: its place in the list, which stays when others come."""


@dataclass(frozen=True, slots=True)
class ListedVersion:
    server: ServerDetail
    number: int  # grows with each version of the server
    published: datetime
    provenance: Mapping[str, str] | None = None

    @property
    def name(self) -> str:
        return self.server.name

    @property
    def place(self) -> Place:
        return self.name, self.number


class Listing:
    def __init__(self, versions: Sequence[ListedVersion] = ()) -> None:
        self._versions = sorted(versions, key=attrgetter("place"))
        self._of = {
            name: tuple(group) for name, group in groupby(self._versions, key=attrgetter("name"))
        }

    def versions(self, name: str) -> Sequence[ListedVersion]:
        """The newest first; none of an unknown server."""
        return self._of.get(name, ())[::-1]

    def find(self, name: str, version: str) -> ListedVersion | None:
        of_name = self.versions(name)
        if version == LATEST:
            return of_name[0] if of_name else None
        return next((listed for listed in of_name if listed.server.version == version), None)

    def page(
        self,
        after: Place,
        limit: int,
        *,
        search: str = "",
        version: str = "",
        since: datetime | None = None,
    ) -> tuple[list[ListedVersion], bool]:
        """At most `limit` versions behind a place, and whether there are more."""
        folded_search = search.casefold()
        matches = (
            listed
            for listed in self._behind(after)
            if folded_search in listed.name.casefold()
            and (since is None or listed.published > since)
            and (not version or self._is(listed, version))
        )
        page = [listed for listed, _ in zip(matches, range(limit + 1), strict=False)]
        return page[:limit], len(page) > limit

    def view(self, version: ListedVersion) -> dict[str, Any]:
        """The version as the API has it."""
        published = version.published.astimezone(UTC).isoformat(timespec="milliseconds")
        official = {
            "status": "active",
            "publishedAt": published,
            "updatedAt": published,
            "isLatest": self._is(version, LATEST),
        }
        provenance = {} if version.provenance is None else {PROVENANCE: version.provenance}
        return {"server": version.server, "_meta": {OFFICIAL: official, **provenance}}

    def _behind(self, after: Place) -> Iterator[ListedVersion]:
        return (listed for listed in self._versions if listed.place > after)

    def _is(self, listed: ListedVersion, version: str) -> bool:
        if version == LATEST:
            return self._of[listed.name][-1] is listed
        return listed.server.version == version
