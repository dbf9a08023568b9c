"""Live means that the weight matters: random models with attention, tokens, gates and norms."""

import copy
import random
from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

import trellis
from tests.oracle.autograd import live_by_autograd
from tests.oracle.network import as_set
from tests.oracle.random_models import dependent, random_model
from trellis.paths.liveness import liveness

Masks = dict[str, Tensor]


def has_tokens(model: nn.Module) -> bool:
    return any(isinstance(module, nn.Embedding) for module in model.modules())


def surely_dead(
    model: nn.Module, inputs: tuple[Tensor, ...], kept: Masks, live: Masks
) -> set[object]:
    """What is called live and matters under no draw; looked at twice, the second time harder."""
    for draws, samples in ((6, 24), (30, 60)):
        matters = dependent(model, inputs, kept, draws=draws, samples=samples, seed=draws)
        wrong = as_set({name: live[name] & ~matters[name] for name in live})
        if not wrong:
            break
    return set(wrong)


@pytest.mark.parametrize("seed", range(24))
def test_audits_equal_derivatives_of_straight_lines(seed: int) -> None:
    model, inputs = random_model(seed)
    net = trellis.trace(model, inputs)
    tokens = has_tokens(model)
    chance = torch.Generator().manual_seed(seed)
    for density in (0.2, 0.6):
        kept = {
            name: torch.rand(shape, generator=chance) < density
            for name, shape in net.connections.items()
        }
        live = liveness(net.lean, kept).live
        draws = 60 if tokens else 2
        alive = live_by_autograd(model, inputs, kept, kept, draws=draws, one_row=tokens)
        assert as_set(alive) <= as_set(live)
        if not tokens:  # of tokens, sixty draws may miss the one that matters
            assert as_set(alive) == as_set(live)
        assert not surely_dead(model, inputs, kept, dict(live))


@pytest.mark.parametrize("seed", range(100, 118))
@pytest.mark.parametrize("method", ["viterbi", "magnitude", "synflow"])
def test_no_method_keeps_what_cannot_matter(seed: int, method: str) -> None:
    model, inputs = random_model(seed)
    sparsity = random.Random(seed).choice([0.3, 0.5, 0.7])
    try:
        masks = trellis.prune(
            copy.deepcopy(model), inputs, sparsity=sparsity, method=method, consistent=True
        )
    except trellis.TrellisError as error:
        assert "too small" in str(error) or "disconnected" in str(error)
        return
    assert not surely_dead(model, inputs, dict(masks), dict(masks))


class Attend(nn.Module):
    def __init__(self, **options: bool) -> None:
        super().__init__()
        self.attention = nn.MultiheadAttention(6, 2, batch_first=True, **options)
        for parameter in self.parameters():
            nn.init.normal_(parameter)

    def forward(self, x: Tensor) -> Tensor:
        found: Tensor = self.attention(x, x, x, need_weights=False)[0]
        return found


def test_values_that_are_biases_carry_no_input() -> None:
    model = Attend()
    with torch.no_grad():
        model.attention.in_proj_weight[12:] = 0
    audit = trellis.audit(model, torch.zeros(1, 5, 6))
    assert (audit.kept, audit.live, audit.outputs_reached) == (108, 0, 0)


def test_queries_need_keys_that_differ() -> None:
    model = Attend()
    with torch.no_grad():
        model.attention.in_proj_weight[6:12] = 0
    audit = trellis.audit(model, torch.zeros(1, 5, 6))
    assert not audit.live_masks["attention.in_proj_weight"][:6].any()
    assert audit.live_masks["attention.in_proj_weight"][12:].all()
    assert audit.outputs_reached == 30


def test_a_learned_key_beside_biased_ones_makes_queries_matter() -> None:
    model = Attend(add_bias_kv=True)
    with torch.no_grad():
        model.attention.in_proj_weight[6:12] = 0
    audit = trellis.audit(model, torch.zeros(1, 5, 6))
    assert audit.live_masks["attention.in_proj_weight"][:6].all()


def test_over_a_single_key_queries_and_keys_are_dead() -> None:
    audit = trellis.audit(Attend(), torch.zeros(1, 1, 6))
    assert not audit.live_masks["attention.in_proj_weight"][:12].any()
    assert audit.live_masks["attention.in_proj_weight"][12:].all()


def test_the_first_place_under_a_causal_mask_sees_a_single_key() -> None:
    class First(nn.Module):
        def __init__(self, place: int) -> None:
            super().__init__()
            self.q, self.k, self.v = (nn.Linear(4, 4) for _ in range(3))
            self.place = place

        def forward(self, x: Tensor) -> Tensor:
            y = nn.functional.scaled_dot_product_attention(
                self.q(x), self.k(x), self.v(x), is_causal=True
            )
            return y[:, self.place]

    first, second = (trellis.audit(First(place), torch.zeros(1, 3, 4)) for place in (0, 1))
    assert [row.live for row in first.layers] == [0, 0, 16]
    assert [row.live for row in second.layers] == [16, 16, 16]


