"""Programs: folding, captures, freeing, roles, half precision, devices, and errors."""

import numpy as np
import pytest
import torch
from onnx import TensorProto, helper

from ltp_pipeline.graph.model import OnnxModel
from ltp_pipeline.stages.import_model.network import compile_graph
from ltp_pipeline.stages.import_model.ops.common import check_sizes
from ltp_pipeline.stages.import_model.program import NodeError
from ltp_pipeline.stages.import_model.roles import TensorRole
from tests.support.imported import Compiled, compile_model
from tests.support.models import parsed


def operators(module: Compiled) -> list[str]:
    return [i.label.split()[0] for i in module.forward.program.instructions]


F32 = np.float32


def test_constants_are_folded_and_dropped() -> None:
    module = compile_model(
        parsed(
            """(float[N, 6] x) => (float[N, 2, 3] y) {
                two = Constant <value_ints = [2, 3]> ()
                batch = Constant <value_ints = [-1]> ()
                shape = Concat <axis = 0> (batch, two)
                y = Reshape (x, shape)
            }"""
        )
    )
    assert operators(module) == ["Reshape"]
    assert len(module.forward.program.constants) == 1
    assert module(torch.zeros(4, 6))[0].shape == (4, 2, 3)


def test_values_that_depend_on_a_weight_are_not_folded() -> None:
    module = compile_model(
        parsed(
            "(float[2, 2] x) => (y) { t = Transpose (w) y = MatMul (x, t) }", w=np.eye(2, dtype=F32)
        )
    )
    assert operators(module) == ["Transpose", "MatMul"]
    module(torch.ones(2, 2))[0].sum().backward()
    assert module.state["w"].grad is not None


def test_random_numbers_are_not_folded() -> None:
    module = compile_model(parsed("() => (y) { y = RandomNormal <shape = [3]> () }"))
    assert operators(module) == ["RandomNormal"]


def test_activations_are_freed_after_their_last_use() -> None:
    module = compile_model(
        parsed("(float[2] x) => (y) { a = Relu (x) b = Relu (a) c = Add (a, b) y = Relu (c) }")
    )
    freed = [len(slots) for slots in module.forward.program.last_use]
    assert freed == [1, 0, 2, 1]  # the input, nothing, both summands, the sum


def test_branch_captures_outer_values() -> None:
    module = compile_model(
        parsed(
            """(bool c, float[2] x) => (float[2] y) {
                h = Mul (x, w)
                y = If (c) <
                    then_branch = yes () => (float[2] a) { a = Add (h, w) },
                    else_branch = no () => (float[2] b) { b = Neg (h) }
                >
            }""",
            w=F32([2, 3]),
        )
    )
    x = torch.ones(2)
    assert module(torch.tensor(True), x)[0].tolist() == [4, 6]
    assert module(torch.tensor(False), x)[0].tolist() == [-2, -3]
    module(torch.tensor(True), x)[0].sum().backward()
    assert module.state["w"].grad.tolist() == [2, 2]


def test_loop_carries_state_and_collects_outputs() -> None:
    module = compile_model(
        parsed(
            """(int64 n, float[1] x) => (float[1] last, float[K, 1] all) {
                go = Constant <value = bool {1}> ()
                last, all = Loop (n, go, x) <
                    body = b (int64 i, bool c, float[1] s) => (bool c2, float[1] s2, float[1] o)
                        { c2 = Identity (c) s2 = Add (s, x) o = Identity (s2) }
                >
            }"""
        )
    )
    last, collected = module(torch.tensor(3), torch.ones(1))
    assert last.tolist() == [4]
    assert collected.tolist() == [[2], [3], [4]]


def test_call_accepts_other_weights() -> None:
    module = compile_model(parsed("(float[2] x) => (y) { y = Mul (x, w) }", w=F32([2, 3])))
    assert module(torch.ones(2), weights={"w": torch.zeros(2)})[0].tolist() == [0, 0]
    assert module(torch.ones(2))[0].tolist() == [2, 3]


def test_compiled_graph_holds_no_weights() -> None:
    proto = parsed("(float[2] x) => (y) { y = Mul (x, training) }", training=F32([2, 3]))
    forward, state = compile_graph(OnnxModel.from_proto(proto))
    x = {"x": torch.ones(2)}
    assert state.keys() == {"training"}
    assert forward(x, state)[0].tolist() == [2, 3]
    assert forward(x, {"training": torch.zeros(2)})[0].tolist() == [0, 0]
    assert not any(isinstance(value, torch.Tensor) for value in forward.program.constants.values())


