"""Reserved names: those of the gateway's own tools, which no other tool may have. Pure.

They are reserved whether or not the gateway offers the tool at the moment: a client that knows a
name from an earlier list, or from its instructions, must not reach another owner's tool by it.
"""

from schemas.binding import Does

DESCRIBE = "describe_tool"
FINDING: tuple[Does, ...] = ("search_tools", "describe_tools", "call_tool")
SKILLS: tuple[Does, ...] = ("list_skills", "use_skill")
NAMES = (DESCRIBE, *FINDING, *SKILLS)

# Clients fold case, and write "-" for "_" or omit both; people confuse "I" and "1" with "l", and
# "0" with "o" (Unicode UTS 39, section 4, `skeleton`; names contain ASCII letters only).
_ALIKE = str.maketrans({"_": None, "-": None, "1": "l", "i": "l", "0": "o"})


def is_reserved(name: str) -> bool:
    """Whether `name` is, or is confusable with, the name of one of the gateway's own tools."""
    return _skeleton(name) in _SKELETONS


def _skeleton(name: str) -> str:
    return name.casefold().translate(_ALIKE)


_SKELETONS = frozenset(map(_skeleton, NAMES))
