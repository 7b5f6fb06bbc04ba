"""Forms of real APIs: nearly all are drawn, and all are bounded."""

import asyncio
from pathlib import Path

import pytest

from config.load import load
from gateway.console.forms import FIELDS, Form, example, walk
from registry.sources.import_specs import ImportSpec
from registry.sources.imports import preview

APIS = Path(__file__).resolve().parents[4] / "shared" / "data" / "openapi"
pytestmark = pytest.mark.skipif(not APIS.is_dir(), reason=f"there are no descriptions in {APIS}")


@pytest.mark.parametrize(("name", "share"), [("github-3.0", 0.99), ("stripe-3.0", 0.94)])
def test_the_tools_of_a_large_api_have_forms(name: str, share: float) -> None:
    spec = ImportSpec("api", str(APIS / f"{name}.json"))
    drafts = asyncio.run(preview(spec, load(None, {}).imports)).drafts
    forms = [Form(draft.input_schema) for draft in drafts]
    assert sum(form.is_drawn for form in forms) >= share * len(forms)
    for draft, form in zip(drafts, forms, strict=True):
        assert len(list(walk(form.fields({})))) <= FIELDS
        assert isinstance(example(draft.input_schema), dict)
