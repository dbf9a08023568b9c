"""How a budget is counted, and divided by layer."""

from __future__ import annotations

from trellis.methods.budget import budget, counts, kept_share


def test_layers_keep_the_papers_floor_and_the_rest_goes_by_fraction() -> None:
    sizes = {"a": 75, "b": 288, "c": 480}  # 843 in all; a quarter of each is 18.75, 72, 120
    shapes = {name: (size,) for name, size in sizes.items()}
    total = budget(843, sparsity=0.75)
    found = counts("layer", shapes, sizes, total, kept_share(843, sparsity=0.75))
    assert (total, found) == (210, {"a": 18, "b": 72, "c": 120})
