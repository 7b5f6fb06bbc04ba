"""Validators: the dialect that a schema names, and what of it is never fetched."""

from typing import Any

import pytest

from schemas.json_schema.validators import (
    check_by_metaschema,
    compile_validator,
    compiled_as_2020,
    unknown_dialect,
)

DRAFTS = ("draft-04", "draft-06", "draft-07", "draft/2019-09", "draft/2020-12")
URLS = [
    f"{scheme}://json-schema.org/{draft}/schema{end}"
    for draft in DRAFTS
    for scheme in ("http", "https")
    for end in ("", "#")
]


@pytest.mark.parametrize("url", URLS)
def test_a_dialect_that_is_built_in_counts(url: str) -> None:
    bounded = {"$schema": url, "exclusiveMinimum": True, "minimum": 1}
    if "draft-04" in url:
        check_by_metaschema(bounded)
        assert not compile_validator(bounded).is_valid(1)
    else:
        with pytest.raises(ValueError, match="is not of type"):
            check_by_metaschema(bounded)
        with pytest.raises(ValueError, match="is not of type"):
            compile_validator(bounded)
    assert unknown_dialect(bounded) is None


@pytest.mark.parametrize(
    "url", ["http://127.0.0.1:1/x", "urn:of:tomorrow", "no URI %%", "", "#", "file:///etc/passwd"]
)
def test_a_dialect_that_is_not_known_is_read_as_2020_12(url: str) -> None:
    schema = {"$schema": url, "prefixItems": [{"type": "integer"}]}
    assert unknown_dialect(schema) == url
    check_by_metaschema(schema)
    for made in (compile_validator(schema), compiled_as_2020(schema)):
        assert made.is_valid([1])
        assert not made.is_valid(["1"])


def test_the_dialect_of_openapi_is_2020_12() -> None:
    schema = {"$schema": "https://spec.openapis.org/oas/3.1/dialect/base", "type": "object"}
    assert unknown_dialect(schema) is None
    assert compile_validator(schema).is_valid({})


@pytest.mark.parametrize(
    "schema",
    [
        {"$ref": "http://127.0.0.1:1/x"},
        {"$id": "http://127.0.0.1:1/x/", "properties": {"a": {"$ref": "y"}}},
        {"$ref": "file:///etc/passwd"},
        {"$ref": "#/nowhere"},
        {"$ref": "no URI %%"},
        {"$dynamicRef": "http://127.0.0.1:1/x#a"},
    ],
)
def test_a_reference_that_leads_out_of_a_schema_is_an_error(schema: dict[str, Any]) -> None:
    check_by_metaschema(schema)
    for make in (compile_validator, compiled_as_2020):
        with pytest.raises(ValueError, match=r"not present|does not exist|Invalid URI"):
            make(schema)


def test_a_metaschema_may_be_referred_to() -> None:
    schema = {"$ref": "https://json-schema.org/draft/2020-12/schema"}
    assert not compile_validator(schema).is_valid({"type": "everything"})
