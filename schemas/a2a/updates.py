"""Events of a task applied to it: what a client that has seen them all knows."""

from msgspec.structs import replace

from schemas.a2a.model import Artifact, Part, StreamResponse, Task, TaskArtifactUpdate


def apply_update(task: Task, event: StreamResponse) -> Task:
    """The task after an event of its stream. The message of a status moves to the history when the
    next one comes."""
    if event.task is not None:
        return event.task
    if (update := event.status_update) is not None:
        former = task.status.message
        history = task.history if former is None else (*task.history, former)
        return replace(task, status=update.status, history=history)
    if event.artifact_update is not None:
        return replace(task, artifacts=_add_artifact(task.artifacts, event.artifact_update))
    return task


def _add_artifact(
    artifacts: tuple[Artifact, ...], update: TaskArtifactUpdate
) -> tuple[Artifact, ...]:
    """The artifacts with one that is new, replaced, or longer by a chunk."""
    added = update.artifact
    ids = [artifact.artifact_id for artifact in artifacts]
    if added.artifact_id not in ids:
        return (*artifacts, added)
    place = ids.index(added.artifact_id)
    if update.append:
        former = artifacts[place]
        added = replace(former, parts=_join_texts(former.parts, added.parts))
    return (*artifacts[:place], added, *artifacts[place + 1 :])


def _join_texts(parts: tuple[Part, ...], more: tuple[Part, ...]) -> tuple[Part, ...]:
    """Parts and those of the next chunk; a text that goes on stays one part."""
    last, first = parts[-1:], more[:1]
    texts = [part.text for part in (*last, *first)]
    if (
        len(texts) == 2
        and all(isinstance(text, str) for text in texts)
        and [Part(text=text) for text in texts] == [*last, *first]
    ):
        return (*parts[:-1], Part(text="".join(map(str, texts))), *more[1:])
    return (*parts, *more)
