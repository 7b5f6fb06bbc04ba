"""Forms that a person can fill: words, examples, groups and choices of their members (issue 42)."""

import html
import re
from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

from config.access import Rule
from config.settings import Settings
from gateway.admin.resource_views import VIEWS
from gateway.cli.operations import declared_operations
from gateway.console.forms import Form, FormField, add_texts, walk
from gateway.console.pages.operation_buttons import TITLES
from gateway.console.texts import translations
from gateway.operations.member_texts import NAME_TEXTS, MemberText
from gateway.operations.operation import Operation
from tests import polling
from tests.gateway.console.visiting import console

pytestmark = pytest.mark.anyio
WINGS = ("agent", "memory", "events", "knowledge", "librarian", "code", "a2a", "notifications")
OF_LOGIN = (  # which this gateway has not
    "gateway.admin.resources.login_users:LoginUserOperations",
    "gateway.admin.resources.logins:LoginOperations",
    "gateway.admin.resources.connections:ConnectionOperations",
)
LABEL = r'<label for="f[^>]*>([^<]*)<'
WRITTEN = {"text", "area", "number", "lines", "json"}  # kinds of fields that are typed


def form_fields(operation: Operation) -> list[FormField]:
    fields = Form(msgspec.json.schema(operation.body)).fields({}) if operation.body else ()
    return list(walk(add_texts(fields, operation.members)))


def find_missing_words(operation: Operation) -> list[str]:
    """What a person would miss in a form."""
    lacks = [f"{name}: no words" for name in operation.names if operation.text_of(name) is None]
    chinese = translations("zh")
    for field in form_fields(operation):
        if field.kind == "fixed" or not field.label:
            continue
        if not field.help:
            lacks.append(f"{field.pointer}: no help")
        if field.kind in WRITTEN and not field.example:
            lacks.append(f"{field.pointer}: no example")
        lacks += [
            f"{text!r} is not in Chinese"
            for text in (field.title, field.help)
            if text not in chinese
        ]
    return lacks


def find_unused_words(operation: Operation) -> set[str]:
    """Words about members that the form does not have."""
    pointers = {field.pointer.removeprefix("/") for field in form_fields(operation)}
    return set(operation.members) - pointers - set(operation.names)


async def test_every_member_of_a_form_has_words_an_example_and_a_translation(
    settings: Settings,
) -> None:
    on = {name: replace(getattr(settings, name), enabled=True) for name in (*WINGS, "backups")}
    on["backups"] = replace(on["backups"], to="/nowhere/backups")
    research = replace(settings.librarian.research, enabled=True)
    on["librarian"] = replace(on["librarian"], research=research)
    rules = {"reads": Rule("deny", roles=("intern",), tools=("get*",))}
    policy = replace(settings.policy, rules=rules)
    async with console(settings, policy=policy, **on) as (client, browser):
        made: Any = client.gateway.console

        async def is_open() -> bool:
            return set(WINGS) <= set(made._parts.offers)

        await polling.until(is_open)
        offers = made._parts.offers.values()
        pages = [*VIEWS.values(), *(page for offer in offers for page in offer.pages)]
        linked = {id_ for page in pages for id_ in (*page.acts, *page.adds)}
        linked |= {*TITLES, "importSource"}
        operations = {
            operation.id: operation
            for operation in (
                *made._parts.api.operations.by_id.values(),
                *declared_operations(OF_LOGIN).values(),
                *(operation for offer in offers for operation in offer.operations),
            )
            if operation.id in linked and operation.method != "GET"
        }
        assert linked - operations.keys() == set()
        assert len(operations) > 50
        lacks = {id_: find_missing_words(operation) for id_, operation in operations.items()}
        assert not {id_: texts for id_, texts in lacks.items() if texts}
        importing = {"importSource", "editTool"}  # members of one alternative, of one kind
        left = {
            id_: find_unused_words(row) for id_, row in operations.items() if id_ not in importing
        }
        assert not {id_: names for id_, names in left.items() if names}

        _, text = await browser.get("do/putRule")
        labels = [
            html.unescape(label) for label in re.findall(r'<label for="f[^>]*>([^<]*)<', text)
        ]
        assert labels[:4] == ["Name of the rule", "Effect", "Tools", "Sources"]
        assert 'placeholder="delete*"' in text
        assert text.index("Often used") < text.index(">Roles") < text.index("Rarely used")
        assert '<details class="more"><summary>' in text
        status, options = await browser.get("choices/tools?%2Ftools=LISTP")
        assert (status, "createPet" in options) == (200, False)
        _, options = await browser.get("choices/roles?x=")
        assert 'value="intern"' in options
        _, options = await browser.get("choices/scopes?x=audit")
        assert 'value="admin:audit:read"' in options
        assert (await browser.get("choices/nothing"))[0] == 404


def test_words_of_names_have_translations() -> None:
    chinese = translations("zh")
    texts = [text for text in NAME_TEXTS.values() if isinstance(text, MemberText)]
    assert not {word for text in texts for word in (text.title, text.help)} - chinese.keys()
