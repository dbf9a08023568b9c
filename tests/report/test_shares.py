"""Shares of joints and chunks are those of all paths, enumerated."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings

from tests.report.networks import network, networks
from tests.report.paths import paths
from trellis.report.drawing import FULL_SHARE, shown_network
from trellis.report.gcn_paths import by_joint, by_moment, messages_of, moments_of, weights_of
from trellis.skeleton import GCN, Layout
from trellis.skeleton.data.preparation import cosines

ARM = Layout("arm", ("shoulder", "elbow", "hand"), (-1, 0, 1))


def told(gcn: GCN, moments: list[int]) -> tuple[Any, Any]:
    """(classes, joints) and (classes, moments)."""
    found = messages_of(weights_of(gcn))
    return by_joint(found).numpy(), by_moment(found, moments).numpy()


@settings(max_examples=20, deadline=None)
@given(gcn=networks(blocks=3))
def test_shares_are_sums_over_paths(gcn: GCN) -> None:
    wanted = np.zeros((3, 3, 2))
    for path in paths(gcn):
        wanted[path.label, path.joint, path.channel // 3] += path.weight
    sums = wanted.sum((1, 2), keepdims=True)
    np.testing.assert_allclose(messages_of(weights_of(gcn)).sums, sums.ravel(), rtol=1e-6)
    parts = np.divide(wanted, sums, out=np.zeros_like(wanted), where=sums > 0)
    reached = sums.ravel() > 0
    for found, own in zip(told(gcn, moments_of(2)), (parts.sum(2), parts.sum(1)), strict=True):
        np.testing.assert_allclose(found, own, atol=1e-9)
        np.testing.assert_allclose(found.sum(1)[reached], 1)
        assert (found[~reached] == 0).all()


@pytest.mark.parametrize("basis", ["chunks", "cosines"])
@settings(max_examples=12, deadline=None)
@given(gcn=networks(blocks=3, chunks=3))
def test_what_the_page_is_given_are_shares_of_all_paths(gcn: GCN, basis: str) -> None:
    """By joint, by chunk and by wave: a path that begins at wave k is C[k, m]² of it at chunk m."""
    waves = cosines(3) ** 2
    by_joint, by_chunk, by_wave = (np.zeros((3, 3)) for _ in range(3))
    for path in paths(gcn):
        place = path.channel // 3
        by_joint[path.label, path.joint] += path.weight
        by_wave[path.label, place] += path.weight
        by_chunk[path.label] += path.weight * (waves[place] if basis == "cosines" else
                                               np.arange(3) == place)  # fmt: skip
    found = shown_network(weights_of(gcn), ARM, moments_of(3), basis)
    wanted = {"joints": by_joint, "chunks": by_chunk, "waves": by_wave}
    if basis == "chunks":
        assert found["waves"] is None
        del wanted["waves"]
    for name, sums in wanted.items():
        whole = sums.sum(1, keepdims=True)
        parts = np.divide(sums, whole, out=np.zeros_like(sums), where=whole > 0)
        assert np.abs(np.array(found[name]) / FULL_SHARE - parts).max() < 1 / FULL_SHARE
        assert [sum(own) for own in found[name]] == [FULL_SHARE * (n > 0) for n in whole[:, 0]]


def test_weights_that_are_no_numbers_carry_nothing() -> None:
    gcn = network(1)
    wanted = network(1)
    gcn.dense.weight[0, :], wanted.dense.weight[0, :] = float("nan"), 0
    gcn.dense.weight[1, 2], wanted.dense.weight[1, 2] = float("inf"), 0
    for found, own in zip(told(gcn, moments_of(2)), told(wanted, moments_of(2)), strict=True):
        np.testing.assert_array_equal(found, own)
        assert (found[0] == 0).all() and found[1:].any()


@pytest.mark.parametrize("kinds", [("velocity",), ("coordinates", "velocity", "bones")])
def test_channels_of_every_kind_belong_to_their_chunk(kinds: tuple[str, ...]) -> None:
    chunk_of = [m for kind in kinds for m in range(kind == "velocity", 3) for _ in range(3)]
    gcn = network(1, channels=len(chunk_of))
    wanted = np.zeros((3, 3, 3))
    for path in paths(gcn):
        wanted[path.label, path.joint, chunk_of[path.channel]] += path.weight
    wanted /= np.maximum(wanted.sum((1, 2), keepdims=True), 1e-300)
    of_joints, of_moments = told(gcn, moments_of(3, kinds))
    np.testing.assert_allclose(of_joints, wanted.sum(2), atol=1e-9)
    np.testing.assert_allclose(of_moments, wanted.sum(1), atol=1e-9)
