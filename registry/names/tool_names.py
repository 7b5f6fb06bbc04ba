"""Tool names: legal, unique, the same on every import. Pure.

Legal is `[A-Za-z0-9_-]{1,128}`: MCP (2025-11-25, `tools`) would also allow `.`, which the
function-calling APIs of the large providers refuse. These take 64 characters. So a name that the
gateway makes, of an operationId or a path, has at most 64; a name that another server or a person
has given to a tool stays whole, and the profiles of clients shorten it where they must.

Tools of one source may have names that differ only in case. Against tools of other sources names
are compared without case, so that no source can offer a look-alike of another's tool.

A name depends on its own operation, and on others only when they collide, never on their order in
the document. It is stable: it is kept as long as its rule, or the earlier one that shortened every
name to 64 characters and told pairs apart by a hash, could still produce it. So a name that was
qualified with the source because another source had the plain one stays, even after that is free
again.

Names of the gateway's own tools are reserved, those of the operations of all wings included,
whether or not it offers the tool at the moment: a client that knows a name from an earlier list, or
from its instructions, must not reach another owner's tool by it. For the same reason no source gets
a name under which a profile may show another owner's tool (`NameForms`): anybody can compute it.
"""

import hashlib
import itertools
import re
import unicodedata
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Set

from msgspec import Struct

from registry.names.uris import looks_wrapped, wrap_uri
from schemas.binding import Does
from schemas.source import Prefix
from schemas.wing_tools import WING_TOOLS, WINGS

DESCRIBE_TOOL = "describe_tool"
DISCLOSURE_TOOLS: tuple[Does, ...] = ("search_tools", "describe_tools", "call_tool")
FINDING_TOOLS: tuple[Does, ...] = ("search_tools", "describe_tools")
SKILL_TOOLS: tuple[Does, ...] = ("list_skills", "use_skill")
CODE_WING = "code"
CODE_TOOLS = ("run_code", "run_code_writing")
CONNECTIONS_TOOL: Does = "connections"
RESERVED_NAMES = (*(DESCRIBE_TOOL, *DISCLOSURE_TOOLS, *SKILL_TOOLS, *CODE_TOOLS, CONNECTIONS_TOOL),)

# Clients fold case, and write "-" for "_" or omit both; people confuse "I" and "1" with "l", "0"
# with "o", "rn" with "m" and "vv" with "w" (Unicode UTS 39, section 4, `skeleton`; names contain
# ASCII letters only).
_ALIKE = str.maketrans({"_": None, "-": None, "1": "l", "i": "l", "0": "o"})


def is_reserved(name: str) -> bool:
    """Whether `name` is, or is confusable with, the name of one of the gateway's own tools, also
    behind the name of the gateway or of a wing, or shortened by a profile."""
    return _skeleton(name) in _SKELETONS or bool(_OWN_FORMS.shown_as(name))


def _skeleton(name: str) -> str:
    return name.casefold().translate(_ALIKE).replace("rn", "m").replace("vv", "w")


_OWNERS = ("", "toolgate", "mcp_toolgate", *WINGS)  # clients write the server in front of a tool
_SKELETONS = frozenset(
    _skeleton(f"{owner}_{name}") for owner in _OWNERS for name in (*RESERVED_NAMES, *WING_TOOLS)
)


LIMIT = 128  # characters of a name, by MCP
PORTABLE_LIMIT = 64  # those that the APIs of all large providers accept
HASH_DIGITS = 8

_ILLEGAL = re.compile(r"[^A-Za-z0-9_-]+")
_NOT_WORD = re.compile(r"(?:[^\w-]|_)+")
_TEMPLATE = re.compile(r"\{([^{}]*)\}")
_HEXADECIMAL = re.compile(r"[0-9a-f]+")


def limit_for(text: str) -> int:
    """Limit of a name made of `text`: longer than portable only if `text` itself is."""
    return PORTABLE_LIMIT if len(text) <= PORTABLE_LIMIT else LIMIT


