"""Weights as ONNX sparse initializers, where that makes the file smaller."""

from __future__ import annotations

from typing import Any

import numpy as np

from .needs import needed

ENTRY = 8  # bytes of an index; ONNX allows 64-bit ones only
OVERHEAD = 64  # bytes that the second tensor's names, sizes and tags take, about


def sparsify(model: Any) -> int:
    """Turn initializers of an ONNX model (a ``ModelProto``) into sparse ones, in place.

    A sparse one stores each entry that is not zero with its flat index. Runtimes make it dense
    again when they load it: the file gets smaller, not the memory. Returns how many were turned.
    """
    onnx = needed("onnx")
    graph, kept, turned = model.graph, [], 0
    for tensor in graph.initializer:
        value = onnx.numpy_helper.to_array(tensor)
        places = np.flatnonzero(value)
        size = len(places) * (value.itemsize + ENTRY) + OVERHEAD
        if not value.ndim or not len(places) or size >= value.nbytes:
            kept.append(tensor)
            continue
        entries = onnx.numpy_helper.from_array(value.reshape(-1)[places], tensor.name)
        index = onnx.numpy_helper.from_array(places.astype(np.int64), f"{tensor.name}_indices")
        graph.sparse_initializer.append(
            onnx.helper.make_sparse_tensor(entries, index, list(value.shape))
        )
        turned += 1
    del graph.initializer[:]
    graph.initializer.extend(kept)
    return turned
