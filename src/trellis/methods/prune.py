"""`trellis.prune`: keep the best connections of a model, in place; its options and their checks."""

from __future__ import annotations

import math
import warnings
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction
from functools import cached_property
from numbers import Integral
from typing import Any, Literal, overload

import torch
from torch import Tensor, nn
from torch.nn.utils.spectral_norm import SpectralNorm
from torch.nn.utils.weight_norm import WeightNorm

from ..devices import on_cpu
from ..errors import TrellisError
from ..graph.trellis import Current, Trellis, current, matching, trace, without
from ..masks import Masks
from ..masks.masked import check_finite
from .budget import Ranking, count, kept_share, zeros
from .budget import budget as exact_budget
from .method import Kept, Method, MethodName, Problem, Scope, options_of_class, resolved
from .saliency import Saliency, finite, lifted, not_negative, perturbed, saliency_of

# Which connections may be kept at all.


DEFAULT = "closed"  # of prune, Pruner and shrink
# Older releases stored these four for every method, whether it used them or not.
_ONCE_COMMON = ("scope", "surrogate", "inverse_alpha", "row_normalize")


@dataclass(frozen=True)
class Options:
    """A method with its own options, and the options that all methods share."""

    method: Method
    saliency: Saliency = "magnitude"
    consistent: bool | None = None
    stochastic: bool = False
    seed: int = 0
    cover_outputs: bool = True
    ignore: str | Collection[str] = ()
    cover_layers: bool = True

    def __post_init__(self) -> None:
        if self.consistent is not None and not isinstance(self.consistent, bool):
            raise TrellisError(f"consistent={self.consistent!r} must be None, True or False")
        for name in ("stochastic", "cover_outputs", "cover_layers"):
            if not isinstance(value := getattr(self, name), bool):  # "no" would count as True
                raise TrellisError(f"{name}={value!r} must be True or False")
        if isinstance(self.seed, bool) or not isinstance(self.seed, Integral):
            raise TrellisError(f"seed={self.seed!r} is not a whole number")
        object.__setattr__(self, "seed", int(self.seed))  # numpy's too: files store no others
        if not 0 <= self.seed < 1 << 63:
            raise TrellisError(f"seed={self.seed!r} is out of range: 0 <= seed < 2**63")
        several = isinstance(self.ignore, list | tuple | set | frozenset)
        patterns = self.ignore if several else [self.ignore]
        if not all(isinstance(pattern, str) for pattern in patterns):
            raise TrellisError(
                f"expected a parameter name pattern or a list of them for ignore, got "
                f"{self.ignore!r}"
            )

    @property
    def closes(self) -> bool:
        """Whether the result must be consistent."""
        return self.method.consistent if self.consistent is None else self.consistent

    @property
    def ignored(self) -> tuple[str, ...]:
        """The patterns of ``ignore``."""
        if isinstance(self.ignore, str):
            return (self.ignore,)
        unordered = isinstance(self.ignore, set | frozenset)
        return tuple(sorted(self.ignore) if unordered else self.ignore)

    def record(self) -> dict[str, Any]:
        """Return all options in a form that JSON can store.

        >>> from trellis.methods import Magnitude
        >>> Options(Magnitude(scope="layer")).record()["scope"]
        'layer'
        """
        return {
            "method": self.method.name,
            **self.method.to_dict(),
            "saliency": self.saliency if isinstance(self.saliency, str) else "given",
            "consistent": self.closes,
            "stochastic": self.stochastic,
            "seed": self.seed,
            "cover_outputs": self.cover_outputs,
            "cover_layers": self.cover_layers,
            "ignore": list(self.ignored),
        }


def current_record(stored: Mapping[str, Any], method: type[Method]) -> dict[str, Any]:
    """Return a record of any release without options that ``method`` does not have.

    >>> from trellis.methods import Viterbi
    >>> current_record({"method": "viterbi", "scope": "global", "seed": 3}, Viterbi)
    {'method': 'viterbi', 'seed': 3}
    """
    own = {option.name for option in options_of_class(method)}
    return {name: v for name, v in stored.items() if name not in _ONCE_COMMON or name in own}


def warn_starved(masks: Masks, stacklevel: int) -> bool:
    """Warn of layers that keep less than a hundredth of their fair share; return whether any do."""
    named = masks.starved_words()
    if named:
        warnings.warn(
            f"starved layers keep less than a hundredth of their fair share: {named}; compare "
            "method='closed' with scope='balanced' or scope='erk', or ignore such layers",
            stacklevel=stacklevel,
        )
    return bool(named)


STRAY = 1e-3  # up to this share, zeros are chance: random initialisation draws some


