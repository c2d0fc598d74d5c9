"""Networks of the transformers library with random weights, written by torch's two exporters."""

from __future__ import annotations

import io
import logging
import os
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import onnx
import torch
from onnx import ModelProto
from torch import Tensor, nn

os.environ.setdefault("HF_HUB_OFFLINE", "1")

SAMPLES, TOKENS, VOCABULARY = 2, 24, 30_000
Inputs = dict[str, Tensor]


class Case(NamedTuple):
    """Network at full size: how it is built, its inputs, and its number of layer weights."""

    make: Callable[[Any], nn.Module]  # from the library
    inputs: Callable[[], Inputs]
    kernels: int


def _tokens(*more: str) -> Callable[[], Inputs]:
    def make() -> Inputs:
        tensors = {"input_ids": torch.randint(3, VOCABULARY, (SAMPLES, TOKENS))}
        tensors["attention_mask"] = torch.ones(SAMPLES, TOKENS, dtype=torch.int64)
        return tensors | {name: torch.zeros(SAMPLES, TOKENS, dtype=torch.int64) for name in more}

    return make


def _images() -> Inputs:
    return {"pixel_values": torch.randn(SAMPLES, 3, 224, 224)}


def _sound() -> Inputs:
    return {"input_features": torch.randn(1, 80, 3000)}


def _whisper_encoder(library: Any) -> nn.Module:
    encoder: nn.Module = library.WhisperModel(library.WhisperConfig()).encoder
    return encoder


# The configurations' own sizes: the base models, tiny for Swin, ConvNeXt and Whisper.
CASES = {
    "bert": Case(
        lambda t: t.BertForSequenceClassification(t.BertConfig()), _tokens("token_type_ids"), 74
    ),
    "bert-words": Case(lambda t: t.BertForMaskedLM(t.BertConfig()), _tokens(), 74),
    "distilbert": Case(
        lambda t: t.DistilBertForSequenceClassification(t.DistilBertConfig()), _tokens(), 38
    ),
    "roberta": Case(
        lambda t: t.RobertaForSequenceClassification(
            t.RobertaConfig(vocab_size=50265, max_position_embeddings=514, type_vocab_size=1)
        ),
        _tokens(),
        74,
    ),
    "vit": Case(lambda t: t.ViTForImageClassification(t.ViTConfig()), _images, 74),
    "deit": Case(lambda t: t.DeiTForImageClassification(t.DeiTConfig()), _images, 74),
    "swin": Case(lambda t: t.SwinForImageClassification(t.SwinConfig()), _images, 77),
    "convnext": Case(lambda t: t.ConvNextForImageClassification(t.ConvNextConfig()), _images, 59),
    "whisper-encoder": Case(_whisper_encoder, _sound, 26),
}


class _FirstOutput(nn.Module):
    """Network with inputs by position that returns only its scores or last states."""

    def __init__(self, network: nn.Module, names: list[str]) -> None:
        super().__init__()
        self.network, self.names = network, names

    def forward(self, *inputs: Tensor) -> Any:
        """Return the scores, or the last states if there are none."""
        tensors = self.network(**dict(zip(self.names, inputs, strict=True)))
        return tensors[0] if "logits" not in tensors else tensors["logits"]


def export_network(
    name: str, library: Any, dynamo: bool, **options: Any
) -> tuple[ModelProto, Inputs]:
    """Export a network to ONNX with open batch size and steps; return the model and inputs for it."""
    torch.manual_seed(0)
    case = CASES[name]
    inputs = case.inputs()
    made = case.make(library)
    if "attention" in options:
        made.set_attn_implementation(options.pop("attention"))
    network = _FirstOutput(made.eval(), list(inputs))
    options |= {"input_names": list(inputs), "output_names": ["y"]}
    open_axes = {
        n: {0: "batch", 1: "steps"} if x.dim() == 2 else {0: "batch"} for n, x in inputs.items()
    }
    with torch.no_grad(), _quiet():
        if not dynamo:
            buffer = io.BytesIO()
            samples = tuple(inputs.values())
            torch.onnx.export(
                network, samples, buffer, dynamo=False, dynamic_axes=open_axes, **options
            )
            return onnx.load_model_from_string(buffer.getvalue()), inputs
        shapes = tuple(dict.fromkeys(axes, torch.export.Dim.DYNAMIC) for axes in open_axes.values())
        # A batch of one would be taken for a fixed size.
        samples = tuple(x if len(x) > 1 else torch.cat([x, x]) for x in inputs.values())
        program = torch.onnx.export(
            network, samples, dynamo=True, dynamic_shapes=(shapes,), verbose=False, **options
        )
    assert program is not None
    return program.model_proto, inputs


def optimize_transformer(model: ModelProto, folder: Path, kind: str, level: int) -> ModelProto:
    """Return the model as onnxruntime's optimizer for transformers writes it."""
    from onnxruntime.transformers.optimizer import optimize_model

    onnx.save(model, folder / "given.onnx")
    with _quiet():
        better = optimize_model(
            str(folder / "given.onnx"), kind, num_heads=12, hidden_size=768, opt_level=level
        )
        better.save_model_to_file(str(folder / "optimised.onnx"))
    return onnx.load(folder / "optimised.onnx")


@contextmanager
def _quiet() -> Iterator[None]:
    logging.disable(logging.WARNING)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.disable(logging.NOTSET)
