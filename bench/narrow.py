"""What a step of tuning takes on a CPU, of a pruned recognizer as it is and without what is empty.

``python bench/narrow.py MODEL --networks 1 8`` reads what ``trellis shrink`` wrote, trains so many
copies of it side by side on random recordings, in batches of 128, and prints milliseconds a step,
the least of five epochs of five steps, whole and narrow in turn, and their ratio.
"""

from __future__ import annotations

import argparse
import time

import torch

from trellis import skeleton
from trellis.cli.data_arguments import keep_freed
from trellis.masks import masks_of
from trellis.skeleton.data.preparation import reading_channels
from trellis.skeleton.model.gcn_stacks import Narrow
from trellis.training import Training, forward_of, recipe_named, stack

RECORDINGS, BATCH, EPOCHS = 640, 128, 5


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("model")
    parser.add_argument("--networks", type=int, nargs="+", default=[1, 8])
    options = parser.parse_args()
    keep_freed()
    recognizer = skeleton.Recognizer.load(options.model)
    model = recognizer.model
    kept = masks_of(model)
    kept.bake(model)
    nodes, classes = model.sizes["nodes"], model.sizes["classes"]
    x = torch.randn(RECORDINGS, nodes, 3 * recognizer.chunks)
    y = torch.randint(classes, (RECORDINGS,))
    recipe = recipe_named("default", batch=BATCH, tune_epochs=EPOCHS + 1)
    for count in options.networks:
        weights = stack([model] * count)
        masks = {name: torch.stack([mask] * count) for name, mask in kept.items()}
        narrow = Narrow.of(model, masks)
        if narrow is None:
            raise SystemExit(f"{options.model!r} is of a kind that is not narrowed")
        whole, less = (
            Training(
                reading_channels(recognizer.channels, forward), own, x, y, recipe,
                seeds=list(range(count)), masks=mask, tune=True,
            )
            for forward, own, mask in (
                (forward_of(model), weights, masks),
                (narrow.forward(), narrow.narrow(weights), narrow.narrow(masks)),
            )
        )  # fmt: skip
        took: dict[int, list[float]] = {0: [], 1: []}
        for epoch in range(EPOCHS + 1):
            for which, training in enumerate((whole, less)):
                began = time.perf_counter()
                training.epoch()
                if epoch:  # the first asks for memory
                    took[which].append((time.perf_counter() - began) / training.batches)
        slow, fast = (1000 * min(each) for each in took.values())
        print(
            f"{count} networks, {narrow.share:.1%} of the convolution left: {slow:.1f} ms whole, "
            f"{fast:.1f} ms narrow, {slow / fast:.1f} times as fast"
        )


if __name__ == "__main__":
    main()