def test_settings_are_not_trained() -> None:
    """Scales that reach Resize through Concat are constants; the scaled tensor is a weight."""
    module = compile_model(
        parsed(
            """(float[1, 2, 4, 4] x) => (y) {
                s = Concat <axis = 0> (one, two)
                z = Mul (x, w)
                y = Resize (z, , s)
            }""",
            one=F32([1, 1]),
            two=F32([2, 2]),
            w=np.ones((2, 1, 1), F32),
        )
    )
    assert {name for name, role in module.forward.roles.items() if role is TensorRole.WEIGHT} == {
        "w"
    }
    assert module(torch.zeros(1, 2, 4, 4))[0].shape == (1, 2, 8, 8)


BN = """(float[N, 2, 3] x) => (y) {{
    y = BatchNormalization {attributes} (x, scale, bias, mean, var)
}}"""
BN_TENSORS = {"scale": F32([1, 2]), "bias": F32([0, 1]), "mean": F32([0, 0]), "var": F32([1, 1])}


def test_batch_norm_updates_statistics_in_training() -> None:
    module = compile_model(parsed(BN.format(attributes=""), **BN_TENSORS))
    native = torch.nn.BatchNorm1d(2, momentum=0.1)
    native.weight.data, native.bias.data = torch.tensor([1.0, 2.0]), torch.tensor([0.0, 1.0])
    x = torch.randn(4, 2, 3)
    assert torch.equal(module(x, training=True)[0], native.train()(x))
    assert torch.allclose(module.state["mean"], native.running_mean)
    assert torch.allclose(module.state["var"], native.running_var)
    assert module.forward.roles["mean"] is TensorRole.STATISTIC
    assert torch.allclose(module(x)[0], native.eval()(x), atol=1e-6)


def test_batch_norm_in_training_mode_keeps_statistics_in_evaluation() -> None:
    module = compile_model(parsed(BN.format(attributes="<training_mode = 1>"), **BN_TENSORS))
    y = module(torch.randn(8, 2, 3) + 5)[0]
    assert y[:, 0].mean().abs() < 1e-5
    assert module.state["mean"].tolist() == [0, 0]


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_half_weights_are_computed_in_single_precision(dtype: str) -> None:
    code = {"float16": TensorProto.FLOAT16, "bfloat16": TensorProto.BFLOAT16}[dtype]
    weight = helper.make_tensor("w", code, [2, 2], [1.0, 2.0, 3.0, 4.0])
    module = compile_model(
        parsed(
            f"""({dtype}[N, 2] x) => ({dtype}[N, 2] y, float[N, 2] z) {{
                h = MatMul (x, w)
                s = Add (h, tiny)
                f = Cast <to = {TensorProto.FLOAT}> (s)
                g = Cast <to = {code}> (f)
                z = Cast <to = {TensorProto.FLOAT}> (g)
                y = Relu (g)
            }}""",
            w=weight,
            tiny=helper.make_tensor("tiny", code, [], [0.0001]),
        )
    )
    assert module.state["w"].dtype is torch.float32
    x = torch.ones(1, 2, dtype=getattr(torch, dtype))
    y, z = module(x)
    assert y.dtype is getattr(torch, dtype)
    assert z.dtype is torch.float32
    assert z[0, 0].item() != 4.0, "half precision would have lost the small number"
    z.sum().backward()
    assert module.state["w"].grad.dtype is torch.float32


def test_half_inputs_without_half_weights_stay_half() -> None:
    module = compile_model(parsed("(float16[2] x) => (float16[2] y) { y = Exp (x) }"))
    assert module(torch.ones(2, dtype=torch.float16))[0].dtype is torch.float16


def test_shapes_stay_on_the_cpu_and_data_moves_to_its_device() -> None:
    """The meta device stands for any device, because reading a value from it fails."""
    module = compile_model(
        parsed(
            """(float[N, 4] x) => (y) {
                s = Shape (x)
                zero = Constant <value_int = 0> ()
                n = Gather <axis = 0> (s, zero)
                axes = Constant <value_ints = [0]> ()
                n1 = Unsqueeze (n, axes)
                tail = Constant <value_ints = [2, 2]> ()
                to = Concat <axis = 0> (n1, tail)
                r = Reshape (x, to)
                ones = ConstantOfShape <value = float {1}> (to)
                a = Add (r, ones)
                mask = Less (a, limit)
                b = Where (mask, a, ones)
                g = Gather <axis = 1> (b, rows)
                y = Clip (g, low)
            }""",
            rows=np.int64([1, 0, 1]),
            limit=F32([0.5, 1.5]),
            low=F32(0),
        )
    )
    weights = {name: tensor.to("meta") for name, tensor in module.state.items()}
    (y,) = module(torch.zeros(3, 4, device="meta"), weights=weights)
    assert y.device.type == "meta"
    assert y.shape == (3, 3, 2)


