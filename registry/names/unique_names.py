"""Names that stay unique beside those of other sources, and stay the same from import to import.

Pure. A thing keeps its name as long as its rule could give it that one: also a name that was
qualified with the source because another source had the plain one, even after that is free again.
"""

import itertools
from collections.abc import Callable, Iterator, Mapping, Set
from dataclasses import dataclass

from registry.names.tool_names import qualify, suffixed
from registry.names.uris import SCHEME, wrapped
from schemas.source import Prefix

USUAL = 3  # the first candidates: a name among them is one that the rule still gives

Candidates = Callable[[], Iterator[str]]  # the names that a thing may get, the best first


@dataclass(frozen=True, slots=True)
class Naming:
    """How one source names its things."""

    source: str
    prefix: Prefix = "conditional"
    fresh: bool = False  # by another rule than before: names that were given by that one may go

    def names(self, plain: str, key: str) -> Iterator[str]:
        """For a tool or a prompt; `key` tells apart what would have equal names."""
        if self.prefix != "always":
            yield plain
        if self.prefix == "never":
            return
        qualified = qualify(self.source, plain)
        yield qualified
        for digits in range(8, 63):
            yield suffixed(qualified, key, digits=digits)

    def uris(self, uri: str) -> Iterator[str]:
        """For a resource or a template. None is plain that would pass for another source's."""
        if self.prefix != "always" and not uri.startswith(SCHEME):
            yield uri
        if self.prefix != "never":
            yield wrapped(self.source, uri)

    def assign(
        self,
        wanted: Mapping[str, Candidates],
        before: Mapping[str, str],
        taken: Set[str],
        fold: Callable[[str], str] = str.casefold,
    ) -> dict[str, str]:
        """Names by key, for those that can have one. `before`: the names they had; `taken`: those
        of other sources, folded. Who had a name comes first, so that no newcomer takes it."""
        kept = {} if self.fresh else before
        gone, names = set(taken), {}
        for key in sorted(wanted, key=lambda key: (key not in kept, key)):
            candidates = wanted[key]()
            if key in kept and kept[key] in itertools.islice(wanted[key](), USUAL):
                candidates = itertools.chain([kept[key]], candidates)
            name = next((one for one in candidates if fold(one) not in gone), None)
            if name is not None:
                gone.add(fold(name))
                names[key] = name
        return names
