"""A callback that prunes while the Trainer of Hugging Face Transformers trains."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from torch import Tensor, nn

from ..errors import TrellisError
from ..training.pruner import Pruner
from ..training.schedule import Schedule
from .gradual import GradualPruning, missing, packed, same_random_numbers, unpacked

try:
    from transformers import TrainerCallback
    from transformers.trainer_callback import ExportableState
    from transformers.utils.generic import find_labels
except ModuleNotFoundError as error:
    if error.name != "transformers":
        raise
    raise missing("transformers", "transformers") from None

__all__ = ["PruningCallback"]


class PruningCallback(TrainerCallback, ExportableState):
    """Prune a model while the Trainer trains it; every kept connection stays live.

    The pruner is made when training begins, with the first example of the training set. Its state
    is in ``trainer_state.json`` of every checkpoint, and training resumes with the same masks.
    ``trellis/kept``, ``trellis/live`` and ``trellis/sparsity`` are in ``trainer.state.log_history``
    after each mask update, in what the Trainer prints, and in TensorBoard if it is on (in the run
    ``trellis`` beside the Trainer's). Checkpoints hold plain weights, which ``from_pretrained``
    reads without Trellis.

    Args:
        sparsity: The fraction of connections removed at the end; or give ``keep``.
        keep: The number of connections kept at the end.
        schedule: A `trellis.Schedule` over optimizer steps, or the name of a curve. By default,
            masks are updated from 10 % to 70 % of the trainer's steps, along a cubic curve.
        example_inputs: Inputs to trace the model with, or a function that makes them from a batch.
            By default they are the first batch without its labels.
        regrow: As for `trellis.Pruner`.
        **options: The other options of `trellis.Pruner`: ``method``, ``ignore``, ``scope``, ...

    Attributes:
        pruner: The `trellis.Pruner`; None before training.

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
        regrow: float = 0.0,
        **options: Any,
    ) -> None:
        if sparsity is None and keep is None:  # the Trainer makes one to restore its attributes
            raise TrellisError(
                "expected sparsity= or keep=, got neither. If a training is resumed, leave out "
                "restore_callback_states_from_checkpoint: the masks are restored without it"
            )
        self._work = GradualPruning(
            sparsity=sparsity, keep=keep, schedule=schedule, example_inputs=example_inputs,
            regrow=regrow, **options,
        )  # fmt: skip
        self._board: Any = None

    @property
    def pruner(self) -> Pruner | None:
        """The pruner; None before training."""
        return self._work.pruner

    def on_train_begin(self, args: Any, state: Any, control: Any, **given: Any) -> None:
        """Make the pruner, with the state in the checkpoint if training is resumed."""
        model = given["model"]
        stored = state.stateful_callbacks.get(type(self).__name__) if state.global_step else None
        if isinstance(stored, list):
            stored = stored[0]
        saved = (stored or {}).get("attributes", {}).get("pruner")
        self._work.saved = None if saved is None else unpacked(saved)
        found: list[str] = find_labels(type(model))  # type: ignore[no-untyped-call]
        labels = {*found, *(args.label_names or ()), "labels", "label"}
        batch = lambda: _first_batch(given["train_dataloader"], model)  # noqa: E731
        self._work.begin(model, batch, state.max_steps, labels)
        if "tensorboard" in args.report_to and state.is_world_process_zero:
            from torch.utils.tensorboard import SummaryWriter

            place = os.getenv("TENSORBOARD_LOGGING_DIR")
            # The Trainer's own callback came first and has made a folder for this training.
            runs = sorted(Path(args.output_dir, "runs").glob("*"), key=os.path.getmtime)
            folder = place or (runs[-1] if runs else args.output_dir)
            self._board = SummaryWriter(str(Path(folder, "trellis")))

    def on_step_end(self, args: Any, state: Any, control: Any, **given: Any) -> None:
        """Count an optimizer step."""
        if self._work.step():
            progress = self._work.progress()
            state.log_history.append({"epoch": state.epoch, **progress, "step": state.global_step})
            for name, value in progress.items() if self._board is not None else ():
                self._board.add_scalar(name, value, state.global_step)

    def on_log(self, args: Any, state: Any, control: Any, logs: Any = None, **given: Any) -> None:
        """Add the progress to what the Trainer prints."""
        if logs is not None and self.pruner is not None:
            logs.update(self._work.progress())

    def on_train_end(self, args: Any, state: Any, control: Any, **given: Any) -> None:
        """Close TensorBoard's file."""
        if self._board is not None:
            self._board.close()
            self._board = None

    def state(self) -> dict[str, Any]:
        """Return the state of the pruner, for ``trainer_state.json``."""
        state = self._work.state()
        return {"args": {}, "attributes": {"pruner": packed(state) if state else None}}


def _first_batch(loader: Any, model: nn.Module) -> Any:
    """Return a batch of the first example; random numbers are as if it had not been read."""
    dataset = loader.dataset
    with same_random_numbers():
        try:
            example = dataset[0]
        except (TypeError, NotImplementedError, KeyError):  # of an iterable dataset
            example = next(iter(dataset))
        batch = loader.collate_fn([example])
    device = next(model.parameters()).device
    shifted = getattr(model, "prepare_decoder_input_ids_from_labels", None)
    if isinstance(batch, Mapping):
        if shifted is not None and "labels" in batch and "decoder_input_ids" not in batch:
            # forward() of an encoder-decoder makes these itself, from the labels.
            batch = {**batch, "decoder_input_ids": shifted(labels=batch["labels"])}
        return {k: v.to(device) if isinstance(v, Tensor) else v for k, v in batch.items()}
    return batch.to(device) if isinstance(batch, Tensor) else batch
