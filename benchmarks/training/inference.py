"""Inference with an exported model, without PyTorch."""

from pathlib import Path

import numpy as np
import onnxruntime as ort
from numpy.typing import NDArray
from tokenizers import Tokenizer

TOOL_TOKENS = 64  # of a tool's text; this and the next with [CLS] and [SEP]
QUERY_TOKENS = 128
WIDTH = 384
BATCH = 16  # texts; larger batches only pad more (measured)


def load_tokenizer(path: Path, max_tokens: int) -> Tokenizer:
    tokenizer = Tokenizer.from_file(str(path))
    tokenizer.enable_truncation(max_tokens)
    tokenizer.enable_padding()
    return tokenizer


def session(path: Path, threads: int = 2) -> ort.InferenceSession:
    options = ort.SessionOptions()
    options.intra_op_num_threads = threads
    return ort.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])


def embed(
    model: ort.InferenceSession, tokenizer: Tokenizer, texts: list[str]
) -> NDArray[np.float32]:
    """Vectors in the order of `texts`, shape (texts, 384); encoded in order of length."""
    encoded = tokenizer.encode_batch(texts)
    sizes = [sum(encoding.attention_mask) for encoding in encoded]
    order = np.argsort(sizes, kind="stable")
    vectors = np.empty((len(texts), WIDTH), np.float32)
    for start in range(0, len(texts), BATCH):
        at = order[start : start + BATCH]
        width = max(sizes[i] for i in at)
        vectors[at] = model.run(
            None,
            {
                "input_ids": np.array([encoded[i].ids[:width] for i in at], np.int64),
                "attention_mask": np.array(
                    [encoded[i].attention_mask[:width] for i in at], np.int64
                ),
            },
        )[0]
    return vectors
