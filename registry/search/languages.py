"""Languages of queries that an embedding model does not know, which the caller is to be told. Pure.

The bundled model was trained with English. A text in another script is another language; one in
Latin letters is, if it has more of the commonest words and letters of another language than of
English ones.
"""

import re
import unicodedata
from collections import Counter
from collections.abc import Mapping
from functools import lru_cache

from registry.search.fusion import enough

ENGLISH_ONLY = "bundled/"  # labels of models
EVERY_LANGUAGE = "multilingual/"
READ = 2000  # characters that are looked at
FEW = 0.5  # of the evidence of some rare words, below which words do not answer a query
UNKNOWN_LANGUAGE = (
    "the embedding model does not know {}, and few words of the query stand in what was searched: "
    "what is listed may not fit. Ask in English, or in the words of the texts; "
    "embedding.provider multilingual knows more languages"
)
NO_WORDS = (
    "no word of the query stands in what was searched: what is listed is nearest by meaning alone, "
    "and may not fit"
)
SCRIPTS: Mapping[str, str] = {
    "CJK": "Chinese", "HIRAGANA": "Japanese", "KATAKANA": "Japanese", "HANGUL": "Korean",
    "CYRILLIC": "texts in Cyrillic", "GREEK": "Greek", "ARABIC": "texts in Arabic letters",
    "HEBREW": "Hebrew", "DEVANAGARI": "texts in Devanagari", "THAI": "Thai",
}  # fmt: skip


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


# Words that are none in English, but for the first; what is a word or an abbreviation of the field
# in English, too, is left out.
COMMON: Mapping[str, frozenset[str]] = {
    "English": _words(
        "the a an and or of to in on for from with by is are was be been it its this that "
        "these my me i you your we our all any new not no do does did how what which who "
        "where when why can should get list show find make create delete update send add set"
    ),
    "Spanish": _words(
        "el los las una y por para como que cual cuales donde cuando quien sus esta este "
        "estos quiero necesito dame muestra crear buscar borrar enviar todos todas"
    ),
    "German": _words(
        "der den dem ein eine einen einem einer und oder ist sind nicht von vom zu zur zum "
        "auf aus bei nach wie wo wann warum welche welcher welches ich mir mich mein meine "
        "meinen alle neue neuen bitte zeige erstelle suche sende finde anlegen"
    ),
    "French": _words(
        "le les une du et sont dans sur avec qui que quel quelle quels mon mes je tu nous "
        "vous ce cette ces aux tous toutes cherche trouver envoyer liste"
    ),
    "Italian": _words(
        "il gli uno una di della delle dei degli che chi dove quando mio mia miei sono nel "
        "nella sul tutti tutte cerca trova crea invia mostra"
    ),
    "Portuguese": _words(
        "um uma das em na com para por que qual quais onde quando meu minha todos todas criar "
        "procurar enviar mostrar quero preciso"
    ),
    "Dutch": _words(
        "het een naar voor niet zijn wie wat waar wanneer welke ik mijn alle zoek maak stuur "
        "toon verwijder"
    ),
}  # fmt: skip
LETTERS: Mapping[str, frozenset[str]] = {
    "Spanish": frozenset("áéíóúñ¿¡"),
    "German": frozenset("äöüß"),
    "French": frozenset("àâçéèêëîôùûœ"),
    "Italian": frozenset("àèéìòù"),
    "Portuguese": frozenset("ãõáâçéêíóú"),
    "Dutch": frozenset("ëïĳ"),
}  # fmt: skip
_WORD = re.compile(r"[^\W\d_]+")


def main_script(text: str) -> str:
    """The script of most letters, as names of characters begin: LATIN, CJK, CYRILLIC; "" for a
    text without letters."""
    scripts = _scripts(text)
    return scripts.most_common(1)[0][0] if scripts else ""


def foreign_language(text: str) -> str | None:
    """The language of a text, in words for people; None: English, or not to be told."""
    text = text[:READ].lower()
    scripts = _scripts(text)
    if scripts["HIRAGANA"] + scripts["KATAKANA"]:  # beside which Japanese has Chinese characters
        return "Japanese"
    script = scripts.most_common(1)[0][0] if scripts else "LATIN"
    if script != "LATIN":
        return SCRIPTS.get(script, f"texts in {script.title()}")
    words = _WORD.findall(text)
    scores = {name: sum(word in common for word in words) for name, common in COMMON.items()}
    english = scores.pop("English")
    for name, letters in LETTERS.items():
        scores[name] += sum(not letters.isdisjoint(word) for word in words)
    best = max(scores, key=lambda name: scores[name])
    return best if scores[best] > english else None


def language_note(text: str, model: str | None, *, bm25: float, docs: int) -> str | None:
    """Note on a query in a language that the model does not know, if words do not answer it
    either. `bm25`: of the best of `docs`."""
    if model is None or not model.startswith(ENGLISH_ONLY):
        return None
    if not docs or bm25 >= FEW * enough(docs):
        return None
    language = foreign_language(text)
    return None if language is None else UNKNOWN_LANGUAGE.format(language)


def words_note(text: str, model: str | None, *, bm25: float, docs: int) -> str | None:
    """As `language_note`; also what to tell of a query of which no word was found."""
    if (note := language_note(text, model, bm25=bm25, docs=docs)) is not None:
        return note
    if model is None or not docs:
        return None
    return NO_WORDS if bm25 <= 0 and _WORD.search(text) else None


def _scripts(text: str) -> Counter[str]:
    """The number of letters of each script."""
    return Counter(map(_script, filter(str.isalpha, text[:READ])))


@lru_cache(4096)
def _script(letter: str) -> str:
    first, _, rest = unicodedata.name(letter, "").partition(" ")
    return rest.partition(" ")[0] if first == "FULLWIDTH" else first
