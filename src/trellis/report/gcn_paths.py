"""Path products of a GCN: forward from each joint, backward from each class.

The network of |w| without activations is linear. What reaches a class from an input unit is the
sum of the products of all paths between them: the sum-times semiring. Messages are kept separate
by joint and by class, so that everything the report shows is a sum over these messages.

A block is computed as convolution, then attention, which gives the same as the reverse order. The
paths of each class are scaled to add up to one, so that a class with large weights does not hide
the others.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import torch
from torch import Tensor

from ..skeleton import GCN
from ..skeleton.data.preparation import COORDINATES, cosines
from ..skeleton.model.windows import POOLS

# |w| of a GCN; its largest layer is stored sparsely.
#
# At 99 % sparsity that layer keeps 1 % of two million weights, so sparse work is a hundred times as
# fast. Attention and convolutions are a tenth of the network, and are stored densely.


KeptEntries = Mapping[str, tuple[Tensor, Tensor]]  # places and values of each parameter


@dataclass(frozen=True, eq=False)
class Connections:
    """Weights from (node, head, filter) to a class: ``places`` count the entries of ``shape``,
    (classes, nodes, heads, filters), in row-major order; ``weight`` are above zero.

    >>> found = Connections(torch.tensor([3, 5]), torch.tensor([2.0, 4.0]).double(), (2, 1, 1, 3))
    >>> [part.tolist() for part in found.units]
    [[1, 1], [0, 0], [0, 0], [0, 2]]
    """

    places: Tensor
    weight: Tensor
    shape: tuple[int, int, int, int]

    @classmethod
    def of(cls, whole: Tensor) -> Connections:
        """(classes, nodes, heads, filters)"""
        classes, nodes, heads, filters = whole.shape
        places = whole.flatten().nonzero().flatten()
        return cls(places, whole.flatten()[places], (classes, nodes, heads, filters))

    @property
    def units(self) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Class, node, head and filter of each."""
        _, nodes, heads, filters = self.shape
        rest, f = self.places // filters, self.places % filters
        rest, k = rest // heads, rest % heads
        return rest // nodes, rest % nodes, k, f

    @property
    def classes(self) -> Tensor:
        return self.places // math.prod(self.shape[1:])

    def scaled(self, by_class: Tensor) -> Connections:
        """Multiply each weight by the factor of its class, and drop zeros."""
        weight = self.weight * by_class[self.classes]
        left = weight > 0
        if bool(left.all()):
            return replace(self, weight=weight)
        return replace(self, places=self.places[left], weight=weight[left])

    def to_every_head(self, heads: int) -> Connections:
        """Repeat for every head, for networks that add heads up."""
        classes, nodes, _, filters = self.shape
        to = self.places // filters * heads * filters + self.places % filters
        places = to[:, None] + filters * torch.arange(heads)
        weight = self.weight[:, None].expand(-1, heads)
        return Connections(places.flatten(), weight.flatten(), (classes, nodes, heads, filters))

    def whole(self) -> Tensor:
        found = torch.zeros(math.prod(self.shape), dtype=torch.float64)
        found[self.places] = self.weight
        return found.reshape(self.shape)


@dataclass(frozen=True, eq=False)
class Weights:
    """Of each block, ``attentions`` (heads, nodes, nodes) and ``convolutions`` (heads, channels,
    filters); ``dense`` has one head where heads are added up (``summed``).

    Where filters slide over ``windows``, the first ``per_window`` channels are those of a window,
    and each filter is there twice, once for each of its hidden units.
    """

    attentions: tuple[Tensor, ...]
    convolutions: tuple[Tensor, ...]
    dense: Connections
    summed: bool = False
    windows: int = 0
    per_window: int = 0