def allowed(net: Trellis, now: Current, *, closed: bool) -> dict[str, Tensor] | None:
    """Return the connections that are kept now; None if all are.

    Masks decide. For a consistent result (``closed``), zeros also count as pruned in a parameter
    without a mask, because a path through a zero weight carries nothing.

    A parameter that is zero everywhere counts as untrained (the second factor of a low-rank
    adapter, a head initialised to zero). All of it may be kept.
    """
    found: dict[str, Tensor] = {}
    for name in net.connections:
        weight = now.weights[name]
        if name in now.masks:
            found[name] = now.masks[name]
        elif closed and STRAY < zeros(weight) < 1:
            found[name] = weight != 0
    if not found:
        return None
    return {
        name: found[name]
        if name in found
        else torch.ones(shape, dtype=torch.bool, device=now.weights[name].device)
        for name, shape in net.connections.items()
    }


def refuse_hooks(model: nn.Module) -> None:
    """Refuse old-style norms. They recompute a weight before each call, which undoes its mask."""
    for name, module in model.named_modules():
        for hook in module._forward_pre_hooks.values():
            if isinstance(hook, WeightNorm | SpectralNorm):
                kind = "weight_norm" if isinstance(hook, WeightNorm) else "spectral_norm"
                raise TrellisError(
                    f"{name or type(module).__name__!r} has torch.nn.utils.{kind}, whose weight "
                    "cannot be masked; use "
                    f"torch.nn.utils.parametrizations.{kind} instead, or remove_{kind} first"
                )


# A method at work on current weights. Nothing is changed.


@dataclass(frozen=True, eq=False)
class Selector:
    """Chooses connections by the method of ``options``, for the weights ``now``.

    ``fresh`` connections are about to return and have weight 0. They count as much as the best of
    their parameter.
    """

    net: Trellis
    now: Current
    options: Options
    fresh: Kept | None = None

    @cached_property
    def _unchecked(self) -> bool:
        """Whether the method will look for NaN and infinity itself, in plain weights."""
        options = self.options
        plain = options.saliency == "magnitude" and not options.stochastic and self.fresh is None
        return plain and options.method.checks_weights

    @cached_property
    def saliency(self) -> Mapping[str, Tensor]:
        """What the method gets: checked, with noise if it samples by noise."""
        options = self.options
        found = saliency_of(self.now, list(self.net.connections), options.saliency)
        if not self._unchecked:
            finite(found, list(found))
        if options.method.multiplies or options.stochastic:
            not_negative(found, options.method.name)
        if options.stochastic and options.method.sampling == "noise":
            found = perturbed(found, options.seed)
        return lifted(found, self.fresh)

    def problem(self, able: Kept | None, budget: int, share: Fraction | None = None) -> Problem:
        """Return what the method decides on: ``budget`` of the connections in ``able``."""
        options = self.options
        return Problem(
            net=self.net,
            weights={name: self.now.weights[name] for name in self.net.connections},
            saliency=self.saliency,
            allowed=None if able is None else dict(able),
            budget=budget,
            share=Fraction(budget, self.net.total) if share is None else share,
            consistent=options.closes,
            cover_outputs=options.cover_outputs,
            stochastic=options.stochastic,
            seed=options.seed,
            fresh=self.fresh,
            unchecked=self._unchecked,
            cover_layers=options.cover_layers,
        )

    def choose(self, able: Kept | None, budget: int, share: Fraction | None = None) -> Kept:
        """Return ``budget`` connections of those in ``able`` (None: of all).

        ``share`` is the fraction that the budget was given as. Scopes round it for each layer.
        """
        if able is not None and count(able) == self.net.total:
            able = None
        return self.options.method.choose(self.problem(able, budget, share))

    def ranking(self, able: Kept, budget: int) -> Ranking:
        """Return the connections in ``able`` from best to worst."""
        return self.options.method.ranking(self.problem(able, budget))


Fractional = float | Decimal | Fraction
BuiltIn = Literal["closed", "viterbi", "magnitude", "random", "chains", "synflow", "phew"]


# The first signature is for editors: it lists the options of the built-in methods.
@overload
def prune(
    model: nn.Module | Trellis,
    example_inputs: Any = None,
    *,
    sparsity: Fractional | None = None,
    keep: int | None = None,
    method: BuiltIn = "closed",
    saliency: Saliency = "magnitude",
    consistent: bool | None = None,
    stochastic: bool = False,
    seed: int = 0,
    cover_outputs: bool = True,
    cover_layers: bool = True,
    ignore: str | Collection[str] = (),
    scope: Scope = ...,
    surrogate: Literal["local", "global"] = ...,
    inverse_alpha: float = ...,
    row_normalize: bool = ...,
) -> Masks: ...


@overload
def prune(
    model: nn.Module | Trellis,
    example_inputs: Any = None,
    *,
    sparsity: Fractional | None = None,
    keep: int | None = None,
    method: MethodName | str | Method = DEFAULT,
    saliency: Saliency = "magnitude",
    consistent: bool | None = None,
    stochastic: bool = False,
    seed: int = 0,
    cover_outputs: bool = True,
    cover_layers: bool = True,
    ignore: str | Collection[str] = (),
    **method_options: Any,
) -> Masks: ...


