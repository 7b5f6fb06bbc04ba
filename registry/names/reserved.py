"""Names of the gateway's own tools, which no other tool ever has. Pure.

They are reserved whether or not the gateway offers the tool at the moment: a client that knows a
name from an earlier list, or from its instructions, must not reach somebody else's tool by it.
"""

from schemas.binding import Does

DESCRIBE = "describe_tool"
FINDING: tuple[Does, ...] = ("search_tools", "describe_tools", "call_tool")
SKILLS: tuple[Does, ...] = ("list_skills", "use_skill")
NAMES = (DESCRIBE, *FINDING, *SKILLS)

# Clients fold case, and write "-" for "_" or leave both out; people take "I" and "1" for "l" and
# "0" for "o" (Unicode UTS 39, section 4, `skeleton`; names have no letters but those of ASCII).
_ALIKE = str.maketrans({"_": None, "-": None, "1": "l", "i": "l", "0": "o"})


def is_reserved(name: str) -> bool:
    """Whether `name` is one of the gateway's own tools, or looks like one."""
    return _skeleton(name) in _SKELETONS


def _skeleton(name: str) -> str:
    return name.casefold().translate(_ALIKE)


_SKELETONS = frozenset(map(_skeleton, NAMES))
