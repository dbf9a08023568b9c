"""``trellis prune``."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import safetensors.torch
import torch

import trellis
from tests.cli.conftest import Fails, Run
from tests.cli.models import mlp
from trellis.cli import prune as command
from trellis.errors import TrellisError

MLP = ("prune", "tests.cli.models:mlp", "--input", "1x16")
X = torch.zeros(1, 16)


def test_files_hold_what_prune_returns(run: Run, tmp_path: Path) -> None:
    ran = run(*MLP, "--sparsity", "0.9", "--out", "w.safetensors", "--masks", "m.safetensors")
    assert ran.status == 0, ran.err
    model = mlp()
    masks = trellis.prune(model, X, sparsity=0.9)
    assert trellis.Masks.load(tmp_path / "m.safetensors") == masks
    written = safetensors.torch.load_file(tmp_path / "w.safetensors")
    assert written.keys() == masks.plain_state_dict(model).keys()
    fresh = mlp()
    fresh.load_state_dict(written)
    assert trellis.audit(fresh, X).live == trellis.audit(fresh, X).kept == masks.kept
    assert sorted(os.listdir(tmp_path)) == ["m.safetensors", "w.safetensors"]
    for text in ("kept before", "before: 640 kept", f"after: {masks.kept} kept", "wrote w."):
        assert text in ran.out


def test_what_is_written_can_be_read_back(run: Run) -> None:
    tied = ("tests.cli.models:Tied", "--input", "int64:1x4")
    first = run("prune", *tied, "--sparsity", "0.5", "--out", "w.safetensors", "--json").json
    back = run("audit", *tied, "--weights", "w.safetensors", "--fail-under", "1", "--json")
    assert back.status == 0
    assert back.json["kept"] == first["kept"] == back.json["live"]
    again = ("prune", *tied, "--weights", "w.safetensors", "--keep", "50", "--json")
    assert run(*again).json["before"]["kept"] == first["kept"]


def test_json(run: Run) -> None:
    ran = run(*MLP, "--keep", "64", "--json", "--masks", "m.safetensors")
    found = ran.json
    assert (found["budget"], found["kept"], found["total"]) == (64, 64, 640)
    assert found["sparsity"] == 0.9
    assert found["options"]["method"] == "closed"
    assert (found["out"], found["masks"], found["weights"]) == (None, "m.safetensors", None)
    assert (found["before"]["kept"], found["after"]["kept"]) == (640, 64)
    assert found["after"]["live_fraction"] == 1.0


@pytest.mark.parametrize(
    ("words", "options"),
    [
        ("--method magnitude --scope erk", {"method": "magnitude", "scope": "erk"}),
        ("--scope layer --saliency relative", {"scope": "layer", "saliency": "relative"}),
        ("--method magnitude --consistent yes", {"method": "magnitude", "consistent": True}),
        ("--consistent no", {"consistent": False}),
        ("--method random --seed 7", {"method": "random", "seed": 7}),
        ("--stochastic --seed 3", {"stochastic": True, "seed": 3}),
        ("--method synflow", {"method": "synflow"}),
        ("--method phew --seed 2", {"method": "phew", "seed": 2}),
        ("--method chains", {"method": "chains"}),
        (
            "--method chains --surrogate global --inverse-alpha 10 --row-normalize",
            {
                "method": "chains",
                "surrogate": "global",
                "inverse_alpha": 10.0,
                "row_normalize": True,
            },
        ),
        ("--no-cover-outputs", {"cover_outputs": False}),
        ("--ignore 2.*", {"ignore": ("2.*",)}),
    ],
)
def test_options_are_those_of_the_function(
    run: Run, tmp_path: Path, words: str, options: dict[str, Any]
) -> None:
    ran = run(*MLP, "--sparsity", "0.95", *words.split(), "--masks", "m", "--json")
    assert ran.status == 0, ran.err
    expected = trellis.prune(mlp(), X, sparsity=0.95, **options)
    assert trellis.Masks.load(tmp_path / "m") == expected
    assert {k: ran.json["options"][k] for k in options} == json.loads(json.dumps(options))


def test_saliency_and_counts_from_files(run: Run, tmp_path: Path) -> None:
    saliency = {name: torch.rand_like(p) for name, p in mlp().named_parameters()}
    safetensors.torch.save_file(saliency, tmp_path / "s.safetensors")
    assert run(*MLP, "--keep", "50", "--saliency", "s.safetensors", "--masks", "m").status == 0
    expected = trellis.prune(mlp(), X, keep=50, saliency=saliency)
    assert trellis.Masks.load(tmp_path / "m") == expected
    (tmp_path / "counts.json").write_text('{"0.weight": 30, "2.weight": 9}')
    assert run(
        *MLP, "--method", "magnitude", "--scope", "counts.json", "--masks", "m"
    ).status == 0  # fmt: skip
    kept = trellis.Masks.load(tmp_path / "m")
    assert [int(mask.sum()) for mask in kept.values()] == [30, 9]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("", "give either sparsity (the fraction removed, such as 0.99) or keep"),
        ("--sparsity 0.5 --keep 3", "give either sparsity"),
        ("--sparsity 1.0", "sparsity=1.0 is out of range"),
        ("--sparsity nan", "out of range"),
        ("--keep 1", "too small"),
        ("--sparsity 0.5 --method viterbi --scope erk", "method 'viterbi' has no option 'scope'"),
        ("--sparsity 0.5 --ignore nothing.*", "'nothing.*' fits no parameter"),
        ("--sparsity 0.5 --saliency gone", "there is no file 'gone'"),
        ("--sparsity 0.5 --scope gone.json", "--scope 'gone.json' cannot be read"),
        ("--sparsity 0.5 --scope list.json", "expected object at $"),
        ("--sparsity 0.5 --scope broken.json", "expected JSON"),
        ("--sparsity 0.5 --out gone/w", "there is no folder 'gone'"),
        ("--sparsity 0.5 --out .", "it is a folder"),
        ("--sparsity 0.5 --out w --masks ./w", "--out and --masks are both 'w'"),
    ],
)
def test_nonsense_is_one_line_and_writes_nothing(
    fails: Callable[..., str], tmp_path: Path, words: str, message: str
) -> None:
    (tmp_path / "list.json").write_text("[1]")
    (tmp_path / "broken.json").write_text("{")
    out = () if "--out" in words else ("--out", "w")
    assert message in fails(*MLP, *words.split(), *out)
    assert sorted(os.listdir(tmp_path)) == ["broken.json", "list.json"]


@pytest.mark.parametrize("text", ["[" * 100_000, '{"0.weight": 1' + "0" * 400 + "}", "\ufeff{}"])
def test_counts_beyond_reason_are_one_line(
    fails: Callable[..., str], tmp_path: Path, text: str
) -> None:
    (tmp_path / "deep.json").write_text(text)
    words = ("--sparsity", "0.5", "--method", "magnitude", "--scope", "deep.json", "--out", "w")
    assert "'deep.json': expected" in fails(*MLP, *words)


def test_both_files_or_neither(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The weights are written, then the masks fail: what was there before is still there."""
    (tmp_path / "w").write_text("old weights")
    (tmp_path / "m").write_text("old masks")

    def full(*_: object) -> None:
        raise TrellisError("the disk is full")

    monkeypatch.setattr(trellis.Masks, "save", full)
    ran = run(*MLP, "--sparsity", "0.9", "--out", "w", "--masks", "m")
    assert (ran.status, ran.out) == (2, "")
    assert (tmp_path / "w").read_text() == "old weights"
    assert (tmp_path / "m").read_text() == "old masks"
    assert sorted(os.listdir(tmp_path)) == ["m", "w"]


