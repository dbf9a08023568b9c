"""Settings: what they refuse, and the command that asks for them again."""

from __future__ import annotations

import json
import shlex
from typing import Any

import pytest
import torch
import tyro

from tests.paper.waves import small, waves
from trellis.cli import reproduce as command
from trellis.errors import TrellisError
from trellis.paper import Data, Folder, Settings
from trellis.paper.plan import architecture_of
from trellis.paper.settings import Recordings, describe, is_benchmark
from trellis.skeleton import GCN
from trellis.training import recipe_named


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"table": "table4"}, "unknown table 'table4'"),
        ({"device": "tpu"}, "unknown device 'tpu'"),
        ({"precision": "fp8"}, "unknown precision 'fp8'"),
        ({"seeds": 0}, "seeds=0"),
        ({"stack": 0}, "stack=0"),
        ({"heads": True}, "heads=True"),
        ({"rates": (100.0,)}, "expected a rate in percent.*got 100.0"),
        ({"rates": (0.0,)}, "expected a rate in percent.*got 0.0"),
        ({"rates": (0.99,)}, "did you mean 99?"),
        ({"rates": (float("nan"),)}, "expected a rate in percent.*got nan"),
        ({"rates": ()}, "at least one value, got rates"),
        ({"rates": (90.0, 90.0)}, "different values, got rates"),
        ({"rows": ("mp", "mpp")}, "row 'mpp' is unknown"),
        ({"table": "table3", "rates": (90.0, 99.0)}, "one rate"),
        ({"inverse_alphas": (0.5,)}, "1/α of at least 1, got 0.5"),
    ],
)
def test_refused(changes: dict[str, Any], words: str) -> None:
    table = changes.pop("table", "table2")
    with pytest.raises(TrellisError, match="(?s).*" + words.replace("(", r"\(")):
        small(table, **changes)


@pytest.mark.parametrize("table", ["table1", "table2", "table3"])
def test_stored_is_loaded(table: str) -> None:
    settings = small(table, protocol="1:1", skip_bad=True)
    assert Settings.from_dict(json.loads(json.dumps(settings.to_dict()))) == settings
    data = describe(waves(folds=2))
    assert Data.from_dict(json.loads(json.dumps(data.to_dict()))) == data


def test_a_setting_that_is_missing_or_new_is_named() -> None:
    given = small().to_dict()
    with pytest.raises(TrellisError, match="'colour'"):
        Settings.from_dict(given | {"colour": "red"})
    del given["heads"]
    with pytest.raises(TrellisError, match="'heads'"):
        Settings.from_dict(given)


@pytest.mark.parametrize(
    "settings",
    [
        small(),
        small("table1", data="csv:my recordings; rm -rf x", protocol="it's"),
        small("table3", shared=True, skip_bad=True, device="cuda", precision="bf16", blocks=2),
        Settings("table2", "hands45"),
        small("table1", recipe=recipe_named("paper")),
        small("table1", recipe=recipe_named("paper", origin="recording")),
        small("table1", recipe=recipe_named("default", origin="frame")),
    ],
    ids=lambda s: s.table,
)
def test_the_command_asks_for_the_same_again(
    settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[Settings] = []

    def ran(given: Settings, *_: Any, **__: Any) -> Folder:
        asked.append(given)
        raise TrellisError("enough")

    monkeypatch.setattr(command, "reproduced", ran)
    monkeypatch.setattr(command, "chosen_device", lambda name, _: torch.device(name))
    monkeypatch.setattr("trellis.skeleton.load_dataset", lambda *_, **__: waves())
    words = shlex.split(settings.command())
    assert words[:2] == ["trellis", "reproduce"]
    with pytest.raises(TrellisError, match="enough"):
        tyro.cli(command.reproduce, args=words[2:], config=(tyro.conf.FlagCreatePairsOff,))
    assert asked == [settings]


def test_a_run_of_an_earlier_release_has_its_first_weights_and_origin() -> None:
    given = small(recipe=recipe_named("paper")).to_dict()
    del given["recipe"]["first_weights"], given["recipe"]["origin"]
    old = Settings.from_dict(given)
    assert (old.recipe.first_weights, old.recipe.origin) == ("usual", "recording")
    assert small().to_dict()["recipe"].keys().isdisjoint({"first_weights", "origin"})


@pytest.mark.parametrize("recipe", ["paper", "default"])
def test_a_recipe_decides_first_weights_and_origin(recipe: str) -> None:
    data = waves()
    settings = small(recipe=recipe_named(recipe))
    split = Recordings(data, 4, settings.recipe.origin).fold(0, torch.device("cpu"))
    roots = split.train_x[:, list(data.layout.roots)]
    assert (roots.abs().max() < 1e-5) == (recipe == "paper")
    made = architecture_of(settings, describe(data)).build(0).state_dict()
    torch.manual_seed(0)
    fan_in = GCN(5, 12, 3, heads=2, filters=4, first_weights="fan-in")
    same = all(torch.equal(made[n], w) for n, w in fan_in.state_dict().items())
    assert same == (recipe == "paper")


def test_other_settings_other_folder() -> None:
    names = {small().folder(), small(seeds=3).folder(), small(data="hands45").folder()}
    assert len(names) == 3
    assert "/" not in small(data="csv:/a/../b").folder()


def test_the_benchmark_is_fpha_whole_under_its_split() -> None:
    data = describe(waves())
    whole = Data(**vars(data) | {"train": (600,), "test": (575,)})
    assert is_benchmark(small(data="fpha:x"), whole)
    assert not is_benchmark(small(data="fpha:x"), data)
    assert not is_benchmark(small(data="hands45"), whole)
