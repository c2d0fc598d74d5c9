"""Old operator versions and onnxruntime's own operators, compared with onnxruntime."""

from typing import Any, NamedTuple

import numpy as np
import onnxruntime
import pytest
import torch
from onnx import ModelProto, TensorProto, ValueInfoProto, helper, numpy_helper

from ltp_pipeline.stages.import_model.values import array_to_torch
from tests.support.imported import compile_model

_RANDOM = np.random.default_rng(0)


def _data(*shape: int) -> Any:
    return _RANDOM.standard_normal(shape).astype(np.float32)


class Case(NamedTuple):
    """One node to compare.

    Attributes:
        op: Operator.
        opset: Version of the standard operator set.
        inputs: Data inputs.
        attributes: Attributes of the node.
        constants: Stored inputs behind the data; None for an absent one.
        outputs: Number of outputs.
        domain: Domain of the operator.
        unnamed: Positions of outputs that nothing reads.
    """

    op: str
    opset: int
    inputs: list[Any]
    attributes: dict[str, Any]
    constants: tuple[Any, ...] = ()
    outputs: int = 1
    domain: str = ""
    unnamed: tuple[int, ...] = ()

    def model(self) -> ModelProto:
        names = [f"x{i}" for i in range(len(self.inputs))]
        extra = [
            None if c is None else numpy_helper.from_array(c, f"c{i}")
            for i, c in enumerate(self.constants)
        ]
        outputs = ["" if i in self.unnamed else f"y{i}" for i in range(self.outputs)]
        input_names = [*names, *("" if c is None else c.name for c in extra)]
        node = helper.make_node(
            self.op, input_names, outputs, name="node", domain=self.domain, **self.attributes
        )
        inputs = [
            helper.make_tensor_value_info(n, helper.np_dtype_to_tensor_dtype(x.dtype), x.shape)
            for n, x in zip(names, self.inputs, strict=True)
        ]
        free = [ValueInfoProto(name=n) for n in outputs if n]  # onnxruntime infers their types
        graph = helper.make_graph([node], "case", inputs, free, [c for c in extra if c is not None])
        versions = [helper.make_opsetid("", self.opset)]
        if self.domain:
            versions.append(helper.make_opsetid(self.domain, 1))
        return helper.make_model(graph, opset_imports=versions, ir_version=8)


