"""Masking of personal data and secrets in texts. Pure.

The patterns are RE2's, whose time is linear in any text, and what they find is checked: cards by
Luhn's digit, IBANs by their length and check digits.
"""

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import re2

LONGEST_CARD, SHORTEST_CARD = 19, 13  # digits, ISO/IEC 7812
_IBAN_LENGTHS = (  # ISO 13616 registry
    "AD24 AE23 AL28 AT20 AZ28 BA20 BE16 BG22 BH22 BI27 BR29 BY28 CH21 CR22 CY28 CZ24 DE22 DJ27 "
    "DK18 DO28 EE20 EG29 ES24 FI18 FK18 FO18 FR27 GB22 GE22 GI23 GL18 GR27 GT28 HN28 HR21 HU28 "
    "IE22 IL23 IQ23 IS26 IT27 JO30 KW30 KZ20 LB28 LC32 LI21 LT20 LU20 LV21 LY25 MC27 MD24 ME22 "
    "MK19 MN20 MR27 MT31 MU30 NI28 NL18 NO15 OM23 PK24 PL28 PS29 PT25 QA29 RO24 RS22 RU33 SA24 "
    "SC31 SD18 SE24 SI19 SK24 SM27 SO23 ST25 SV28 TL23 TN24 TR26 UA29 VA22 VG24 XK20 YE30"
)
IBAN_LENGTHS = {entry[:2]: int(entry[2:]) for entry in _IBAN_LENGTHS.split()}

_Replace = Callable[[str], str]
_GAP = r"[ \-\x{a0}\x{2010}-\x{2015}]"  # between the digits of one number


@dataclass(frozen=True, slots=True)
class _Rule:
    kind: str
    pattern: Any
    replaced: _Replace  # the found text with what is to be masked replaced

    def apply(self, text: str) -> str:
        return str(self.pattern.sub(lambda match: self.replaced(match.group(0)), text))


def mask(text: str) -> tuple[str, tuple[str, ...]]:
    """The text with e-mail addresses, phone numbers, cards, IBANs, keys and tokens as `[email]`,
    `[phone]`, `[card]`, `[iban]` and `[key]`, and the kinds of what was replaced, each once."""
    pieces: list[str] = []
    for rule in _RULES:
        changed = rule.apply(text)
        if changed != text:
            pieces.append(rule.kind)
            text = changed
    return text, tuple(dict.fromkeys(pieces))


def _all(kind: str) -> _Replace:
    return lambda _text: f"[{kind}]"


def _mask_assignment(text: str) -> str:
    """`name = value` with the value masked."""
    name = _ASSIGNMENT.match(text)
    return text if text.endswith("[key]") else f"{name[0] if name else ''}[key]"


def _iban(text: str) -> str:
    """An IBAN is found with the words that follow it: they stay."""
    places = [at for at, character in enumerate(text) if character.isalnum()]
    plain = "".join(text[at] for at in places).upper()
    length = IBAN_LENGTHS.get(plain[:2], 0)
    if not 0 < length <= len(plain):
        return text
    number = "".join(str(int(digit, 36)) for digit in plain[4:length] + plain[:4])
    return f"[iban]{text[places[length - 1] + 1 :]}" if int(number) % 97 == 1 else text


def _card(text: str) -> str:
    """Any card among the numbers of a run; it begins and ends where one of them does."""
    places = [at for at, character in enumerate(text) if character.isdecimal()]
    digits = [int(text[at]) for at in places]
    for begin, first in enumerate(places):
        if begin and first == places[begin - 1] + 1:
            continue
        for size in range(min(LONGEST_CARD, len(digits) - begin), SHORTEST_CARD - 1, -1):
            end, last = begin + size, places[begin + size - 1]
            ends = end == len(digits) or places[end] != last + 1
            if ends and _has_luhn_digit(digits[begin:end]):
                return f"{text[:first]}[card]{_card(text[last + 1 :])}"
    return text


def _has_luhn_digit(digits: list[int]) -> bool:
    doubled = (2 * digit - 9 * (digit > 4) for digit in digits[-2::-2])
    return 2 <= digits[0] <= 6 and (sum(digits[-1::-2]) + sum(doubled)) % 10 == 0


def _phone(text: str) -> str:
    digits = sum(character.isdecimal() for character in text)
    return "[phone]" if 8 <= digits <= 15 else text


_ASSIGNMENT = re.compile(
    r"[^:=\uff1a]*?(?:[:=\uff1a]|\bis\b)\s*[\"'`]?(?:(?:bearer|basic)\s+)?", re.I
)
_NAMES = r"(?:(?:api|access|secret)[ _-]?key|secret|authorization|password|passwd|passphrase|token)"
_RULES = (
    _Rule(
        "key",
        re2.compile(
            r"-----BEGIN [A-Z ]{0,40}PRIVATE KEY-----"
            r"(?:[^-]*-----END [A-Z ]{0,40}PRIVATE KEY-----)?"
            r"|\b(?:sk|pk|rk)[-_][\w-]{16,}|\b(?:AKIA|ASIA)[0-9A-Z]{16}\b|\bAIza[\w-]{30,}"
            r"|\b(?:gh[opsur]|npm|hf|glpat|tgk|whsec|ya29)[-_.][\w.+/=-]{16,}"
            r"|\bgithub_pat_\w{20,}|\bxox[abeoprs]-[A-Za-z0-9-]{10,}"
            r"|\beyJ[\w-]{8,}\.[\w-]{8,}\.[\w-]*"
        ),
        _all("key"),
    ),
    _Rule(
        "key",
        re2.compile(
            rf"(?i)\b{_NAMES}[\"'`]?\s{{0,3}}[:=\x{{ff1a}}]\s{{0,3}}[\"'`]?(?:(?:bearer|basic)\s+)?"
            r"[^\s\"'`,;]{4,}"
            rf"|\b{_NAMES} is\s[^\s]*[0-9][^\s]*"
            r"|密码[是为]?\s{0,3}[:\x{ff1a}]\s{0,3}[^\s,;\x{ff0c}\x{3002}]{4,}"
        ),
        _mask_assignment,
    ),
    _Rule(
        "email",
        re2.compile(r"[\pL\pN._%+'-]+[@\x{ff20}][\pL\pN-]+(?:\.[\pL\pN-]+)*\.\pL\pL+"),
        _all("email"),
    ),
    _Rule("iban", re2.compile(r"(?i)\b[a-z]{2}[0-9]{2}(?: ?[a-z0-9]){11,40}"), _iban),
    _Rule("card", re2.compile(rf"\p{{Nd}}(?:{_GAP}{{0,2}}\p{{Nd}}){{12,40}}"), _card),
    _Rule(
        "phone",
        re2.compile(
            r"(?:\+|\b00)[1-9](?:[ ()./\-\x{a0}]{0,3}[0-9]){7,14}\b"
            rf"|\b1[3-9][0-9](?:{_GAP}?[0-9]{{4}}){{2}}\b"  # mobile, China
            r"|\b0[1-9][0-9]{0,4}(?:[ )/.\-]{1,3}[0-9]{2,8}){1,4}\b"  # with the prefix 0
            r"|(?:\([0-9]{3}\) ?|\b[0-9]{3}[ .-])[0-9]{3}[ .-][0-9]{4}\b"  # North America
        ),
        _phone,
    ),
)
