"""Labels tell models apart whose vectors cannot be compared."""

import shutil
from pathlib import Path

from registry.embedding.target_models import LONGEST, by_name, directory, label, nameless


def model(folder: Path, weights: bytes = b"w" * 200_000) -> Path:
    (folder / "pooling").mkdir(parents=True)
    (folder / "weights").write_bytes(weights)
    (folder / "pooling" / "config.json").write_text("{}")
    return folder


def test_a_name_is_read_in_a_label_and_back() -> None:
    assert label("openai-compatible", "small-3") == "openai-compatible/small-3"
    assert by_name(label("sentence-transformers", "acme/bge")) == (
        "sentence-transformers",
        "acme/bge",
    )


def test_long_names_are_cut_and_stay_distinct() -> None:
    labels = {label("local-http", "m" * 300 + end) for end in "ab"}
    assert len(labels) == 2
    assert {len(one) for one in labels} == {LONGEST}
    assert {by_name(one) for one in labels} == {("local-http", "")}


def test_a_nameless_service_has_a_label_of_its_hidden_address() -> None:
    one, other = (nameless("local-http", f"http://{host}.example/") for host in ("one", "other"))
    assert one != other
    assert "one" not in one
    assert by_name(one) == ("local-http", "")


def test_a_directory_is_labelled_by_its_files_in_any_place(tmp_path: Path) -> None:
    first = directory("sentence-transformers", model(tmp_path / "here" / "bge"))
    shutil.copytree(tmp_path / "here", tmp_path / "there")
    assert directory("sentence-transformers", tmp_path / "there" / "bge") == first
    assert first.startswith("sentence-transformers/bge@")
    assert by_name(first) == ("sentence-transformers", "")


def test_a_directory_with_other_files_is_another_model(tmp_path: Path) -> None:
    folder = model(tmp_path / "bge")
    labels = {directory("s", folder)}
    (folder / "weights").write_bytes(b"w" * 199_999 + b"x")  # trained again
    labels.add(directory("s", folder))
    (folder / "weights").rename(folder / "pooling" / "weights")
    labels.add(directory("s", folder))
    (folder / "more").touch()
    labels.add(directory("s", folder))
    assert len(labels) == 4


def test_the_label_of_a_directory_with_a_long_name_is_not_too_long(tmp_path: Path) -> None:
    assert len(directory("sentence-transformers", model(tmp_path / ("m" * 200)))) == LONGEST
