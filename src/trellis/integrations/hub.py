"""Pruned models on the Hugging Face Hub: folders of `trellis.save`, with a model card."""

from __future__ import annotations

import json
from collections.abc import Mapping
from os import PathLike
from pathlib import Path
from typing import Any, cast

import torch
from torch import Tensor, nn

from ..errors import TrellisError
from ..masks import plain_tensors
from ..paths.audit import Audit, audit
from ..saving import load, save
from ..saving.folder import DESCRIPTION, TENSORS, read_folder
from ..saving.model import Saved, name_of
from .gradual import missing

try:
    from huggingface_hub import ModelCard, ModelHubMixin, snapshot_download
    from huggingface_hub.errors import HfHubHTTPError
except ModuleNotFoundError as error:
    if error.name != "huggingface_hub":
        raise
    raise missing("huggingface_hub", "hub") from None

__all__ = ["PrunedModel", "download"]


class PrunedModel(ModelHubMixin):
    """A model that is saved to the Hub, or loaded from it, as a folder of `trellis.save`.

    `save_pretrained`, `from_pretrained` and `push_to_hub` are those of
    ``huggingface_hub.ModelHubMixin``. Folders hold safetensors, JSON and a model card; no pickle
    is written or read.

    Args:
        model: The model, masked or not.
        example_inputs: Inputs of the model. The card then shows its audit.
        results: What was measured, by name: ``{"accuracy": 0.93}``.
        command: The command or the code that made the model, for the card.
        notes: As for `trellis.save`.

    Example:
        >>> import tempfile, trellis
        >>> model = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 2))
        >>> masks = trellis.prune(model, torch.zeros(1, 8), sparsity=0.9)
        >>> pruned = PrunedModel(model, example_inputs=torch.zeros(1, 8))
        >>> fresh = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 2))
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     pruned.save_pretrained(folder)
        ...     again = PrunedModel.from_pretrained(folder, into=fresh)
        >>> trellis.masks_of(again.model) == masks
        True
    """

    def __init__(
        self,
        model: nn.Module,
        *,
        example_inputs: Any = None,
        results: Mapping[str, Any] | None = None,
        command: str | None = None,
        notes: Mapping[str, Any] | None = None,
    ) -> None:
        self.model, self.example_inputs = model, example_inputs
        self.results, self.command = dict(results or {}), command
        self.notes = dict(notes or {})
        # Written to config.json, where the Hub looks for the kind of a model.
        self._hub_mixin_config = {"library_name": "trellis", "model_type": type(model).__name__}

    def _save_pretrained(self, save_directory: Path) -> None:
        save(self.model, save_directory, notes=self.notes)

    @classmethod
    def _from_pretrained(
        cls, *, model_id: str, into: nn.Module | None = None, **options: Any
    ) -> PrunedModel:
        known = ("revision", "cache_dir", "force_download", "local_files_only", "token")
        if unknown := sorted(set(options) - set(known) - {"library_name", "model_type"}):
            raise TrellisError(
                f"from_pretrained got {unknown[0]!r}; expected into=, {', '.join(known)}"
            )
        folder = download(model_id, **{k: v for k, v in options.items() if k in known})
        return cls(load(folder, into=into), notes=read_folder(folder).notes)

    def generate_model_card(self, *args: Any, **kwargs: Any) -> ModelCard:
        """Return a model card: the audit, the results, the command, and how to load the model."""
        return ModelCard(self._card())

    def _card(self) -> str:
        inputs, own = self.example_inputs, name_of(self.model) is not None
        if inputs is None and own:
            inputs = cast(Saved, self.model).example()
        found = None if inputs is None else audit(self.model, inputs)
        name = type(self.model).__name__
        lines = ["---", "library_name: trellis", "tags: [pruning, sparsity, trellis]", "---", ""]
        lines += [f"# A pruned {name}", "", *_sizes(self.model, found), ""]
        results = _results(self.notes) | self.results
        if results:
            lines += ["## Results", "", "| measure | value |", "|---|---|"]
            lines += [f"| {_cell(key)} | {_cell(value)} |" for key, value in results.items()]
            lines += [""]
        if self.command:
            lines += ["## How it was made", "", "```sh", self.command.replace("```", ""), "```", ""]
        lines += ["## Use", ""]
        if "recogniser" in self.notes:
            lines += [
                "```sh", "trellis evaluate hf:OWNER/NAME recording.csv", "```", "",
                "It names the action in a recording of a moving skeleton.", "",
            ]  # fmt: skip
        into = "" if own else ", into=your_model"
        lines += [
            "```python", "from trellis.integrations.hub import PrunedModel", "",
            f'model = PrunedModel.from_pretrained("OWNER/NAME"{into}).model', "```", "",
        ]  # fmt: skip
        if not own:
            lines += ["`into` is a new model of the same class.", ""]
        lines += [
            "`model.safetensors` holds the weights under the names of the unpruned model, so any "
            "reader of safetensors can use them.", "",
        ]  # fmt: skip
        return "\n".join(lines)


