"""Abbreviations that source code has for words of a question: `buf` for a buffer, `u64` for an
unsigned 64 bit integer. Pure.

An abbreviation stands for its word only where the searched code has it in more chunks than the word
itself: docs/decisions/0016-abbreviations-of-code.md.
"""

import re
from collections.abc import Iterator

# Words as PostgreSQL stems them, each with its abbreviations. An abbreviation that is the stem of
# its word, such as "iter" or "alloc", needs no entry.
_BY_STEM = """
address: addr; applic: app; argument: arg; array: arr; asynchron: async; attribut: attr
authent: auth; author: auth; averag: avg; boolean: bool; buffer: buf; callback: cb; capac: cap
certif: cert; channel: chan; charact: char; column: col; command: cmd; compar: cmp
comparison: cmp; concaten: concat; configur: config cfg conf; connect: conn; constant: const
context: ctx; control: ctrl; coordin: coord; current: cur; databas: db; decrement: dec
definit: def; delet: del; depend: dep; descriptor: desc; descript: desc; destin: dst dest
dictionari: dict; differ: diff; dimens: dim; directori: dir; document: doc; element: elem
environ: env; error: err; evalu: eval; event: ev evt; except: exc; execut: exec; express: expr
extens: ext; format: fmt; function: fn func; generat: gen; identifi: id ident; imag: img
implement: impl; increment: inc; index: idx; inform: info; initi: init; integ: int
languag: lang; length: len; librari: lib; maximum: max; memori: mem; messag: msg; metadata: meta
millisecond: ms; minimum: min; modul: mod; multipli: mul; mutabl: mut; number: num; object: obj
oper: op; option: opt; origin: orig; packag: pkg; paramet: param; pattern: pat; pointer: ptr
posit: pos; predic: pred; previous: prev; process: proc; properti: prop; random: rand
receiv: recv rx; refer: ref; regist: reg; repositori: repo; request: req; respons: res resp
result: res; return: ret; second: sec; sender: tx; sequenc: seq; serial: ser; server: srv
session: sess; signatur: sig; sourc: src; specif: spec; standard: std; statement: stmt
string: str; structur: struct; subtract: sub; synchron: sync; temporari: tmp temp; timestamp: ts
token: tok; transact: txn tx; unsign: uint; valu: val; variabl: var; vector: vec; version: ver
window: win
"""
_BITS = re.compile(
    r"\b(?:(?P<before>unsigned|signed)\s+)?(?P<bits>8|16|32|64|128)[ -]bits?\b"
    r"(?:\s+(?P<after>unsigned|signed|float))?",
    re.IGNORECASE,
)
_PRECISION = {"single": "32", "double": "64"}
_NUMBER = re.compile(
    r"\b(?:(?P<precision>single|double)[ -]precision|(?P<endian>little|native)[ -]endian)\b",
    re.IGNORECASE,
)


def abbreviation_pairs() -> list[tuple[str, str]]:
    """Stems of words, each with an abbreviation."""
    entries = (entry.split(": ") for entry in re.split(r"; |\n", _BY_STEM.strip()))
    return [(stem, short) for stem, line in entries for short in line.split()]


def numeric_types(question: str) -> list[str]:
    """Names in code of the numbers that a question describes: `u64` and `uint64`, or `le` for
    their bytes in little-endian order. (`be` is a word that no index has.)"""
    return list(dict.fromkeys(_numeric_types(question)))


def _numeric_types(question: str) -> Iterator[str]:
    for match in _BITS.finditer(question):
        kind = (match["before"] or match["after"] or "").lower()
        if kind == "float":
            yield from _names_with_bits(("f", "float"), match["bits"])
        if kind in ("", "unsigned"):
            yield from _names_with_bits(("u", "uint"), match["bits"])
        if kind in ("", "signed"):
            yield from _names_with_bits(("i", "int"), match["bits"])
    for match in _NUMBER.finditer(question):
        if match["precision"]:
            yield from _names_with_bits(("f", "float"), _PRECISION[match["precision"].lower()])
        else:
            yield f"{match['endian'][0].lower()}e"


def _names_with_bits(names: tuple[str, ...], bits: str) -> Iterator[str]:
    return (f"{name}{bits}" for name in names)
