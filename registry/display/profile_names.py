"""Names of tools in profiles: a client calls a tool by the name that its list had.

So a name stands for one tool, in whatever profile, toolset or view of the catalog: it is made of
the names of all tools of the tenant, and of those that a caller may not see as well. Where a hash
of eight digits would be that of two tools, or another tool's own name, all concerned get more
digits: a name of an earlier list then leads to no tool, rather than to another one.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from functools import cached_property
from itertools import count

from registry.display.profiles import Profiles, SelectedProfile
from registry.names.identifiers import identifier_names
from registry.names.tool_names import HASH_DIGITS, NameForms, add_suffix, begins_plainly


class ProfileNames:
    """Names of a tenant's tools in each profile, computed when first asked for."""

    def __init__(self, names: Iterable[str], profiles: Profiles) -> None:
        self._names = tuple(names)
        self._profiles = profiles
        self._replacements: dict[str, Mapping[str, str]] = {}

    def replacements(self, profile: SelectedProfile) -> Mapping[str, str]:
        """Names that a profile changes, by their original names."""
        names = self._replacements.get(profile.name)
        if names is None:
            names = self._replacements[profile.name] = self._change(profile)
        return names

    def of(self, name: str, profile: SelectedProfile) -> str:
        """The name of a tool in a profile, by its original name."""
        return self.replacements(profile).get(name, name)

    @cached_property
    def originals(self) -> Mapping[str, str]:
        """Original names, by the names that replace them in any profile."""
        return {
            name: original
            for profile in (self._profiles.default, *self._profiles)
            for original, name in self.replacements(profile).items()
        }

    @cached_property
    def identifiers(self) -> Mapping[str, str]:
        """Identifiers of the tools in programs, by their original names."""
        return {name: identifier for identifier, name in identifier_names(self._names).items()}

    def _change(self, profile: SelectedProfile) -> dict[str, str]:
        pairs = self._pairs if profile.profile.names_fold else frozenset()
        names: dict[str, str] = {}
        assigned_names: set[str] = set()
        for name in self._names:
            if accepts(profile, name) and name not in pairs:
                continue
            names[name] = next(
                candidate
                for candidate in _candidates(name, profile)
                if candidate.casefold() not in assigned_names and self._is_free(candidate, name)
            )
            assigned_names.add(names[name].casefold())
        return names

    def _is_free(self, candidate: str, name: str) -> bool:
        """Whether no other tool has a name, or may be shown by it in some profile."""
        if candidate.casefold() in self._counts:
            return False
        return self._forms.shown_as(candidate) <= {name}

    @cached_property
    def _forms(self) -> NameForms:
        return NameForms(self._names)

    @cached_property
    def _counts(self) -> Mapping[str, int]:
        """Number of the names that are the same but for case."""
        return Counter(map(str.casefold, self._names))

    @cached_property
    def _pairs(self) -> frozenset[str]:
        """The names that differ from another only in case."""
        return frozenset(name for name in self._names if self._counts[name.casefold()] > 1)


def accepts(profile: SelectedProfile, name: str) -> bool:
    """Whether a profile has room for a name as it is."""
    return len(name) <= profile.name_limit and (
        not profile.profile.name_letter or begins_plainly(name)
    )


def _candidates(name: str, profile: SelectedProfile) -> Iterator[str]:
    """Names that a profile may give a tool, best first; never exhausted."""
    limit = profile.name_limit
    plain = name if not profile.profile.name_letter or begins_plainly(name) else f"_{name}"
    if len(plain) <= limit:
        yield plain
    for digits in range(HASH_DIGITS, limit - 1):
        yield add_suffix(plain, name, limit, digits)
    for attempt in count():  # a server lists all of these as well
        yield add_suffix(plain, f"{name} {attempt}", limit, limit - 2)
