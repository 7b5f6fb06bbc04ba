import gzip
import json
import zipfile

import pytest

from benchmarks.training.operations import request, variant
from benchmarks.training.services import service_operations, service_pairs
from benchmarks.training.sets import BadTrainingSet, seeded, tool_text

DRIVE = {
    "name": "drive",
    "title": "Drive API",
    "schemas": {"File": {"properties": {"title": {}, "kind": {"enum": ["FOLDER", "TEXT"]}}}},
    "resources": {
        "files": {
            "methods": {
                "cancel": {
                    "id": "drive.files.cancel",
                    "httpMethod": "POST",
                    "flatPath": "files/{fileId}:cancel",
                    "description": "Cancels an upload.  It can <b>not</b> be resumed after that.",
                    "parameters": {"fileId": {"type": "string"}},
                    "request": {"$ref": "File"},
                }
            },
            "resources": {
                "comments": {"methods": {"list": {"id": "drive.files.comments.list",
                    "httpMethod": "GET", "path": "files/{fileId}/comments"}}},
            },
        },
        "comments": {"methods": {"list": {"id": "drive.comments.list", "httpMethod": "GET",
            "path": "comments"}}},
    },
}  # fmt: skip
QUEUES = {
    "metadata": {"serviceId": "SQS", "uid": "sqs"},
    "operations": {
        "PurgeQueue": {
            "http": {"method": "POST", "requestUri": "/"},
            "input": {"shape": "PurgeQueueRequest"},
            "documentation": "<p>Deletes the messages in a queue.</p>",
        }
    },
    "shapes": {
        "PurgeQueueRequest": {"members": {"QueueUrl": {"shape": "Url"}, "Mode": {"shape": "Mode"}}},
        "Url": {"type": "string"},
        "Mode": {"enum": ["fast", "slow"]},
    },
}


@pytest.fixture
def wheel(tmp_path):
    path = tmp_path / "clients-1-py3-none-any.whl"
    with zipfile.ZipFile(path, "w") as opened:
        folder = "googleapiclient/discovery_cache/documents"
        old = {**DRIVE, "resources": {}}
        opened.writestr(f"{folder}/drive.v3.json", json.dumps(DRIVE))
        opened.writestr(f"{folder}/drive.v2.json", json.dumps(old))
        opened.writestr(f"{folder}/drive.v4beta.json", json.dumps(old))
        data = gzip.compress(json.dumps(QUEUES).encode())
        opened.writestr("botocore/data/sqs/2012-11-05/service-2.json.gz", data)
    return path


def test_the_newest_stable_version_of_each_service_is_read(wheel):
    found = service_operations(wheel)
    assert {name: [one.name for one in several] for name, several in found.items()} == {
        "drive": ["files.cancel", "files.comments.list"],
        "sqs": ["PurgeQueue"],
    }


def test_operations_have_the_parameters_of_their_bodies_with_values(wheel):
    found = service_operations(wheel)
    cancel, purge = found["drive"][0], found["sqs"][0]
    assert [one.name for one in cancel.parameters] == ["fileId", "title", "kind"]
    assert cancel.parameters[2].values == ("FOLDER", "TEXT")
    assert cancel.description == "Cancels an upload. It can not be resumed after that."
    assert [(one.name, one.values) for one in purge.parameters] == [
        ("QueueUrl", ()),
        ("Mode", ("fast", "slow")),
    ]


def test_requests_are_commands_made_of_names_where_paths_say_nothing(wheel):
    purge = service_operations(wheel)["sqs"][0]
    chance = seeded(1)
    asked = {request(purge, chance).lower() for _ in range(200)}
    assert any("purge queue" in one for one in asked)
    assert any("remove the messages in a queue" in one for one in asked)
    assert not any("deletes" in one for one in asked)


def test_a_tool_whose_path_says_nothing_keeps_its_name(wheel):
    purge = service_operations(wheel)["sqs"][0]
    chance = seeded(1)
    assert all("purge queue" in tool_text(variant(purge, chance)) for _ in range(50))


def test_pairs_of_a_service_are_negatives_of_each_other(wheel):
    pairs = service_pairs(wheel, 7)
    assert {one.group for one in pairs} == {"drive", "sqs"}
    assert all(one.distinct for one in pairs)
    assert {one.tool.id for one in pairs if one.group == "drive"} == {
        "Drive API post /files/{fileId}:cancel",
        "Drive API get /files/{fileId}/comments",
    }


@pytest.mark.parametrize("content", [b"no zip", None])
def test_invalid_service_wheels_are_refused_by_name(tmp_path, content):
    path = tmp_path / "other.whl"
    if content is None:
        with zipfile.ZipFile(path, "w") as opened:
            opened.writestr("a/b.json", "{}")
    else:
        path.write_bytes(content)
    with pytest.raises(BadTrainingSet, match=r"other\.whl"):
        service_operations(path)
