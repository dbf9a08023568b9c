"""Activations: functions of one number, by the codes of the tables and the C kernel."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Values = NDArray[np.floating]


@dataclass(frozen=True)
class Activation:
    """A function's name and up to two parameters."""

    name: str = "none"
    a: float = 0.0
    b: float = 0.0

    @property
    def code(self) -> int:
        return CODES[self.name]

    def __call__(self, x: Values) -> Values:
        """
        >>> Activation("clamp", 0.0, 6.0)(np.array([-1.0, 3.0, 9.0]))
        array([0., 3., 6.])
        """
        with np.errstate(over="ignore", divide="ignore", invalid="ignore"):
            result: Values = _FUNCTIONS[self.name](x, self.a, self.b).astype(x.dtype)
        return result


def _erf(x: Values) -> Values:
    result: Values = np.vectorize(math.erf, otypes=[np.float64])(x)
    return result


def _sigmoid(x: Values) -> Values:
    return 1.0 / (1.0 + np.exp(-x))


def _hard(x: Values) -> Values:
    result: Values = np.clip(x / 6.0 + 0.5, 0.0, 1.0)
    return result


def _gelu_tanh(x: Values) -> Values:
    return 0.5 * x * (1.0 + np.tanh(math.sqrt(2.0 / math.pi) * (x + 0.044715 * x**3)))


_FUNCTIONS: dict[str, Callable[[Values, float, float], Values]] = {
    "none": lambda x, a, b: x,
    "relu": lambda x, a, b: np.maximum(x, 0),
    "clamp": lambda x, a, b: np.clip(x, a, b),
    "leaky": lambda x, a, b: np.where(x > 0, x, a * x),
    "sigmoid": lambda x, a, b: _sigmoid(x),
    "tanh": lambda x, a, b: np.tanh(x),
    "gelu": lambda x, a, b: 0.5 * x * (1.0 + _erf(x * math.sqrt(0.5))),
    "gelu_tanh": lambda x, a, b: _gelu_tanh(x),
    "silu": lambda x, a, b: x * _sigmoid(x),
    "hardswish": lambda x, a, b: x * _hard(x),
    "hardsigmoid": lambda x, a, b: _hard(x),
    "exp": lambda x, a, b: np.exp(x),
    "reciprocal": lambda x, a, b: 1.0 / x,
    "rsqrt": lambda x, a, b: 1.0 / np.sqrt(x),
    "sqrt": lambda x, a, b: np.sqrt(x),
    "abs": lambda x, a, b: np.abs(x),
    "elu": lambda x, a, b: np.where(x > 0, x, a * np.expm1(np.minimum(x, 0) * b)),
    "softplus": lambda x, a, b: np.logaddexp(a * x, 0) / a,
    "log": lambda x, a, b: np.log(x),
}
CODES = {name: code for code, name in enumerate(_FUNCTIONS)}
NAMES = tuple(_FUNCTIONS)
NONE = Activation()
