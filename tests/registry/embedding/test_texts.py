"""What a model reads."""

import re
import string

import pytest
from hypothesis import given
from hypothesis import strategies as st

from registry.database.postgres import Database
from registry.embedding.texts import (
    ToolFields,
    identifier_words,
    query_text,
    readable,
    sentences,
    skill_text,
    tool_text,
)

HOSTILE = {
    "empty": "",
    "blank": " \t\n ",
    "binary": bytes(range(256)).decode("latin-1") * 400,
    "long word": "x" * 100_000,
    "long words": "many words " * 10_000,
    "short sentences": "a. b? c! " * 12_000,
    "line breaks": "\n" * 100_000,
    "bullets": "- one two three\n" * 6_000,
    "emoji": "🐙🏳️‍🌈👩‍👩‍👧 " * 3_000,
    "surrogates": "\ud800 \udfff" * 1_000,
    "unspaced": "明日の天気を教えて。" * 10_000,
    "right to left": "ابحث عن الفواتير المفتوحة؟ " * 3_000,
    "brackets": "[" * 50_000 + "](" * 50_000,
    "tags": "<p " * 30_000,
    "combining": "e\u0301" * 50_000,
}
hostile = pytest.mark.parametrize("text", HOSTILE.values(), ids=HOSTILE.keys())
words = st.lists(st.text(string.ascii_letters, min_size=1, max_size=12), max_size=300)
anything = st.text(max_size=400) | st.text(st.characters(codec=None), max_size=100)


def test_a_tool_is_described_by_source_tags_name_description_and_parameters() -> None:
    fields = ToolFields(
        name="issues_listForRepo",
        description="Lists  issues\nof a repository.",
        source="git-hub",
        tags=("issues", "dev_tools"),
        parameters=("repoName", "per_page"),
    )
    assert tool_text(fields) == (
        "git hub issues, dev tools: issues list for repo. Lists issues of a repository."
        " repo name, per page"
    )


@pytest.mark.parametrize(
    ("fields", "text"),
    [
        (ToolFields("getPet"), "get pet."),
        (ToolFields("x1", title="Find a pet"), "find a pet."),
        (ToolFields("x", domain="billing", namespace="acme.pay"), "billing, acme pay: x."),
        (ToolFields("x", keywords=("invoice",), tags=("pay",)), "pay, invoice: x."),
        (ToolFields("x", endpoint="GET /pets/{petId}"), "x. get pets pet id"),
        (ToolFields("x", description="It is.", endpoint="GET /a"), "x. It is."),
        (ToolFields("x", source="up"), "up: x."),
        (ToolFields("hacker-news_search", source="hacker_news"), "hacker news: search."),
        (ToolFields("hacker", source="hacker"), "hacker: hacker."),
        (ToolFields("hackers_list", source="hacker"), "hacker: hackers list."),
        (ToolFields("x", parameters=("a", "", "b")), "x. a, b"),
        (ToolFields(""), ""),
    ],
)
def test_absent_fields_of_a_tool_leave_no_trace(fields: ToolFields, text: str) -> None:
    assert tool_text(fields) == text


def test_long_parts_leave_room_for_other_parts_and_end_with_a_word() -> None:
    fields = ToolFields(
        name="n",
        description="described " * 100,
        tags=["tag"] * 1000,
        parameters=[f"p{number}x" for number in range(100)],
    )
    text = tool_text(fields)
    before, _, after = text.partition(": n. ")
    assert len(before) <= 120
    assert before.endswith("tag")
    assert re.sub(r"(described )+", "", after) == ", ".join(f"p{number}x" for number in range(12))
    assert 200 < after.count("described") * len("described ") <= 241


@pytest.mark.parametrize(
    ("description", "said"),
    [
        ("See [the **guide**](https://a.b/c?d=e#f) first", "See the guide first"),
        ("<p>Delete a <code>domain</code>.</p><br/>", "Delete a domain ."),
        ("# Usage\n```sh\nrun it\n```", "Usage sh run it"),
        ("![image](a.png) of <owner>/<repo>, in C# or List<String>",
         "image of <owner>/<repo>, in C# or List<String>"),
        ("an [array] (of them) and a[0](1)", "an [array] (of them) and a0"),
        ("2 < 3 and 4 > 1", "2 < 3 and 4 > 1"),
    ],
)  # fmt: skip
def test_markup_takes_no_room(description: str, said: str) -> None:
    assert tool_text(ToolFields("n", description=description)) == f"n. {said}"


@hostile
def test_a_hostile_tool_has_a_short_text(text: str) -> None:
    many = [text[:1000]] * 100
    found = tool_text(ToolFields(text, text, text, text, text, text, text, many, many, many))
    assert len(found) <= 1500
    found.encode()  # nothing that could not be sent


@given(anything, anything, st.lists(anything, max_size=3))
def test_any_tool_has_a_text(name: str, description: str, parameters: list[str]) -> None:
    text = tool_text(ToolFields(name, description=description, parameters=parameters))
    assert text == " ".join(text.split())
    assert set(identifier_words(name).split()) <= set(text.replace(".", " ").split())


@given(words)
def test_no_word_of_a_short_description_is_lost(spoken: list[str]) -> None:
    description = " ".join(spoken)
    text = tool_text(ToolFields("n", description=description))
    kept = text.removeprefix("n.").split()
    assert kept == spoken[: len(kept)]
    assert kept == spoken or len(" ".join(spoken[: len(kept) + 1])) > 240


