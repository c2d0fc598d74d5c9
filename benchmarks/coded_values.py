"""Measure packed files with coded exponents: `python -m benchmarks.coded_values [FILES]`.

A packed file stores each nonzero in 32 bits. Its exponent needs fewer than 8 of them. This script
rewrites packed float32 files so that each value takes 24 bits of sign and mantissa and a code of 1,
2 or 4 bits, the index of a power of two. The code 0 stands for zero. Values with another exponent
are stored raw and scattered over the others. Only operators are used that onnxruntime folds.
Exporters do not write such files; docs/explanation/encodings.md has the reason.

FILES are packed files of pruned networks. The other models have the layers of ResNet-50 with 90 %
zeros, once with Gaussian weights pruned by magnitude, and once with the nonzeros of each of FILES,
drawn at random. Outputs must be bit-identical to those of the packed file at all levels of
optimization. Sizes are compared with gzip -6 of the packed file too. Loading is processor time on
one thread; files alternate in new processes, and the medians are compared. "join only" leaves out
the powers of two. It shows what joining the bytes of sign and mantissa costs, whatever the codes.
"""

import argparse
import json
import re
import statistics
import subprocess
import sys
import tempfile
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
from onnx import ModelProto, TensorProto, helper, numpy_helper

from benchmarks import programs, series
from benchmarks.export import make_pruned_model
from benchmarks.export_networks import build_mobilenetv2, build_resnet50
from ltp_pipeline.exporters.encodings import ENCODINGS
from ltp_pipeline.graph.model import OnnxModel
from ltp_pipeline.graph.storage import read_model, write_model
from ltp_pipeline.stages.report.environment import find_processor
from ltp_pipeline.system.arrays import Array
from ltp_pipeline.system.files import write_json

BITS = (1, 2, 4)  # of a code; divisors of 8
MANTISSA_BITS = 23
RAW_BYTES = 8  # of a value with its position
NODE_BYTES = 2400  # approximate bytes of the decoding nodes and tables of a group
VALUES = re.compile(r"ltp/(\d+)/v\.(\d+)")
SPARSITY = 0.9
LEVELS = ("ORT_ENABLE_ALL", "ORT_ENABLE_BASIC", "ORT_DISABLE_ALL")


@dataclass(frozen=True)
class CodedValues:
    """Float32 values with coded exponents."""

    bits: int  # of a code
    codes: Array  # uint8, 8 / bits codes each
    high: Array  # uint8: sign and high bits of the mantissa
    low: Array  # uint16: low bits of the mantissa, inverted for negative values
    scales: Array  # float32, by code
    raw_positions: Array
    raw_values: Array

    @property
    def num_bytes(self) -> int:
        """Bytes of the arrays in a file."""
        return sum(array.nbytes for array in vars(self).values() if isinstance(array, np.ndarray))


def count_exponents(values: Array) -> Array:
    """Return the number of values with each biased exponent, from 0 to 255."""
    return np.bincount(_get_exponents(values), minlength=256)


def _get_exponents(values: Array) -> Array:
    return values.view(np.uint32) >> MANTISSA_BITS & 255


def choose_bits(values: Array) -> int:
    """Return the number of bits of a code with which values take the fewest bytes."""
    counts = np.sort(count_exponents(values))[::-1]

    def count_bytes(bits: int) -> float:
        return float(values.size * bits / 8 + RAW_BYTES * counts[2**bits - 1 :].sum())

    return min(BITS, key=count_bytes)


