"""Which operators can run, without importing torch and the code that runs them.

The table is written by `python -m ltp_pipeline.stages.import_model.support` and a test compares it with the registry.
"""

from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

from onnx import GraphProto, ModelProto, NodeProto, defs

from ltp_pipeline.stages.import_model.graphs import STANDARD_DOMAINS, is_standard, subgraphs

# name (domain, where it is not the standard one): the oldest schema version with an implementation
TABLE = """
Abs:1 Acos:1 Acosh:1 Add:7 AffineGrid:20 And:7 ArgMax:1 ArgMin:1 Asin:1 Asinh:1 Atan:1 Atanh:1 Attention:23
AveragePool:7 BatchNormalization:7 Bernoulli:15 BitCast:26 BitShift:11 BitwiseAnd:18 BitwiseNot:18 BitwiseOr:18
BitwiseXor:18 BlackmanWindow:17 Cast:6 CastLike:15 CausalConvWithState:27 Ceil:1 Celu:12 CenterCropPad:18
Clip:6 Col2Im:18 Compress:9 Concat:4 ConcatFromSequence:11 ConstantOfShape:9 Conv:1 ConvInteger:10
ConvTranspose:1 Cos:1 Cosh:1 CumProd:26 CumSum:11 DFT:17 DeformConv:19 DepthToSpace:1 DequantizeLinear:10 Det:1
Div:7 Dropout:7 Einsum:12 Elu:1 Equal:7 Erf:1 Exp:1 Expand:8 EyeLike:9 Flatten:1 Floor:1 GRU:7 Gather:1
GatherElements:11 GatherND:11 Gelu:20 Gemm:7 GlobalAveragePool:1 GlobalLpPool:2 GlobalMaxPool:1 Greater:7
GreaterOrEqual:12 GridSample:16 GroupNormalization:18 HammingWindow:17 HannWindow:17 HardSigmoid:1 HardSwish:14
Hardmax:1 Identity:1 If:1 ImageDecoder:20 InstanceNormalization:1 IsInf:10 IsNaN:9 LRN:1 LSTM:7
LayerNormalization:17 LeakyRelu:1 Less:7 LessOrEqual:12 Log:1 LogSoftmax:1 Loop:1 LpNormalization:1 LpPool:2
MatMul:1 MatMulInteger:10 Max:6 MaxPool:1 MaxRoiPool:1 MaxUnpool:9 Mean:6 MeanVarianceNormalization:9
MelWeightMatrix:17 Min:6 Mish:18 Mod:10 Mul:7 Multinomial:7 Neg:1 NegativeLogLikelihoodLoss:12
NonMaxSuppression:10 NonZero:9 Not:1 OneHot:9 Optional:15 OptionalGetElement:15 OptionalHasElement:15 Or:7
PRelu:7 Pad:2 Pow:7 QLinearConv:10 QLinearMatMul:10 QuantizeLinear:10 RMSNormalization:23 RNN:7 RandomNormal:1
RandomNormalLike:1 RandomUniform:1 RandomUniformLike:1 Range:11 Reciprocal:1 ReduceL1:1 ReduceL2:1
ReduceLogSum:1 ReduceLogSumExp:1 ReduceMax:1 ReduceMean:1 ReduceMin:1 ReduceProd:1 ReduceSum:1
ReduceSumSquare:1 Relu:1 Reshape:5 Resize:10 ReverseSequence:10 RoiAlign:10 RotaryEmbedding:23 Round:1 STFT:17
Scan:8 Scatter:9 ScatterElements:11 ScatterND:11 Selu:1 SequenceAt:11 SequenceConstruct:11 SequenceEmpty:11
SequenceErase:11 SequenceInsert:11 SequenceLength:11 SequenceMap:17 Shape:1 Shrink:9 Sigmoid:1 Sign:1 Sin:1
Sinh:1 Size:1 Slice:1 Softmax:1 SoftmaxCrossEntropyLoss:12 Softplus:1 Softsign:1 SpaceToDepth:1 Split:2
SplitToSequence:11 Sqrt:1 Squeeze:1 Sub:7 Sum:6 Swish:24 Tan:1 Tanh:1 TensorScatter:24 TfIdfVectorizer:9
ThresholdedRelu:10 Tile:6 TopK:1 Transpose:1 Trilu:14 Unique:11 Unsqueeze:1 Upsample:7 Where:9 Xor:7
com.microsoft/Attention:1 com.microsoft/BiasGelu:1 com.microsoft/EmbedLayerNormalization:1
com.microsoft/FastGelu:1 com.microsoft/FusedConv:1 com.microsoft/FusedGemm:1 com.microsoft/FusedMatMul:1
com.microsoft/Gelu:1 com.microsoft/QuickGelu:1 com.microsoft/SkipLayerNormalization:1
"""


@cache
def table() -> dict[tuple[str, str], int]:
    """Oldest implemented version by (domain, name)."""
    found = {}
    for line in TABLE.split():
        full, _, since = line.partition(":")
        domain, _, name = full.rpartition("/")
        found[domain, name] = int(since)
    return found


def problems(model: ModelProto) -> list[tuple[NodeProto, str]]:
    """Nodes whose operator cannot run, each with the reason."""
    versions = {_domain(o.domain): o.version for o in model.opset_import}
    return list(_walk(model.graph, versions))


def _walk(graph: GraphProto, versions: dict[str, int]) -> Iterator[tuple[NodeProto, str]]:
    for node in graph.node:
        reason = _problem(node, versions.get(_domain(node.domain), 1))
        if reason is not None:
            yield node, reason
        for nested in subgraphs(node):
            yield from _walk(nested, versions)


def _problem(node: NodeProto, opset: int) -> str | None:
    domain = _domain(node.domain)
    since = table().get((domain, node.op_type))
    try:
        schema: Any = defs.get_schema(node.op_type, opset, domain)
    except defs.SchemaError:
        if domain:
            return None if since is not None else "operators of this domain are not supported"
        return "there is no such operator"
    if is_standard(node, "Constant") or (since is not None and since <= schema.since_version):
        return None
    return None if schema.has_function or schema.has_context_dependent_function else "no implementation"


def _domain(domain: str) -> str:
    return "" if domain in STANDARD_DOMAINS else domain


def render() -> str:
    """The table as the registry has it now."""
    from ltp_pipeline.stages.import_model import graph_module, registry  # noqa: F401 - the first fills the second

    oldest: dict[tuple[str, str], int] = {}
    for op in registry.all_ops():
        key = (op.domain, op.name)
        oldest[key] = min(op.since, oldest.get(key, op.since))
    words = [f"{domain}/{name}:{since}" if domain else f"{name}:{since}" for (domain, name), since in oldest.items()]
    lines = [""]
    for word in sorted(words):
        if len(lines[-1]) + len(word) > 110:
            lines.append("")
        lines[-1] = f"{lines[-1]} {word}".strip()
    return "\n".join(["", *lines, ""])


if __name__ == "__main__":
    here = Path(__file__)
    text = here.read_text(encoding="utf-8")
    start, end = text.index('TABLE = """') + len('TABLE = """'), text.index('"""\n\n\n@cache')
    here.write_text(text[:start] + render() + text[end:], encoding="utf-8")
