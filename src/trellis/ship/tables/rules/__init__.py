"""One small function an operation; importing this registers them all."""

from . import activation, arithmetic, attention, contraction, convolution, norm, pool  # noqa: F401