IMAGE = _data(2, 3, 9, 11)
BN = [IMAGE, _data(3), _data(3), _data(3), np.abs(_data(3)) + 0.5]
I64 = np.int64
CASES = [
    Case("Clip", 7, [IMAGE], {"min": -0.5, "max": 0.25}),
    Case("Clip", 10, [IMAGE], {"min": 0.0}),
    Case("Softmax", 7, [_data(2, 3, 4)], {"axis": 1}),
    Case("Softmax", 12, [_data(2, 3, 4)], {"axis": 2}),
    Case("LogSoftmax", 11, [_data(2, 3, 4)], {"axis": -2}),
    Case("Hardmax", 11, [_data(2, 3, 4)], {}),
    Case("BatchNormalization", 7, BN, {"epsilon": 1e-3}),
    Case("BatchNormalization", 9, BN, {}),
    Case("BatchNormalization", 14, BN, {}),
    Case("Dropout", 7, [IMAGE], {"ratio": 0.3}),
    Case("Dropout", 10, [IMAGE], {}),
    Case("Dropout", 13, [IMAGE], {}, (np.float32(0.2),), outputs=2),
    Case("Upsample", 7, [IMAGE], {"scales": [1.0, 1.0, 2.0, 3.0], "mode": "nearest"}),
    Case("Upsample", 9, [IMAGE], {"mode": "linear"}, (np.float32([1, 1, 2, 2]),)),
    Case("Resize", 10, [IMAGE], {"mode": "nearest"}, (np.float32([1, 1, 1.7, 0.6]),)),
    Case("Resize", 10, [IMAGE], {"mode": "linear"}, (np.float32([1, 1, 2, 0.5]),)),
    *(
        Case(
            "Resize",
            13,
            [IMAGE],
            {"mode": mode, "coordinate_transformation_mode": coordinates, "nearest_mode": nearest},
            (None, np.float32([1, 1, 1.7, 0.6])),
        )
        for mode in ("nearest", "linear", "cubic")
        for coordinates in ("half_pixel", "pytorch_half_pixel", "asymmetric", "align_corners")
        for nearest in (
            ("round_prefer_floor", "floor", "ceil", "round_prefer_ceil")
            if mode == "nearest"
            else ("floor",)
        )
    ),
    *(
        Case(
            "Resize",
            13,
            [_data(1, 2, 40, 9)],
            {"mode": mode, "coordinate_transformation_mode": coordinates, "nearest_mode": "floor"},
            (None, np.float32([1, 1, *scales])),
        )
        for mode in ("nearest", "linear", "cubic")
        for coordinates in ("half_pixel", "pytorch_half_pixel", "asymmetric", "align_corners")
        for scales in ((2, 2), (0.5, 2), (1.3, 1))
    ),
    Case(
        "Resize",
        11,
        [IMAGE],
        {"mode": "linear"},
        (np.float32([]), np.float32([]), I64([2, 3, 20, 7])),
    ),
    Case(
        "Resize", 18, [IMAGE], {"mode": "linear", "antialias": 1}, (None, None, I64([2, 3, 5, 4]))
    ),
    Case(
        "Resize", 18, [IMAGE], {"mode": "cubic", "antialias": 1}, (None, None, I64([2, 3, 5, 14]))
    ),
    Case("Split", 7, [_data(6, 4)], {"axis": 0, "split": [1, 2, 3]}, outputs=3),
    Case("Split", 11, [_data(6, 4)], {"axis": 1}, outputs=2),
    Case("Split", 13, [_data(6, 4)], {"axis": 0}, (I64([4, 2]),), outputs=2),
    Case("Split", 18, [_data(7, 4)], {"axis": 0, "num_outputs": 3}, outputs=3),
    Case("Slice", 7, [IMAGE], {"starts": [1, -4], "ends": [9999, -1], "axes": [1, 3]}),
    Case("Slice", 10, [IMAGE], {}, (I64([8, -1]), I64([-9999, 0]), I64([2, 3]), I64([-2, -3]))),
    Case("TopK", 7, [_data(3, 9)], {"k": 4}, outputs=2),
    Case("TopK", 10, [_data(3, 9)], {"axis": 0}, (I64([2]),), outputs=2),
    Case("Pad", 7, [IMAGE], {"pads": [0, 0, 1, 2, 0, 0, 3, 4], "value": 1.5}),
    Case("Pad", 7, [IMAGE], {"pads": [0, 0, 1, 2, 0, 0, 3, 4], "mode": "reflect"}),
    Case("Pad", 10, [IMAGE], {"pads": [0, 0, -1, 2, 0, 0, 3, -2], "mode": "edge"}),
    Case("Squeeze", 11, [_data(1, 3, 1)], {"axes": [0, -1]}),
    Case("Unsqueeze", 11, [_data(3, 4)], {"axes": [0, -1]}),
    *(
        Case(f"Reduce{kind}", 11, [np.abs(_data(2, 3, 4)) + 0.1], {"axes": [1], "keepdims": keep})
        for kind in (
            "Max",
            "Min",
            "Mean",
            "Sum",
            "Prod",
            "L1",
            "L2",
            "SumSquare",
            "LogSum",
            "LogSumExp",
        )
        for keep in (0, 1)
    ),
    Case("OneHot", 9, [np.int64([0, 2, -1, 5])], {"axis": 0}, (I64(4), np.float32([-1, 2]))),
    Case(
        "MaxPool", 7, [IMAGE], {"kernel_shape": [3, 3], "auto_pad": "SAME_UPPER", "strides": [2, 2]}
    ),
    Case(
        "MaxPool",
        8,
        [IMAGE],
        {"kernel_shape": [3, 2], "pads": [0, 1, 2, 0], "strides": [2, 1]},
        outputs=2,
    ),
    Case(
        "MaxPool",
        10,
        [IMAGE],
        {"kernel_shape": [2, 3], "dilations": [2, 2], "ceil_mode": 1, "strides": [2, 2]},
    ),
    Case(
        "AveragePool",
        7,
        [IMAGE],
        {"kernel_shape": [3, 3], "auto_pad": "SAME_LOWER", "strides": [2, 2]},
    ),
    Case(
        "AveragePool",
        7,
        [IMAGE],
        {"kernel_shape": [3, 3], "pads": [0, 1, 2, 0], "count_include_pad": 1},
    ),
    Case(
        "AveragePool",
        10,
        [IMAGE],
        {"kernel_shape": [3, 3], "pads": [1, 1, 1, 1], "ceil_mode": 1, "strides": [2, 2]},
    ),
    Case("LpPool", 7, [IMAGE], {"kernel_shape": [3, 3], "pads": [0, 1, 1, 0], "p": 3}),
    Case("LpPool", 11, [_data(2, 3, 9)], {"kernel_shape": [2], "strides": [2]}),
    Case("GlobalLpPool", 7, [IMAGE], {"p": 1}),
    Case(
        "MaxRoiPool",
        7,
        [IMAGE, np.float32([[0, 1, 1, 6, 5], [1, 0, 2, 9, 8]])],
        {"pooled_shape": [2, 3]},
    ),
    Case("Conv", 7, [IMAGE, _data(4, 3, 3, 3)], {"auto_pad": "SAME_UPPER", "strides": [2, 2]}),
    Case(
        "Conv",
        11,
        [IMAGE, _data(6, 1, 3, 2), _data(6)],
        {"group": 3, "pads": [0, 1, 2, 0], "dilations": [2, 1]},
    ),
    Case("Conv", 11, [_data(2, 3, 9), _data(4, 3, 3)], {"auto_pad": "VALID"}),
    Case("Conv", 11, [_data(1, 2, 5, 6, 7), _data(4, 2, 3, 3, 3)], {"pads": [1] * 6}),
    Case(
        "ConvTranspose",
        7,
        [IMAGE, _data(3, 2, 3, 3), _data(2)],
        {"strides": [2, 2], "output_padding": [1, 0]},
    ),
    Case(
        "ConvTranspose",
        11,
        [IMAGE, _data(3, 2, 3, 3), _data(2)],
        {"strides": [3, 2], "output_shape": [28, 23]},
    ),
    Case(
        "ConvTranspose",
        11,
        [IMAGE, _data(3, 2, 4, 4)],
        {"strides": [2, 2], "auto_pad": "SAME_UPPER"},
    ),
    Case(
        "ConvTranspose",
        11,
        [IMAGE, _data(3, 2, 4, 3)],
        {"strides": [2, 2], "auto_pad": "SAME_LOWER"},
    ),
    Case(
        "ConvTranspose",
        11,
        [IMAGE, _data(3, 2, 3, 3), _data(2)],
        {"pads": [0, 1, 2, 0], "strides": [2, 2]},
    ),
    Case("Gemm", 7, [_data(3, 4), _data(5, 4), _data(5)], {"transB": 1, "alpha": 0.5, "beta": 2.0}),
    Case("Gemm", 11, [_data(4, 3), _data(4, 5)], {"transA": 1}),
    Case("PRelu", 7, [IMAGE, _data(3, 1, 1)], {}),
    Case("LRN", 7, [IMAGE], {"size": 3, "alpha": 0.3, "beta": 0.6, "bias": 1.5}),
    Case("InstanceNormalization", 7, [IMAGE, _data(3), _data(3)], {}),
    Case("DepthToSpace", 7, [_data(1, 8, 2, 3)], {"blocksize": 2}),
    Case("SpaceToDepth", 7, [_data(1, 2, 4, 6)], {"blocksize": 2}),
    Case("Selu", 7, [IMAGE], {}),
    Case("HardSigmoid", 7, [IMAGE], {}),
    Case("Elu", 7, [IMAGE], {"alpha": 0.7}),
    Case("Flatten", 11, [IMAGE], {"axis": -2}),
    Case("Cast", 9, [_data(3, 4) * 5], {"to": TensorProto.INT32}),
    Case("Mod", 10, [_data(3, 4), np.float32([2, -3, 1, 0.7])], {"fmod": 1}),
    Case("GatherND", 11, [_data(3, 4, 5)], {}, (I64([[0, 1], [-1, 2]]),)),
    Case("ScatterND", 11, [_data(3, 4)], {}, (I64([[0], [2]]), _data(2, 4))),
    Case("CumSum", 11, [_data(3, 4)], {"exclusive": 1, "reverse": 1}, (np.int32(1),)),
    Case(
        "LSTM",
        7,
        [_data(5, 2, 3), _data(2, 16, 3), _data(2, 16, 4), _data(2, 32)],
        {"hidden_size": 4, "direction": "bidirectional"},
        outputs=3,
    ),
    Case(
        "LSTM",
        14,
        [_data(5, 2, 3), _data(1, 16, 3), _data(1, 16, 4), _data(1, 32)],
        {"hidden_size": 4, "clip": 0.5},
        (np.int32([5, 3]),),
        outputs=3,
    ),
    Case(
        "GRU",
        7,
        [_data(5, 2, 3), _data(1, 12, 3), _data(1, 12, 4), _data(1, 24)],
        {"hidden_size": 4, "direction": "reverse", "linear_before_reset": 1},
        outputs=2,
    ),
    Case(
        "GRU",
        14,
        [_data(5, 2, 3), _data(2, 12, 3), _data(2, 12, 4), _data(2, 24)],
        {"hidden_size": 4, "direction": "bidirectional"},
        (np.int32([4, 5]),),
        outputs=2,
    ),
    Case(
        "RNN",
        7,
        [_data(5, 2, 3), _data(1, 4, 3), _data(1, 4, 4), _data(1, 8)],
        {"hidden_size": 4, "activations": ["Relu"]},
        outputs=2,
    ),
    Case("Einsum", 12, [_data(2, 3, 4), _data(2, 4, 5)], {"equation": "b i j , b j k -> b k i"}),
    Case(
        "NonMaxSuppression",
        10,
        [np.abs(_data(1, 6, 4)), _data(1, 2, 6)],
        {},
        (I64([3]), np.float32([0.4]), np.float32([-1])),
    ),
]