def test_a_disk_that_fails_is_told_in_one_line(
    fails: Callable[..., str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(command, "write_weights", full)
    assert "cannot write 'w': No space left on device" in fails(
        *MLP, "--sparsity", "0.9", "--out", "w"
    )
    assert os.listdir(tmp_path) == []


def test_files_get_the_permissions_that_any_new_file_gets(run: Run, tmp_path: Path) -> None:
    run(*MLP, "--sparsity", "0.9", "--out", "w", "--masks", "m")
    (tmp_path / "any").touch()
    modes = {(tmp_path / name).stat().st_mode for name in ("any", "w", "m")}
    assert len(modes) == 1


def test_without_files_nothing_is_written(run: Run, tmp_path: Path) -> None:
    assert run(*MLP, "--sparsity", "0.9").status == 0
    assert os.listdir(tmp_path) == []


def test_initial_weights_are_named_and_files_are_kept(run: Run, fails: Fails) -> None:
    words = (*MLP, "--keep", "50", "--out", "pruned.safetensors")
    ran = run(*words)
    assert ran.status == 0
    assert "without --weights, the weights are those that tests.cli.models:mlp sets" in ran.err
    assert "exists: name another file, or pass --overwrite" in fails(*words)
    assert run(*words, "--overwrite").status == 0
