"""Token budgets: what lists of tools cost a model, in tokens.

A token counts as 4 characters of JSON as it is sent: close enough to compare and to limit by, for
every model and without its tokenizer. (Lists of real tools have between 3.5 and 4.5.)
"""

from msgspec import Struct

from config.settings import Budgets

CHARACTERS = 4  # of a token
LEVELS = 6  # 0 as in the settings; each further one halves the room
_MINIMUM = (100, 60)  # minimum tokens of a tool, and characters of a description


def tokens(text: str | bytes) -> int:
    """Estimated number of tokens of `text`, rounded up."""
    length = len(text) if isinstance(text, str) else len(text.decode("utf-8", "replace"))
    return -(-length // CHARACTERS)


class TextLimits(Struct, frozen=True):
    """Space for one tool in a list."""

    tool: int  # characters
    description: int  # characters
    text: int  # characters of a description inside its schema


def limits_at(budgets: Budgets, level: int, tool_tokens: int | None = None) -> TextLimits:
    """The space of a tool at a `level`; `tool_tokens` overrides the one of the budgets."""
    limit = budgets.tool_tokens if tool_tokens is None else tool_tokens
    tool = max(limit >> level, _MINIMUM[0]) * CHARACTERS
    description = max(budgets.description_characters >> level, _MINIMUM[1])
    text = max(budgets.argument_characters >> level, _MINIMUM[1])
    return TextLimits(tool, min(description, tool // 2), text)


def limits_of(limit: int, budgets: Budgets | None) -> TextLimits:
    """The space of a tool of at most `limit` tokens, whatever the budgets allow per tool."""
    characters = max(limit, _MINIMUM[0]) * CHARACTERS
    description, text = characters // 3, characters // 8
    if budgets is not None:
        description = min(description, budgets.description_characters)
        text = min(text, budgets.argument_characters)
    return TextLimits(characters, description, max(text, _MINIMUM[1]))