def tool_name(operation_id: str | None, method: str, path: str, limit: int = PORTABLE_LIMIT) -> str:
    """`repos/list-for-user` gives `repos_list-for-user`; no id: `GET /pets/{id}` `get_pets_by_id`.

    An id without any letter that can be written in ASCII counts as none.
    """
    if operation_id and (name := legal(operation_id, limit=limit)):
        return name
    words = _TEMPLATE.sub(r"_by_\1_", path)
    return legal(_NOT_WORD.sub("_", f"{method.lower()}_{words}").strip("_"))


def legal(text: str, illegal: re.Pattern[str] = _ILLEGAL, limit: int = PORTABLE_LIMIT) -> str:
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


def add_suffix(
    name: str, identity: str, limit: int = PORTABLE_LIMIT, digits: int = HASH_DIGITS
) -> str:
    """`name`, cut where needed, with the first `digits` of the SHA-256 of `identity`."""
    return f"{name[: limit - digits - 1].rstrip('_-')}_{_digest(identity, digits)}"


def qualify(source: str, name: str) -> str:
    """Qualified name, `source_name`, of a tool whose plain name another source already has."""
    limit, name = limit_for(name), f"{source}_{name}"
    return name if len(name) <= limit else add_suffix(name, name, limit)


def assign(candidates: Mapping[str, tuple[str, str | None]]) -> dict[str, str]:
    """Assign a unique name to each key: key -> (wanted name, operationId) in, key -> name out.

    Among equal names the one that equals its own operationId is kept, if there is exactly one; all
    others get a hash of their key. The result does not depend on order: a reordered document keeps
    its names.
    """
    claims = Counter(name for name, _ in candidates.values())
    exact = Counter(name for name, operation_id in candidates.values() if name == operation_id)

    def keeps(name: str, operation_id: str | None) -> bool:
        return claims[name] == 1 or (name == operation_id and exact[name] == 1)

    names = {
        key: name for key, (name, operation_id) in candidates.items() if keeps(name, operation_id)
    }
    used_names = set(names.values())
    for key in sorted(candidates.keys() - names.keys()):
        names[key] = next(_free(candidates[key][0], key, used_names))
        used_names.add(names[key])
    return {key: names[key] for key in candidates}


def _free(name: str, identity: str, used_names: Set[str]) -> Iterator[str]:
    """Candidate names with longer and longer hashes: another operation's own name may equal a
    hashed one."""
    for digits in range(HASH_DIGITS, PORTABLE_LIMIT - 1):
        candidate = add_suffix(name, identity, limit_for(name), digits)
        if candidate not in used_names:
            yield candidate


def _transliterate(text: str) -> tuple[str, bool]:
    """ASCII form by compatibility decomposition, and whether a letter or digit was lost."""
    decomposed = unicodedata.normalize("NFKD", text)
    lost = any(not char.isascii() and char.isalnum() for char in decomposed)
    base_chars = (char for char in decomposed if not unicodedata.combining(char))
    return "".join(char if char.isascii() else " " for char in base_chars), lost


def _digest(text: str, digits: int | None = HASH_DIGITS) -> str:
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:digits]


def begins_plainly(name: str) -> bool:
    """Whether a name begins with a letter or `_`; a profile may write `_` before any other."""
    return name[:1].isalpha() or name[:1] == "_"


def may_be_form(name: str) -> bool:
    """Whether `NameForms.shown_as` has an answer for a name at all: most have none."""
    is_behind = name[:1] == "_" and not begins_plainly(name[1:])
    return is_behind or _split_hash(name.casefold()) is not None


