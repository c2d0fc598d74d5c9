"""Compare the models that two versions of the program write.

    python scripts/same_files.py --write hashes.json [--tree FOLDER]
    python scripts/same_files.py --compare hashes.json [--tree FOLDER]

The first command saves the hashes of the models of a source tree. The second one exits with 1 if a
tree writes other models. Both must run on the same machine with the same number of threads. Runs
are the demo and short ones like those of tests/integration, by the command line of the tree.
"""

import argparse
import hashlib
import json
import os
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

ROOT = Path(__file__).resolve().parent.parent
EXAMPLE = ROOT / "pipeline" / "demo"
SHORT = ("--epochs", "2", "--finetune-epochs", "1", "--max-drop", "0.9", "--min-compression", "1")
DEPLOY = ("--export", "deploy-sparse", "--export", "deploy")
# Words of RUNS as older trees spell them, before options and settings were renamed.
SPELLINGS = {
    "--distillation-weight": "--distill",
    "--weight-storage": "--values",
    "train.distill_outputs_as=logits": "train.imitate=scores",
}
RUNS: dict[str, tuple[str, ...]] = {
    "demo": (),
    "strong": (
        *SHORT,
        "--target-compression",
        "30",
        "--export",
        "sparse",
        "--export",
        "packed",
        "--export",
        "dense",
    ),
    "mild": (*SHORT, "--target-compression", "3"),
    "search": (*SHORT, "--accuracy-budget", "0.02", "--no-baseline"),
    "paper": (
        *SHORT,
        "--set",
        "method.lambda=1e-6",
        "--set",
        "method.threshold_lr_ratio=0.1",
        "--no-baseline",
    ),
    "distilled": (
        *SHORT,
        "--target-compression",
        "15",
        "--distillation-weight",
        "0.5",
        "--no-baseline",
    ),
    "deploy": (
        *SHORT,
        "--target-compression",
        "10",
        "--export",
        "sparse",
        "--export",
        "packed",
        *DEPLOY,
    ),
    "rounded": (
        *SHORT,
        "--target-compression",
        "10",
        "--weight-storage",
        "int8",
        "--weight-storage",
        "fp16",
        "--no-baseline",
    ),
    "external": (
        *SHORT,
        "--target-compression",
        "10",
        "--set",
        "export.external_data=true",
        "--no-baseline",
    ),
    "excluded": (*SHORT, "--target-compression", "3", "--exclude", "classifier*", "--no-baseline"),
    "unlabelled": (*SHORT, "--target-compression", "6"),
    "agreement": (
        *SHORT,
        "--target-compression",
        "6",
        "--set",
        "train.distill_outputs_as=logits",
        "--no-baseline",
    ),
    "folded": (*SHORT, "--target-compression", "15"),
    "half": (
        *SHORT,
        "--target-compression",
        "6",
        "--export",
        "sparse",
        "--export",
        "packed",
        "--no-baseline",
    ),
    "fixed": (*SHORT, "--target-compression", "6", "--no-baseline"),
    "softmax": (*SHORT, "--target-compression", "6", "--no-baseline"),
    "two-heads": (*SHORT, "--target-compression", "6", "--no-baseline"),
    "float-data": (*SHORT, "--target-compression", "6", "--no-baseline"),
    "constants": (
        *SHORT,
        "--target-compression",
        "6",
        "--export",
        "sparse",
        "--export",
        "packed",
        *DEPLOY,
    ),
}


