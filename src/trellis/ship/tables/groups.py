"""Rows with the same weights, which read at the same distances, are one group."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from .network import Block, Ids, Reals


@dataclass(eq=False)
class Groups:
    """The rows of a block by group: ``fan`` terms each, ``count`` rows ("instances") each.

    Term t of instance n reads address ``terms[t] + offsets[n]``; a group's first term is 0.
    Groups come with ascending fan, so that a loop over terms keeps its length for long.
    """

    fan: Ids  # (groups,)
    count: Ids  # (groups,)
    bias: Reals  # (groups,)
    terms: Ids  # (Σ fan,), or (Σ fan, 2) of dots
    weights: Reals  # (Σ fan,)
    offsets: Ids  # (Σ count,)
    rows: Ids  # (Σ count,): which row of the block each instance is


def grouped(block: Block, address: Ids) -> Groups:
    """Group a block's rows, given where every unit lies."""
    parts: list[Groups] = []
    fan = block.fan
    for width in np.unique(fan):
        parts.append(_of_width(block, address, np.flatnonzero(fan == width), int(width)))
    return Groups(
        *(
            np.concatenate([getattr(part, name) for part in parts])
            for name in ("fan", "count", "bias", "terms", "weights", "offsets", "rows")
        )
    )


def _of_width(block: Block, address: Ids, rows: Ids, width: int) -> Groups:
    at = block.starts[rows][:, None] + np.arange(width)  # (rows, width)
    reads, weights = address[block.reads[at]], block.weights[at].astype(np.float32)
    bias = block.bias[rows].astype(np.float32)
    if width and block.others is None:  # in order of address, whichever order they came in
        order = np.argsort(reads, axis=1, kind="stable")
        reads = np.take_along_axis(reads, order, axis=1)
        weights = np.take_along_axis(weights, order, axis=1)
    elif width:
        assert block.others is not None
        reads = np.stack([reads, address[block.others[at]]], axis=2).reshape(len(rows), -1)
    first = reads[:, 0] if width else np.zeros(len(rows), np.int64)
    relative = reads - first[:, None]
    key = np.ascontiguousarray(
        np.concatenate(
            [
                relative.astype(np.int32),
                (weights + np.float32(0)).view(np.int32),  # −0.0 is 0.0
                (bias + np.float32(0)).view(np.int32)[:, None],
            ],
            axis=1,
        )
    )
    void = key.view(np.dtype((np.void, key.shape[1] * 4)))[:, 0]
    _, sample, member = np.unique(void, return_index=True, return_inverse=True)
    count = np.bincount(member)
    lowest = np.full(len(count), np.iinfo(np.int64).max)
    np.minimum.at(lowest, member, first)
    rank = np.empty(len(count), np.int64)
    order = np.lexsort((lowest, count))  # equal counts together, then by address
    rank[order] = np.arange(len(count))
    instances = np.lexsort((first, rank[member]))
    sample = sample[order]
    shape = (-1,) if block.others is None else (-1, 2)
    return Groups(
        np.full(len(order), width), count[order], bias[sample].astype(np.float64),
        relative[sample].reshape(shape), weights[sample].reshape(-1).astype(np.float64),
        first[instances], rows[instances],
    )  # fmt: skip


def bits(groups: Groups) -> float:
    """About how many bits the groups take in a file, to choose between layouts."""
    gap = np.abs(np.diff(groups.offsets, prepend=0))
    return float(20 * len(groups.fan) + 12 * len(groups.weights) + (1 + 2 * np.log2(1 + gap)).sum())
