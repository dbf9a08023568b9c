"""Ways past the accuracy of dense networks, tried on recordings held out of training splits.

``python bench/ceiling.py nw-ucla:PATH mtm1:PATH harder:5 --precision bf16 --out FILE`` makes on
each part of `held.py`, with one seed:

- the default's dense network and those at 99 and 99.9 %, and averages of their weights over the
  last part of training or fine-tuning;
- `Temporal`, a convolutional network over time, and its vote with the dense network;
- dense networks and networks at 99 % that learn from that vote (``--taught``);
- dense networks with other inputs, dropout or two blocks (``--ways``).

A line of JSON with top-1 accuracies is printed and added to FILE for each part. Test splits are
never looked at. docs/results/choosing.md has what was found.
"""

from __future__ import annotations

import argparse
import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from held import HELD, loaded, parts
from torch import Tensor, nn
from torch.nn import functional as F
from variants import PLAIN

from trellis import skeleton
from trellis.methods.budget import budget
from trellis.skeleton.data.layouts import Layout
from trellis.skeleton.model.fitting import feed_of
from trellis.skeleton.shrink import COURSES, Maker, options_for
from trellis.skeleton.shrink.stages import Start
from trellis.training import Forward, Teachers, Training, Weights, stack
from trellis.training.batches import Dropout, batch_indices
from trellis.training.trainer import logits_of

SHARES = (0.1, 0.25, 0.5)  # of a phase, over whose epochs weights are averaged
STEPS, RATE, DECAY = 3200, 2e-3, 0.1  # of the convolutional network, at length 1
TEACHERS, TEMPERATURE = 0.8, 2.0  # share of the loss, as in the course's own distillation
WAYS: dict[str, tuple[dict[str, Any], float]] = {  # options of `Recognizer.fresh`, dropout
    "two blocks": ({"blocks": 2, "heads": 8, "filters": 32}, 0.0),
    "dropout 0.3": ({}, 0.3),
    "chunks, velocity and bones": (
        {"basis": "chunks", "kinds": ("coordinates", "velocity", "bones")}, 0.0,
    ),
    "bones too": ({"kinds": ("coordinates", "bones")}, 0.0),
}  # fmt: skip


class Averages:
    """Averages of weights over the last epochs of dense training and of fine-tuning.

    ``found`` holds sums by phase and share; ``forward`` the function of a phase's networks, which
    may lack the filters that pruning has emptied.
    """

    def __init__(self) -> None:
        self.found: dict[tuple[str, float], Weights] = {}
        self.forward: dict[str, Forward] = {}

    def __call__(self, phase: str, training: Training) -> None:
        if "pruning" in phase:
            return
        self.forward[phase] = training.forward
        for share in SHARES:
            if training.epochs_done <= training.epochs * (1 - share):
                continue
            own = self.found.setdefault((phase, share), {})
            for name, weight in training.weights.items():
                own[name] = own.get(name, 0) + weight.double()

    def of(self, phase: str, share: float, epochs: int) -> Weights:
        """The average over the last ``share`` of a phase's epochs."""
        count = sum(epoch > epochs * (1 - share) for epoch in range(1, epochs + 1))
        return {name: (w / count).float() for name, w in self.found[phase, share].items()}


class Temporal(nn.Module):
    """Three residual blocks of convolutions over time, on joints, bones and the speeds of both.

    Shapes: (batch, joints, chunks * 3), normalized coordinates -> (batch, classes).
    """

    def __init__(self, layout: Layout, classes: int, width: int = 160) -> None:
        super().__init__()
        parents = [parent if parent >= 0 else i for i, parent in enumerate(layout.parents)]
        self.register_buffer("parents", torch.tensor(parents))
        channels = 12 * len(parents)
        self.scale = nn.BatchNorm1d(channels)
        self.first = nn.Conv1d(channels, width, 1)
        self.blocks = nn.Sequential(
            Residual(width, width, 1), Residual(width, width, 2), Residual(width, 2 * width, 2)
        )
        self.last = nn.Linear(4 * width, classes)

    def forward(self, x: Tensor) -> Tensor:
        parents: Any = self.parents
        joints = x.unflatten(2, (-1, 3)).permute(0, 3, 2, 1)  # batch, axes, chunks, joints
        bones = joints - joints[..., parents]
        speeds = [3 * F.pad(each.diff(dim=2), (0, 0, 1, 0)) for each in (joints, bones)]
        seen = torch.cat([joints, bones, *speeds], 1).transpose(2, 3).flatten(1, 2)
        hidden = F.dropout1d(torch.relu(self.first(self.scale(seen))), 0.1, self.training)
        hidden = self.blocks(hidden)
        pooled = torch.cat([hidden.mean(2), hidden.amax(2)], 1)
        logits: Tensor = self.last(F.dropout(pooled, 0.3, self.training))
        return logits


class Residual(nn.Module):
    """Two convolutions over time, beside a linear map."""

    def __init__(self, before: int, after: int, stride: int) -> None:
        super().__init__()
        self.inner = nn.Sequential(
            nn.Conv1d(before, after, 5, stride, padding=2), nn.BatchNorm1d(after), nn.ReLU(),
            nn.Conv1d(after, after, 3, padding=1), nn.BatchNorm1d(after),
        )  # fmt: skip
        self.outer = nn.Conv1d(before, after, 1, stride)

    def forward(self, x: Tensor) -> Tensor:
        return torch.relu(self.inner(x) + self.outer(x))