# Inputs of operators that onnxruntime's optimizer for transformers writes. One row of each mask
# is masked entirely.
QKV = [_data(2, 3, 8), _data(8, 24), _data(24)]
RAW_MASK, FULL_MASK = np.int32([[1, 1, 0], [0, 0, 0]]), np.int32([np.tri(3), np.zeros((3, 3))])
ATTENTIONS: list[tuple[dict[str, Any], tuple[Any, ...]]] = [
    ({}, (RAW_MASK,)),
    ({}, (FULL_MASK,)),
    ({}, (np.int32([2, 3]),)),
    ({"scale": 0.3, "mask_filter_value": -5.0}, (RAW_MASK,)),
    ({"qkv_hidden_sizes": [4, 4, 16]}, ()),
    ({"unidirectional": 1}, ()),
    ({"unidirectional": 1}, (RAW_MASK,)),
    ({}, (RAW_MASK, None, _data(2, 2, 3, 3))),
    ({}, (None, None, _data(1, 1, 3, 3))),
]
MULTI_HEAD: list[tuple[list[Any], dict[str, Any], tuple[Any, ...]]] = [
    ([_data(2, 3, 8), _data(2, 5, 8), _data(2, 5, 12)], {}, ()),
    ([_data(2, 3, 8), _data(2, 5, 8), _data(2, 5, 8)], {"scale": 0.3}, (_data(24),)),
    ([_data(2, 3, 8), _data(2, 3, 8), _data(2, 3, 8)], {"unidirectional": 1}, (None, RAW_MASK)),
    (
        [_data(2, 3, 8), _data(2, 5, 8), _data(2, 5, 8)],
        {},
        (None, np.int32([2, 5]), _data(1, 2, 3, 5)),
    ),
    ([_data(2, 3, 8), _data(2, 2, 5, 4), _data(2, 2, 5, 4)], {}, ()),
]
ROTARY = (np.cos(_data(6, 4)), np.sin(_data(6, 4)))
PAST = (_data(2, 2, 4, 4), _data(2, 2, 4, 4))
THREE = [_data(2, 3, 8)] * 3
TOKENS = [np.int32([[0, 1, 2], [6, 4, 1]]), np.int32([[0, 0, 1], [1, 1, 0]])]
TABLES = (_data(7, 4), _data(5, 4), _data(2, 4), _data(4), _data(4))

