"""``trellis export c``."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch

from tests.cli.arms import SMALL, SOURCE, trained  # noqa: F401  (a fixture)
from tests.cli.conftest import Run
from tests.deploy.tools import compiled, ran
from trellis.deploy.format.read import read
from trellis.deploy.tables.form import interpreted
from trellis.skeleton import Recognizer, load_dataset, read_recording

FILES = ["README.md", "main.c", "model.c", "model.h", "model.trellis"]


@pytest.fixture
def small(run: Run, trained: Path, tmp_path: Path) -> Path:  # noqa: F811
    """A folder with a pruned model, its data and recordings."""
    for name in ("arms", "arms.npz", "wave.csv", "point.csv"):
        (tmp_path / name).symlink_to(trained / name)
    assert run("prune", "arms", "--sparsity", "0.8", "--out", "small").status == 0
    return tmp_path


def test_a_recogniser_becomes_a_program(run: Run, small: Path) -> None:
    done = run("export", "c", "small", "--out", "device")
    assert done.status == 0, done.err
    assert sorted(path.name for path in Path("device").iterdir()) == FILES
    assert done.out.startswith("wrote device: ")
    built = compiled([small / "device/model.c", small / "device/main.c"], small / "device/model")
    recogniser = Recognizer.load("small")
    for name in ("wave.csv", "point.csv"):
        frames = read_recording(name, recogniser.layout)
        share = recogniser.probabilities([frames])[0]
        best = int(np.argmax(share))
        told = ran(built, Path(name).read_text()).stdout
        assert told == f"{recogniser.classes[best]} {100 * share[best]:.1f} %\n"


def test_waves_are_made_in_c(run: Run, small: Path) -> None:
    """A recogniser of cosine coefficients: the same program, and calibration on such inputs."""
    one = dataclasses.replace(Recognizer.load("small"), basis="cosines")
    one.save("waves")
    words = ("export", "c", "waves", "--out", "device", "--data", SOURCE)
    told = run(*words, "--json").json["accuracy"]
    assert told["same"] == told["recordings"] > 0
    assert told["model"] == told["exported"]
    built = compiled([small / "device/model.c", small / "device/main.c"], small / "device/model")
    for name in ("wave.csv", "point.csv"):
        share = one.probabilities([read_recording(name, one.layout)])[0]
        best = int(np.argmax(share))
        told = ran(built, Path(name).read_text()).stdout
        assert told == f"{one.classes[best]} {100 * share[best]:.1f} %\n"


def test_accuracy_is_told_with_data(run: Run, small: Path) -> None:
    words = ("export", "c", "small", "--out", "device", "--values", "int8", "--data", SOURCE)
    done = run(*words)
    assert done.status == 0, done.err
    assert "top-1" in done.out and "for the tables in int8" in done.out
    told = run(*words, "--json").json
    assert told["accuracy"]["recordings"] > 0
    assert told["accuracy"]["model"] == pytest.approx(told["accuracy"]["exported"], abs=0.1)
    assert told["file_bytes"] == Path("device/model.trellis").stat().st_size
    assert told["weights"] > 0 and told["memory_bytes"] > 0


def test_any_model(run: Run, tmp_path: Path) -> None:
    (tmp_path / "shop.py").write_text(
        "import torch\ndef net():\n    return torch.nn.Sequential(torch.nn.Linear(3, 2))\n"
    )
    done = run("export", "c", "shop:net", "--input", "1x3", "--out", "plain", "--values", "fp16")
    assert done.status == 0, done.err
    built = compiled([tmp_path / "plain/model.c", tmp_path / "plain/main.c"], tmp_path / "model")
    assert len(ran(built, "1 2 3\n\n4 5 6\n").stdout.splitlines()) == 2


def test_what_does_not_fit_is_told(fails: Callable[..., str], small: Path) -> None:
    Path("file").touch()
    assert "it is a file; name a folder" in fails("export", "c", "small", "--out", "file")
    assert "give a source" in fails("export", "c", "small", "--out", "d", "--fold", "1")
    (small / "bare.py").write_text("import torch\nnet = torch.nn.Linear(3, 2)\n")
    words = ("export", "c", "bare:net", "--input", "1x3", "--out", "d", "--data", SOURCE)
    assert "does not describe recordings" in fails(*words)


def test_channels_are_made_of_places_in_what_is_exported(run: Run, trained: Path) -> None:  # noqa: F811
    source = f"npz:{trained / 'arms.npz'}"
    words = ("--channels", "velocity", "coordinates", "bones", "--epochs", "3", *SMALL)
    assert run("train", source, "--out", "wide", *words).status == 0
    assert run("prune", "wide", "--sparsity", "0.8", "--out", "small").status == 0
    ran = run("export", "c", "small", "--out", "device")
    assert ran.status == 0, ran.err
    recogniser, data = Recognizer.load("small"), load_dataset(source)
    given = recogniser.prepared(data.sequences)
    found = interpreted(read(Path("device/model.trellis")), given)
    with torch.no_grad():
        wanted = recogniser.model(torch.from_numpy(recogniser.inputs(data.sequences))).numpy()
    np.testing.assert_allclose(found, wanted, rtol=0, atol=1e-5 * np.abs(wanted).max())


def test_arithmetic_in_8_bits(run: Run, fails: Callable[..., str], small: Path) -> None:
    """Calibrated on recordings or, for any model, on a file of inputs or on loaders."""
    words = ("export", "c", "small", "--out", "device", "--arithmetic", "int8")
    told = run(*words, "--data", SOURCE, "--json").json
    assert told["arithmetic"] == told["values"] == "int8" and told["accuracy"]["recordings"] > 0
    assert told["loss"]["samples"] > 0 and told["loss"]["typical"] < 0.1
    assert "calibration inputs" in run(*words, "--calibration", SOURCE).out
    assert "give inputs to calibrate on" in fails(*words)
    (small / "store.py").write_text(
        "import torch\n"
        "def net():\n    return torch.nn.Sequential(torch.nn.Linear(3, 2))\n"
        "def loaders():\n    return [(torch.randn(4, 3), torch.zeros(4))] * 3, None\n"
    )
    np.save("inputs.npy", np.random.default_rng(0).normal(size=(9, 3)).astype(np.float32))
    plain = ("export", "c", "store:net", "--input", "1x3", "--out", "plain", "--calibration")
    for source in ("inputs.npy", "store:loaders"):
        assert run(*plain, source, "--arithmetic", "int8").status == 0
    assert "is for --arithmetic int8" in fails(*plain, "inputs.npy")
    assert "cannot be read as an array" in fails(*plain, "none.npy", "--arithmetic", "int8")
