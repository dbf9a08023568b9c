"""The one exception that Trellis raises on purpose."""

from __future__ import annotations


class TrellisError(ValueError):
    """Report an argument, a model or a file that Trellis cannot use.

    Every error that Trellis raises on purpose is a `TrellisError`. The message says what was
    expected, what was given, and what to do. Because it is a `ValueError`, code that already
    catches `ValueError` also catches it.

    Example:
        >>> import torch, trellis
        >>> try:
        ...     trellis.prune(torch.nn.Linear(2, 2), torch.zeros(1, 2), sparsity=2)
        ... except trellis.TrellisError as error:
        ...     print(isinstance(error, ValueError), "sparsity" in str(error))
        True True
    """
