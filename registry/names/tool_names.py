"""Tool names: legal for every client, unique, the same on every import. Pure.

Legal is `[A-Za-z0-9_-]{1,64}`, what the function-calling APIs of the large providers accept; MCP
itself (2025-11-25, `tools`) would also allow `.` and 128 characters. A name depends on its own
operation, and on others only when they collide, never on their order in the document.

A name is stable: it is kept as long as its rule could still produce it. So a name that was
qualified with the source because another source had the plain one stays, even after that is free
again.

Names of the gateway's own tools are reserved, those of the operations of all wings included,
whether or not it offers the tool at the moment: a client that knows a name from an earlier list, or
from its instructions, must not reach another owner's tool by it.
"""

import hashlib
import itertools
import re
import unicodedata
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Set
from dataclasses import dataclass

from registry.names.uris import looks_wrapped, wrap_uri
from schemas.binding import Does
from schemas.source import Prefix
from schemas.wing_tools import WING_TOOLS, WINGS

DESCRIBE_TOOL = "describe_tool"
DISCLOSURE_TOOLS: tuple[Does, ...] = ("search_tools", "describe_tools", "call_tool")
SKILL_TOOLS: tuple[Does, ...] = ("list_skills", "use_skill")
RESERVED_NAMES = (DESCRIBE_TOOL, *DISCLOSURE_TOOLS, *SKILL_TOOLS)

# Clients fold case, and write "-" for "_" or omit both; people confuse "I" and "1" with "l", "0"
# with "o", "rn" with "m" and "vv" with "w" (Unicode UTS 39, section 4, `skeleton`; names contain
# ASCII letters only).
_ALIKE = str.maketrans({"_": None, "-": None, "1": "l", "i": "l", "0": "o"})


def is_reserved(name: str) -> bool:
    """Whether `name` is, or is confusable with, the name of one of the gateway's own tools, also
    behind the name of the gateway or of a wing."""
    return _skeleton(name) in _SKELETONS


def _skeleton(name: str) -> str:
    return name.casefold().translate(_ALIKE).replace("rn", "m").replace("vv", "w")


_OWNERS = ("", "toolgate", "mcp_toolgate", *WINGS)  # clients write the server in front of a tool
_SKELETONS = frozenset(
    _skeleton(f"{owner}_{name}") for owner in _OWNERS for name in (*RESERVED_NAMES, *WING_TOOLS)
)


LIMIT = 64
HASH_DIGITS = 8

_ILLEGAL = re.compile(r"[^A-Za-z0-9_-]+")
_NOT_WORD = re.compile(r"(?:[^\w-]|_)+")
_TEMPLATE = re.compile(r"\{([^{}]*)\}")


def tool_name(operation_id: str | None, method: str, path: str) -> str:
    """`repos/list-for-user` gives `repos_list-for-user`; no id: `GET /pets/{id}` `get_pets_by_id`.

    An id without any letter that can be written in ASCII counts as none.
    """
    if operation_id and (name := legal(operation_id)):
        return name
    words = _TEMPLATE.sub(r"_by_\1_", path)
    return legal(_NOT_WORD.sub("_", f"{method.lower()}_{words}").strip("_"))


def legal(text: str, illegal: re.Pattern[str] = _ILLEGAL, limit: int = LIMIT) -> str:
    """`text` in legal characters and length; empty when no character can be kept.

    Lost parts (letters without an ASCII form, a cut end) are replaced by a hash of the whole, so
    that two texts that differ only there stay distinct.
    """
    if len(text) <= limit and not illegal.search(text):
        return text
    plain, lost = _transliterate(text)
    name = illegal.sub("_", plain).strip("_-")
    if not name.strip("_-."):
        return ""
    return add_suffix(name, text, limit) if lost or len(name) > limit else name


def add_suffix(name: str, identity: str, limit: int = LIMIT, digits: int = HASH_DIGITS) -> str:
    """`name`, cut where needed, with the first `digits` of the SHA-256 of `identity`."""
    return f"{name[: limit - digits - 1].rstrip('_-')}_{_digest(identity, digits)}"


def qualify(source: str, name: str) -> str:
    """Qualified name, `source_name`, of a tool whose plain name another source already has."""
    name = f"{source}_{name}"
    return name if len(name) <= LIMIT else add_suffix(name, name)


