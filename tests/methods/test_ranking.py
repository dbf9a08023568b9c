"""The best m are the first m of everything, sorted."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from trellis.methods import budget as ranking
from trellis.methods.budget import Ranking, count


def drawn(seed: int, levels: int) -> dict[str, Tensor]:
    """Few different values, so that there are ties of every kind."""
    generator = torch.Generator().manual_seed(seed)
    sizes = {"a": (40, 25), "b": (7,), "c": (3, 5, 20)}
    return {n: torch.randint(levels, s, generator=generator).float() for n, s in sizes.items()}


def first(m: int, by: Ranking, masks: dict[str, Tensor] | None) -> set[tuple[str, int]]:
    """By the definition: score, then saliency, then parameter order, then flat index."""
    rows = [
        (-float(score), -float(by.saliency[name].reshape(-1)[i]), order, i, name)
        for order, (name, scores) in enumerate(by.scores.items())
        for i, score in enumerate(scores.reshape(-1))
        if masks is None or masks[name].reshape(-1)[i]
    ]
    return {(name, i) for *_, i, name in sorted(rows)[:m]}


@pytest.mark.parametrize("sample", [1 << 17, 64])
@given(
    st.integers(0, 1000),
    st.sampled_from([2, 9, 1 << 20]),
    st.sampled_from([0, 1, 5, 60, 400, 1306, 1307, 2000]),
    st.booleans(),
)
@settings(max_examples=25)
def test_top_is_the_first_of_all_sorted(
    sample: int, seed: int, levels: int, m: int, masked: bool
) -> None:
    by = Ranking(drawn(seed, levels), drawn(seed + 1, 3))
    masks = {n: t > 0 for n, t in drawn(seed + 2, 3).items()} if masked else None
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ranking, "SAMPLE", sample)
        found = by.top(m, among=masks)
    kept = {(n, int(i)) for n, mask in found.items() for i in mask.reshape(-1).nonzero()}
    assert kept == first(m, by, masks)
    assert count(found) == len(kept)


@pytest.mark.parametrize("allowed", [False, True])
def test_many_ties_are_sorted_once_and_alike(
    allowed: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A head of zeros: every score is 0, and saliency decides."""
    generator = torch.Generator().manual_seed(3)
    shapes = {"a": (7, 5), "b": (4, 9), "c": (3,)}
    saliency = {n: torch.randint(0, 4, s, generator=generator).float() for n, s in shapes.items()}
    scores = {n: torch.zeros(s) for n, s in shapes.items()}
    some = {n: torch.rand(s, generator=generator) < 0.7 for n, s in shapes.items()}
    given = some if allowed else None
    plain = Ranking(scores, saliency, given)
    expected = [plain.top(m) for m in range(plain.size + 1)]
    assert "_order" not in plain.__dict__
    monkeypatch.setattr("trellis.methods.budget.SAMPLE", 1)
    once = Ranking(scores, saliency, given)
    for m, masks in enumerate(expected):
        found = once.top(m)
        assert all(torch.equal(found[n], masks[n]) for n in shapes)
    assert "_order" in once.__dict__
