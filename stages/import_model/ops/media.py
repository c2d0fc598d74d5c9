"""Inputs that are not yet numbers: encoded images and token ids."""

import io
from collections.abc import Sequence
from itertools import pairwise

import numpy as np
import torch
from PIL import Image
from torch import Tensor

from ltp_pipeline.stages.import_model.ops.common import check_sizes
from ltp_pipeline.stages.import_model.registry import op


@op("ImageDecoder", constants=(0,))
def image_decoder(encoded_stream: Tensor, *, pixel_format: str = "RGB") -> Tensor:
    is_gray = pixel_format == "Grayscale"
    content = encoded_stream.cpu().numpy().tobytes()
    with Image.open(io.BytesIO(content)) as image:
        check_sizes([image.height, image.width, 3])
        pixels = np.array(image.convert("L" if is_gray else "RGB"))
    decoded = torch.from_numpy(pixels)
    if is_gray:
        return decoded.unsqueeze(-1)
    return decoded.flip(-1) if pixel_format == "BGR" else decoded


@op("TfIdfVectorizer", constants=(0,))
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
    y = torch.zeros(len(rows), width, device=x.device)
    starts = [*ngram_counts, len(pool_int64s)]
    unused_indexes = list(ngram_indexes)  # in the order of the pool
    for length, (start, end) in enumerate(pairwise(starts), start=1):
        pool = x.new_tensor(pool_int64s[start:end]).reshape(-1, length)
        columns = torch.tensor(unused_indexes[: len(pool)], device=x.device)
        del unused_indexes[: len(pool)]
        if not min_gram_length <= length <= max_gram_length or not len(pool):
            continue
        # Skips do not matter to single items: they are counted once.
        for skip in range(1, 2 if length == 1 else max_skip_count + 2):
            reach = (length - 1) * skip + 1
            if reach > rows.shape[1]:
                break
            grams = rows.unfold(1, reach, 1)[..., ::skip]
            hits = (grams.unsqueeze(2) == pool).all(-1).sum(1)
            y.index_add_(1, columns, hits.to(y.dtype))
    if mode == "IDF":
        y = (y > 0).to(y.dtype)
    if mode != "TF" and weights:
        y = y * torch.tensor(weights, device=x.device)
    return y.reshape(-1) if x.dim() < 2 else y
