"""What lists of tools cost a model, in tokens.

A token counts as 4 characters of JSON as it is sent: close enough to compare and to limit by, for
every model and without its tokenizer. (Lists of real tools have between 3.5 and 4.5.)
"""

from dataclasses import dataclass

from config.settings import Budgets

CHARACTERS = 4  # of a token
LEVELS = 6  # 0 is as the settings say; each further one allows half as much
_FEWEST = (100, 60)  # tokens of a tool, and characters of a description, that are always allowed


def tokens(text: str | bytes) -> int:
    """Rounded up."""
    length = len(text) if isinstance(text, str) else len(text.decode("utf-8", "replace"))
    return -(-length // CHARACTERS)


@dataclass(frozen=True, slots=True)
class Room:
    """What one tool may take in a list."""

    tool: int  # characters
    description: int  # characters
    text: int  # characters of a description inside its schema


def room(budgets: Budgets, level: int, tool_tokens: int | None = None) -> Room:
    """`tool_tokens`: instead of those of the budgets."""
    most = budgets.tool_tokens if tool_tokens is None else tool_tokens
    tool = max(most >> level, _FEWEST[0]) * CHARACTERS
    description = max(budgets.description_characters >> level, _FEWEST[1])
    text = max(budgets.argument_characters >> level, _FEWEST[1])
    return Room(tool, min(description, tool // 2), text)


def room_of(most: int, budgets: Budgets | None) -> Room:
    """The same for a tool of at most `most` tokens, whatever the budgets allow a tool."""
    characters = max(most, _FEWEST[0]) * CHARACTERS
    description, text = characters // 3, characters // 8
    if budgets is not None:
        description = min(description, budgets.description_characters)
        text = min(text, budgets.argument_characters)
    return Room(characters, description, max(text, _FEWEST[1]))