MICROSOFT = [
    (
        "FusedConv",
        [IMAGE, _data(4, 3, 3, 3), _data(4)],
        {"activation": "Relu", "pads": [1, 1, 1, 1]},
        (),
    ),
    (
        "FusedConv",
        [IMAGE, _data(4, 3, 3, 3)],
        {"activation": "LeakyRelu", "activation_params": [0.3]},
        (),
    ),
    ("FusedGemm", [_data(3, 4), _data(4, 5), _data(5)], {"activation": "Relu", "alpha": 0.5}, ()),
    ("FusedMatMul", [_data(2, 3, 4), _data(2, 5, 4)], {"transB": 1, "alpha": 0.25}, ()),
    ("Gelu", [IMAGE], {}, ()),
    ("BiasGelu", [_data(2, 3, 4), _data(4)], {}, ()),
    ("FastGelu", [_data(2, 3, 4), _data(4)], {}, ()),
    ("QuickGelu", [IMAGE], {"alpha": 1.5}, ()),
    (
        "SkipLayerNormalization",
        [_data(2, 3, 4), _data(2, 3, 4), _data(4), _data(4), _data(4)],
        {"epsilon": 1e-3},
        (),
    ),
    ("Attention", [_data(2, 3, 8), _data(8, 24), _data(24)], {"num_heads": 2}, ()),
    (
        "FusedMatMul",
        [_data(3, 2, 4), _data(5, 2, 4)],
        {"transBatchA": 1, "transBatchB": 1, "transB": 1},
        (),
    ),
    ("FusedMatMul", [_data(4, 2, 3), _data(2, 4, 5)], {"transBatchA": 1, "transA": 1}, ()),
    *(("Attention", QKV, {"num_heads": 2, **given}, more) for given, more in ATTENTIONS),
    *(
        ("MultiHeadAttention", parts, {"num_heads": 2, **given}, more)
        for parts, given, more in MULTI_HEAD
    ),
    ("SkipLayerNormalization", [_data(2, 3, 4), _data(3, 4), _data(4)], {}, ()),
    (
        "SkipSimplifiedLayerNormalization",
        [_data(2, 3, 4), _data(2, 3, 4), _data(4), _data(4)],
        {"epsilon": 1e-3},
        (),
    ),
    ("RotaryEmbedding", [_data(2, 3, 16), I64([2])], {"num_heads": 2}, ROTARY),
    ("RotaryEmbedding", [_data(2, 3, 16), I64([[0, 1, 2], [3, 4, 0]])], {"interleaved": 1}, ROTARY),
    ("RotaryEmbedding", [_data(2, 2, 3, 8), I64([[0, 1, 2], [3, 4, 0]])], {}, ROTARY),
]
CASES += [
    Case(op, 17, inputs, given, more, domain="com.microsoft")
    for op, inputs, given, more in MICROSOFT
]
CASES += [
    # onnxruntime has these in the standard domain, whatever the opset
    Case("LayerNormalization", 14, [_data(2, 3, 4), _data(4), _data(4)], {"epsilon": 1e-3}),
    Case("SimplifiedLayerNormalization", 14, [_data(2, 3, 4), _data(4)], {"epsilon": 1e-3}),
    Case(
        "SkipLayerNormalization",
        14,
        [_data(2, 3, 4)] * 2,
        {},
        (_data(4), _data(4)),
        4,
        "com.microsoft",
        (1, 2),
    ),
    Case(
        "SkipSimplifiedLayerNormalization",
        14,
        [_data(2, 3, 4)] * 2,
        {},
        (_data(4),),
        4,
        "com.microsoft",
        (1, 2),
    ),
    Case(
        "Attention",
        14,
        QKV,
        {"num_heads": 2, "unidirectional": 1},
        (None, _data(2, 2, 2, 5, 4)),
        2,
        "com.microsoft",
    ),
    Case(
        "MultiHeadAttention",
        14,
        THREE,
        {"num_heads": 2},
        (None, None, None, *PAST),
        3,
        "com.microsoft",
    ),
    Case("EmbedLayerNormalization", 14, TOKENS, {}, TABLES, 2, "com.microsoft"),
    Case(
        "EmbedLayerNormalization",
        14,
        TOKENS,
        {},
        (*TABLES, np.int32([[1, 1, 0], [1, 1, 1]])),
        3,
        "com.microsoft",
    ),
    Case(
        "EmbedLayerNormalization",
        14,
        TOKENS[:1],
        {},
        (None, *TABLES[:2], None, *TABLES[3:]),
        2,
        "com.microsoft",
    ),
]
CASES += [
    # versions that one function runs
    Case("GroupNormalization", 18, [_data(2, 6, 4, 5), _data(3), _data(3)], {"num_groups": 3}),
    Case("GroupNormalization", 21, [_data(2, 6, 4, 5), _data(6), _data(6)], {"num_groups": 3}),
    Case("GridSample", 16, [IMAGE, np.tanh(_data(2, 4, 5, 2))], {"align_corners": 1}),
    Case("GridSample", 16, [IMAGE, np.tanh(_data(2, 4, 5, 2))], {"mode": "bicubic"}),
    Case("DFT", 17, [_data(2, 8, 3, 1)], {}),
    Case("DFT", 17, [_data(2, 8, 3, 1)], {"axis": 2, "onesided": 1}),
    Case("RoiAlign", 10, [IMAGE, np.abs(_data(2, 4)) * 3], {"output_width": 2}, (I64([0, 1]),)),
    Case("RoiAlign", 16, [IMAGE, np.abs(_data(2, 4)) * 3], {}, (I64([0, 1]),)),
    Case("HannWindow", 17, [], {"periodic": 0}, (I64(9),)),
    Case("CenterCropPad", 18, [IMAGE], {"axes": [2, 3]}, (I64([5, 14]),)),
    Case("Dropout", 12, [IMAGE], {}, (np.float32(0.4),)),
]


@pytest.mark.parametrize("case", CASES, ids=lambda c: f"{c.domain}{c.op}-{c.opset}")
def test_node_equals_onnxruntime(case: Case) -> None:
    model = case.model()
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    session = onnxruntime.InferenceSession(
        model.SerializeToString(), options, providers=["CPUExecutionProvider"]
    )
    expected_outputs = session.run(None, {f"x{i}": x for i, x in enumerate(case.inputs)})
    actual_outputs = compile_model(model)(*map(array_to_torch, case.inputs))
    for y, expected in zip(actual_outputs, expected_outputs, strict=True):
        assert isinstance(y, torch.Tensor)
        assert y.detach().numpy().dtype == expected.dtype
        np.testing.assert_allclose(y.detach().numpy(), expected, rtol=1e-4, atol=1e-5)
