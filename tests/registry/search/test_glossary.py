"""Queries in other languages, in English words of the glossary."""

from importlib.resources import files

import pytest

from registry.database.postgres import Database
from registry.search import Filters, Search, SearchQuery
from registry.search.glossary import english_words
from registry.search.languages import TRANSLATIONS, foreign_language
from registry.sources.tool_store import ToolStore
from tests.fixtures_database import HOST
from tests.registry.search.finding import SETTINGS
from tests.registry.search.meaning import save_tools


@pytest.mark.parametrize(
    ("text", "english"),
    [
        ("Bitte die letzte Rechnung in Stripe stornieren", "last invoice Stripe cancel"),
        ("Ändere die Rechnungsadresse unseres Kunden", "change invoice address unseres customer"),
        ("给我列出最近的订单", "list last order"),
        ("今日の東京の天気は", "today weather"),
        ("Crea un nuovo progetto GitLab", "create new project GitLab"),
        ("покажи последние ошибки в логах", "show last error log"),
        ("أرسل رسالة إلى الفريق", "send message team"),
        ("이 파일을 삭제해줘", "file delete"),
        ("créez un dossier pour les factures", "create folder invoice"),
        ("muéstrame los archivos de /srv/data", "show file srv/data"),
        ("apague todas as notas antigas do projeto já", "delete all note old project"),
    ],
)
def test_words_are_translated_and_names_kept(text: str, english: str) -> None:
    """Other forms of a word, compounds and languages without spaces are found (43, item 3)."""
    assert " ".join(english_words(text, foreign_language(text))) == english


@pytest.mark.parametrize(
    "text", ["", "xqzv wqrt ßü", "GitLab", "a" * 100_000, "\u200b", "的" * 5000]
)
def test_nothing_is_made_of_unknown_words(text: str) -> None:
    """Neither words that the glossary does not have nor hostile texts become English ones."""
    for language in (*TRANSLATIONS, "Dutch", "Greek", None):
        assert english_words(text, language) == []


def test_each_line_of_the_glossary_is_whole() -> None:
    """A line is English words and a column for each language, in lower case and without marks."""
    lines = files("registry.search").joinpath("glossary.txt").read_text("utf-8").splitlines()
    meanings = [line.split("|")[0] for line in lines]
    assert len(set(meanings)) == len(meanings) > 1000
    for line in lines:
        assert line.count("|") == len(TRANSLATIONS), line
        assert line == line.lower(), line
        assert not set("_-'").intersection(line), line


@pytest.mark.anyio
async def test_a_query_finds_tools_described_in_english_and_in_its_own_language(
    store: ToolStore, database: Database
) -> None:
    """The words of the query count beside their translations."""
    tools = {
        "invoices_cancel": "Cancels an invoice.",
        "rechnung_suchen": "Sucht eine Rechnung.",
        "weather_today": "The weather of a city today.",
    }
    await save_tools(store, database, tools)
    search = Search(lambda: database.pool, lambda _: None, SETTINGS)
    for text, names in (
        ("Welche Rechnung soll ich stornieren?", ["invoices_cancel", "rechnung_suchen"]),
        ("今天天气怎么样", ["weather_today"]),
    ):
        result = await search.run(SearchQuery(text, 5, "lexical", Filters(HOST)))
        assert [hit.name for hit in result.hits] == names
