"""Many networks as one model, side by side, so that thousands are traced in seconds.

Most of what tracing a small network takes is the same for a large one.
"""

from collections.abc import Mapping, Sequence

from torch import Tensor, nn

from .network import Network


class Gathered(nn.Module):
    """Each network reads inputs of its own and has outputs of its own; no two share anything."""

    def __init__(self, networks: Sequence[Network]) -> None:
        super().__init__()
        self.networks = networks
        self.parts = nn.ModuleList(network.model for network in networks)

    @property
    def inputs(self) -> tuple[Tensor, ...]:
        return tuple(x for network in self.networks for x in network.inputs)

    def forward(self, *xs: Tensor) -> tuple[Tensor, ...]:
        found: list[Tensor] = []
        for network, part in zip(self.networks, self.parts, strict=True):
            mine, xs = xs[: len(network.inputs)], xs[len(network.inputs) :]
            out = part(*mine)
            found += [out] if isinstance(out, Tensor) else list(out)
        return tuple(found)

    def together(self, masks: Sequence[Mapping[str, Tensor]]) -> dict[str, Tensor]:
        """Masks of each network under the names that they have here."""
        return {f"parts.{i}.{n}": m for i, part in enumerate(masks) for n, m in part.items()}

    def apart(self, masks: Mapping[str, Tensor]) -> list[dict[str, Tensor]]:
        """The other way round."""
        found: list[dict[str, Tensor]] = [{} for _ in self.networks]
        for name, mask in masks.items():
            _, place, rest = name.split(".", 2)
            found[int(place)][rest] = mask
        return found