def weights_of(model: GCN) -> Weights:
    """Return the weights of a network, with masks applied.

    >>> found = weights_of(GCN(nodes=3, channels=6, classes=2, heads=2, filters=4))
    >>> found.dense.shape, len(found.dense.places)
    ((2, 3, 2, 4), 48)
    """
    heads, summed = model.sizes["heads"], model.sizes["combine"] == "sum"
    attentions, convolutions = [], []
    for block in model.blocks:
        given: Any = block
        attention = _magnitude(given.attention)
        attentions.append(attention if given.edges is None else attention * given.edges.double())
        convolutions.append(_magnitude(given.convolution).expand(heads, -1, -1))
    windows, size = model.sizes.get("windows", 0), model.sizes.get("per_window", 0)
    if windows:
        convolutions[0] = torch.cat([convolutions[0]] * POOLS, 2)
    dense = model.dense.weight.detach()
    shape = (len(dense), model.sizes["nodes"], 1 if summed else heads, -1)
    found = Connections.of(dense.reshape(shape))
    last = _clean(found.places, found.weight, found.shape)
    return Weights(tuple(attentions), tuple(convolutions), last, summed, windows, size)


def kept_weights(kept: KeptEntries, shapes: Mapping[str, tuple[int, ...]]) -> Weights:
    """Return the weights from the entries that a run stores; ``shapes`` are the parameters'."""
    attentions, convolutions = [], []
    for number in range(len(shapes) // 2):
        attentions.append(_whole(kept, shapes, f"blocks.{number}.attention"))
        # A shared convolution serves every head.
        convolution = _whole(kept, shapes, f"blocks.{number}.convolution")
        convolutions.append(convolution.expand(len(attentions[0]), -1, -1))
    heads, nodes = attentions[0].shape[:2]
    classes, width = shapes["dense.weight"]
    places, values = kept["dense.weight"]
    last = _clean(places.long(), values, (classes, nodes, heads, width // (nodes * heads)))
    return Weights(tuple(attentions), tuple(convolutions), last)


def added_up(places: Tensor, weight: Tensor, size: int) -> Tensor:
    """Sum weights by place, as (size,).

    >>> added_up(torch.tensor([1, 1, 0]), torch.tensor([2.0, 3.0, 4.0]).double(), 3)
    tensor([4., 5., 0.], dtype=torch.float64)
    """
    # For empty inputs bincount returns integers.
    return torch.bincount(places, weight, size).double()


def _whole(kept: KeptEntries, shapes: Mapping[str, tuple[int, ...]], name: str) -> Tensor:
    places, values = kept[name]
    found = torch.zeros(math.prod(shapes[name]), dtype=torch.float64)
    found[places.long()] = _magnitude(values)
    return found.reshape(shapes[name])


def _clean(places: Tensor, values: Tensor, shape: tuple[int, int, int, int]) -> Connections:
    weight = _magnitude(values)
    left = weight > 0
    return Connections(places[left], weight[left], shape)


def _magnitude(weight: Tensor) -> Tensor:
    """Return |w|; NaN and infinity, left by a diverged training, count as zero."""
    found = weight.detach().double().abs()
    return found if found.sum().isfinite() else found.nan_to_num(0.0, 0.0, 0.0)


# The quantities of each block that the report shows.


Ends = tuple[Tensor, Tensor]  # (joints, lines) and (classes, lines)


class BlockMessages(ABC):
    """|w| of a block, ``attention`` (heads, nodes, nodes) and ``convolution`` (heads, channels,
    filters), and the messages around it."""

    attention: Tensor
    convolution: Tensor

    @property
    @abstractmethod
    def forward(self) -> Tensor:
        """(joints, nodes, heads, filters): the paths from a joint to the block's end."""

    @property
    @abstractmethod
    def total(self) -> Tensor:
        """(nodes, heads, filters): the same, of all joints together."""

    @property
    @abstractmethod
    def flow(self) -> Tensor:
        """(classes, joints, heads): the paths from a joint to a class through each head."""

    @property
    @abstractmethod
    def by_filter(self) -> Tensor:
        """(heads, filters): all that runs through a filter."""

    @property
    @abstractmethod
    def seen(self) -> Tensor:
        """(nodes, channels): whether anything gets to the block's beginning."""

    @property
    @abstractmethod
    def behind(self) -> Tensor:
        """(nodes, heads, filters): whether its end leads to a class."""

    @abstractmethod
    def of_attention(self, k: Tensor, u: Tensor, v: Tensor) -> Ends:
        """What runs from each joint, and to each class, from node v to node u in head k."""

    @abstractmethod
    def of_convolution(self, k: Tensor, c: Tensor, f: Tensor) -> Ends:
        """What runs from each joint, and to each class, by channel c to filter f of head k."""


# The first block, whose nodes are the joints themselves.
#
# After the convolution, a message is still at its joint, and is the same for every joint. So no
# message needs both joints and nodes, and a few sums over kept connections are enough.


@dataclass(frozen=True, eq=False)
class First(BlockMessages):
    """``wanted`` are the paths to each class from the block's end."""

    attention: Tensor
    convolution: Tensor
    wanted: Connections

    @cached_property
    def kernel(self) -> Tensor:
        """(heads, filters): all channels of a joint together, one path each."""
        return self.convolution.sum(1)

    @cached_property
    def hearing(self) -> Tensor:
        """(heads, nodes): all that a node hears of joints."""
        return self.attention.sum(2)

    @cached_property
    def by_node(self) -> Tensor:
        """(classes, nodes, heads): the paths to a class from a node in each head, convolved."""
        classes, nodes, heads, filters = self.wanted.shape
        kernel = self.kernel.flatten()[self.wanted.places % (heads * filters)]
        found = added_up(
            self.wanted.places // filters, self.wanted.weight * kernel, classes * nodes * heads
        )
        return found.reshape(classes, nodes, heads)

    @cached_property
    def by_class(self) -> Tensor:
        """(classes, heads, filters): the paths to a class from a filter, from all joints."""
        classes, nodes, heads, filters = self.wanted.shape
        width = heads * filters
        hearing = self.hearing.T.flatten()[self.wanted.places // filters % (nodes * heads)]
        to = self.wanted.places // (nodes * width) * width + self.wanted.places % width
        found = added_up(to, self.wanted.weight * hearing, classes * width)
        return found.reshape(classes, heads, filters)

    @cached_property
    def leading(self) -> Tensor:
        """(nodes, heads, filters): the paths to all classes from the block's end."""
        shape = self.wanted.shape[1:]
        size = math.prod(shape)
        return added_up(self.wanted.places % size, self.wanted.weight, size).reshape(shape)

    @property
    def by_channel(self) -> Tensor:
        """(classes, channels): the paths to a class that begin at a channel, at any joint."""
        return torch.einsum("okf,kcf->oc", self.by_class, self.convolution)

    @cached_property
    def forward(self) -> Tensor:
        return torch.einsum("kuj,kf->jukf", self.attention, self.kernel)

    @property
    def total(self) -> Tensor:
        return self.hearing.T[:, :, None] * self.kernel

    @cached_property
    def flow(self) -> Tensor:
        return torch.einsum("ouk,kuj->ojk", self.by_node, self.attention)

    @property
    def by_filter(self) -> Tensor:
        return self.by_class.sum(0) * self.kernel

    @property
    def seen(self) -> Tensor:
        nodes, channels = self.attention.shape[2], self.convolution.shape[1]
        return torch.ones(nodes, channels, dtype=torch.bool)

    @property
    def behind(self) -> Tensor:
        return self.leading > 0

    def of_attention(self, k: Tensor, u: Tensor, v: Tensor) -> Ends:
        to_class = self.attention[k, u, v] * self.by_node[:, u, k]
        from_joint = torch.zeros(self.attention.shape[2], len(v), dtype=torch.float64)
        from_joint[v, torch.arange(len(v))] = to_class.sum(0)
        return from_joint, to_class

    def of_convolution(self, k: Tensor, c: Tensor, f: Tensor) -> Ends:
        weight = self.convolution[k, c, f]
        by_joint = torch.einsum("kuj,ukf->jkf", self.attention, self.leading)
        return weight * by_joint[:, k, f], weight * self.by_class[:, k, f]


# A later block: messages from a joint have passed through other joints.


@dataclass(frozen=True, eq=False)
class Later(BlockMessages):
    """Messages around it, all of them whole:

    ``before`` (joints, nodes, channels)
        the paths from a joint up to here;
    ``convolved`` (joints, nodes, heads, filters)
        those, through the convolution; their node is still the one they come from;
    ``wanted`` (classes, nodes, heads, filters)
        the paths to a class from the block's end.
    """

    attention: Tensor
    convolution: Tensor
    before: Tensor
    convolved: Tensor
    wanted: Tensor

    @cached_property
    def carried(self) -> Tensor:
        """(classes, nodes, heads, filters): ``wanted`` and the attention; the node is the one that
        paths come from."""
        return torch.einsum("kuv,oukf->ovkf", self.attention, self.wanted)

    @property
    def backward(self) -> Tensor:
        """(classes, nodes, channels): the paths to a class from the block's beginning."""
        return torch.einsum("ovkf,kcf->ovc", self.carried, self.convolution)

    @cached_property
    def forward(self) -> Tensor:
        return onward(self.attention, self.convolved)

    @property
    def total(self) -> Tensor:
        return self.forward.sum(0)

    @property
    def flow(self) -> Tensor:
        return torch.einsum("ovkf,jvkf->ojk", self.carried, self.convolved)

    @property
    def by_filter(self) -> Tensor:
        return (self.convolved.sum(0) * self.carried.sum(0)).sum(0)

    @property
    def seen(self) -> Tensor:
        return (self.before > 0).any(0)

    @property
    def behind(self) -> Tensor:
        return (self.wanted > 0).any(0)

    def of_attention(self, k: Tensor, u: Tensor, v: Tensor) -> Ends:
        weight = self.attention[k, u, v]
        from_joint = torch.einsum("jvkf,ukf->jkuv", self.convolved, self.wanted.sum(0))
        to_class = torch.einsum("vkf,oukf->okuv", self.convolved.sum(0), self.wanted)
        return weight * from_joint[:, k, u, v], weight * to_class[:, k, u, v]

    def of_convolution(self, k: Tensor, c: Tensor, f: Tensor) -> Ends:
        weight = self.convolution[k, c, f]
        before, behind = self.before[:, :, c], self.carried[:, :, k, f]  # …, nodes, lines
        from_joint = torch.einsum("jve,ve->je", before, behind.sum(0))
        to_class = torch.einsum("ve,ove->oe", before.sum(0), behind)
        return weight * from_joint, weight * to_class


def onward(attention: Tensor, convolved: Tensor) -> Tensor:
    """(joints, nodes, heads, filters), the nodes that paths come from -> those that they go to."""
    found: Tensor = torch.einsum("kuv,jvkf->jukf", attention, convolved)
    return found


@dataclass(frozen=True, eq=False)
class Messages:
    """``dense`` are the connections to classes that are reached, each class's paths adding up to
    one; ``sums`` (classes,) are what they add up to by themselves. ``summed``: heads are added up.
    """

    first: First
    later: tuple[Later, ...]
    dense: Connections
    sums: Tensor
    summed: bool
    windows: int = 0
    per_window: int = 0

    @property
    def blocks(self) -> tuple[BlockMessages, ...]:
        return (self.first, *self.later)

    @property
    def forward(self) -> Tensor:
        """(joints, nodes, heads of dense, filters): what gets to the dense layer from a joint."""
        found = self.blocks[-1].forward
        return found.sum(2, keepdim=True) if self.summed else found

    @property
    def total(self) -> Tensor:
        """(nodes, heads of dense, filters): the same, of all joints together."""
        found = self.blocks[-1].total
        return found.sum(1, keepdim=True) if self.summed else found


def messages_of(weights: Weights) -> Messages:
    """Compute all messages of a network.

    >>> from trellis.skeleton import GCN
    >>> from trellis.report.gcn_paths import weights_of
    >>> found = messages_of(weights_of(GCN(nodes=3, channels=6, classes=2, heads=2, filters=4)))
    >>> flow = found.first.flow
    >>> flow.shape, bool(torch.allclose(flow.sum((1, 2)), torch.ones(2).double()))
    (torch.Size([2, 3, 2]), True)
    """
    layers = list(zip(weights.attentions, weights.convolutions, strict=True))
    heads = len(layers[0][0])
    start = First(*layers[0], wanted=weights.dense)  # what is wanted of it is not known yet
    ways: list[tuple[Tensor, Tensor]] = []  # before a later block, and convolved
    total = start.total
    if layers[1:]:
        signal = start.forward
        for attention, convolution in layers[1:]:
            before = signal.sum(2) if weights.summed else signal.flatten(2)
            ways.append((before, torch.einsum("jvc,kcf->jvkf", before, convolution)))
            signal = onward(attention, ways[-1][1])
        total = signal.sum(0)

    arrived = (total.sum(1) if weights.summed else total).flatten()
    here = weights.dense
    sums = added_up(here.classes, here.weight * arrived[here.places % len(arrived)], here.shape[0])
    dense = here.scaled(torch.where(sums > 0, 1 / sums, 0))

    wanted = dense.to_every_head(heads) if weights.summed else dense
    later: list[Later] = []
    for layer, way in zip(reversed(layers[1:]), reversed(ways), strict=True):
        block = Later(*layer, *way, wanted=wanted.whole())
        later.insert(0, block)
        found = block.backward
        if weights.summed:  # every head gives the same
            found = found[:, :, None].expand(-1, -1, heads, -1)
        wanted = Connections.of(found.reshape(*found.shape[:2], heads, -1))
    return Messages(
        First(*layers[0], wanted), tuple(later), dense, sums, weights.summed, weights.windows,
        weights.per_window,
    )  # fmt: skip


# The number of multiplications for one recording: uses of connections on paths.


def multiplications(messages: Messages) -> int:
    """Count the uses of connections on paths from an input to a class.

    Attention comes before or after the convolution, wherever the signal is smaller, as in the
    network.

    >>> from trellis.skeleton import GCN
    >>> from trellis.report.gcn_paths import messages_of
    >>> from trellis.report.gcn_paths import weights_of
    >>> found = messages_of(weights_of(GCN(nodes=2, channels=3, classes=2, heads=2, filters=4)))
    >>> multiplications(found) == 2 * 2 * 2 * 3 + 2 * 2 * 3 * 4 + 2 * 2 * 2 * 4
    True
    """
    count = 0
    if messages.windows:
        count += _in_windows(messages)
    for block in messages.blocks[bool(messages.windows) :]:
        before, behind = block.seen.double(), block.behind.double()
        channels, filters = block.convolution.shape[1:]
        count += (_mixed_first if channels <= filters else _convolved_first)(block, before, behind)
    arrived = messages.total.flatten() > 0
    return count + int(arrived[messages.dense.places % len(arrived)].sum())


def _in_windows(messages: Messages) -> int:
    """Count the multiplications of a block whose filters slide over windows."""
    block, size = messages.first, messages.per_window
    attention = _positive(block.attention)
    filters = block.convolution.shape[2] // POOLS
    convolution = _positive(block.convolution[..., :filters])
    behind = block.behind.unflatten(2, (POOLS, filters)).any(2).double()
    times = torch.ones(convolution.shape[1], dtype=torch.float64)
    times[:size] = messages.windows
    needed = _positive(_einsum("ukf,kcf->kuc", behind, convolution))
    reached = _positive(attention.sum(2))  # heads, nodes
    mixing = _einsum("kuv,kuc,c->", attention, needed, times)
    return int(mixing + _einsum("ku,kcf,ukf,c->", reached, convolution, behind, times))


def dense_multiplications(sizes: Mapping[str, Any]) -> int:
    """Count the multiplications of an unpruned GCN of these sizes.

    >>> sizes = {"nodes": 21, "channels": 96, "classes": 45, "heads": 16, "filters": 128}
    >>> dense_multiplications(sizes | {"blocks": 1})
    6741504
    """
    nodes, heads, filters = sizes["nodes"], sizes["heads"], sizes["filters"]
    channels, summed = sizes["channels"], sizes.get("combine") == "sum"
    if windows := sizes.get("windows", 0):
        rows = channels - (windows - 1) * sizes["per_window"]
        mixing = heads * nodes * nodes * channels
        last = nodes * heads * POOLS * filters * sizes["classes"]
        within = (windows - 1) * sizes["per_window"] + rows
        return int(mixing + heads * nodes * within * filters + last)
    count = 0
    for _ in range(sizes["blocks"]):
        count += heads * nodes * (nodes * min(channels, filters) + channels * filters)
        channels = filters if summed else heads * filters
    return int(count + nodes * channels * sizes["classes"])


def _mixed_first(block: BlockMessages, before: Tensor, behind: Tensor) -> int:
    attention, convolution = _positive(block.attention), _positive(block.convolution)
    needed = _positive(_einsum("ukf,kcf->kuc", behind, convolution))
    reached = _positive(_einsum("kuv,vc->kuc", attention, before))
    mixing = _einsum("kuv,vc,kuc->", attention, before, needed)
    convolving = _einsum("kuc,kcf,ukf->", reached, convolution, behind)
    return int(mixing + convolving)


def _convolved_first(block: BlockMessages, before: Tensor, behind: Tensor) -> int:
    attention, convolution = _positive(block.attention), _positive(block.convolution)
    needed = _positive(_einsum("ukf,kuv->kvf", behind, attention))
    reached = _positive(_einsum("vc,kcf->kvf", before, convolution))
    convolving = _einsum("vc,kcf,kvf->", before, convolution, needed)
    mixing = _einsum("kvf,kuv,ukf->", reached, attention, behind)
    return int(convolving + mixing)


def _positive(values: Tensor) -> Tensor:
    return (values > 0).double()


def _einsum(pattern: str, *operands: Tensor) -> Tensor:
    result: Tensor = torch.einsum(pattern, *operands)
    return result


def moments_of(chunks: int, kinds: Sequence[str] = COORDINATES) -> list[int]:
    """Return the chunk (or cosine coefficient) of each three channels of a joint, in order.

    A velocity belongs to the later of its two chunks. A coefficient of a window, which spans a
    quarter of the recording, belongs to the coefficient of the same frequency.

    >>> moments_of(3), moments_of(3, ("coordinates", "velocity"))
    ([0, 1, 2], [0, 1, 2, 1, 2])
    >>> moments_of(8, ("windows", "coordinates"))
    [0, 4, 0, 1, 2, 3, 4, 5, 6, 7]
    """
    first = [4 * k for k in range(chunks // 4)] if "windows" in kinds else []
    others = [kind for kind in kinds if kind != "windows"]
    return first + [chunk for kind in others for chunk in range(kind == "velocity", chunks)]


def by_joint(messages: Messages) -> Tensor:
    """Return (classes, joints): the share of a class's paths that begin at a joint.

    Shares are of the summed path products, and those of a class add up to one, or to zero if no
    path reaches it.

    >>> from trellis.skeleton import GCN
    >>> from trellis.report.gcn_paths import messages_of
    >>> from trellis.report.gcn_paths import weights_of
    >>> found = messages_of(weights_of(GCN(nodes=5, channels=12, classes=2, heads=2, filters=3)))
    >>> by_joint(found).shape, bool(torch.allclose(by_joint(found).sum(1), torch.ones(2).double()))
    (torch.Size([2, 5]), True)
    >>> by_moment(found, moments_of(4)).shape
    torch.Size([2, 4])
    """
    return messages.first.flow.sum(2)


def by_moment(messages: Messages, moments: Sequence[int]) -> Tensor:
    """Return (classes, moments): the share that begins at a moment. ``moments`` gives the chunk,
    or the cosine coefficient, of each three channels."""
    channels = messages.first.by_channel
    by_three = channels.reshape(len(channels), len(moments), 3).sum(2)
    found = torch.zeros(len(channels), max(moments) + 1, dtype=channels.dtype)
    return found.index_add(1, torch.tensor(moments), by_three)


def over_chunks(waves: Tensor) -> Tensor:
    """Convert shares by cosine coefficient to shares by chunk, (…, chunks), of the same sum.

    The share of coefficient k is spread over the chunks m by C[k, m]², where C is the orthonormal
    cosine transform. Its rows have length one, so these squares add up to one.

    >>> over_chunks(torch.tensor([[1.0, 0, 0], [0, 1, 0]])).mul(6).round(decimals=4)
    tensor([[2., 2., 2.],
            [3., 0., 3.]])
    """
    squares = torch.from_numpy(cosines(waves.shape[-1])).square()
    found: Tensor = waves @ squares.to(waves.dtype)
    return found