def main() -> None:
    """Hash the models of all selected runs, then write or compare the hashes."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--write", type=Path, help="write hashes to this file")
    parser.add_argument("--compare", type=Path, help="compare hashes with this file")
    parser.add_argument(
        "--tree", type=Path, default=ROOT, help="folder of the source tree; default: this one"
    )
    parser.add_argument(
        "--runs", nargs="*", default=list(RUNS), choices=list(RUNS), help="default: all runs"
    )
    parser.add_argument("--workers", type=int, default=2, help="parallel runs; default: 2")
    options = parser.parse_args()
    subprocess.run([sys.executable, options.tree / "scripts" / "link_sources.py"], check=True)
    with ThreadPoolExecutor(options.workers) as pool:
        results = pool.map(partial(hash_models, tree=options.tree), options.runs)
        hashes = dict(zip(options.runs, results, strict=True))
    if options.write:
        options.write.write_text(json.dumps(hashes, indent=2))
    if options.compare:
        expected = json.loads(options.compare.read_text())
        different: list[str] = []
        for name, actual in hashes.items():
            files = list_differences(expected[name], actual)
            different += [f"{name}/{file}" for file in files]
        num_models = sum(map(len, hashes.values()))
        print("\n".join(different) or f"{num_models} models of {len(hashes)} runs are the same")
        sys.exit(bool(different))


def list_differences(expected: dict[str, str], actual: dict[str, str]) -> list[str]:
    """Return the files whose hashes differ, or that only one side has."""
    files = {*expected, *actual}
    return sorted(file for file in files if expected.get(file) != actual.get(file))


def hash_models(name: str, tree: Path) -> dict[str, str]:
    """Return the hash of every model that a run writes, by path.

    Args:
        name: Name of the run.
        tree: Folder of the source tree.
    """
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        for source in EXAMPLE.iterdir():
            if source.suffix in (".onnx", ".npz", ".toml"):
                (folder / source.name).write_bytes(source.read_bytes())
        change_inputs(name, folder)
        environment = {**os.environ, "OMP_NUM_THREADS": "1", "CI": "true"}
        environment["PYTHONPATH"] = os.pathsep.join(
            [str(tree.resolve() / ".static"), str(tree.resolve())]
        )
        program = [sys.executable, "-P", "-m", "ltp_pipeline"]
        options = subprocess.run([*program, "run", "--help"], capture_output=True, env=environment)
        is_renamed = b"--weight-storage" in options.stdout
        words = [word if is_renamed else SPELLINGS.get(word, word) for word in RUNS[name]]
        command = [*program, "run", "model.onnx", "--out", "run", "--quiet", *words]
        process = subprocess.run(
            command, cwd=folder, env=environment, capture_output=True, text=True, check=False
        )
        if process.returncode:
            raise SystemExit(f"{name}: exit {process.returncode}\n{process.stderr}")
        if name == "strong":
            pick = [*program, "pick", "run", "1", "--quiet", "--max-drop", "0.9"]
            subprocess.run(pick, cwd=folder, env=environment, capture_output=True, check=True)
        files = [*folder.glob("run/**/*.onnx"), *folder.glob("run/**/*.onnx.data")]
        return {
            f.relative_to(folder).as_posix(): hashlib.sha256(f.read_bytes()).hexdigest()
            for f in sorted(files)
        }


def change_inputs(name: str, folder: Path) -> None:
    """Change the model or the data of the example as the run needs them."""
    path = folder / "model.onnx"
    model = onnx.load(path)
    graph = model.graph
    if name in ("unlabelled", "agreement"):
        data = np.load(folder / "digits.npz")
        np.savez(
            folder / "digits.npz", **{key: data[key] for key in data.files if key.startswith("x")}
        )
    elif name == "folded":
        fold_norms(graph)
    elif name == "half":
        for tensor in graph.initializer:
            tensor.CopyFrom(
                numpy_helper.from_array(
                    numpy_helper.to_array(tensor).astype(np.float16), tensor.name
                )
            )
        for value in (*graph.input, *graph.output):
            value.type.tensor_type.elem_type = TensorProto.FLOAT16
    elif name == "fixed":
        for value in (*graph.input, *graph.output):
            value.type.tensor_type.shape.dim[0].dim_value = 3
    elif name == "softmax":
        graph.node.append(
            helper.make_node("Softmax", [graph.output[0].name], ["probabilities"], axis=1)
        )
        graph.output[0].name = "probabilities"
    elif name == "two-heads":
        pooled = next(n for n in graph.node if n.op_type == "Flatten").output[0]
        channels = next(t for t in graph.initializer if t.name == "classifier.weight").dims[1]
        head = np.random.default_rng(0).normal(0, 0.1, (channels, 30)).astype(np.float32)
        graph.initializer.append(numpy_helper.from_array(head, "head.weight"))
        graph.node.append(
            helper.make_node("MatMul", [pooled, "head.weight"], ["more"], name="head")
        )
        graph.output.append(helper.make_tensor_value_info("more", TensorProto.FLOAT, ["batch", 30]))
    elif name == "float-data":
        for tensor in graph.initializer:
            array = numpy_helper.to_array(tensor)
            if array.dtype == np.float32:
                values = helper.make_tensor(
                    tensor.name, TensorProto.FLOAT, array.shape, array.ravel().tolist()
                )
                tensor.CopyFrom(values)
    elif name == "constants":
        nodes = [helper.make_node("Constant", [], [t.name], value=t) for t in graph.initializer]
        nodes += [onnx.NodeProto.FromString(n.SerializeToString()) for n in graph.node]
        del graph.node[:], graph.initializer[:]
        graph.node.extend(nodes)
    else:
        return
    onnx.save(model, path)


def fold_norms(graph: onnx.GraphProto) -> None:
    """Fold each BatchNormalization into the Conv before it, as exporters do."""
    tensors = {t.name: numpy_helper.to_array(t) for t in graph.initializer}
    producers = {n.output[0]: n for n in graph.node}
    unfolded = []
    for node in graph.node:
        conv = producers.get(node.input[0]) if node.op_type == "BatchNormalization" else None
        if conv is None or conv.op_type != "Conv":
            unfolded.append(node)
            continue
        gamma, beta, mean, variance = (tensors[n] for n in node.input[1:5])
        factor = gamma / np.sqrt(variance + 1e-5)
        tensors[conv.input[1]] = (tensors[conv.input[1]] * factor[:, None, None, None]).astype(
            np.float32
        )
        bias = f"{conv.input[1]}.bias"
        tensors[bias] = (beta - mean * factor).astype(np.float32)
        del conv.input[2:]
        conv.input.append(bias)
        conv.output[0] = node.output[0]
    nodes = [onnx.NodeProto.FromString(n.SerializeToString()) for n in unfolded]
    read = {name for n in nodes for name in n.input}
    del graph.node[:], graph.initializer[:]
    graph.node.extend(nodes)
    graph.initializer.extend(
        numpy_helper.from_array(a, name) for name, a in tensors.items() if name in read
    )


if __name__ == "__main__":
    main()
