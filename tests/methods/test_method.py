"""One door for methods: a registered class is known to prune, Pruner, tables and commands."""

from __future__ import annotations

import inspect
import json
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.metadata import EntryPoint
from pathlib import Path
from typing import Any, get_args

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import trellis
from trellis.cli import main
from trellis.cli.reproduce import _registered
from trellis.errors import TrellisError
from trellis.methods import Chains, Magnitude, Problem, ScopedMethod, ScoreMethod, WalkMethod
from trellis.methods.method import METHODS, MethodName, option_help, options_of_class, resolved
from trellis.paper.plan import rows_of
from trellis.paper.pruning import method_modules
from trellis.paper.settings import Settings, method_named
from trellis.skeleton import GCN
from trellis.skeleton.model.gcn_stacks import selector
from trellis.skeleton.shrink import course_named

X = torch.zeros(1, 8)
MINE = '''
from dataclasses import dataclass
from importlib.metadata import EntryPoint
import trellis
from trellis.methods import ScoreMethod


@trellis.register_method("power")
@dataclass(frozen=True)
class Power(ScoreMethod):
    """Keep the largest powers of the saliency.

    Args:
        power: Exponent of the saliency.
        flip: Keep the smallest instead.
    """

    power: float = 2.0
    flip: bool = False

    def scores(self, problem):
        sign = -1 if self.flip else 1
        return {n: sign * s**self.power for n, s in problem.saliency.items()}
'''


@pytest.fixture(autouse=True)
def registry() -> Iterator[None]:
    before = dict(METHODS.entries)
    yield
    METHODS.entries = before