def test_a_skill_is_described_by_its_name_description_and_beginning() -> None:
    text = skill_text("release-notes", "Writes release notes.", "# Steps\n\n1. List the pulls.")
    assert text == "release notes. Writes release notes. Steps 1. List the pulls."
    assert len(skill_text("a", "b " * 600, "c " * 10_000)) <= 250


@pytest.mark.parametrize(
    ("identifier", "words"),
    [
        ("repos_list-forUser", "repos list for user"),
        ("getHTTPStatus", "get http status"),
        ("v2.users/byID", "v2 users by id"),
        ("ABC", "abc"),
        ("S3Bucket", "s3 bucket"),
        ("straßeÄndern", "straße ändern"),
        ("明日", "明日"),
        ("--", ""),
    ],
)
def test_identifiers_are_split_into_words(identifier: str, words: str) -> None:
    assert identifier_words(identifier) == words


@pytest.mark.anyio
async def test_identifiers_are_split_as_in_the_database(database: Database) -> None:
    names = [
        *("repos_list-forUser", "getHTTPStatusCode", "aB", "ABc", "aBCdEF", "x2Y", "X2y", "2X"),
        *(
            "users/{userId}:batchGet",
            "__init__",
            " a  b ",
            "straßeÄndern",
            "ЧитатьФайл",
            "HTTPSURL",
        ),
    ]
    async with database.pool.connection() as connection:
        rows = await connection.execute(
            "SELECT identifier_words(x) FROM unnest(%s::text[]) x", [names]
        )
        assert [words for (words,) in await rows.fetchall()] == list(map(identifier_words, names))


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ("Find open issues", []),
        ("Find open issues.", []),
        ("Find open issues. Close the oldest one", ["Find open issues.", "Close the oldest one"]),
        ("Who is there? Tell me now!", ["Who is there?", "Tell me now!"]),
        ("find it for me; mail it to Bob", ["find it for me;", "mail it to Bob"]),
        ("find it for me\nmail it to Bob", ["find it for me", "mail it to Bob"]),
        ("- find it for me\n- mail it to Bob", ["find it for me", "mail it to Bob"]),
        ("1. find it for me\n2) mail it to Bob", ["find it for me", "mail it to Bob"]),
        ("• find it for me\r\n• mail it to Bob", ["find it for me", "mail it to Bob"]),
        ("Install v1.2 of it. Then start it up", ["Install v1.2 of it.", "Then start it up"]),
        ("Use a tool, e.g. the big one. And so on", ["Use a tool, e.g. the big one.", "And so on"]),
        ("Get https://a.b/c;d?e=f. now please. Read it to me",
         ["Get https://a.b/c;d?e=f. now please.", "Read it to me"]),
        ("Thanks. Now find open issues. And close the oldest",
         ["Thanks. Now find open issues.", "And close the oldest"]),
        ("Find open issues. Thanks", []),
        ("明日の天気を教えて。会議を予約して。", ["明日の天気を教えて。", "会議を予約して。"]),
        ("今天天气\uff1f请帮我订票\uff01走吧", ["今天天气\uff1f", "请帮我订票\uff01 走吧"]),
    ],
)  # fmt: skip
def test_a_query_is_split_into_its_sentences(query: str, expected: list[str]) -> None:
    assert sentences(query) == expected


def test_too_many_sentences_stand_together() -> None:
    query = " ".join(f"Do the thing number {number}." for number in range(11))
    found = sentences(query, 4)
    assert len(found) == 4
    assert " ".join(found) == query
    assert sentences(query, 1) == []


@hostile
def test_hostile_queries_are_split_within_bounds(text: str) -> None:
    found = sentences(text, 5)
    assert len(found) <= 5
    "".join(found).encode()


@given(
    st.lists(st.sampled_from(["find", "it", "now.", "e.g.", "v1.2", "please;", "\n", "- ", "?"]))
)
def test_no_word_of_a_query_is_lost(parts: list[str]) -> None:
    query = " ".join(parts)
    spoken = re.findall(r"[a-z]\S*", query)
    found = sentences(query, 3)
    assert found == [] or re.findall(r"[a-z]\S*", " ".join(found)) == spoken


@given(anything, st.integers(1, 9))
def test_any_query_is_split(query: str, most: int) -> None:
    found = sentences(query, most)
    assert len(found) <= most
    assert len(found) != 1
    assert all(part == part.strip() and part for part in found)


def test_lone_surrogates_become_question_marks() -> None:
    assert readable("a\ud800b") == "a?b"
    assert readable("añ🐙") == "añ🐙"
    assert readable("abc", 2) == "ab"


@pytest.mark.parametrize(
    ("query", "read"),
    [
        ("createIssue", "create issue"),
        (
            "please call createCoreV1NamespacedEvent.",
            "please call create core v1 namespaced event.",
        ),
        ("listIAMRoles or DeleteUserGroup", "list iam roles or delete user group"),
        ("an issue on GitHub by PayPal, with an iPhone", None),
        ("create_issue and USB and McDonald", None),
        ("a" * 2000, None),
        ("aB" * 1000, None),
        ("", None),
    ],
)
def test_names_in_a_query_are_read_as_words(query: str, read: str | None) -> None:
    assert query_text(query) == (query if read is None else read)