@on_cpu()
def prune(
    model: nn.Module | Trellis,
    example_inputs: Any = None,
    *,
    sparsity: Fractional | None = None,
    keep: int | None = None,
    method: MethodName | str | Method = DEFAULT,
    saliency: Saliency = "magnitude",
    consistent: bool | None = None,
    stochastic: bool = False,
    seed: int = 0,
    cover_outputs: bool = True,
    cover_layers: bool = True,
    ignore: str | Collection[str] = (),
    **method_options: Any,
) -> Masks:
    """Prune a model in place.

    By default, every kept connection is on a path from an input to an output. The masks are
    registered on the model as parametrizations. If the model already carries masks, more is
    removed and nothing returns.

    Args:
        model: The model, or what `trellis.trace` returned for it.
        example_inputs: A tensor, or a tuple of the positional inputs of ``forward()``.
        sparsity: Fraction of connections to remove, from 0 to below 1. Give this or ``keep``.
        keep: Number of connections to keep.
        method: How connections are chosen: a name, or an object such as
            ``trellis.methods.Chains(surrogate="global")``. The names:

            - "closed": by saliency, along paths of large saliency (the default);
            - "viterbi": by the best path through each connection, for networks without skips;
            - "magnitude": by saliency alone;
            - "random": a random choice;
            - "chains": whole chains from input to output, the paper's Algorithm 1;
            - "synflow": by the sum over all paths, in rounds;
            - "phew": the connections that random walks use.

            `trellis.methods.available` lists them all. ``"package.module:Class"`` names a
            registered class to import.
        saliency: Importance of a connection: "magnitude", "relative" (magnitude relative to its
            row and its column), a mapping of parameter names to tensors, such as the result of
            `trellis.saliency`, or a function (name, parameter) -> tensor.
        consistent: Whether every kept connection must be live. None: True for "closed", "viterbi",
            "chains" and "phew", False for the other built-in methods.
        stochastic: Sample in proportion to saliency, without replacement. "random" and "phew"
            always sample.
        seed: Seed of all random draws. The same seed gives the same masks on every machine.
        cover_outputs: Whether a consistent result reaches every output that the unpruned model
            reaches.
        cover_layers: Whether a consistent result keeps live connections in every parameter that is
            live in the unpruned model. This prevents layer collapse.
        ignore: Name patterns of parameters that are neither pruned nor counted, such as "head.*".
        **method_options: The options of the method, if ``method`` is a name:

            - scope ("closed": default "balanced"; "magnitude", "random": default "global"): how the
              budget is spread over parameters. "global", "layer", "erk", "lamp", "balanced", or a
              mapping of parameter names to counts, which needs no other budget.
            - surrogate ("chains"; default "local"): score a step by its own saliency ("local"), or
              by all paths ahead, too ("global").
            - inverse_alpha ("chains"; default 1.0): 1/α of the global surrogate. 1 sums all paths
              ahead, infinity takes the best one.
            - row_normalize ("chains"; default False): divide the saliencies that leave a unit by
              their sum first.

    Returns:
        The masks. ``masks.budget`` was asked for and ``masks.kept`` was found. They differ if no
        consistent network of exactly that size was found.

    Raises:
        TrellisError: If an option is invalid, the budget is too small to reach every output and
            layer, or the model cannot be traced.

    >>> import torch
    >>> model = nn.Sequential(nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 2))
    >>> masks = prune(model, torch.zeros(1, 8), sparsity=0.9)
    >>> masks.kept, masks.total
    (8, 80)
    """
    chosen = resolved(method, method_options).settled(gradual=False)
    options = Options(
        chosen, saliency, consistent, stochastic, seed, cover_outputs, ignore, cover_layers
    )
    net = trace(model, example_inputs)
    refuse_hooks(net.model)
    now = current(net)
    if not isinstance(saliency, str):  # magnitudes are checked where they are used
        check_finite(now.weights, "repair it before pruning")
    net = without(net, matching(net, options.ignored), now.weights)
    if not net.connections:
        raise TrellisError(
            f"{type(net.model).__name__} has no prunable weights: no parameter outside `ignore` "
            "multiplies a signal"
        )
    chosen.check({n: math.prod(shape) for n, shape in net.connections.items()})
    fixed = chosen.fixed_budget
    if fixed is not None and sparsity is None and keep is None:
        keep = fixed
    budget = exact_budget(net.total, sparsity, keep)
    if fixed is not None and fixed != budget:
        raise TrellisError(
            f"scope asks for {fixed} connections in all and the budget is {budget}; leave out "
            "sparsity and keep, or make them agree"
        )
    able = allowed(net, now, closed=options.closes and not chosen.needs_unmasked)
    if chosen.needs_unmasked and able is not None:
        raise TrellisError(
            f"method {chosen.name!r} starts from a network without masks; use method='closed'"
        )
    kept = Selector(net, now, options).choose(able, budget, kept_share(net.total, sparsity, keep))
    record = {"options": options.record(), "inputs": net.specs}
    masks = Masks(kept, budget=budget, provenance=record)
    masks.apply(net.model)
    warn_starved(masks, stacklevel=4)
    return masks