@pytest.fixture
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A module with a method, importable from the current folder."""
    name = "module_" + "".join(c if c.isalnum() else "_" for c in tmp_path.name)
    (tmp_path / f"{name}.py").write_text(MINE)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    return name


def network() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(8, 12), nn.ReLU(), nn.Linear(12, 3))


def test_the_built_in_methods() -> None:
    everything = trellis.methods.available()
    # Examples in docstrings register methods, too.
    found = {n: c for n, c in everything.items() if getattr(trellis.methods, c.__name__, 0) is c}
    assert set(found) == {"closed", "magnitude", "random", "viterbi", "chains", "synflow", "phew"}
    consistent = {name for name, cls in found.items() if cls.consistent}
    assert consistent == {"closed", "chains", "viterbi", "phew"}
    assert {name for name, cls in found.items() if cls.needs_unmasked} == {"chains", "phew"}
    assert {n for n, c in found.items() if c.sampling == "always"} == {"random", "phew"}
    assert [cls.name for cls in found.values()] == list(found)


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("chains", {"surrogate": "global", "inverse_alpha": 10}),
        ("magnitude", {"scope": "lamp"}),
        ("magnitude", {"scope": "balanced"}),
        ("random", {"scope": "erk"}),
        ("viterbi", {}),
        ("synflow", {}),
        ("phew", {}),
    ],
)
def test_a_name_with_options_and_an_object_are_the_same(name: str, options: dict[str, Any]) -> None:
    by_name = trellis.prune(network(), X, keep=30, method=name, seed=3, **options)
    method = trellis.methods.available()[name](**options)
    by_object = trellis.prune(network(), X, keep=30, method=method, seed=3)
    assert by_name == by_object
    assert by_name.provenance["options"] == by_object.provenance["options"]


def test_every_option_is_described_by_its_class_and_in_the_help_of_prune() -> None:
    told = inspect.getdoc(trellis.prune) or ""
    for name in ("closed", "magnitude", "random", "viterbi", "chains", "synflow", "phew"):
        cls = trellis.methods.available()[name]
        assert f'"{name}"' in told
        for option in options_of_class(cls):
            assert option_help(cls)[option.name], (name, option.name)
            assert f"- {option.name} (" in told
    for name in inspect.signature(trellis.prune).parameters:
        assert f"{name}: " in told


def test_options_beside_an_object_are_refused() -> None:
    with pytest.raises(TrellisError, match=r"give options to the object: Chains\(surrogate=…\)"):
        trellis.prune(network(), X, keep=30, method=Chains(), surrogate="global")
    with pytest.raises(TrellisError, match=r"got the class Chains; write Chains\(\)"):
        trellis.prune(network(), X, keep=30, method=Chains)  # type: ignore[call-overload]


def test_a_method_of_ones_own_in_prune_and_pruner(module: str) -> None:
    reference = f"{module}:Power"
    masks = trellis.prune(network(), X, keep=30, method=reference, power=3, consistent=True)
    assert masks.kept == 30
    assert masks == trellis.prune(network(), X, keep=30, method="magnitude", consistent=True)
    assert masks.provenance["options"]["method"] == "power"
    assert masks.provenance["options"]["power"] == 3
    model = network()
    schedule = trellis.Schedule("linear", end=4, every=2)
    pruner = trellis.Pruner(model, X, keep=20, schedule=schedule, method="power", flip=True)
    for _ in range(4):
        pruner.step()
    audit = trellis.audit(model, X)
    assert audit.kept == audit.live == 20
    assert pruner.state_dict()["plan"]["flip"] is True
    with pytest.raises(TrellisError, match=r"'power' has no option 'exponent'; .* power, flip"):
        trellis.prune(network(), X, keep=30, method="power", exponent=3)


def test_a_method_of_ones_own_on_the_command_line(
    module: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "nets.py").write_text(
        "import torch\nfrom torch import nn\n"
        "def net():\n    torch.manual_seed(0)\n"
        "    return nn.Sequential(nn.Linear(8, 12), nn.ReLU(), nn.Linear(12, 3))\n"
    )
    words = ["prune", "nets:net", "--input", "1x8", "--keep", "30", "--masks", "m", "--json"]
    assert main([*words, "--method", f"{module}:Power", "--power", "0.5", "--flip"]) == 0
    told = json.loads(capsys.readouterr().out)["options"]
    assert (told["method"], told["power"], told["flip"]) == ("power", 0.5, True)
    expected = trellis.prune(network(), X, keep=30, method="power", power=0.5, flip=True)
    assert trellis.Masks.load(tmp_path / "m") == expected
    with pytest.raises(SystemExit):
        main(["prune", "--method", f"{module}:Power", "--help"])
    assert "power: Exponent of the saliency." in capsys.readouterr().out
    assert main([*words, "--method", "nothing:Here"]) == 2
    assert "cannot import method 'nothing:Here'" in capsys.readouterr().err


def test_a_method_of_ones_own_is_a_row_of_the_tables(module: str) -> None:
    with pytest.raises(TrellisError, match="is unknown"):  # files name rows: nothing is imported
        method_named(f"{module}:Power")
    assert module not in sys.modules
    resolved(f"{module}:Power", {})
    row = method_named("power")
    assert (row.key, row.consistent, row.options) == ("power", False, {"method": "power"})
    settings = Settings("table2", "hands45", rates=(90.0,), rows=("mp", "power", "random"))
    assert [r.key for r in rows_of(settings)] == ["dense", "mp@90", "power@90", "random@90"]
    assert f"--rows mp {module}:Power random" in settings.command()
    with pytest.raises(TrellisError, match="row 'strange' is unknown"):
        Settings("table2", "hands45", rows=("strange",))


def test_the_command_imports_rows_and_workers_import_their_modules(
    module: str, tmp_path: Path
) -> None:
    assert _registered(["mp", f"{module}:Power"]) == ("mp", "power")
    assert (module, str(tmp_path)) in method_modules()
    assert not any(name.startswith("trellis") for name, _ in method_modules())


def test_a_method_of_ones_own_shrinks_recognisers(module: str) -> None:
    with pytest.raises(TrellisError, match="must be imported first"):
        course_named("quick", method=f"{module}:Power")
    resolved(f"{module}:Power", {})
    assert course_named("quick", method="power").to_dict()["method"] == "power"
    gcn = GCN(nodes=4, channels=6, classes=3, heads=2, filters=5)
    choose = selector(gcn, "power")
    worth = {n: dict(gcn.named_parameters())[n].detach().abs()[None] for n in choose.sizes}
    kept = {n: torch.ones_like(w, dtype=torch.bool) for n, w in worth.items()}
    assert sum(int(mask.sum()) for mask in choose(worth, kept, [40]).values()) == 40


def test_a_walk_is_closed_covered_and_filled() -> None:
    @trellis.register_method("first-path")
    @dataclass(frozen=True)
    class FirstPath(WalkMethod):
        """Keep one path, and leave the rest to the fill."""

        def walk(self, problem: Problem, budget: int) -> dict[str, Tensor]:
            masks = {
                n: torch.zeros(s, dtype=torch.bool) for n, s in problem.net.connections.items()
            }
            for mask in masks.values():
                mask[0, 0] = True
            return masks

    model = network()
    masks = trellis.prune(model, X, keep=30, method="first-path")
    audit = trellis.audit(model, X)
    assert audit.kept == audit.live == 30 and audit.outputs_reached == 3
    assert masks["0.weight"][0, 0] and masks["2.weight"][0, 0]
    with pytest.raises(TrellisError, match="'first-path' starts from a network without masks"):
        trellis.prune(model, X, keep=20, method=FirstPath())


def test_noise_and_scopes_are_there_for_every_score() -> None:
    @trellis.register_method("squared")
    @dataclass(frozen=True)
    class Squared(ScopedMethod):
        """Keep the largest squares."""

        def scores(self, problem: Problem) -> dict[str, Tensor]:
            return {name: value**2 for name, value in problem.saliency.items()}

    def run(method: str, **options: Any) -> trellis.Masks:
        return trellis.prune(network(), X, keep=30, method=method, **options)

    for options in ({"stochastic": True, "seed": 3}, {"scope": "layer"}, {"scope": "erk"}):
        assert run("squared", **options) == run("magnitude", **options)


def scored(result: object) -> type[ScoreMethod]:
    class Odd(ScoreMethod):
        """Return something else."""

        def scores(self, problem: Problem) -> Any:
            return result

    return trellis.register_method("odd")(Odd)


WEIGHTS = {"0.weight": torch.ones(12, 8), "2.weight": torch.ones(3, 12)}


@pytest.mark.parametrize(
    ("result", "words"),
    [
        (None, "expected scores of method 'odd' for 0.weight, 2.weight; got NoneType"),
        ({"0.weight": torch.ones(12, 8)}, "got 0.weight"),
        (WEIGHTS | {"2.weight": torch.ones(3)}, r"\(3, 12\) as score of '2.weight' .* got \(3,\)"),
        (WEIGHTS | {"2.weight": 3}, "got int"),
        (WEIGHTS | {"2.weight": torch.full((3, 12), torch.nan)}, "36 values that are not finite"),
    ],
)
def test_scores_that_do_not_fit(result: object, words: str) -> None:
    scored(result)
    with pytest.raises(TrellisError, match=words):
        trellis.prune(network(), X, keep=30, method="odd")


def test_scores_of_any_type_are_ranked() -> None:
    scored({name: value.double().requires_grad_() for name, value in WEIGHTS.items()})
    assert trellis.prune(network(), X, keep=30, method="odd").kept == 30


class Fine(ScoreMethod):
    """Fits the contract."""

    def scores(self, problem: Problem) -> dict[str, Tensor]:
        return dict(problem.saliency)


def test_classes_that_do_not_fit() -> None:
    register = trellis.register_method
    for name in ("", "Upper", "a b", "a:b", 3):
        with pytest.raises(TrellisError, match="invalid method name"):
            register(name)(Fine)  # type: ignore[arg-type]
    with pytest.raises(TrellisError, match="'viterbi' is already registered by trellis"):
        register("viterbi")(Fine)
    with pytest.raises(TrellisError, match="expected a subclass of trellis"):
        register("mine")(dict)  # type: ignore[type-var]
    with pytest.raises(TrellisError, match="does not implement scores"):
        register("mine")(type("Lazy", (ScoreMethod,), {}))

    @dataclass
    class Thawed(Fine):
        power: float = 1.0

    with pytest.raises(TrellisError, match="expected a frozen dataclass, got Thawed"):
        register("mine")(Thawed)

    @dataclass(frozen=True)
    class Required(Fine):
        power: float

    with pytest.raises(TrellisError, match="option 'power' of Required has no default"):
        register("mine")(Required)

    @dataclass(frozen=True)
    class Clashing(Fine):
        seed: int = 0

    with pytest.raises(TrellisError, match="option 'seed' of Clashing is an argument"):
        register("mine")(Clashing)

    @dataclass(frozen=True)
    class Annotated(Fine):
        sampling: str = "always"  # type: ignore[misc, assignment]

    with pytest.raises(TrellisError, match="'sampling' of Annotated describes the method"):
        register("mine")(Annotated)
    with pytest.raises(TrellisError, match="method Fine has no name; decorate the class"):
        resolved(Fine(), {})
    assert "mine" not in trellis.methods.available()


def test_a_cell_that_runs_again_replaces_its_method(module: str) -> None:
    names: dict[str, Any] = {"__name__": "cells"}
    cell = compile(MINE, "cell", "exec", dont_inherit=True)
    exec(cell, names)
    first = names["Power"]
    exec(cell, names)
    assert trellis.methods.available()["power"] is names["Power"] is not first


def test_a_state_of_an_earlier_release_is_read() -> None:
    """It stored the options of all methods for each."""
    unused = {"surrogate": "local", "inverse_alpha": 1.0, "row_normalize": False}
    for method, more in (("viterbi", {"scope": "global"} | unused), ("magnitude", unused)):
        schedule = trellis.Schedule("linear", end=4, every=2)
        pruners = [
            trellis.Pruner(network(), X, keep=20, schedule=schedule, method=method)
            for _ in range(2)
        ]
        pruners[0].step(), pruners[0].step()
        state = pruners[0].state_dict()
        del state["digest"]
        state["plan"] |= more
        pruners[1].load_state_dict(state)
        assert pruners[1].masks == pruners[0].masks
        state["plan"]["seed"] = 5
        with pytest.raises(TrellisError, match="seed was 5 and is 0"):
            pruners[1].load_state_dict(state)


def test_options_are_checked_where_the_object_is_made() -> None:
    with pytest.raises(TrellisError, match="scope='rows' is unknown"):
        Magnitude(scope="rows")
    with pytest.raises(TrellisError, match="expected 'local' or 'global' for surrogate"):
        Chains(surrogate="both")  # type: ignore[arg-type]
    number: Any = np.float32(3)
    assert Chains(inverse_alpha=number) == Chains(inverse_alpha=3.0)


def test_a_mapping_of_counts_is_stored() -> None:
    method = Magnitude(scope={"0.weight": 20, "2.weight": 10})
    masks = trellis.prune(network(), X, method=method)
    assert masks.provenance["options"]["scope"] == {"0.weight": 20, "2.weight": 10}


def test_a_method_of_an_installed_package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "their_methods.py").write_text(
        "import trellis\n"
        "@trellis.register_method('theirs')\n"
        "class Theirs(trellis.methods.ScoreMethod):\n"
        "    def scores(self, problem):\n"
        "        return {n: -s for n, s in problem.saliency.items()}\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    point = EntryPoint("theirs", "their_methods:Theirs", "trellis.methods")
    monkeypatch.setattr("trellis.plugins.entry_points", lambda group: (point,))
    layer = torch.nn.Linear(3, 1, bias=False)
    layer.weight.data = torch.tensor([[3.0, 1.0, 2.0]])
    assert "theirs" not in trellis.methods.available()
    masks = trellis.prune(layer, torch.zeros(1, 3), keep=1, method="theirs")
    assert masks["weight"].tolist() == [[False, True, False]]
    with pytest.raises(TrellisError, match="theirs"):
        trellis.prune(layer, torch.zeros(1, 3), keep=1, method="unknown")


def test_editors_know_the_built_in_methods() -> None:
    # A docstring's example may have registered its own in this process.
    built_in = {
        name
        for name, cls in METHODS.entries.items()
        if cls.__module__.startswith("trellis.")
        and getattr(sys.modules[cls.__module__], cls.__name__, None) is cls
    }
    assert set(get_args(MethodName)) == built_in
