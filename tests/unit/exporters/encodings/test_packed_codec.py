"""Codes of packed files."""

import doctest
from functools import partial

import numpy as np

from ltp_pipeline.exporters.encodings import packed_codec
from tests.support.encoded import encode_as, model_and_kernels, two_convs, verify_as
from tests.support.models import sparse_array

encode, verify = partial(encode_as, "packed"), partial(verify_as, "packed")


def test_encode_chooses_kind_by_density():
    chosen = {}
    for density in (0.001, 0.02, 0.05, 0.1, 0.2, 0.3, 0.6, 0.9):
        model, kernels = model_and_kernels(density, shape=(256, 64, 3, 3))
        encoded = encode(model, {"a.weight": 0})
        codes = [
            t.name.split("/")[-1] for t in encoded.graph.initializer if t.name.startswith("ltp/0/")
        ]
        chosen[density] = next(kind for kind in codes if kind in packed_codec.KINDS)
        verify(encoded, kernels)
    assert {"4v", "6v", "8v", "m"} <= set(chosen.values()), chosen
    assert chosen[0.1] == "6v"
    assert chosen[0.9] == "m"


def test_encode_chooses_free_deltas_for_long_deltas():
    array = np.zeros((512, 512), np.float32)
    array[::16] = sparse_array((32, 512), 0.25)
    model = two_convs(array.reshape(512, 512, 1, 1), sparse_array((4, 512, 1, 1), 1.0))
    encoded = encode(model, ["a.weight"])
    verify(encoded, {"a.weight": array.reshape(512, 512, 1, 1)})
    assert any(t.name == "ltp/0/8f" for t in encoded.graph.initializer)


def test_encode_pairs_fits_both_halves():
    steps = np.random.default_rng(0).geometric(0.1, 4001).astype(np.int32)
    for first in (1, 14, 15, 16, 17, 300, 70000):
        gaps = np.append(np.int32(first), steps)
        for order in (gaps, gaps[::-1]):
            (codes,), _ = packed_codec.encode(
                "4v", [order], [np.ones(order.size, np.float32)], [int(order.sum()) + 1]
            )
            half = -(-codes.size // 2)
            assert codes[:half].max() <= 14
            assert codes[half:].max() <= 16
            assert (
                packed_codec.unpack("4v", packed_codec.pack("4v", codes))[: codes.size] == codes
            ).all()


def test_packed_codec_doctest_passes():
    result = doctest.testmod(packed_codec)
    assert result.attempted > 5
    assert result.failed == 0
