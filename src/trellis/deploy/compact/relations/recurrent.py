"""LSTM, GRU and plain recurrent layers: remove hidden units that reach no output.

A hidden unit that reaches no output, at this step or a later one, is removed from all gates, from
the recurrent weights and from the readers of its layer. A unit that no input reaches still changes,
because biases move its state from step to step. If others read it, it stays. Dead connections
between units that stay also stay.

After that, layers may differ in width. One fused operation cannot represent this, so each layer
becomes an operation. The two directions of a layer must be equally wide. The last states are one
tensor for all layers, so if they are read, all layers keep the same units.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from ....graph.export import aten
from ..program import Op, Ref
from ..reading import Network
from ..writing import AxisPlaces, Codes, Writer
from .relation import Relation, relation_for

GATES = {"lstm": 4, "gru": 3, "rnn_tanh": 1, "rnn_relu": 1}
_WHY = "a recurrent layer reads or keeps it in its state"
_LIKE = "both directions of a recurrent layer have the same width"

Bools = NDArray[np.bool_]


@relation_for(aten(" ".join(GATES)))
def recurrent(op: Op, network: Network) -> Relation | None:
    return Recurrent(op, network)


def _either(rows: Bools) -> Bools:
    """Return whether any row is true, for each column."""
    return np.asarray(rows.any(0), np.bool_)


class Recurrent(Relation):
    """Compact a recurrent layer.

    Shapes: x (T, B, I) or (B, T, I), states (layers · directions, B, H). Each layer and direction
    has weights (gates · H, I) and (gates · H, H), and optionally two biases (gates · H).
    """

    def __init__(self, op: Op, network: Network) -> None:
        super().__init__(op, network)
        self.gates = GATES[op.target.split(".")[1]]
        self.directions = 2 if self.call["bidirectional"] else 1
        self.layers = int(self.call["num_layers"])
        self.x: str = self.call["input"].name
        given = self.call["hx"]
        self.states = [s.name for s in (given if isinstance(given, list) else [given])]
        names = [ref.name for ref in self.call["params"]]
        each = len(names) // (self.layers * self.directions)
        self.cells = [names[i : i + each] for i in range(0, len(names), each)]
        self.hidden = self.value(self.cells[0][1]).shape[1]
        self.results = {
            int(item.args[1]): item.name
            for item in network.ops
            if item.target == "operator.getitem" and item.args[0] == Ref(op.name)
        }
        self.read = {name: self._nonzero(name) for cell in self.cells for name in cell[:2]}

    def _nonzero(self, name: str) -> Bools:
        """Return which connections are not zero, in the shape of their weight."""
        found = self.value(name).tensor != 0
        kept = self.network.kept.get(self.network.parameters.get(name, ""))
        return (found if kept is None else found & kept.cpu()).numpy()

    def touched(self) -> list[str]:
        names = [self.x, *self.states, *(n for cell in self.cells for n in cell)]
        return list(dict.fromkeys([*names, *self.results.values()]))

    # -- what stays ------------------------------------------------------------------------

    def _rows(self, units: Bools) -> Bools:
        """Return the rows of weights and biases that belong to these units, in all gates."""
        return np.tile(units, self.gates)

    def _asked(self, kept: AxisPlaces) -> Bools:
        """Return the hidden units (layers · directions, H) that other operations require."""
        found = np.zeros((len(self.cells), self.hidden), bool)
        for place, (into, own, *biases) in enumerate(self.cells):
            for name in (into, own, *biases):
                found[place] |= _either(kept.places(name, 0).reshape(self.gates, -1))
            found[place] |= kept.places(own, 1)
            if place >= self.directions:
                found[self._below(place)] |= kept.places(into, 1).reshape(self.directions, -1)
        for index, name in self.results.items():
            if index == 0:
                found[-self.directions :] |= kept.places(name, 2).reshape(self.directions, -1)
            else:
                found |= kept.places(name, 2)
        return found

    def _below(self, place: int) -> slice:
        """Return the cells whose output this cell reads."""
        layer = place // self.directions
        return slice((layer - 1) * self.directions, layer * self.directions)

    def _grown(self, stay: Bools) -> Bools:
        """Add all units that the units which stay read, at any time step."""
        before = None
        while before is None or (stay != before).any():
            before = stay.copy()
            for place in reversed(range(len(self.cells))):
                into, own = self.cells[place][:2]
                rows = self._rows(stay[place])
                stay[place] |= _either(self.read[own][rows])
                if place >= self.directions:
                    read = _either(self.read[into][rows]).reshape(self.directions, -1)
                    stay[self._below(place)] |= read
            if any(self.results):  # last states
                stay |= _either(stay)
        return stay

    def close(self, kept: AxisPlaces) -> None:
        for name in (self.x, *self.states, *self.results.values()):
            for axis in range(2):
                kept.fill(name, axis, "a recurrent layer goes through every step")
        stay = self._grown(self._asked(kept))
        if stay.any() and not stay.any(1).all():  # an empty layer below others keeps one unit
            stay[~stay.any(1), 0] = True
            stay = self._grown(stay)
        for place, (into, own, *biases) in enumerate(self.cells):
            for name in (into, own, *biases):
                self._add(kept, name, 0, self._rows(stay[place]), _WHY)
            self._add(kept, own, 1, stay[place], _WHY)
            if place >= self.directions:
                self._add(kept, into, 1, stay[self._below(place)].reshape(-1), _WHY)
            else:
                self._add(kept, into, 1, self._inputs(stay[place], into), _WHY)
        first = [(cell[0], 1) for cell in self.cells[: self.directions]]
        kept.tie([(self.x, len(self.value(self.x).shape) - 1), *first], _WHY)
        for name in self.states:
            self._add(kept, name, 2, _either(stay), _WHY)
        for index, name in self.results.items():
            last = stay[-self.directions :].reshape(-1) if index == 0 else _either(stay)
            self._add(kept, name, 2, last, _WHY)

    def _inputs(self, units: Bools, into: str) -> Bools:
        """Return the inputs that these units read, except inputs that are always zero."""
        x = self.value(self.x)
        zero = x.still() == 0
        if x.depends is not None:
            zero &= ~x.depends
        some: Bools = (~zero).flatten(0, -2).any(0).numpy()
        return _either(self.read[into][self._rows(units)]) & some

    def _add(self, kept: AxisPlaces, name: str, axis: int, places: Bools, why: str) -> None:
        kept.add(name, axis, places.astype(np.int32), why)

    def settle(self, kept: AxisPlaces) -> None:
        if self.directions == 1:
            return
        for layer in range(self.layers):
            own = [cell[1] for cell in self.cells[2 * layer : 2 * layer + 2]]
            places = [kept.places(name, 1) for name in own]
            few = int(np.argmin([p.sum() for p in places]))
            short = int(abs(int(places[0].sum()) - int(places[1].sum())))
            more: Codes = np.zeros(self.hidden, np.int32)
            more[np.flatnonzero(~places[few])[:short]] = 1
            kept.add(own[few], 1, more, _LIKE)

    def dead(self, kept: AxisPlaces) -> int:
        """Count kept connections that are dead although both of their units stay."""
        if all(self.value(name).constant for name in self.results.values()):
            return 0  # the whole layer becomes constants
        found = 0
        for name in (weight for cell in self.cells for weight in cell[:2]):
            parameter = self.network.parameters.get(name, "")
            if parameter in self.network.kept:
                dead = self.network.kept[parameter] & ~self.network.lives[parameter]
                places = np.ix_(kept.places(name, 0), kept.places(name, 1))
                found += int(dead.cpu().numpy()[places].sum())
        return found

    # -- how it is written -----------------------------------------------------------------

    def write(self, writer: Writer) -> list[Any]:
        """Write the layer; return its output and last states."""
        x, width = writer.place(self.x), self.directions
        if all(writer.kept.whole(cell[1]) for cell in self.cells):
            states = [writer.place(name) for name in self.states]
            return self._call(writer, x, states, self.cells, self.op.name)
        last: list[list[Any]] = []
        for layer in range(self.layers):
            cells = self.cells[layer * width : (layer + 1) * width]
            states = [self._state(writer, name, layer) for name in self.states]
            name = writer.fresh(f"{self.op.name}_{layer}")
            x, *own = self._call(writer, x, states, cells, name)
            last.append(own)
        if self.layers == 1 or not any(self.results):
            return [x, *last[-1]]
        joined = zip(*last, strict=True)
        return [x, *(writer.call("last", "aten.cat.default", list(some), 0) for some in joined)]

    def _call(
        self, writer: Writer, x: Any, states: list[Any], cells: list[list[str]], name: str
    ) -> list[Any]:
        given = states if isinstance(self.call["hx"], list) else states[0]
        params = [writer.place(weight) for cell in cells for weight in cell]
        layers = len(cells) // self.directions
        done = writer.add(
            self.call.changed(name, input=x, hx=given, params=params, num_layers=layers)
        )
        return [
            writer.call(f"{name}_part", "operator.getitem", done, i) for i in range(1 + len(states))
        ]

    def _state(self, writer: Writer, name: str, layer: int) -> Any:
        """Write the first state of a layer, (directions, B, units that stay)."""
        stays = {unit: i for i, unit in enumerate(writer.kept.index(name, 2))}
        parts = []
        for place in range(layer * self.directions, (layer + 1) * self.directions):
            units = [stays[u] for u in writer.kept.index(self.cells[place][1], 1)]
            one = writer.take(writer.place(name), 0, [place], len(self.cells), f"{name}_of")
            parts.append(writer.take(one, 2, units, len(stays), f"{name}_of"))
        if len(parts) == 1:
            return parts[0]
        return writer.call(f"{name}_both", "aten.cat.default", parts, 0)


class Result(Relation):
    """Output or last state of a recurrent layer; `Recurrent.close` ties its places."""

    def touched(self) -> list[str]:
        return []

    def close(self, kept: AxisPlaces) -> None:
        """Add nothing; see `Recurrent.close`."""

    def write(self, writer: Writer) -> Any:
        source, index = self.op.args
        return writer.places[source.name][index]
