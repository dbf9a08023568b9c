"""``trellis demo``: train a small network on made-up gestures, prune it in several ways."""

from __future__ import annotations

import copy
import time
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch.nn.utils import prune as torch_prune

import trellis
from trellis.cli.demo.classifier import Classifier
from trellis.cli.demo.gestures import CLASSES, JOINTS, gestures
from trellis.cli.demo.tuning import Data, accuracy, one_thread, tune
from trellis.cli.tables import console, percent, print_audit, show, table
from trellis.paths.audit import Audit

SPARSITIES = (0.90, 0.98, 0.99)
DENSE_STEPS, TUNING_STEPS = 600, 300
SAMPLES = 40  # of each class, to train on, and as many others to test on

Prune = Callable[[Classifier, float], None]


def _torch_l1(model: Classifier, sparsity: float) -> None:
    tensors = [(model, "attention"), (model, "convolution"), (model.dense, "weight")]
    torch_prune.global_unstructured(tensors, torch_prune.L1Unstructured, amount=sparsity)


def _trellis(**options: object) -> Prune:
    def prune(model: Classifier, sparsity: float) -> None:
        trellis.prune(model, _example(), sparsity=sparsity, **options)  # type: ignore[arg-type]

    return prune


CONTENDERS: dict[str, Prune] = {
    "torch.nn.utils.prune, global L1": _torch_l1,
    "trellis magnitude, by layer": _trellis(method="magnitude", scope="layer"),
    "trellis magnitude, consistent": _trellis(method="magnitude", consistent=True),
    "trellis viterbi": _trellis(method="viterbi"),
}


@dataclass(frozen=True, eq=False)
class Result:
    sparsity: float
    name: str
    audit: Audit
    accuracy: float

    def row(self) -> list[str]:
        audit = self.audit
        return [
            f"{100 * self.sparsity:g} %", self.name, f"{audit.kept:,}",
            percent(audit.live_fraction), f"{audit.outputs_reached} of {audit.outputs}",
            percent(self.accuracy),
        ]  # fmt: skip


def demo() -> int:
    """Train a small network on made-up data, prune it in several ways and compare.

    Needs no download and a minute or so.

      trellis demo
    """
    with one_thread():
        return _demo()


def _demo() -> int:
    began = time.monotonic()
    out = console()
    train, test = gestures(SAMPLES, seed=1), gestures(SAMPLES, seed=2)
    with torch.random.fork_rng():
        torch.manual_seed(0)
        dense = Classifier()
    total = sum(parameter.numel() for parameter in dense.parameters())
    out.print(
        f"Synthetic data, made by this program: {CLASSES} hand gestures over {JOINTS} joints, "
        f"{len(test[1])} to train on and as many to test.",
        f"Training a graph network of {total:,} connections ...",
        sep="\n",
        soft_wrap=True,
    )
    tune(dense, train, DENSE_STEPS)
    out.print(
        f"Unpruned accuracy: {percent(accuracy(dense, test))}. Pruning it {len(SPARSITIES)} x "
        f"{len(CONTENDERS)} times, tuning each for {TUNING_STEPS} steps with its masks ...\n",
        soft_wrap=True,
    )
    results = [
        _pruned(dense, sparsity, name, train, test)
        for sparsity in SPARSITIES
        for name in CONTENDERS
    ]
    made = table(["removed", "by", "kept", "live", "outputs", "accuracy"], words=2)
    for result in results:
        if result.name == next(iter(CONTENDERS)):
            made.add_section()
        made.add_row(*result.row(), style="red" if result.audit.dead else "")
    show(made, out)
    worst = min(results, key=lambda result: result.audit.live_fraction)
    out.print(
        f"\nThe most dead weight: {worst.name}, {100 * worst.sparsity:g} % removed. Its audit:\n",
        soft_wrap=True,
    )
    print_audit(worst.audit)
    out.print(NEXT.format(seconds=time.monotonic() - began), soft_wrap=True)
    return 0


NEXT = """
Done in {seconds:.0f} s, with one seed. Accuracies a point or two apart mean nothing here.

Try next, on a model of yours:
  trellis audit package.module:factory --weights pruned.safetensors --input 1x3x224x224
  trellis prune package.module:factory --weights trained.safetensors --input 1x3x224x224 \\
      --sparsity 0.99 --out pruned.safetensors"""


def _pruned(dense: Classifier, sparsity: float, name: str, train: Data, test: Data) -> Result:
    model = copy.deepcopy(dense)
    CONTENDERS[name](model, sparsity)
    audit = trellis.audit(model, _example())
    tune(model, train, TUNING_STEPS)
    return Result(sparsity, name, audit, accuracy(model, test))


def _example() -> torch.Tensor:
    return gestures(1, seed=0)[0][:1]
