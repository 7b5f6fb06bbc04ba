import msgspec
import pytest

from registry.documents.containers import Bundle, unpack
from registry.sources.import_specs import ImportSpec
from registry.sources.openapi_documents import read_openapi
from schemas.errors import ImportRejected

SPEC = ImportSpec("x", "/x")
ROOT = b"{openapi: 3.1.0, paths: {/a: {$ref: a.yaml}}}"


def test_a_single_file_is_stored_unchanged():
    assert Bundle("api.yaml", {"api.yaml": ROOT}).pack("/x/api.yaml") == ROOT
    assert unpack(ROOT, "/x/api.yaml") == Bundle("/x/api.yaml", {"/x/api.yaml": ROOT})


@pytest.mark.parametrize(
    "bundle",
    [
        Bundle("api.yaml", {"api.yaml": ROOT, "a.yaml": b"get: {}"}),
        Bundle("api.yaml", {"api.yaml": ROOT}, unread={"a.yaml": "it does not exist"}),
        Bundle("api.yaml", {"api.yaml": ROOT}, overlay=b"{}", overlay_location="o.yaml"),
    ],
)
def test_more_than_one_file_is_packed_whole(bundle):
    assert unpack(bundle.pack("/x/api.yaml"), "elsewhere") == bundle


def test_the_only_file_of_a_directory_keeps_its_name():
    bundle = Bundle("api.yaml", {"api.yaml": ROOT})
    assert unpack(bundle.pack("/x"), "/x") == bundle


def test_the_order_of_the_files_changes_nothing():
    files = {"api.yaml": ROOT, "a.yaml": b"get: {}"}
    turned = dict(reversed(files.items()))
    assert Bundle("api.yaml", files).pack("/x/api.yaml") == Bundle("api.yaml", turned).pack(
        "/x/api.yaml"
    )


def test_an_overlay_and_a_missing_file_are_not_the_same_document():
    plain = Bundle("api.yaml", {"api.yaml": ROOT})
    overlaid = msgspec.structs.replace(plain, overlay=b"defaults: {enabled: true}")
    missing = msgspec.structs.replace(plain, unread={"a.yaml": "it does not exist"})
    assert len({one.pack("/x/api.yaml") for one in (plain, overlaid, missing)}) == 3


def test_a_bundle_is_read_without_its_files():
    overlay = b"operations: {GET /a: {name: shown, toolsets: [shop]}}"
    files = {"api.yaml": ROOT, "a.yaml": b"get: {operationId: one}\nput: {$ref: gone.yaml}"}
    bundle = Bundle("api.yaml", files, {"gone.yaml": "it was never there"}, overlay, "o.yaml")
    for _ in range(2):
        result = read_openapi(bundle.pack("/x/api.yaml"), "/x", SPEC, None)
        assert [draft.name for draft in result.drafts] == ["shown"]
        [skipped] = [o for o in result.outcomes if o.status == "skipped"]
        assert skipped.reason == "$ref 'gone.yaml' cannot be read: it was never there"


@pytest.mark.parametrize(
    ("overlay", "reason"),
    [
        (b"[]", "o.yaml holds a list; expected an overlay, an object with `operations`"),
        (b"{operations: {a: {}, a: {}}}", "o.yaml, line 1, column 26: the key 'a' stands twice"),
        (b"{rules: {}}", "o.yaml: the overlay: unknown key 'rules'"),
    ],
)
def test_an_overlay_that_is_wrong_names_itself(overlay, reason):
    bundle = Bundle("api.yaml", {"api.yaml": ROOT}, {}, overlay, "o.yaml")
    with pytest.raises(ImportRejected) as caught:
        read_openapi(bundle.pack("/x/api.yaml"), "/x", SPEC, None)
    assert str(caught.value).startswith(reason)


def test_a_bundle_of_a_newer_release_is_refused():
    packed = Bundle("api.yaml", {"api.yaml": ROOT}, {"a": "b"}).pack("/x/api.yaml")
    with pytest.raises(ImportRejected, match="/x was kept by a newer release"):
        read_openapi(packed[:-3], "/x", SPEC, None)
