"""Learn a pruning threshold for every layer while training the network; Learned Threshold Pruning."""

from ltp_pipeline.config import Settings
from ltp_pipeline.errors import InputError, TrainingFailed
from ltp_pipeline.records import ImportedModel, LearnedThresholds
from ltp_pipeline.stages.learn_thresholds import trail
from ltp_pipeline.stages.learn_thresholds.budget import GivenLambda, Rule, SolvedLambda
from ltp_pipeline.stages.learn_thresholds.functional import WeightGradient
from ltp_pipeline.stages.learn_thresholds.learning import Learning
from ltp_pipeline.stages.learn_thresholds.masks import floors, wanted_nonzeros
from ltp_pipeline.stages.learn_thresholds.thresholds import Thresholds
from ltp_pipeline.stages.prune import count_nonzeros
from ltp_pipeline.stages.training import Training
from ltp_pipeline.workspace import Workspace

FARTHEST = 100.0  # compression at which a search for the sparsest network within an accuracy budget ends


def run(imported: ImportedModel, training: Training, settings: Settings) -> LearnedThresholds:
    """Train weights and thresholds together; the trail holds every network met on the way."""
    rule = make_rule(imported, settings)
    tensors = imported.module.to(training.device).tensors()
    thresholds = Thresholds(
        {k.name: tensors[k.name] for k in imported.prunable}, settings.method.t0, WeightGradient.APPROXIMATE
    )
    learning = Learning(training, thresholds, rule, settings.train.epochs)
    training.run(learning, settings.train.epochs)
    entries = trail.read(training.workspace)
    if all(e.compression < 1.0005 for e in entries):
        raise TrainingFailed(
            "nothing was pruned: no weight fell below its threshold",
            "raise method.lambda or method.threshold_lr_ratio, or give a target instead",
        )
    names = thresholds.names
    taus = dict(zip(names, thresholds.tau.tolist(), strict=True))
    temperatures = dict(zip(names, thresholds.T.tolist(), strict=True))
    training.workspace.mark_done("learn", {"thresholds": taus, "temperatures": temperatures})
    return LearnedThresholds(taus, temperatures, tuple(entries))


def recall(workspace: Workspace) -> LearnedThresholds:
    """What an earlier run learned."""
    notes, entries = workspace.done("learn"), trail.read(workspace)
    if notes is None or not entries:
        raise InputError(f"{workspace.root} has not finished learning", "go on with `ltp-pipeline run` first")
    return LearnedThresholds(notes["thresholds"], notes["temperatures"], tuple(entries))


def make_rule(imported: ImportedModel, settings: Settings) -> Rule:
    """Choose how thresholds move, and refuse targets that cannot be met before any training is done."""
    lowest = floors(imported.prunable, settings.method)
    method, budget = settings.method, settings.budget
    if method.lambda_ is not None:
        return GivenLambda(method.lambda_, method.threshold_lr_ratio, lowest)
    present = count_nonzeros(imported)
    if budget.target_compression is not None:
        compression = budget.target_compression
    elif budget.target_sparsity is not None:
        compression = 1 / (1 - budget.target_sparsity)
    else:
        others = sum(present[k.name] for k in imported.kernels if not k.prunable)
        most = sum(k.elements for k in imported.kernels) / (others + sum(lowest.values()))
        compression = min(FARTHEST, most)
    count = wanted_nonzeros(imported.kernels, present, lowest, compression)
    return SolvedLambda(count, lowest, sum(k.elements for k in imported.prunable))
