"""`Pruner` where a model lies otherwise in memory, carries other masks, or a renewal fails."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn.utils import prune as torch_prune

import trellis
from trellis import Pruner, Schedule
from trellis.errors import TrellisError
from trellis.training.schedule import Plan


def pictures(seed: int) -> nn.Sequential:
    torch.manual_seed(seed)
    return nn.Sequential(
        nn.Conv2d(3, 6, 3, padding=1), nn.ReLU(), nn.Conv2d(6, 6, 3, padding=1, stride=2),
        nn.ReLU(), nn.Conv2d(6, 5, 3, padding=1), nn.AdaptiveAvgPool2d(1), nn.Flatten(),
    )  # fmt: skip


def plain() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 4))


def moved(model: Any, form: torch.memory_format) -> None:
    model.to(memory_format=form)  # of which torch's own types do not know


PICTURE, PLAIN = torch.zeros(1, 3, 8, 8), torch.zeros(1, 8)


def trained(model: nn.Module, x: Tensor) -> None:
    model.zero_grad()
    model(torch.randn(4, *x.shape[1:])).square().sum().backward()


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("regrow", [0.0, 0.4])
def test_masks_are_the_same_however_a_model_lies_in_memory(seed: int, regrow: float) -> None:
    schedule = Schedule("geometric", end=6, every=2)
    found = []
    for form in (torch.contiguous_format, torch.channels_last):
        model = pictures(seed)
        pruner = Pruner(model, PICTURE, keep=12, schedule=schedule, regrow=regrow)
        moved(model, form)
        for step in range(6):
            torch.manual_seed(step)
            trained(model, PICTURE)
            if renewal := pruner.step():
                audit = trellis.audit(model, PICTURE)
                assert renewal.kept == renewal.budget == audit.kept == audit.live
                assert audit.outputs_reached == audit.outputs
        found.append(pruner.masks)
    assert found[0] == found[1]


@pytest.mark.parametrize("ours", [True, False])
def test_an_audit_is_the_same_however_a_model_lies_in_memory(ours: bool) -> None:
    model = pictures(0)
    if ours:
        trellis.prune(model, PICTURE, sparsity=0.95)
    else:
        for layer in (model[0], model[2], model[4]):
            torch_prune.l1_unstructured(layer, "weight", amount=0.9)
    before = trellis.audit(model, PICTURE)
    moved(model, torch.channels_last)
    after = trellis.audit(model, PICTURE)
    assert after.to_dict() == before.to_dict()
    for name, mask in before.live_masks.items():
        assert torch.equal(mask, after.live_masks[name])


@pytest.mark.parametrize("begin", [0, 1, 3])
def test_one_shot_regrows_nothing(begin: int) -> None:
    model = plain()
    pruner = Pruner(
        model, PLAIN, sparsity=0.9, schedule=Schedule("one-shot", begin=begin), regrow=0.3
    )
    for _ in range(4):
        trained(model, PLAIN)
        pruner.step()
    assert pruner.kept == pruner.plan.target


def test_connections_come_back_whoever_put_the_masks_there() -> None:
    schedule = Schedule("cubic", end=12, every=2)
    found = []
    for replaced in (False, True):
        model = plain()
        pruner = Pruner(model, PLAIN, sparsity=0.8, schedule=schedule, regrow=0.4)
        came = 0
        for step in range(12):
            if replaced and step % 3 == 0:
                pruner.masks.apply(model)
                pruner.step() if pruner.steps else None
            torch.manual_seed(step)
            trained(model, PLAIN)
            renewal = pruner.step()
            came += renewal.regrown if renewal else 0
        found.append(came)
    assert min(found) > 0


def test_a_renewal_that_fails_is_still_to_come() -> None:
    model = plain()
    pruner = Pruner(model, PLAIN, sparsity=0.9, schedule=Schedule("linear", end=2, every=2))
    assert pruner.step() is None
    last = model[2]
    assert isinstance(last.weight, Tensor)
    stored = dict(last.named_parameters())["parametrizations.weight.original"]
    before = stored.detach().clone()
    with torch.no_grad():
        stored[0, 0] = float("nan")
    with pytest.raises(TrellisError, match="not finite"):
        pruner.step()
    assert pruner.steps == 1 and not pruner.done
    with torch.no_grad():
        stored.copy_(before)
    renewal = pruner.step()
    assert renewal is not None and renewal.kept == pruner.plan.target


def test_what_is_trimmed_is_never_of_the_network_inside() -> None:
    """At the smallest target one renewal in a thousand kept fewer than it could, since what was
    found had lost the network of the target's size."""

    class Two(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.a, self.b, self.c = nn.Linear(4, 6), nn.Linear(6, 2), nn.Linear(6, 3)

        def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
            hidden = torch.relu(self.a(x))
            return self.b(hidden), self.c(hidden)

    torch.manual_seed(31)
    pruner = Pruner(Two(), torch.zeros(1, 4), keep=6, schedule=Schedule("linear", end=6))
    for _ in range(6):
        renewal = pruner.step()
        assert renewal is not None and renewal.kept == renewal.budget


def test_a_tied_parameter_is_ignored_by_any_of_its_names() -> None:
    class Tied(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.a, self.b, self.c = nn.Linear(6, 6), nn.Linear(6, 6), nn.Linear(6, 6)
            self.b.weight = self.a.weight

        def forward(self, x: Tensor) -> Tensor:
            found: Tensor = self.c(torch.relu(self.b(torch.relu(self.a(x)))))
            return found

    x = torch.zeros(1, 6)
    for name in ("a.*", "b.*"):
        masks = trellis.prune(Tied(), x, sparsity=0.5, ignore=name)
        assert list(masks) == ["c.weight"]


def test_a_schedule_may_start_where_it_ends() -> None:
    model = nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 4))  # 640 connections
    schedule = Schedule("linear", end=4, initial_sparsity=0.1)
    pruner = Pruner(model, torch.zeros(1, 16), keep=576, schedule=schedule)
    assert pruner.kept == 576
    for keep in range(100, 640, 7):
        schedule_at = Schedule("linear", end=4, initial_sparsity=1 - keep / 640)
        assert Plan.of(640, None, keep, schedule_at, 0.0).budget(0) == keep
    with pytest.raises(
        TrellisError, match=r"starts at a sparsity of 0\.1, above the target 0\.098"
    ):
        Pruner(model, torch.zeros(1, 16), keep=577, schedule=schedule)


