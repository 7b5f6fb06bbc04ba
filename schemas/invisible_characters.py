"""Invisible characters, which a model reads and people do not see: prompt injection. Pure.

Hidden are control characters (but for tab and ends of lines), tag characters, marks and overrides
of direction, all other default-ignorable code points (Unicode, UAX 44:
`Default_Ignorable_Code_Point`), annotations and characters of private use. UTS 39, section 3.1.1,
and UTR 36, section 2.5, exclude them from identifiers. Those that scripts need are kept:

- joiners behind a letter of a script that joins (Arabic, Syriac, Indic and others; after UAX 31,
  section 2.3.1), and between two emoji (UTS 51, `emoji_zwj_sequence`);
- one variation selector, behind what has variants: symbols, emoji, ideographs, Mongolian;
- the tags of the flags of England, Scotland and Wales, the only ones (UTS 51, ED-14a);
- a mark of direction beside a letter that is written from right to left.
"""

import dataclasses
import json
import re
from collections.abc import Collection
from functools import cache
from typing import Any, TypeVar

from msgspec import Struct, structs

T = TypeVar("T")

_JOINING = (
    "\u0600-\u074f\u0750-\u077f\u07c0-\u07ff\u0840-\u08ff\u0900-\u109f\u1780-\u17b3\u17b6-\u17ff"
    "\u1800-\u180a\u1810-\u18af\u1a20-\u1aaf\u1b00-\u1c4f\ua840-\ua8ff\ua980-\ua9df\uaa00-\uaaff"
    "\uabc0-\uabff\ufb50-\ufdcf\ufdf0-\ufdff\ufe70-\ufefc\U00010a00-\U00010a5f\U00011000-\U00011fff"
)
_RIGHT_TO_LEFT = (
    "\u0590-\u061b\u061d-\u08ff\ufb1d-\ufdcf\ufdf0-\ufdff\ufe70-\ufefc\U00010800-\U00010fff"
    "\U0001e800-\U0001efff"
)
_SYMBOLS = (
    "\u00a9\u00ae\u203c\u2049\u2122\u2139\u2190-\u2bff\u3030\u303d\u3297\u3299\U0001f000-\U0001faff"
)
_EMOJI = f"{_SYMBOLS}\ufe0f"
_WITH_VARIANTS = f"{_SYMBOLS}#*0-9\u1800-\u180a\u1810-\u18af"
_HAN = "\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0003fffd"

_ALWAYS = (
    "[\u0000-\u0008\u000b\u000c\u000e-\u001f\u007f-\u009f"  # controls
    "\u00ad\u034f\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b\u2060-\u206f\u3164\ufeff\uffa0"
    "\ufff0-\ufffb\U0001bca0-\U0001bca3\U0001d173-\U0001d17a"  # default-ignorable, annotations
    "\u202a-\u202e"  # embeddings and overrides of direction
    "\ue000-\uf8ff\U000f0000-\U0010ffff"  # of private use
    "\U000e0000-\U000e00ff\U000e01f0-\U000e0fff]"
)
_FLAGS = "|".join(
    "".join(chr(0xE0000 + ord(letter)) for letter in region) + "\U000e007f"
    for region in ("gbeng", "gbsct", "gbwls")
)
# Sequences to keep are matched first, so that their parts are not matched again.
_INVISIBLE = (
    f"(?P<kept>\U0001f3f4(?:{_FLAGS})"
    f"|(?<=[{_JOINING}])[\u200c\u200d](?![\u200c\u200d])"
    f"|(?<=[{_EMOJI}])\u200d(?=[{_SYMBOLS}])"
    f"|(?<=[{_WITH_VARIANTS}])[\ufe00-\ufe0f]|(?<=[{_HAN}])[\ufe00-\ufe0f\U000e0100-\U000e01ef]"
    f"|(?<=[\u1800-\u18af])[\u180b-\u180d\u180f]"
    f"|(?<=[{_RIGHT_TO_LEFT}])[\u200e\u200f\u061c]|[\u200e\u200f\u061c](?=[{_RIGHT_TO_LEFT}]))"
    f"|{_ALWAYS}|[\u061c\u200c-\u200f\ufe00-\ufe0f\U000e0100-\U000e01ef]"
)
# Also the backslash of text that looks like an escaped hidden character.
_WRITTEN_OUT = rf"{_INVISIBLE}|\\(?=u\{{(?P<code>[0-9a-f]{{1,5}}|10[0-9a-f]{{4}})\}})"

_compile = cache(re.compile)  # with the first text that needs it: each takes 3 ms


def without_hidden(text: str) -> str:
    """`text` without hidden characters."""
    return text if _is_plain(text) else _compile(_INVISIBLE).sub(_keep_match, text)


def visible(text: str) -> str:
    r"""`text` with hidden characters escaped, as in `\u{202e}`. Injective: where the text itself
    contains such an escape, its backslash is escaped."""
    if _is_plain(text) and r"\u{" not in text:
        return text
    return _compile(_WRITTEN_OUT).sub(_unescape_match, text)


def visible_json(text: str) -> str:
    r"""Equivalent JSON text with hidden characters escaped, as in `\u202e`."""
    return _compile(_INVISIBLE).sub(_escape_match, text)


def visible_in(value: Any) -> Any:
    """Any JSON value with hidden characters escaped in all of its texts, names of members
    included."""
    match value:
        case str():
            return visible(value)
        case dict():
            return {visible(name): visible_in(member) for name, member in value.items()}
        case list() | tuple():
            return [visible_in(member) for member in value]
    return value


def without_hidden_in(value: Any) -> Any:
    """The value without hidden characters; the same object, if there are none."""
    match value:
        case str():
            return without_hidden(value)
        case dict():
            after = {
                without_hidden(name): without_hidden_in(member) for name, member in value.items()
            }
            return value if _same(after, value) else after
        case list() | tuple():
            items = [without_hidden_in(member) for member in value]
            same = all(new is old for new, old in zip(items, value, strict=True))
            return value if same else type(value)(items)
        case Struct():
            fields = {name: getattr(value, name) for name in value.__struct_fields__}
            changed = without_hidden_in(fields)
            return value if changed is fields else structs.replace(value, **changed)
    return value


def without_hidden_fields(record: T, names: Collection[str]) -> T:
    """The dataclass without hidden characters in the fields of these names. Another value stays as
    it is."""
    if not dataclasses.is_dataclass(record) or isinstance(record, type):
        return record
    changed = {
        field.name: after
        for field in dataclasses.fields(record)
        if field.name in names
        and (after := without_hidden_in(before := getattr(record, field.name))) is not before
    }
    return dataclasses.replace(record, **changed) if changed else record


def _same(after: dict[str, Any], before: dict[str, Any]) -> bool:
    return len(after) == len(before) and all(
        name in after and after[name] is value for name, value in before.items()
    )


def _is_plain(text: str) -> bool:
    return text.isascii() and text.isprintable()


def _escape_match(match: re.Match[str]) -> str:
    return match["kept"] or json.dumps(match[0])[1:-1]


def _keep_match(match: re.Match[str]) -> str:
    return match["kept"] or ""


def _unescape_match(match: re.Match[str]) -> str:
    if (code := match["code"]) and not (code == "5c" or _is_hidden(chr(int(code, 16)))):
        return match[0]
    return match["kept"] or f"\\u{{{ord(match[0]):x}}}"


def _is_hidden(letter: str) -> bool:
    return _compile(_INVISIBLE).fullmatch(letter) is not None