def assign(wanted: Mapping[str, tuple[str, str | None]]) -> dict[str, str]:
    """Assign a unique name to each key: key -> (wanted name, operationId) in, key -> name out.

    Names that differ only in case collide, because some clients fold it. Among colliding names the
    one that equals its own operationId is kept, if there is exactly one; all others get a hash of
    their key. The result does not depend on order: a reordered document keeps its names.
    """
    claims = Counter(name.casefold() for name, _ in wanted.values())
    exact = Counter(name.casefold() for name, own in wanted.values() if name == own)

    def keeps(name: str, own: str | None) -> bool:
        folded = name.casefold()
        return claims[folded] == 1 or (name == own and exact[folded] == 1)

    names = {key: name for key, (name, own) in wanted.items() if keeps(name, own)}
    taken = {name.casefold() for name in names.values()}
    for key in sorted(wanted.keys() - names.keys()):
        names[key] = next(_free(wanted[key][0], key, taken))
        taken.add(names[key].casefold())
    return {key: names[key] for key in wanted}


def _free(name: str, identity: str, taken: Set[str]) -> Iterator[str]:
    """Candidate names with longer and longer hashes: another operation's own name may equal a
    hashed one."""
    for digits in range(HASH_DIGITS, LIMIT - 1):
        candidate = add_suffix(name, identity, digits=digits)
        if candidate.casefold() not in taken:
            yield candidate


def _transliterate(text: str) -> tuple[str, bool]:
    """ASCII form by compatibility decomposition, and whether a letter or digit was lost."""
    decomposed = unicodedata.normalize("NFKD", text)
    lost = any(not char.isascii() and char.isalnum() for char in decomposed)
    kept = (char for char in decomposed if not unicodedata.combining(char))
    return "".join(char if char.isascii() else " " for char in kept), lost


def _digest(text: str, digits: int = HASH_DIGITS) -> str:
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:digits]


PLAIN_CANDIDATES = 3  # the first candidates: a previous name among them is kept

Candidates = Callable[[], Iterator[str]]  # candidate names of one entry, best first


@dataclass(frozen=True, slots=True)
class Naming:
    """Naming rule of one source."""

    source: str
    prefix: Prefix = "conditional"
    rule_changed: bool = False  # the rule changed: names that the previous one gave may be replaced
    own: bool = False  # of a part of the gateway, for which its names are reserved

    def tool_names(self, plain: str, key: str) -> Iterator[str]:
        """`names` of a tool, without those that are reserved for another owner."""
        names = self.names(plain, key)
        return names if self.own else itertools.filterfalse(is_reserved, names)

    def names(self, plain: str, key: str) -> Iterator[str]:
        """Candidate names of a tool or prompt; `key` disambiguates equal names."""
        if self.prefix != "always":
            yield plain
        if self.prefix == "never":
            return
        qualified = qualify(self.source, plain)
        yield qualified
        for digits in range(8, 63):
            yield add_suffix(qualified, key, digits=digits)

    def uris(self, uri: str) -> Iterator[str]:
        """Candidate URIs of a resource or template; a URI that looks like another source's is never
        plain."""
        if self.prefix != "always" and not looks_wrapped(uri):
            yield uri
        if self.prefix != "never":
            yield wrap_uri(self.source, uri)

    def assign(
        self,
        wanted: Mapping[str, Candidates],
        before: Mapping[str, str],
        taken: Set[str],
        fold: Callable[[str], str] = str.casefold,
    ) -> dict[str, str]:
        """Assign names by key, where one can be had. `before`: previous names; `taken`: names of
        other sources, folded. Previous holders come first, so that no newcomer takes their
        names."""
        kept = {} if self.rule_changed or self.own else before
        used_names, names = set(taken), {}
        for key in sorted(wanted, key=lambda key: (key not in kept, key)):
            candidates = wanted[key]()
            if key in kept and kept[key] in itertools.islice(wanted[key](), PLAIN_CANDIDATES):
                candidates = itertools.chain([kept[key]], candidates)
            name = next(
                (candidate for candidate in candidates if fold(candidate) not in used_names), None
            )
            if name is not None:
                used_names.add(fold(name))
                names[key] = name
        return names