def download(name: str | PathLike[str], **options: Any) -> Path:
    """Return the folder of a model: a local one, or one downloaded from the Hub.

    Only the tensors and their description are downloaded, and no code is run.

    Args:
        name: A folder, or OWNER/NAME of a model on the Hub.
        **options: Options of ``huggingface_hub.snapshot_download``, such as ``revision``.

    Raises:
        TrellisError: The folder does not exist, and the model cannot be downloaded.
    """
    if Path(name).is_dir():
        return Path(name)
    try:
        found = snapshot_download(str(name), allow_patterns=[TENSORS, DESCRIPTION], **options)
    except (HfHubHTTPError, OSError, ValueError) as error:
        reason = (str(error).strip() or type(error).__name__).splitlines()[0]
        raise TrellisError(
            f"expected a folder or a model on the Hub (OWNER/NAME), got {str(name)!r:.200}, which "
            f"cannot be downloaded: {reason:.300}"
        ) from error
    return Path(found)


def _sizes(model: nn.Module, found: Audit | None) -> list[str]:
    """Return the card's line on weights; without an audit, zeros are counted."""
    if found is None:
        weights = [w for w in plain_tensors(model).values() if w.ndim > 1]
        total, kept = sum(w.numel() for w in weights), sum(_kept(w) for w in weights)
        return [f"{kept:,} of {total:,} weights are not zero."]
    share = f"{100 * (1 - found.kept / found.total):.4g} %" if found.total else "0 %"
    lines = [
        f"{found.kept:,} of {found.total:,} connections are kept ({share} pruned). "
        f"{found.live:,} of them are live: on a path from an input to an output. "
        f"{found.outputs_reached:,} of {found.outputs:,} outputs are reached.",
        "",
        "| layer | shape | connections | kept | live |",
        "|---|---|---|---|---|",
    ]
    return lines + [
        f"| `{row.name}` | {'x'.join(map(str, row.shape))} | {row.total:,} | {row.kept:,} "
        f"| {row.live:,} |"
        for row in found.layers
    ]


def _kept(weight: Tensor) -> int:
    return int(torch.count_nonzero(weight))


def _results(notes: Mapping[str, Any]) -> dict[str, Any]:
    """Return the numbers of the last step in a model's history."""
    holders = [notes, *(value for value in notes.values() if isinstance(value, Mapping))]
    for holder in holders:
        history = holder.get("history")
        steps = [s for s in history if isinstance(s, Mapping)] if isinstance(history, list) else []
        for step in reversed(steps):
            metrics = step.get("metrics")
            if isinstance(metrics, Mapping):
                return {k: v for k, v in metrics.items() if isinstance(v, int | float)}
    return {}


def _cell(value: Any) -> str:
    text = f"{value:.6g}" if isinstance(value, float) else value
    text = text if isinstance(text, str) else json.dumps(text, ensure_ascii=False, default=str)
    return text.replace("|", "\\|").replace("\n", " ")
