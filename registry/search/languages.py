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
TRANSLATIONS = (
    "Chinese", "Japanese", "Korean", "texts in Cyrillic", "texts in Arabic letters", "German",
    "French", "Spanish", "Italian", "Portuguese",
)  # fmt: skip
"""Languages of the glossary."""
# Most weight of meaning for a query in a language of the glossary, in another one in Latin letters,
# and in another script; the figures are in docs/search-and-skills.md#languages.
TRANSLATED_SHARE, FOREIGN_SHARE, FOREIGN_SCRIPT_SHARE = 0.6, 0.3, 0.1
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


# Words of one of these languages alone, as far as they are common: "in", "on", "was", "no", "do",
# "me" and what is an abbreviation of the field are left out.
COMMON: Mapping[str, frozenset[str]] = {
    "English": _words(
        "the and or of to for from with by is are were be been it its this that these those my "
        "mine you your we our us they their he she his her any new not does did done have has had "
        "how what which who whose where when why can could would should will please i i'm don't "
        "get list show find make create delete update send add set give tell let if then than "
        "there here before after about into out up all every each some other only just more most "
        "at as but so because while still without between under over need want has been last next"
    ),
    "Spanish": _words(
        "el los las una unos y por para como cómo que qué cual cuales donde dónde cuando cuándo "
        "quien quién sus su esta este esto estos estas ese esa eso del al lo le les se si sí yo tú "
        "nos nuestro nuestra nuestros mi mis con sin sobre entre desde hasta hay está están fue "
        "son era ser estoy tengo tiene tienen quiero necesito puedes puede dame dime muestra "
        "crear crea buscar busca borrar borra elimina enviar envía abre cierra pon haz sube baja "
        "cambia vuelve todos todas todo toda otro otra antes después ahora hoy mañana ayer años "
        "cuánto cuántos cuántas"
    ),
    "German": _words(
        "der das dem des ein eine einen einem einer eines und oder ist sind war waren wird werden "
        "wurde nicht kein keine keinen von vom zu zur zum im ins auf aus bei nach wie wo wann "
        "warum wer wen wem welche welcher welches welchen ich mir mich mein meine meinem meinen "
        "meiner unser unsere unseren unserem dich dir dein deine euch ihr ihre alle alles neue "
        "neuen noch schon nur auch dann dort hier jetzt heute gestern morgen gerade bitte zeig "
        "zeige erstelle suche such sende schick finde lösche leg anlegen leeren kann kannst "
        "könnte soll sollte muss habe hab haben hat gibt mit ohne für über unter zwischen "
        "steht stell mach weg dass wenn weil wieder mehr"
    ),
    "French": _words(
        "le les la une du et est sont était dans sur sous avec sans pour par chez que qui quoi "
        "quel quelle quels quelles mon mes ma ton tes sa ses notre nos votre vos je j'ai tu elle "
        "nous vous ils elles ce cette ces cet aux au tous toutes tout toute où quand comment "
        "pourquoi combien cherche cherchez trouve trouver trouvez envoie envoyer montre montrez "
        "donne donnez supprime ajoute crée ouvre liste mets mettez fais peux peut dois faut il y "
        "pas moins encore déjà aussi puis avant après aujourd'hui hier demain leur leurs "
        "c'est qu'est n'est d'un d'une"
    ),
    "Italian": _words(
        "il lo gli uno una di della delle dello dei degli del dal dalla dai al alla alle allo ai "
        "che chi cosa dove quando come perché quanto quanti quante quale quali mio mia miei mie "
        "tuo tua nostro nostra nostri sono sei ho hai ha hanno è era c'è ci si con su nel nella "
        "nelle negli sul sulla tra fra più meno anche ancora già poi prima dopo oggi ieri "
        "domani adesso ora ogni tutti tutte tutto questo questa questi queste quel quello quella "
        "cerca trova crea invia mostra mostrami dammi dimmi apri chiudi metti togli aggiungi "
        "elimina cancella esegui fai passami vorrei voglio le un"
    ),
    "Portuguese": _words(
        "um uma uns umas o das dos da na nas nos em ao aos à às com sem para pra por pelo "
        "pela que quê qual quais onde quando quanto quantos quantas quem como porque meu minha "
        "meus minhas seu sua nosso nossa nossos e é são está estão foi era tem têm tenho há não "
        "mais menos já ainda também depois antes agora hoje ontem amanhã todos todas tudo todo "
        "isso isto este esta esse essa ele ela eles vocês você criar cria procurar procura enviar "
        "envia mostrar mostra mostre quero preciso abre apaga registra lança anota dispara traz "
        "diz vê lê põe tira deixe de"
    ),
    "Dutch": _words(
        "het een de naar voor niet geen zijn wie wat waar wanneer welke hoe waarom ik mijn jouw "
        "onze ons alle zoek maak stuur toon geef zet verwijder van op uit bij tot met zonder "
        "over onder deze dit die dat er nog ook wel dan nu vandaag gisteren morgen heeft heb "
        "kun kan moet wil graag aan om"
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
# Weights of letters in a text of several scripts: names and terms stand in Latin letters in all
# languages, and a Chinese or Korean word has two letters.
SYLLABLES = frozenset({"CJK", "HIRAGANA", "KATAKANA", "HANGUL"})
_WORD = re.compile(r"[^\W\d_]+(?:'[^\W\d_]+)?")
_NAME = re.compile(r"[!-~]*[/_@#=:\\.\d][!-~]+|[!-~]+\d")  # URLs, paths, identifiers


def main_script(text: str) -> str:
    """The script of most letters, as names of characters begin: LATIN, CJK, CYRILLIC; "" for a
    text without letters."""
    scripts = _scripts(text)
    return scripts.most_common(1)[0][0] if scripts else ""


@lru_cache(128)  # a search asks several times
def foreign_language(text: str) -> str | None:
    """The language of a text, in words for people; None: English, or not to be told."""
    text = _NAME.sub(" ", text[:READ].lower()).replace("\u2019", "'")
    scripts = Counter() if text.isascii() else _scripts(text)
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


def most_meaning(text: str, model: str | None) -> float:
    """The most that a vector of `model` may count beside the words of a query, from 0 to 1."""
    if model is None or not model.startswith(ENGLISH_ONLY):
        return 1.0
    language = foreign_language(text)
    if language is None:
        return 1.0
    if language in TRANSLATIONS:
        return TRANSLATED_SHARE
    return FOREIGN_SHARE if language in COMMON else FOREIGN_SCRIPT_SHARE


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
    """The number of letters of each script, weighted."""
    scripts = Counter(map(_script, filter(str.isalpha, text[:READ])))
    for script in scripts.keys() - {"LATIN"}:
        scripts[script] *= 3 if script in SYLLABLES else 2
    return scripts


@lru_cache(4096)
def _script(letter: str) -> str:
    first, _, rest = unicodedata.name(letter, "").partition(" ")
    return rest.partition(" ")[0] if first == "FULLWIDTH" else first