def test_numbers_may_be_numpys() -> None:
    numbers: Any = {"begin": np.int64(1), "end": np.int64(5), "initial_sparsity": np.float32(0.5)}
    given = Schedule("linear", **numbers)
    assert given == Schedule("linear", begin=1, end=5, initial_sparsity=0.5)
    assert type(given.end) is int and type(given.initial_sparsity) is float


def test_a_set_of_patterns_has_an_order() -> None:
    schedule = Schedule("linear", end=3)
    pruner = Pruner(plain(), PLAIN, sparsity=0.5, schedule=schedule, ignore={"2.*", "0.bias"})
    assert pruner.options.ignored == ("0.bias", "2.*")


LINEAR: Any = {"sparsity": 0.5, "schedule": Schedule("linear", end=3)}
CURVE: Any = ["x"]
WORLD: Any = "world"


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda: Schedule(CURVE, end=3), r"unknown schedule \['x'\]"),
        (
            lambda: Pruner(plain(), PLAIN, group=WORLD, **LINEAR),
            "expected a process group, got group='world'",
        ),
    ],
)
def test_nonsense_is_refused_at_once(make: Callable[[], object], said: str) -> None:
    with pytest.raises(TrellisError, match=said):
        make()


def test_sparse_gradients_are_refused_at_once() -> None:
    def words(**options: Any) -> nn.Sequential:
        return nn.Sequential(nn.Embedding(9, 4, **options), nn.Flatten(), nn.Linear(12, 3))

    x = torch.zeros(1, 3, dtype=torch.long)
    with pytest.raises(TrellisError, match=r"'0\.weight' gets sparse gradients"):
        Pruner(words(sparse=True), x, **LINEAR)
    for model, ignored in ((words(), ()), (words(sparse=True), "0.weight")):
        pruner = Pruner(model, x, **LINEAR, ignore=ignored)
        for _ in range(3):
            model(torch.randint(9, (5, 3))).square().sum().backward()
            pruner.step()
        assert pruner.kept == pruner.plan.target


@pytest.mark.parametrize("wrong", [{"budget": 10**9}, {"budget": 3}, {"masks": None}])
def test_a_state_that_cannot_be_is_refused(wrong: dict[str, object]) -> None:
    schedule = Schedule("linear", end=3)
    pruner = Pruner(plain(), PLAIN, sparsity=0.5, schedule=schedule)
    pruner.step()
    state = pruner.state_dict()
    if "masks" in wrong:
        wrong = {"masks": {name: torch.zeros_like(mask) for name, mask in state["masks"].items()}}
    before = pruner.masks
    with pytest.raises(TrellisError, match="state is damaged"):
        pruner.load_state_dict(state | wrong)
    assert pruner.masks == before
