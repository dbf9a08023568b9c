"""A traced model without its masks again, so that it can be pruned once more from the start."""

from trellis import Trellis
from trellis.masks.masked import detach
from trellis.masks.slots import named_slots


def unmasked(net: Trellis) -> Trellis:
    for _, slot in named_slots(net.model):
        detach(slot)
    return net
