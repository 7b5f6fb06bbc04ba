from benchmarks.untold import catalog, untold

SHOP = {
    "openapi": "3.1.0",
    "info": {"title": "Shop", "version": "1"},
    "paths": {
        "/orders/{id}/notes": {
            "summary": "Notes.",
            "get": {
                "operationId": "notes/list",
                "summary": "What was jotted down",
                "parameters": [
                    {
                        "name": "id", "in": "path", "required": True, "description": "Which.",
                        "schema": {"properties": {"description": {"type": "string"}}},
                    }
                ],
            },
        }
    },
}  # fmt: skip


def test_texts_are_removed_and_properties_of_their_names_stay() -> None:
    parameter = untold(SHOP)["paths"]["/orders/{id}/notes"]["get"]["parameters"][0]
    assert "description" not in parameter
    assert "description" in parameter["schema"]["properties"]


def test_a_catalog_has_the_texts_that_an_import_gives() -> None:
    (told,), (silent,) = catalog(SHOP), catalog(untold(SHOP))
    assert told.id == silent.id == "notes/list"
    assert told.description.startswith("What was jotted down")
    assert silent.description.startswith("List notes of an order.")