def code_values(values: Array, bits: int) -> CodedValues:
    """Code values with the most frequent exponents of which 2 to the power -23 is normal."""
    counts = count_exponents(values)
    counts[: MANTISSA_BITS + 1] = 0
    counts[255] = 0
    frequent = np.argsort(-counts, kind="stable")[: 2**bits - 1]
    exponents = np.sort(frequent[counts[frequent] > 0])
    code_by_exponent = np.zeros(256, np.uint8)
    code_by_exponent[exponents] = np.arange(exponents.size) + 1
    codes = code_by_exponent[_get_exponents(values)]
    scales = np.zeros(2**bits, np.float32)
    scales[1 : exponents.size + 1] = np.ldexp(np.float32(1), exponents - 127 - MANTISSA_BITS)
    words = np.where(codes > 0, values, 0).view(np.uint32)
    low = words.astype(np.uint16)
    raw = np.flatnonzero((codes == 0) & (values != 0))
    padding = np.zeros(-codes.size % (8 // bits), np.uint8)
    rows = np.append(codes, padding).reshape(-1, 8 // bits)
    packed = (rows << np.arange(0, 8, bits)).sum(axis=1).astype(np.uint8)
    return CodedValues(
        bits=bits,
        codes=packed,
        high=(words >> 24 & 128 | words >> 16 & 127).astype(np.uint8),
        low=np.where(words >> 31, ~low, low),
        scales=scales,
        raw_positions=raw.astype(np.int32),
        raw_values=values[raw],
    )


def rewrite_model(model: ModelProto, join_only: bool = False) -> tuple[ModelProto, list[int]]:
    """Return a packed model with coded values, and the bits of the codes of each group.

    Args:
        model: A packed model.
        join_only: Leave out the powers of two. Such a model computes something else.
    """
    result = ModelProto()
    result.CopyFrom(model)
    graph = result.graph
    initializers = {tensor.name: tensor for tensor in graph.initializer}
    groups: dict[str, list[Array]] = {}
    for tensor in graph.initializer:
        match = VALUES.fullmatch(tensor.name)
        if match and tensor.data_type == TensorProto.FLOAT:
            groups.setdefault(match[1], []).append(numpy_helper.to_array(tensor))
    nodes: list[onnx.NodeProto] = []

    def add_constant(name: str, array: Array) -> str:
        initializers.setdefault(name, numpy_helper.from_array(array, name))
        return name

    def add_node(op: str, inputs: list[str], output: str, **attributes: Any) -> str:
        nodes.append(helper.make_node(op, inputs, [output], **attributes))
        return output

    def add_code_table(bits: int) -> str:
        """Add nodes that compute the codes in each byte, and return their output."""
        name = f"ltp/coded/{bits}"
        if name not in code_tables:
            code_tables.add(name)
            octets = add_constant("ltp/octets", np.arange(256, dtype=np.uint8)[:, None])
            wide = add_node("Cast", [octets], name + "/wide", to=TensorProto.INT32)
            places = add_constant(name + "/places", (1 << np.arange(0, 8, bits)).astype(np.int32))
            shifted = add_node("Div", [wide, places], name + "/shifted")
            base = add_constant(name + "/base", np.array(2**bits, np.int32))
            add_node("Mod", [shifted, base], name)
        return name

    code_tables = set[str]()
    high_parts = 2.0**23 + 65536 * np.arange(128)
    table = np.append(high_parts, -high_parts - 65535).astype(np.float32)
    all_bits = []
    for group, units in groups.items():
        values = np.concatenate(units)
        coded = code_values(values, choose_bits(values))
        if coded.num_bytes + NODE_BYTES > values.nbytes:
            continue
        all_bits.append(coded.bits)
        prefix = f"ltp/{group}/coded/"
        high = add_constant(prefix + "high", coded.high)
        octets = add_node("Cast", [high], prefix + "octets", to=TensorProto.INT32)
        parts = [add_constant("ltp/coded/table", table), octets]
        tops = add_node("Gather", parts, prefix + "tops")
        low = add_constant(prefix + "low", coded.low)
        rest = add_node("Cast", [low], prefix + "rest", to=TensorProto.FLOAT)
        flat = add_node("Add", [tops, rest], prefix + "steps")
        if not join_only:
            # A byte of codes selects a row of scales.
            table_by_code = add_constant(prefix + "scales", coded.scales)
            by_byte = add_node("Gather", [table_by_code, add_code_table(coded.bits)], prefix + "t")
            codes = add_constant(prefix + "codes", coded.codes)
            wide = add_node("Cast", [codes], prefix + "wide", to=TensorProto.INT32)
            rows = add_node("Gather", [by_byte, wide], prefix + "r")
            shape = add_constant("ltp/flat", np.array([-1]))
            scales = add_node("Reshape", [rows, shape], prefix + "s")
            if coded.codes.size * 8 > values.size * coded.bits:
                start = add_constant("ltp/coded/start", np.array([0]))
                end = add_constant(prefix + "end", np.array([values.size]))
                scales = add_node("Slice", [scales, start, end], prefix + "e")
            flat = add_node("Mul", [flat, scales], prefix + "values")
        if coded.raw_positions.size:
            positions = add_constant(prefix + "positions", coded.raw_positions)
            raw = add_constant(prefix + "raw", coded.raw_values)
            flat = add_node("ScatterElements", [flat, positions, raw], prefix + "all")
        names = [f"ltp/{group}/v.{i}" for i in range(len(units))]
        for name in names:
            del initializers[name]
        if len(units) == 1:
            nodes.append(helper.make_node("Identity", [flat], names))
        else:
            sizes = add_constant(prefix + "sizes", np.array([unit.size for unit in units]))
            nodes.append(helper.make_node("Split", [flat, sizes], names))
    nodes += graph.node
    del graph.node[:]
    graph.node.extend(nodes)
    del graph.initializer[:]
    graph.initializer.extend(initializers.values())
    return result, all_bits


def run_model(path: Path, level: str) -> bytes:
    """Return the outputs of a model for random inputs with one sample."""
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    options.graph_optimization_level = getattr(onnxruntime.GraphOptimizationLevel, level)
    session = onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    rng = np.random.default_rng(0)
    feeds = {}
    for value in session.get_inputs():
        shape = [size if isinstance(size, int) else 1 for size in value.shape]
        feeds[value.name] = rng.standard_normal(shape, np.float32)
    return b"".join(output.tobytes() for output in session.run(None, feeds))


def load_model(path: Path) -> dict[str, float]:
    """Return the times and the peak memory of sessions of a model in a new process."""
    command = [sys.executable, str(programs.FOLDER / "load_model.py"), str(path)]
    result: dict[str, float] = json.loads(subprocess.check_output(command))
    return result


def compare_files(packed: Path, folder: Path, rounds: int) -> dict[str, Any]:
    """Return sizes and loading of a packed file with coded values, relative to the file."""
    model = onnx.load(packed)
    coded_model, bits = rewrite_model(model)
    coded, joined = folder / "coded.onnx", folder / "joined.onnx"
    onnx.save(coded_model, coded)
    onnx.save(rewrite_model(model, join_only=True)[0], joined)
    for level in LEVELS:
        if run_model(packed, level) != run_model(coded, level):
            raise SystemExit(f"{packed}: coded values have other outputs with {level}")
    tensors = [numpy_helper.to_array(t) for t in model.graph.initializer if VALUES.match(t.name)]
    values = np.concatenate([t for t in tensors if t.dtype == np.float32])
    counts = count_exponents(values[values != 0])
    fractions = counts[counts > 0] / counts.sum()
    content = packed.read_bytes()
    files = {"packed": packed, "coded": coded, "join only": joined}
    loads: dict[str, list[dict[str, float]]] = {name: [] for name in files}
    for _ in range(rounds):
        for name, path in files.items():
            loads[name].append(load_model(path))

    def compare_loads(name: str) -> dict[str, float]:
        medians = {
            file: {key: statistics.median(load[key] for load in rows) for key in rows[0]}
            for file, rows in loads.items()
        }
        return {key: value / medians["packed"][key] for key, value in medians[name].items()}

    return {
        "bytes": len(content),
        "nonzeros": int(counts.sum()),
        "exponents": int((counts > 0).sum()),
        "exponent_entropy": float(-(fractions * np.log2(fractions)).sum()),
        "bits": bits,
        "coded": coded.stat().st_size / len(content),
        "gzip -6": len(zlib.compress(content, 6, wbits=31)) / len(content),
        "load coded": compare_loads("coded"),
        "load join only": compare_loads("join only"),
    }


def iter_models(files: list[Path], network: ModelProto, folder: Path) -> Iterator[tuple[str, Path]]:
    """Yield the name and the packed file of each model to measure."""
    rng = np.random.default_rng(0)
    model, weights = make_pruned_model(network, SPARSITY, seed=0)
    sources: dict[str, Array | None] = {"Gaussian, by magnitude": None}
    for file in files:
        yield str(file), file
        stored = read_model(file)
        encoding = ENCODINGS["packed"]
        decoded = encoding.decode(stored, encoding.find_encoded_names(stored)).weights
        flat = np.concatenate([array.reshape(-1) for array in decoded.values()])
        sources[f"values of {file}"] = flat[flat != 0]
    for name, source in sources.items():
        drawn = {key: _draw_values(array, source, rng) for key, array in weights.items()}
        path = folder / "packed.onnx"
        write_model(_encode(model.with_weights(drawn), drawn), path)
        yield f"{network.graph.name} {SPARSITY:.0%}, {name}", path


def _encode(model: OnnxModel, weights: dict[str, Array]) -> OnnxModel:
    return ENCODINGS["packed"].encode(model, weights)


def _draw_values(array: Array, source: Array | None, rng: np.random.Generator) -> Array:
    """Return an array with other nonzeros: Gaussian ones above a threshold, or drawn ones.

    Drawn values are multiplied by up to 3 % more or less, so that they do not repeat.
    """
    if source is None:
        drawn = rng.standard_normal(array.shape, np.float32)
        threshold = np.quantile(np.abs(drawn), SPARSITY)
        return np.where(np.abs(drawn) < threshold, np.float32(0), drawn * np.float32(0.05))
    drawn = rng.choice(source, array.shape) * rng.uniform(0.97, 1.03, array.shape)
    return np.where(array == 0, np.float32(0), drawn.astype(np.float32))


def main() -> None:
    """Measure all models and print their ratios."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("files", nargs="*", type=Path, help="packed files of pruned networks")
    parser.add_argument("--quick", action="store_true", help="measure MobileNetV2 in two rounds")
    parser.add_argument("--json", action="store_true", help="print the results as JSON")
    parser.add_argument("--out", type=Path, help="write the results to this file")
    options = parser.parse_args()
    network = build_mobilenetv2() if options.quick else build_resnet50()
    rows = []
    with tempfile.TemporaryDirectory() as scratch:
        for name, path in iter_models(options.files, network, Path(scratch)):
            row = compare_files(path, Path(scratch), 2 if options.quick else 5)
            rows.append({"model": name, **row})
            load = row["load coded"]
            print(
                f"{name}: coded / packed: bytes {row['coded']:.3f}, load {load['load']:.2f}, "
                f"load again {load['load again']:.2f}, memory {load['peak memory']:.2f}; "
                f"join only: load {row['load join only']['load']:.2f}; "
                f"gzip -6 / packed: bytes {row['gzip -6']:.3f}",
                flush=True,
            )
    report = {
        "command": "python -m benchmarks.coded_values",
        **series.describe_machine(),
        "rows": [{**row, "commit": series.commit(), "processor": find_processor()} for row in rows],
    }
    if options.out is not None:
        write_json(options.out, report)
    if options.json:
        print(json.dumps(report, indent=2))


if __name__ == "__main__":
    main()
