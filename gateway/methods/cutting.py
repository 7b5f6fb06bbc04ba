"""Where a text that is too long is cut, so that every part makes sense and none is lost. Pure."""

import re

# Strings as a whole, so that what looks like structure inside them is not. Possessive, and the end
# of a string is optional: a text that is no JSON after all costs one pass, too.
_TOKENS = re.compile(r'"(?:[^"\\]++|\\.)*+"?|[\[\]{},\n]', re.DOTALL)
_BLANK = re.compile(r"\s")


def cut_at(text: str, limit: int, is_json: bool) -> int:
    """How many characters of `text`, which has more than `limit`, make its first part: at least
    half of `limit`. Of JSON, whole members of the outermost array or object that one can be cut
    in; else whole lines, else whole words."""
    earliest = max(1, limit // 2)
    if is_json and (at := _between_members(text, limit, earliest)):
        return at
    at = text.rfind("\n", earliest, limit) + 1
    if at:
        return at
    words = [match.end() for match in _BLANK.finditer(text, earliest, limit)]
    return words[-1] if words else limit


def _between_members(text: str, limit: int, earliest: int) -> int:
    """Behind the last comma of the lowest depth; 0 where there is none in reach."""
    depth, best, lowest = 0, 0, 0
    for match in _TOKENS.finditer(text, 0, limit):
        match text[match.start()]:
            case "[" | "{":
                depth += 1
            case "]" | "}":
                depth -= 1
            case "," if match.end() >= earliest and (not best or depth <= lowest):
                best, lowest = match.end(), depth
    return best