MASKINGS: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "masked_fill": lambda scores, seen: scores.masked_fill(~seen, -torch.inf),
    "where": lambda scores, seen: torch.where(seen, scores, -1e9),
    "where_tensor": lambda scores, seen: torch.where(~seen, torch.tensor(-torch.inf), scores),
    "added": lambda scores, seen: scores + torch.zeros(3, 3).masked_fill(~seen, -torch.inf),
    "subtracted": lambda scores, seen: scores - 1e9 * (~seen).float(),
}


@pytest.mark.parametrize("masking", MASKINGS)
def test_queries_need_keys_that_differ_however_scores_are_masked(masking: str) -> None:
    class Masked(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.q, self.k, self.v = (nn.Linear(4, 4) for _ in range(3))

        def forward(self, x: Tensor) -> Tensor:
            seen = torch.ones(3, 3, dtype=torch.bool).tril()
            scores = MASKINGS[masking](self.q(x) @ self.k(x).mT, seen)
            return torch.softmax(scores, -1) @ self.v(x)

    model, example = Masked(), torch.zeros(1, 3, 4)
    assert [row.live for row in trellis.audit(model, example).layers] == [16, 16, 16]
    with torch.no_grad():
        model.k.weight.zero_()
    assert [row.live for row in trellis.audit(model, example).layers] == [0, 0, 16]


def test_a_standard_deviation_ignores_what_is_broadcast() -> None:
    class Spread(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.last = nn.Linear(3, 1), nn.Linear(3, 2)

        def forward(self, x: Tensor) -> Tensor:
            y: Tensor = self.last(x / (1 + self.first(x).expand(-1, 4).std(-1, keepdim=True)))
            return y

    assert [row.live for row in trellis.audit(Spread(), torch.zeros(1, 3)).layers] == [0, 6]


def test_norms_remove_what_is_broadcast() -> None:
    class Broadcast(nn.Module):
        def __init__(self, norm: nn.Module) -> None:
            super().__init__()
            self.first, self.last, self.norm = nn.Linear(3, 1), nn.Linear(4, 2), norm

        def forward(self, x: Tensor) -> Tensor:
            y: Tensor = self.last(self.norm(self.first(x).expand(-1, 4)))
            return y

    assert trellis.audit(Broadcast(nn.LayerNorm(4)), torch.zeros(1, 3)).live == 0
    assert trellis.audit(Broadcast(nn.GroupNorm(2, 4)), torch.zeros(1, 3)).live == 0
    assert trellis.audit(Broadcast(nn.LogSoftmax(-1)), torch.zeros(1, 3)).live == 0
    assert trellis.audit(Broadcast(nn.RMSNorm(4)), torch.zeros(1, 3)).live == 11


NORMS: dict[str, Callable[[], nn.Module]] = {
    "instance": lambda: nn.InstanceNorm2d(2),
    "instance_affine": lambda: nn.InstanceNorm2d(2, affine=True),
    "group_per_channel": lambda: nn.GroupNorm(2, 2),
    "batch_without_statistics": lambda: nn.BatchNorm2d(2, track_running_stats=False),
}


@pytest.mark.parametrize("norm", NORMS)
def test_an_average_of_a_norm_carries_no_input(norm: str) -> None:
    def live(*between: nn.Module) -> int:
        model = nn.Sequential(
            nn.Conv2d(2, 2, 3), NORMS[norm](), *between, nn.Flatten(), nn.Linear(2, 3)
        )
        audit = trellis.audit(model.eval(), torch.zeros(1, 2, 4, 4))
        assert audit.outputs_reached == (3 if audit.live else 0)
        return audit.live

    mean = nn.AdaptiveAvgPool2d(1)
    assert live(mean) == 0
    assert live(nn.Conv2d(2, 2, 1), mean) == 0
    assert live(nn.ReLU(), mean) == 42
    assert live(nn.AdaptiveMaxPool2d(1)) == 42


def test_an_average_of_a_norm_over_several_channels_carries_the_input() -> None:
    for norm in (nn.GroupNorm(1, 2), nn.LayerNorm((2, 2, 2)), nn.BatchNorm2d(2)):
        model = nn.Sequential(nn.Conv2d(2, 2, 3), norm, nn.AdaptiveAvgPool2d(1))
        assert trellis.audit(model.eval(), torch.zeros(1, 2, 4, 4)).live == 36


SUMMED: dict[str, tuple[Callable[[Tensor], Tensor], int]] = {
    "sum": (lambda p: p.sum(-1), 0),
    "dropout": (lambda p: nn.functional.dropout(p, 0.5, False).mean(-1), 0),
    "squares": (lambda p: (p**2).sum(-1), 12),
    "roots": (lambda p: p.sqrt().sum(-1), 12),
    "inverses": (lambda p: (1 / p).sum(-1), 12),
    "entropy": (lambda p: (p * p.log()).sum(-1), 12),
}


@pytest.mark.parametrize("name", SUMMED)
def test_a_softmax_sums_to_one_and_its_curves_do_not(name: str) -> None:
    class Summed(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first = nn.Linear(3, 4)

        def forward(self, x: Tensor) -> Tensor:
            return SUMMED[name][0](torch.softmax(self.first(x), -1))

    assert trellis.audit(Summed(), torch.zeros(1, 3)).live == SUMMED[name][1]


def test_heads_that_talk_pass_on_what_values_have_in_common() -> None:
    class Talking(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.q, self.k, self.v = (nn.Linear(4, 4) for _ in range(3))
            self.talk = nn.Linear(2, 2)

        def forward(self, x: Tensor) -> Tensor:
            q, k, v = (m(x).unflatten(-1, (2, 2)) for m in (self.q, self.k, self.v))
            shares = torch.einsum("blhd,bshd->blsh", q, k).softmax(2)
            return torch.einsum("blsh,bshd->blhd", self.talk(shares), v)

    model, example = Talking(), torch.zeros(1, 3, 4)
    assert trellis.audit(model, example).live == 52
    with torch.no_grad():
        model.v.weight.zero_()
    assert trellis.audit(model, example).live == 0


def test_a_constant_in_all_values_is_the_same_for_every_masked_query() -> None:
    class Pooled(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.v, self.last = nn.Linear(2, 2), nn.Linear(2, 1), nn.Linear(1, 1)

        def forward(self, x: Tensor) -> Tensor:
            y = self.first(x)
            y = nn.functional.scaled_dot_product_attention(y, y, self.v(y), is_causal=True)
            y = (torch.softmax(y, 1) * y).sum(1)
            return self.last(y)

    model = Pooled()
    with torch.no_grad():
        model.first.weight[0] = 0  # unit 0 is a constant, and so is its part in all values
    audit = trellis.audit(model, torch.zeros(1, 3, 2))
    assert audit.live_masks["v.weight"].tolist() == [[False, True]]


def test_entries_that_are_alike_stay_alike_in_a_norm() -> None:
    class Attended(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.score = nn.Conv1d(2, 2, 1, groups=2), nn.Conv1d(2, 1, 1)

        def forward(self, x: Tensor) -> Tensor:
            y = nn.functional.group_norm(self.first(x), 1)
            return (torch.softmax(self.score(y), -1) * y).sum(-1)

    model = Attended()
    with torch.no_grad():
        model.first.weight[0] = 0  # the same number at every place, normed with the rest
    audit = trellis.audit(model, torch.zeros(1, 2, 4))
    assert audit.live_masks["score.weight"].flatten().tolist() == [False, True]


class Lookup(nn.Module):
    """Embedding -> a * silu(b)."""

    def __init__(self) -> None:
        super().__init__()
        self.table = nn.Embedding(2, 2)
        self.a, self.b = (nn.Linear(2, 1, bias=False) for _ in range(2))

    def forward(self, ids: Tensor) -> Tensor:
        x = self.table(ids)
        return self.a(x) * nn.functional.silu(self.b(x))


@pytest.mark.parametrize("length", [1, 3, 12])
def test_two_rows_of_a_table_are_never_there_at_once(length: int) -> None:
    model = Lookup()
    with torch.no_grad():
        model.table.weight.copy_(torch.eye(2))
        model.a.weight.copy_(torch.tensor([[1.0, 0.0]]))
        model.b.weight.copy_(torch.tensor([[0.0, 1.0]]))
    ids = torch.zeros(1, length, dtype=torch.int64)
    assert trellis.audit(model, ids).live == 0
    with torch.no_grad():
        model.table.weight[0, 1] = 1  # now one token reaches both sides
    audit = trellis.audit(model, ids)
    assert (audit.kept, audit.live, audit.outputs_reached) == (5, 4, length)
    assert not audit.live_masks["table.weight"][1, 1]


def test_outputs_are_counted_for_one_sample_whatever_tokens_are_tried() -> None:
    audit = trellis.audit(Lookup(), torch.zeros(1, 3, dtype=torch.int64))
    assert (audit.outputs, audit.outputs_reached) == (3, 3)


def test_a_large_vocabulary_counts_all_rows_at_once() -> None:
    model = Lookup()
    model.table = nn.Embedding(50_000, 2)
    audit = trellis.audit(model, torch.zeros(1, 3, dtype=torch.int64))
    assert audit.live == audit.total
