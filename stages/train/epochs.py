"""How long is trained where nothing is said of it."""

import math

FEWEST_EPOCHS, FEWEST_STEPS = 18, 750  # of training in all


def default_epochs(steps_per_epoch: int, m: float) -> tuple[int, int]:
    """Epochs of learning, a share of (1 + 3m) / 6, and of fine-tuning; more where few samples make few steps. (R5).

    Where nothing is learned, because the masks are held, the one epoch is there for the trail.
    """
    epochs = max(FEWEST_EPOCHS, math.ceil(FEWEST_STEPS / steps_per_epoch))
    learning = round(epochs * (1 + 3 * m) / 6) if m > 0 else 1
    return learning, epochs - learning
