"""Settings of ``trellis shrink`` that `choose.py` compares: each changes one thing of a base.

The base is the default of layouts with a body, whose filters do not slide, but in 1,000 steps of
pruning and of tuning each; ``whole`` is that default itself.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, NamedTuple

from trellis import skeleton
from trellis.skeleton.shrink import COURSES, Course

COURSE = replace(  # the default, but pruned and tuned in 1,000 steps each
    COURSES["default"],
    recipe=replace(COURSES["default"].recipe, prune_epochs=200, prune_every=2, tune_epochs=200),
)
WHOLE = COURSES["default"]
PLAIN = {"kinds": ("coordinates",), "filters": 128}  # filters that do not slide
WINDOWS = {"kinds": ("windows", "coordinates"), "filters": 64}
AUGMENTATION = skeleton.Augmentation()
WEAK = skeleton.Augmentation(rotation=(15, 15, 15), scale=0.1, warp=0.4, crop=0.85)


class Variant(NamedTuple):
    course: Course = COURSE
    own: Mapping[str, Any] = PLAIN  # what is not as `options_for` has it


def retrained(course: Course = COURSE, **changes: Any) -> Variant:
    """A course with another recipe."""
    return Variant(replace(course, recipe=replace(course.recipe, **changes)))


VARIANTS = {
    "base": Variant(),
    "pruned in 3,000 steps": retrained(prune_epochs=600, prune_every=6),  # the default
    "tuned in 3,000 steps": retrained(tune_epochs=600, tune_rate=5e-3),
    "tuned at 5e-3": retrained(tune_rate=5e-3),
    "pruned at 1.5e-3": retrained(prune_rate=1.5e-3),
    "full batches": retrained(
        batch=None, epochs=2000, prune_epochs=1000, prune_every=10, tune_epochs=1000
    ),
    "batches of 64": retrained(
        batch=64, epochs=200, prune_epochs=100, prune_every=1, tune_epochs=100
    ),
    "biases": Variant(own=PLAIN | {"bias": True}),
    "ReLU": Variant(own=PLAIN | {"activation": "relu"}),
    "smoothed to the end": retrained(tune_smoothing=None),
    "no dropout": Variant(replace(COURSE, dropout=0.0)),
    "dropout 0.5": Variant(replace(COURSE, dropout=0.5)),
    "not mirrored": Variant(replace(COURSE, mirror=False)),
    "rotation 45": Variant(
        replace(COURSE, augmentation=replace(AUGMENTATION, rotation=(45.0, 45.0, 45.0)))
    ),
    "pruned at 6e-3": retrained(prune_rate=6e-3),
    "gradient to the power 0.25": Variant(replace(COURSE, sensitivity=0.25)),
    "gradient to the power 1": Variant(replace(COURSE, sensitivity=1.0)),
    "magnitude alone": Variant(replace(COURSE, sensitivity=0.0)),
    "SynFlow": Variant(replace(COURSE, method="synflow")),
    "cubic": Variant(replace(COURSE, curve="cubic")),
    "moments": Variant(own=PLAIN | {"basis": "chunks"}),
    "bones": Variant(own=PLAIN | {"kinds": ("bones",)}),
    "bones too": Variant(own=PLAIN | {"kinds": ("coordinates", "bones")}),
    "camera's frame": Variant(own=PLAIN | {"frame": "camera"}),
    "recorded size": Variant(own=PLAIN | {"size": "recorded"}),
    "noise 0.1": Variant(replace(COURSE, augmentation=replace(AUGMENTATION, noise=0.1))),
    "crop to 0.6": Variant(replace(COURSE, augmentation=replace(AUGMENTATION, crop=0.6))),
    "weaker variants": Variant(replace(COURSE, augmentation=WEAK)),
    "rotation 15": Variant(
        replace(COURSE, augmentation=replace(AUGMENTATION, rotation=(15.0, 15.0, 15.0)))
    ),
    "whole": Variant(WHOLE),
    "whole, pruned from all": Variant(replace(WHOLE, surplus=None)),
    "whole, surplus 10": Variant(replace(WHOLE, surplus=10.0)),
    "whole, surplus 3": Variant(replace(WHOLE, surplus=3.0)),
    "whole, trained half as long": retrained(WHOLE, epochs=400),
    "whole, trained twice as long": retrained(WHOLE, epochs=1600),
    "whole, pruned twice as long": retrained(WHOLE, prune_epochs=1200, prune_every=12),
    "whole, tuned at 3e-3": retrained(WHOLE, tune_rate=3e-3),
    "whole, tuned in 2,000 steps at 3e-3": retrained(WHOLE, tune_epochs=400, tune_rate=3e-3),
    "whole, tuned in 4,000 steps at 3e-3": retrained(WHOLE, tune_epochs=800, tune_rate=3e-3),
    "whole, tuned in 4,000 steps": retrained(WHOLE, tune_epochs=800),
    "whole, gradient to the power 0.25": Variant(replace(WHOLE, sensitivity=0.25)),
    "whole, gradient to the power 0.75": Variant(replace(WHOLE, sensitivity=0.75)),
    "whole, no dropout": Variant(replace(WHOLE, dropout=0.0)),
    "whole, dropout 0.5": Variant(replace(WHOLE, dropout=0.5)),
    "whole, twice as long": Variant(WHOLE.times(2)),
    "whole, no dropout, twice as long": Variant(replace(WHOLE, dropout=0.0).times(2)),
    "no distillation": Variant(replace(COURSE, distill=False)),
    "whole, no distillation": Variant(replace(WHOLE, distill=False)),
    "whole, bones too": Variant(WHOLE, PLAIN | {"kinds": ("coordinates", "bones")}),
    "whole, windows": Variant(WHOLE, WINDOWS),
}  # fmt: skip
