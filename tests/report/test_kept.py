"""What a run keeps of a network and of its recordings gives the page that all of them would."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.paper.waves import waves
from tests.report.conftest import Made, made
from tests.report.networks import networks
from trellis.cli.report import of_run
from trellis.errors import TrellisError
from trellis.paper.plan import architecture_of
from trellis.paper.pruning import kept_of, unpacked
from trellis.paper.settings import describe
from trellis.report.drawing import shown_network
from trellis.report.gcn_paths import Connections, kept_weights, moments_of, weights_of
from trellis.report.model import DIGEST, from_built_in
from trellis.report.run import run_report
from trellis.skeleton import GCN, load_dataset
from trellis.skeleton.data.hands import some_of_hands45


@pytest.mark.parametrize("options", [{}, {"blocks": 2}, {"shared": True}], ids=str)
def test_kept_connections_tell_what_the_whole_network_tells(
    tmp_path: Path, options: dict[str, int]
) -> None:
    run = made(tmp_path, waves(), **options)
    shapes = architecture_of(run.folder.settings, run.folder.data).shapes
    assert len(run.content["networks"]) > 4
    for row, shown in run.content["networks"].items():
        path = run.folder.networks(run.folder.records[f"{row}/seed-0/fold-0"]["stack"])
        kept, stored = kept_of(path, row, shapes), unpacked(path, row, shapes)
        assert kept is not None and stored is not None
        model = architecture_of(run.folder.settings, run.folder.data).build(3)
        model.load_state_dict(stored[0])
        layout, moments = run.data.layout, moments_of(run.folder.settings.chunks)
        assert shown_network(kept_weights(kept, shapes), layout, moments) == shown
        assert shown_network(weights_of(model), layout, moments) == shown


@settings(max_examples=20, deadline=None)
@given(gcn=networks(blocks=1))
def test_connections_are_the_weights_that_are_not_zero(gcn: GCN) -> None:
    found = weights_of(gcn).dense
    whole = gcn.dense.weight.detach().double().abs().reshape(found.shape)
    assert (found.whole() == whole).all() and len(found.places) == int(whole.count_nonzero())
    assert (found.weight == whole[found.units]).all()
    halved = found.scaled(whole.new_tensor([0.5, 0, 2]))
    assert (halved.whole() == whole * whole.new_tensor([0.5, 0, 2])[:, None, None, None]).all()
    assert (halved.weight > 0).all()
    spread = Connections.of(whole.sum(2, keepdim=True)).to_every_head(2)
    assert (spread.whole() == whole.sum(2, keepdim=True).expand(-1, -1, 2, -1)).all()


def test_the_built_in_recordings_need_not_all_be_made(full: Made) -> None:
    assert describe(full.data).digest == DIGEST
    assert from_built_in(full.folder) is some_of_hands45
    assert run_report(full.folder) == full.content == of_run(full.folder)
    assert full.content["examples"] is not None and full.content["missing"] == []


@settings(max_examples=5, deadline=None)
@given(which=st.lists(st.integers(0, 574), max_size=9))
def test_made_alone_or_with_all_others_a_recording_is_the_same(
    full: Made, which: list[int]
) -> None:
    data = full.data
    found = some_of_hands45(which)
    assert len(found) == len(which)
    for number, (name, frames) in zip(data.folds[0].test[which], found, strict=True):
        assert name == data.names[number]
        np.testing.assert_array_equal(frames, data.sequences[number])


def test_recordings_that_have_changed_since_are_done_without(tmp_path: Path) -> None:
    """Those that lie where a run's were: unless they are asked for, they are no reason to stop."""
    some = waves()

    def written(frames: float) -> str:
        np.savez(
            tmp_path / "own.npz",
            frames=frames * np.concatenate(some.sequences),
            lengths=[len(sequence) for sequence in some.sequences],
            labels=some.labels,
        )
        return f"npz:{tmp_path / 'own.npz'}"

    source = written(1)
    run = made(tmp_path, load_dataset(source))
    assert of_run(run.folder, source) == run.content and run.content["examples"] is not None
    written(2)
    found = of_run(run.folder)  # they are not named: a run does not say what is read
    assert found["examples"] is None and "moving skeletons" in found["missing"][0]["what"]
    assert found["networks"] == run.content["networks"]
    with pytest.raises(TrellisError, match="not the recordings of this run"):
        of_run(run.folder, source)
