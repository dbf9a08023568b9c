"""A callback that prunes while Lightning trains."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from torch import nn

from ..errors import TrellisError
from ..training.pruner import Pruner
from ..training.schedule import Schedule
from .gradual import GradualPruning, missing

if TYPE_CHECKING:
    from pytorch_lightning import Callback
else:
    # Lightning has two names. The one that is already imported is that of the user's Trainer.
    _NAMES = ("lightning.pytorch", "pytorch_lightning")
    for _name in sorted(_NAMES, key=lambda name: name not in sys.modules):
        try:
            Callback = importlib.import_module(_name).Callback
            break
        except ModuleNotFoundError as _error:
            if _error.name not in ("lightning", "lightning.pytorch", "pytorch_lightning"):
                raise
    else:
        raise missing("lightning (or pytorch-lightning)", "lightning")

__all__ = ["PruningCallback"]


class PruningCallback(Callback):
    """Prune a LightningModule while it is trained; every kept connection stays live.

    The pruner is made with the first batch. Its state is in every checkpoint, and training resumes
    with the same masks. ``trellis/kept``, ``trellis/live`` and ``trellis/sparsity`` are logged as
    metrics, so they are in TensorBoard and every other logger. Checkpoints hold plain weights,
    which ``load_from_checkpoint`` reads without Trellis. Averages of the weights (Lightning's
    ``WeightAveraging`` and ``StochasticWeightAveraging``) have the same masks.

    Args:
        sparsity: The fraction of connections removed at the end; or give ``keep``.
        keep: The number of connections kept at the end.
        schedule: A `trellis.Schedule` over optimizer steps, or the name of a curve. By default,
            masks are updated from 10 % to 70 % of the trainer's steps, along a cubic curve.
        example_inputs: Inputs to trace the model with, or a function that makes them from a batch.
            By default they are the first entries of the first batch, as many as ``forward()``
            requires.
        submodule: The name of the submodule to prune, if ``forward()`` of the whole cannot be
            traced. It is called with the example inputs.
        regrow: As for `trellis.Pruner`.
        **options: The other options of `trellis.Pruner`: ``method``, ``ignore``, ``scope``, ...

    Attributes:
        pruner: The `trellis.Pruner`; None before the first batch.

    Raises:
        TrellisError: An option is invalid.
    """

    def __init__(
        self,
        sparsity: float | None = None,
        *,
        keep: int | None = None,
        schedule: Schedule | str | None = None,
        example_inputs: Any = None,
        submodule: str = "",
        regrow: float = 0.0,
        **options: Any,
    ) -> None:
        super().__init__()
        self.submodule = submodule
        self._work = GradualPruning(
            sparsity=sparsity, keep=keep, schedule=schedule, example_inputs=example_inputs,
            regrow=regrow, **options,
        )  # fmt: skip
        self._seen = 0  # the trainer's optimizer steps that are counted

    @property
    def pruner(self) -> Pruner | None:
        """The pruner; None before the first batch."""
        return self._work.pruner

    def on_train_start(self, trainer: Any, pl_module: Any) -> None:
        """Count steps from here: another trainer begins at 0, and a resumed one where it was."""
        self._seen = trainer.global_step

    def on_train_batch_start(
        self, trainer: Any, pl_module: Any, batch: Any, batch_idx: int
    ) -> None:
        """Make the pruner, if it is not made yet."""
        model = self._part(pl_module)
        if self.pruner is not None and self.pruner.model is model:
            return
        steps = trainer.estimated_stepping_batches
        pruner = self._work.begin(model, batch, steps, labels=("label", "labels", "y", "target"))
        for other in trainer.callbacks:  # they have copied the model before it had masks
            average = getattr(other, "_average_model", None)
            if isinstance(average, nn.Module):
                pruner.share_masks(self._part(getattr(average, "module", average)))

    def on_train_batch_end(
        self, trainer: Any, pl_module: Any, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        """Count an optimizer step, unless gradients are still accumulated; log the progress."""
        if trainer.global_step > self._seen:
            self._seen = trainer.global_step
            self._work.step()
        pl_module.log_dict(self._work.progress(), on_step=True, on_epoch=False, batch_size=1)

    def state_dict(self) -> dict[str, Any]:
        """Return the state of the pruner, for Lightning's checkpoint."""
        return self._work.state()

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        """Keep the state of a pruner until it is made."""
        self._work.saved = state_dict

    def _part(self, whole: nn.Module) -> nn.Module:
        try:
            return whole.get_submodule(self.submodule)
        except AttributeError:
            raise TrellisError(
                f"{type(whole).__name__} has no submodule {self.submodule!r}; it has "
                f"{', '.join(repr(name) for name, _ in whole.named_children())}"
            ) from None