def test_operator_without_implementation_runs_its_body() -> None:
    module = compile_model(
        parsed(
            "(float[2, 4] a, float[2, 4] b) => (y) { y = SwiGLU <alpha = 2.0> (a, b) }", opset=28
        )
    )
    a, b = torch.randn(2, 4), torch.randn(2, 4)
    expected = a * torch.sigmoid(2 * a) * b
    assert torch.allclose(module(a, b)[0], expected, atol=1e-6)
    assert torch.allclose(module(a.double(), b.double())[0].float(), expected, atol=1e-6)


HUGE = np.int64([1 << 16, 1 << 16])
LONG = np.ones((1 << 16, 1), np.int64)
BROKEN = {
    "there is no such operator": ("(float[2] x) => (y) { y = Nonsense (x) }", {}),
    "operators of this domain are not supported": (
        "(float[2] x) => (y) { y = com.example.Magic (x) }",
        {},
    ),
    "nothing before it produces the value 'b'": (
        "(float[2] x) => (y) { a = Add (x, b) b = Relu (a) y = Relu (b) }",
        {},
    ),
    "'a' is produced twice": ("(float[2] x) => (y) { a = Relu (x) a = Exp (x) y = Relu (a) }", {}),
    "type STRING is not supported": ("(float[2] x) => (y) { y = Cast <to = 8> (x) }", {}),
    "4,294,967,296 elements": ("() => (y) { y = ConstantOfShape (s) }", {"s": HUGE}),
    "shape [65536, 65536] has": (
        "() => (y) { y = Expand (w, s) }",
        {"s": HUGE, "w": np.int64([1])},
    ),
    "shape [65536, 65536] ": (
        "() => (y) { y = Tile (w, s) }",
        {"s": HUGE, "w": np.ones((1, 1), np.int64)},
    ),
    "a range from 0 to": ("() => (y) { y = Range (a, b, c) }", {"a": 0, "b": 1 << 40, "c": 1}),
    "a constant of 4,294,967,296": (
        "() => (y) { t = Transpose (s) y = Equal (s, t) }",
        {"s": LONG},
    ),
    "a constant of 4,294,967,296 ": (
        "() => (y) { t = Transpose (s) y = MatMul (s, t) }",
        {"s": LONG},
    ),
    "beyond reason": (
        "() => (y) { y = Pad (w, p) }",
        {"w": np.int64([1]), "p": np.int64([0, 1 << 40])},
    ),
    "cannot be": ("() => (y) { y = ConstantOfShape (s) }", {"s": np.int64([-3])}),
    "a constant has one value": ("() => (y) { y = Constant () }", {}),
    "Loop": (
        """() => (float[1] last) {
            last = Loop (, go, w) <body = b (int64 i, bool c, float[1] s) => (bool c2, float[1] s2)
                { c2 = Identity (c) s2 = Nonsense (s) }>
        }""",
        {"go": np.bool_(True), "w": F32([1])},
    ),
}


def test_huge_shape_without_elements_is_rejected():
    assert check_sizes([2, 0, 3]) == [2, 0, 3]
    with pytest.raises(ValueError, match=str(1 << 31)):
        check_sizes([1 << 31, 0])


@pytest.mark.parametrize("reason", BROKEN)
def test_broken_graph_raises_with_a_reason(reason: str) -> None:
    body, tensors = BROKEN[reason]
    with pytest.raises(NodeError) as caught:
        compile_model(parsed(body, **tensors))
    assert reason == "Loop" or reason.strip() in str(caught.value)


def test_error_while_running_names_the_node() -> None:
    proto = parsed("(float[N] x, float[M] y) => (z) { z = Add (x, y) }")
    proto.graph.node[0].name = "the sum"
    with pytest.raises(NodeError, match=r"^Add 'the sum': "):
        compile_model(proto)(torch.zeros(2), torch.zeros(3))


def test_missing_input_raises() -> None:
    forward, state = compile_graph(
        OnnxModel.from_proto(parsed("(float[N] x, float[M] y) => (z) { z = Add (x, y) }"))
    )
    with pytest.raises(NodeError, match="'y'"):
        forward({"x": torch.zeros(2)}, state)


def test_tensor_with_too_few_bytes_raises() -> None:
    broken = TensorProto(name="w", data_type=TensorProto.FLOAT, dims=[4], raw_data=b"123")
    with pytest.raises(NodeError, match="'w'"):
        compile_model(parsed("(float[4] x) => (y) { y = Add (x, w) }", w=broken))
