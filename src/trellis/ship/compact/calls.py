"""The arguments of an operation, by the names that PyTorch's schema gives them."""

from __future__ import annotations

from typing import Any

import torch

from .program import Op, function


class Call:
    """An operation whose arguments can be asked for, and changed, by name.

    >>> call = Call(Op("y", "aten.sum.dim_IntList", ("x", [1])))
    >>> call["dim"], call["keepdim"]
    ([1], False)
    >>> call.changed("z", keepdim=True)
    Op(name='z', target='aten.sum.dim_IntList', args=('x', [1], True), kwargs={})
    """

    def __init__(self, op: Op) -> None:
        self.op = op
        found = function(op.target)
        self.schema = found._schema if isinstance(found, torch._ops.OpOverload) else None
        self.arguments: dict[str, Any] = {}
        if self.schema is not None:
            for place, argument in enumerate(self.schema.arguments):
                if place < len(op.args):
                    self.arguments[argument.name] = op.args[place]
                elif argument.name in op.kwargs:
                    self.arguments[argument.name] = op.kwargs[argument.name]
                elif argument.has_default_value():
                    self.arguments[argument.name] = argument.default_value

    def __getitem__(self, name: str) -> Any:
        return self.arguments[name]

    def __contains__(self, name: str) -> bool:
        return name in self.arguments

    def changed(self, result: str, /, **changes: Any) -> Op:
        """The same operation under the name ``result``, some arguments changed."""
        assert self.schema is not None
        unknown = changes.keys() - self.arguments.keys()
        if unknown:
            raise KeyError(f"{self.op.target} has no argument {sorted(unknown)[0]!r}")
        given = self.arguments | changes
        args: list[Any] = []
        kwargs: dict[str, Any] = {}
        default: list[bool] = []
        for argument in self.schema.arguments:
            if argument.name not in given:
                continue
            value = given[argument.name]
            same = argument.has_default_value() and value == argument.default_value
            if argument.kwarg_only:
                if not same:
                    kwargs[argument.name] = value
            else:
                args.append(value)
                default.append(same and argument.name not in changes)
        while default and default[-1]:
            default.pop()
            args.pop()
        return Op(result, self.op.target, tuple(args), kwargs)
