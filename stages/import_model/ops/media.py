"""Inputs that are not yet numbers: encoded images and token ids."""

import io
from collections.abc import Sequence

import numpy as np
import torch
from PIL import Image
from torch import Tensor

from ltp_pipeline.stages.import_model.ops.common import check_sizes
from ltp_pipeline.stages.import_model.registry import op


@op("ImageDecoder", since=20, constants=(0,))
def image_decoder(encoded_stream: Tensor, *, pixel_format: str = "RGB") -> Tensor:
    with Image.open(io.BytesIO(encoded_stream.cpu().numpy().tobytes())) as image:
        check_sizes([image.height, image.width, 3])
        pixels = np.array(image.convert("L" if pixel_format == "Grayscale" else "RGB"))
    decoded = torch.from_numpy(pixels)
    if pixel_format == "Grayscale":
        return decoded.unsqueeze(-1)
    return decoded.flip(-1) if pixel_format == "BGR" else decoded


@op("TfIdfVectorizer", since=9, constants=(0,))
def tf_idf_vectorizer(
    x: Tensor,
    *,
    max_gram_length: int,
    max_skip_count: int,
    min_gram_length: int,
    mode: str,
    ngram_counts: Sequence[int],
    ngram_indexes: Sequence[int],
    pool_int64s: Sequence[int] | None = None,
    pool_strings: Sequence[str] | None = None,
    weights: Sequence[float] | None = None,
) -> Tensor:
    if pool_int64s is None or pool_strings:
        raise ValueError("strings are not supported")
    rows = x.reshape(1, -1) if x.dim() < 2 else x
    (width,) = check_sizes([max(ngram_indexes) + 1])
    counts = torch.zeros(len(rows), width, device=x.device)
    number = 0  # of the n-gram, in the order of the pool
    for length, start in enumerate(ngram_counts, start=1):
        end = ngram_counts[length] if length < len(ngram_counts) else len(pool_int64s)
        pool = torch.tensor(pool_int64s[start:end], dtype=x.dtype, device=x.device).reshape(
            -1, length
        )
        columns = torch.tensor(ngram_indexes[number : number + len(pool)], device=x.device)
        number += len(pool)
        if not min_gram_length <= length <= max_gram_length or not len(pool):
            continue
        # Skips do not matter to single items: they are counted once.
        for skip in range(1, 2 if length == 1 else max_skip_count + 2):
            if (length - 1) * skip >= rows.shape[1]:
                break
            grams = rows.unfold(1, (length - 1) * skip + 1, 1)[..., ::skip]
            hits = (grams.unsqueeze(2) == pool).all(-1).sum(1)
            counts.index_add_(1, columns, hits.to(counts.dtype))
    factor = torch.tensor(weights if weights else [1.0] * width, device=x.device)
    if mode == "IDF":
        counts = (counts > 0).to(counts.dtype)
    result = counts if mode == "TF" else counts * factor
    return result.reshape(-1) if x.dim() < 2 else result