class NameForms:
    """The forms in which profiles of clients may show tools of these names: behind `_`, or a part
    of the beginning with eight or more digits of the hash of the whole (`add_suffix`)."""

    def __init__(self, names: Iterable[str]) -> None:
        self._behind: defaultdict[str, list[str]] = defaultdict(list)
        self._by_digest: defaultdict[str, list[tuple[str, str]]] = defaultdict(list)
        for name in names:
            if not begins_plainly(name):
                self._behind[f"_{name}".casefold()].append(name)
            digest = _digest(name, None)
            self._by_digest[digest[:HASH_DIGITS]].append((digest, name))

    def shown_as(self, form: str) -> Set[str]:
        """The names of the tools that may be shown as `form`, whatever the case of its letters."""
        form = form.casefold()
        names = set(self._behind.get(form, ()))
        stem, digits = _split_hash(form) or ("", "")
        for digest, name in self._by_digest.get(digits[:HASH_DIGITS], ()):
            if digest.startswith(digits) and f"_{name}".casefold().startswith((stem, f"_{stem}")):
                names.add(name)
        return names


_OWN_FORMS = NameForms((*RESERVED_NAMES, *WING_TOOLS))


class TakenNames:
    """Names of the active tools of other owners, and the forms in which profiles show these."""

    def __init__(self, names: Iterable[str] = ()) -> None:
        names = list(names)
        self._folded = {name.casefold() for name in names}
        self._forms = NameForms(names)

    def __contains__(self, name: str) -> bool:
        return name.casefold() in self._folded

    def shows(self, name: str) -> bool:
        """Whether a profile may show another owner's tool by this name."""
        return bool(self._forms.shown_as(name))


PLAIN_CANDIDATES = 3  # the first candidates: a previous name among them is kept

Candidates = Callable[[], Iterator[str]]  # candidate names of one entry, best first


class Naming(Struct, frozen=True):
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
        for digits in range(HASH_DIGITS, PORTABLE_LIMIT - 1):
            yield add_suffix(qualified, key, limit_for(plain), digits)

    def uris(self, uri: str) -> Iterator[str]:
        """Candidate URIs of a resource or template; a URI that looks like another source's is never
        plain."""
        if self.prefix != "always" and not looks_wrapped(uri):
            yield uri
        if self.prefix != "never":
            yield wrap_uri(self.source, uri)

    def assign(
        self,
        candidates_by_key: Mapping[str, Candidates],
        before: Mapping[str, str],
        is_taken: Callable[[str], bool],
    ) -> dict[str, str]:
        """Assign names by key, where one can be had. `before`: previous names; `is_taken`: whether
        a name is kept for another source. Previous holders come first, so that no newcomer takes
        their names."""
        previous = {} if self.rule_changed or self.own else before
        used_names: set[str] = set()
        names = {}
        for key in sorted(candidates_by_key, key=lambda key: (key not in previous, key)):
            candidates = candidates_by_key[key]()
            if key in previous and _could_give(candidates_by_key[key](), previous[key]):
                candidates = itertools.chain([previous[key]], candidates)
            name = next(
                (
                    candidate
                    for candidate in candidates
                    if candidate not in used_names and not is_taken(candidate)
                ),
                None,
            )
            if name is not None:
                used_names.add(name)
                names[key] = name
        return names


def _could_give(candidates: Iterator[str], name: str) -> bool:
    """Whether a rule with these candidates, or the earlier rule, could give `name`."""
    return any(
        name == candidate or _is_hashed_form(name, candidate)
        for candidate in itertools.islice(candidates, PLAIN_CANDIDATES)
    )


def _is_hashed_form(name: str, full_name: str) -> bool:
    """Whether `name` is `full_name` in portable length with a hash, as the earlier rule made it of
    a long name and of one that differed from another only in case."""
    parts = _split_hash(name)
    if parts is None:
        return False
    stem, digits = parts
    return stem == full_name[: PORTABLE_LIMIT - len(digits) - 1].rstrip("_-")


def _split_hash(name: str) -> tuple[str, str] | None:
    """The stem and the digits of a name that ends as `add_suffix` writes it; None: it does not."""
    stem, _, digits = name.rpartition("_")
    is_hash = len(digits) >= HASH_DIGITS and _HEXADECIMAL.fullmatch(digits)
    return (stem, digits) if is_hash else None