def temporal(maker: Maker, seed: int, length: float) -> Temporal:
    """A trained `Temporal`, which saw the same augmentation as the dense network."""
    recognizer, x, y = maker.recognizer, maker.x, maker.y
    torch.manual_seed(seed)
    model = Temporal(recognizer.layout, len(recognizer.classes)).train()
    feed = feed_of(recognizer, maker.course.augmentation, [900 + seed], maker.device)
    assert feed is not None
    adam = torch.optim.AdamW(model.parameters(), lr=RATE, weight_decay=DECAY)
    steps, step, epoch = round(STEPS * length), 0, 0
    while step < steps:
        for chosen in batch_indices(len(x), 128, epoch)[: steps - step]:
            for group in adam.param_groups:
                warm = min(1.0, (step + 1) / 50)
                group["lr"] = RATE * warm * 0.5 * (1 + math.cos(math.pi * step / steps))
            inputs = torch.empty(1, len(chosen), *x.shape[1:])
            feed.onto(inputs, x[chosen], step)
            with torch.autocast("cpu", torch.bfloat16, enabled=maker.precision == "bf16"):
                logits = model(inputs[0])
            loss = F.cross_entropy(logits.float(), y[chosen], label_smoothing=0.1)
            adam.zero_grad()
            loss.backward()
            adam.step()
            step += 1
        epoch += 1
    return model.eval()


def measured(
    data: skeleton.Skeletons, train: Any, judge: Any, options: argparse.Namespace
) -> dict[str, float]:
    """Top-1 accuracies on the held-out recordings, by name."""
    fold, seed, length = skeleton.Fold("held out", train, judge), options.seed, options.length
    averages = Averages()

    def maker_of(**own: Any) -> Maker:
        recognizer = skeleton.Recognizer.fresh(data, fold, **options_for(data.layout) | PLAIN | own)
        return Maker(
            recognizer, inputs[train], labels[train], COURSES["default"].times(length),
            precision=options.precision, watch=None if own else averages,
        )  # fmt: skip

    plain = skeleton.Recognizer.fresh(data, fold, **options_for(data.layout) | PLAIN)
    labels = torch.from_numpy(plain.labels(data))
    inputs = torch.from_numpy(plain.places(data.sequences))
    maker = maker_of()
    judged, truth = inputs[judge], labels[judge]

    def top1(chances: Tensor) -> float:
        return 100 * float((chances.argmax(-1) == truth).float().mean())

    def said(forward: Forward, weights: Weights) -> Tensor:
        return logits_of(forward, weights, judged)[0].softmax(1)

    dense = maker.train([seed])
    first = maker.teachers(dense, [seed])
    small = maker.shrink(dense, [seed], [budget(maker.connections, 0.999)])
    found = {
        name: top1(said(maker.forward, weights))
        for name, weights in (("dense", dense), ("99 %", first.weights), ("99.9 %", small.weights))
    }
    tuned = maker.course.recipe.tune_epochs
    for name, phase, epochs in (
        ("dense", "training", maker.course.recipe.epochs),
        ("99 %", "tuning teacher", tuned), ("99.9 %", "tuning", tuned),
    ):  # fmt: skip
        for share in SHARES:
            weights = averages.of(phase, share, epochs)
            found[f"{name}, last {share}"] = top1(said(averages.forward[phase], weights))

    strong = temporal(maker, seed, length)
    with torch.no_grad():
        chances = torch.cat([strong(some).softmax(1) for some in judged.split(256)])
    found["temporal"] = top1(chances)
    found["vote"] = top1(chances + said(maker.forward, dense))
    if options.taught:

        def vote(_: Mapping[str, Tensor], x: Tensor) -> Tensor:
            with torch.no_grad():
                return torch.stack([strong(x[0]), maker.forward(dense, x[:1])[0]])

        # Two teachers that hold their weights themselves.
        teachers = Teachers(vote, {"": torch.zeros(2, 1)}, TEACHERS, TEMPERATURE)
        training = maker._stage(stack([maker._fresh(seed)]), [seed], teachers=teachers).training
        maker._run("training, taught", training)
        found["dense, taught"] = top1(said(maker.forward, training.weights))
        start = Start(training.weights)
        small = maker._shrunk("taught", start, [maker.hundredth], [seed], teachers)
        found["99 %, taught"] = top1(said(maker.forward, small.weights))
    for name in options.ways:
        own, rate = WAYS[name]
        other = maker_of(**own)
        training = other._stage(stack([other._fresh(seed)]), [seed]).training
        if rate:
            units = training.weights["dense.weight"].shape[-1]
            training.dropout = Dropout("dense.weight", [rate], units, [seed], other.device)
        other._run("training, other", training)
        found[f"dense, {name}"] = top1(said(other.forward, training.weights))
    return {name: round(value, 2) for name, value in found.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("data", nargs="+")
    parser.add_argument("--held", choices=HELD, default="apart", help="what is held out (held.py)")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--length", type=float, default=0.25, help="times the course's epochs")
    parser.add_argument("--precision", default="fp32")
    parser.add_argument("--taught", action="store_true", help="distil from the vote too")
    parser.add_argument("--ways", nargs="*", choices=WAYS, default=[], help="other dense networks")
    parser.add_argument("--out", type=Path, required=True)
    options = parser.parse_args()
    for source in options.data:
        data = loaded(source)
        for part, train, judge in parts(data, options.held):
            row = {"part": part, "seed": options.seed, "length": options.length}
            line = json.dumps(row | measured(data, train, judge, options))
            print(line, flush=True)
            with options.out.open("a") as file:
                file.write(line + "\n")


if __name__ == "__main__":
    main()
