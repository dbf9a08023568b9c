"""The contract for pruning methods, and the registry that makes them known everywhere.

A method is one class: a frozen dataclass whose fields are its options. `register_method` gives it
a name. From then on `trellis.prune`, `trellis.Pruner`, the paper's tables and the command line know
it. A method only says which connections it prefers. Consistency, covered outputs and exact budgets
are handled here.
"""

from __future__ import annotations

import importlib
import math
import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import MISSING, Field, dataclass, fields, replace
from fractions import Fraction
from functools import lru_cache
from inspect import cleandoc, isabstract
from numbers import Integral, Real
from typing import Any, ClassVar, Literal, TypeVar, get_args, get_origin, get_type_hints

import torch
from torch import Tensor

from ..errors import TrellisError
from ..graph.trellis import Trellis
from ..paths.scores import BestPaths
from ..plugins import Registry
from .budget import Ranking, check_scope, count, scoped
from .consistent import closed, finished
from .saliency import Magnitudes, finite, lifted

Kept = Mapping[str, Tensor]  # bool, in the parameters' shapes
Scope = str | Mapping[str, int]
Sampling = Literal["noise", "own", "always"]
# The built-in methods, so that editors complete their names; every registered name works.
MethodName = Literal["closed", "viterbi", "chains", "phew", "magnitude", "synflow", "random"]


@dataclass(frozen=True, eq=False)
class Problem:
    """What a method gets to decide on: a network, its weights and a budget.

    Attributes:
        net: The traced network. ``net.connections`` maps parameter names to shapes.
        weights: The current weights, by parameter name.
        saliency: The importance of each connection, float32 in the parameters' shapes. With
            ``stochastic=True`` it already includes noise if the method's ``sampling`` is "noise".
        allowed: Connections that may be kept, as bool tensors; None if all may.
        budget: Number of connections to keep.
        share: The requested fraction to keep, exactly. ``budget`` is this share, rounded down.
        consistent: Whether every kept connection must be live.
        cover_outputs: Whether a consistent result must reach every output.
        stochastic: Whether the caller asked for sampling.
        seed: Seed of all random draws.
        fresh: Pruned connections that are about to return (see `trellis.Pruner`), or None.
        unchecked: Whether the weights may still hold NaN or infinity. Only for methods that set
            ``checks_weights``.
        cover_layers: Whether a consistent result keeps every layer alive.
    """

    net: Trellis
    weights: Mapping[str, Tensor]
    saliency: Mapping[str, Tensor]
    allowed: Kept | None
    budget: int
    share: Fraction
    consistent: bool
    cover_outputs: bool
    stochastic: bool = False
    seed: int = 0
    fresh: Kept | None = None
    unchecked: bool = False
    cover_layers: bool = True

    def generator(self) -> torch.Generator:
        """Return a new CPU generator that starts from the seed."""
        return torch.Generator().manual_seed(self.seed)


class Method(ABC):
    """The base of all methods. Derive from `ScoreMethod` or `WalkMethod` instead.

    Class attributes describe the method:

    - ``consistent``: whether results are consistent unless the caller says otherwise.
    - ``multiplies``: whether saliencies are multiplied along paths. Negative ones are then refused.
    - ``needs_unmasked``: whether `trellis.prune` refuses networks that already carry masks.
    - ``sampling``: what ``stochastic=True`` does. "noise": the method gets a noisy saliency.
      "own": it reads ``problem.stochastic``. "always": it samples with and without it.
    - ``checks_weights``: whether the method itself refuses NaN and infinity in the weights. This
      saves one pass over a large model.
    """

    name: ClassVar[str] = ""
    consistent: ClassVar[bool] = False
    multiplies: ClassVar[bool] = False
    needs_unmasked: ClassVar[bool] = False
    sampling: ClassVar[Sampling] = "noise"
    checks_weights: ClassVar[bool] = False

    def __post_init__(self) -> None:
        """Convert numpy numbers to Python's, and check options of type bool and Literal."""
        types = option_types(type(self))
        for option in options_of_class(type(self)):
            value = _plain(getattr(self, option.name))
            object.__setattr__(self, option.name, value)
            if isinstance(option.default, bool) and not isinstance(value, bool):
                raise TrellisError(f"expected True or False for {option.name}, got {value!r}")
            choices = get_args(types.get(option.name))
            if get_origin(types.get(option.name)) is Literal and value not in choices:
                raise TrellisError(
                    f"expected {' or '.join(map(repr, choices))} for {option.name}, got {value!r}"
                )

    @abstractmethod
    def choose(self, problem: Problem) -> Kept:
        """Return the connections to keep, as bool tensors by parameter name."""

    @abstractmethod
    def ranking(self, problem: Problem) -> Ranking:
        """Return all allowed connections from best to worst."""

    @property
    def fixed_budget(self) -> int | None:
        """The only budget that fits the options; None if any does."""
        return None

    def settled(self, *, gradual: bool) -> Method:
        """Return the method with every option decided, for a schedule or for pruning at once."""
        return self

    def check(self, sizes: Mapping[str, int]) -> None:  # noqa: B027  (nothing to check by default)
        """Check the options against a network with ``sizes`` connections per parameter."""

    def to_dict(self) -> dict[str, Any]:
        """Return the options in a form that JSON can store.

        >>> from trellis.methods import Chains
        >>> Chains(inverse_alpha=float("inf")).to_dict()
        {'surrogate': 'local', 'inverse_alpha': 'inf', 'row_normalize': False}
        """
        return {f.name: _stored(getattr(self, f.name)) for f in options_of_class(type(self))}


class ScoreMethod(Method):
    """A method that scores every connection. Implement `scores`."""

    @abstractmethod
    def scores(self, problem: Problem) -> Mapping[str, Tensor]:
        """Return a score for every connection: the largest are kept.

        Args:
            problem: The network, its weights, its saliency and the budget.

        Returns:
            For each name in ``problem.net.connections``, a tensor of that shape. Ties are broken
            by saliency.
        """

    def choose(self, problem: Problem) -> Kept:
        ranking, counts = self._ranked(problem)
        if problem.consistent:
            cover, layers = problem.cover_outputs, problem.cover_layers
            return closed(problem.net.lean, ranking, problem.budget, cover=cover, layers=layers)
        return ranking.top(problem.budget) if counts is None else ranking.top_each(counts)

    def ranking(self, problem: Problem) -> Ranking:
        return self._ranked(problem)[0]

    def _ranked(self, problem: Problem) -> tuple[Ranking, dict[str, int] | None]:
        """The ranking, and the number to keep in each parameter if the options decide it."""
        found = self._checked(problem)
        return Ranking(found, problem.saliency, problem.allowed), None

    def _checked(self, problem: Problem) -> Mapping[str, Tensor]:
        """The scores, refused if they do not fit the network."""
        found = self.scores(problem)
        if isinstance(found, BestPaths | Magnitudes) or found is problem.saliency:
            return found  # computed on demand, or checked before
        shapes = problem.net.connections
        if not isinstance(found, Mapping) or set(found) != set(shapes):
            got = ", ".join(map(str, found)) if isinstance(found, Mapping) else type(found).__name__
            raise TrellisError(
                f"expected scores of method {self.name!r} for {', '.join(shapes)}; got {got:.200}"
            )
        scores: dict[str, Tensor] = {}
        for name, shape in shapes.items():
            score, like = found[name], problem.weights[name]
            if not isinstance(score, Tensor) or tuple(score.shape) != tuple(shape):
                got = str(tuple(score.shape)) if isinstance(score, Tensor) else type(score).__name__
                raise TrellisError(
                    f"expected a tensor of shape {tuple(shape)} as score of {name!r} from method "
                    f"{self.name!r}, got {got}"
                )
            scores[name] = score.detach().to(like.device, torch.float32).contiguous()
        finite(scores, list(scores), f"scores of method {self.name!r} for")
        return scores


@dataclass(frozen=True, kw_only=True)
class ScopedMethod(ScoreMethod):
    """A score method that can spread the budget over the parameters.

    Scores compare connections within a parameter; ``scope`` compares parameters. Ties are broken
    by position.

    Args:
        scope: How the budget is spread over parameters. "global": one ranking for all. "layer": the
            same fraction of each. "erk": Erdős–Rényi kernel densities. "lamp": layer-adaptive
            magnitudes. "balanced": between "global" and "erk". A mapping of parameter names to
            counts sets them directly.
    """

    scope: Scope | None = "global"

    def __post_init__(self) -> None:
        super().__post_init__()
        if isinstance(self.scope, str):  # counts are checked with the network
            check_scope(self.scope, {})

    @property
    def fixed_budget(self) -> int | None:
        return sum(self.scope.values()) if isinstance(self.scope, Mapping) else None

    def check(self, sizes: Mapping[str, int]) -> None:
        if self.scope is not None:
            check_scope(self.scope, sizes)

    def _ranked(self, problem: Problem) -> tuple[Ranking, dict[str, int] | None]:
        worth = dict(lifted(self._checked(problem), problem.fresh))
        scope = "global" if self.scope is None else self.scope
        return scoped(scope, worth, problem.allowed, problem.budget, problem.share)


class WalkMethod(Method):
    """A method that builds a network out of paths from inputs to outputs. Implement `walk`.

    `trellis.prune` refuses networks with masks for it, since a walk needs room to move. Gradual
    pruning hides what is pruned from the walk: its saliency is zero.
    """

    consistent = True
    multiplies = True
    needs_unmasked = True
    sampling: ClassVar[Sampling] = "own"

    @abstractmethod
    def walk(self, problem: Problem, budget: int) -> Mapping[str, Tensor]:
        """Return at most ``budget`` connections, as bool tensors by parameter name.

        Args:
            problem: The network and its saliency, on the CPU. What may not be kept has saliency 0.
            budget: The number of connections to keep. It can be below ``problem.budget``, where
                some are reserved to reach every output.

        Returns:
            Bool tensors in the shapes of ``problem.net.connections``. For a consistent result,
            dead connections are dropped and the rest of the budget is filled by saliency.
        """

    def choose(self, problem: Problem) -> Kept:
        """Walk on the CPU, over what may be kept, and fill the budget by saliency."""
        plain = {name: value.cpu() for name, value in problem.saliency.items()}
        allowed = problem.allowed
        among = None if allowed is None else {name: mask.cpu() for name, mask in allowed.items()}
        if among is not None:
            plain = {name: value * among[name] for name, value in plain.items()}
        ranking = Ranking(plain, plain, among)
        given = replace(problem, saliency=plain, allowed=among)

        def walk(m: int) -> Kept:
            found = self.walk(given, m)
            return found if among is None else {n: mask & among[n] for n, mask in found.items()}

        kept: Kept
        if problem.consistent:
            cover, layers = problem.cover_outputs, problem.cover_layers
            kept = finished(
                problem.net.lean, ranking, problem.budget, walk, cover=cover, layers=layers
            )
        else:
            kept = walk(problem.budget)
            if among is not None:
                missing = problem.budget - count(kept)
                rest = ranking.top(missing, {n: ~mask for n, mask in kept.items()})
                kept = {name: mask | rest[name] for name, mask in kept.items()}
        device = next(iter(problem.weights.values())).device
        return {name: mask.to(device) for name, mask in kept.items()}

    def ranking(self, problem: Problem) -> Ranking:
        return Ranking(problem.saliency, problem.saliency, problem.allowed)


# Options that are numbers, and options in files.


def _plain(value: Any) -> Any:
    """A numpy number as Python's, also within a mapping: files store no others."""
    if isinstance(value, Mapping):
        return {name: _plain(each) for name, each in value.items()}
    if isinstance(value, bool | int | float) or not isinstance(value, Real):
        return value
    return int(value) if isinstance(value, Integral) else float(value)


def _stored(value: Any) -> Any:
    """A value as JSON stores it."""
    if isinstance(value, Mapping):
        return {str(name): _stored(each) for name, each in value.items()}
    if isinstance(value, list | tuple):
        return [_stored(each) for each in value]
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    return value if value is None or isinstance(value, bool | int | float | str) else "given"


# The registry.


METHODS: Registry[type[Method]] = Registry("method", "trellis.methods", "@trellis.register_method")
# Arguments of prune, Pruner and their commands, and entries of a history beside the options.
_RESERVED = {
    "model", "example_inputs", "sparsity", "keep", "method", "saliency", "consistent", "stochastic",
    "seed", "cover_outputs", "cover_layers", "ignore", "schedule", "regrow", "group", "target",
    "inputs", "input", "weights", "out", "masks", "overwrite", "as_json", "json", "help", "step",
    "budget", "kept", "total", "plan",
}  # fmt: skip
AnyMethod = TypeVar("AnyMethod", bound=Method)


def register_method(name: str) -> Callable[[type[AnyMethod]], type[AnyMethod]]:
    """Register a pruning method under a name.

    The class derives from `trellis.methods.ScoreMethod` (or `ScopedMethod`, `WalkMethod`) and is a
    frozen dataclass. Each field is an option and needs a default. The ``Args:`` section of the
    class's docstring describes the options, also on the command line.

    Args:
        name: The name for ``method=`` and ``--method``: lower-case letters, digits, ``-`` and
            ``_``.

    Returns:
        A class decorator. It returns the class, with ``name`` set.

    Raises:
        TrellisError: If the name is taken or invalid, or the class does not fit the contract.

    >>> import torch, trellis
    >>> from dataclasses import dataclass
    >>> @trellis.register_method("sharpened")
    ... @dataclass(frozen=True)
    ... class Sharpened(trellis.methods.ScoreMethod):
    ...     '''Keep the largest powers of the saliency.
    ...
    ...     Args:
    ...         power: Exponent of the saliency.
    ...     '''
    ...     power: float = 2.0
    ...
    ...     def scores(self, problem):
    ...         return {n: s**self.power for n, s in problem.saliency.items()}
    >>> model = torch.nn.Linear(4, 4)
    >>> trellis.prune(model, torch.zeros(1, 4), keep=4, method="sharpened", power=3).kept
    4
    """

    def register(cls: type[AnyMethod]) -> type[AnyMethod]:
        METHODS.check_name(name)
        if not isinstance(cls, type) or not issubclass(cls, Method):
            raise TrellisError(
                f"expected a subclass of trellis.methods.ScoreMethod or WalkMethod as method "
                f"{name!r}, got {cls!r:.80}"
            )
        METHODS.check_free(name, cls)
        if "__dataclass_params__" not in cls.__dict__:
            cls = dataclass(frozen=True)(cls)
        if not cls.__dict__["__dataclass_params__"].frozen:
            raise TrellisError(
                f"expected a frozen dataclass, got {cls.__name__}; write @dataclass(frozen=True)"
            )
        _check_contract(cls)
        cls.name = name
        METHODS.add(name, cls, cls)
        return cls

    return register


def _check_contract(cls: type[Method]) -> None:
    if isabstract(cls):
        missing = ", ".join(sorted(cls.__abstractmethods__))
        raise TrellisError(f"{cls.__name__} does not implement {missing}; define it")
    for option in options_of_class(cls):
        if option.default is MISSING and option.default_factory is MISSING:
            raise TrellisError(f"option {option.name!r} of {cls.__name__} has no default; add one")
        if hasattr(Method, option.name):
            raise TrellisError(
                f"{option.name!r} of {cls.__name__} describes the method and cannot be an option; "
                f"write {option.name}: ClassVar = …, or leave out its type"
            )
        if option.name in _RESERVED:
            raise TrellisError(
                f"option {option.name!r} of {cls.__name__} is an argument of trellis.prune or its "
                "command; rename it"
            )


def available() -> dict[str, type[Method]]:
    """Return all registered methods by name.

    >>> sorted(available())[:3]
    ['chains', 'closed', 'magnitude']
    """
    return dict(METHODS.entries)


def method_class(name: object) -> type[Method]:
    """Return the class of a method.

    Args:
        name: A registered name, or ``"package.module:Class"``. The module is imported if needed.

    Raises:
        TrellisError: If the method is unknown.
    """
    if isinstance(name, str) and ":" in name:
        return _imported(name)
    if isinstance(name, str) and (offered := METHODS.get(name)) is not None:
        return offered
    raise TrellisError(
        f"expected a method ({', '.join(METHODS.names())}), got {name!r:.80}; a method of your own "
        "is registered when its module is imported: write 'package.module:Class'"
    )


def reference(cls: type[Method]) -> str:
    """Return what names a method on a command line.

    >>> from trellis.methods import Chains
    >>> reference(Chains)
    'chains'
    """
    built_in = cls.__module__.startswith("trellis.")
    return cls.name if built_in else f"{cls.__module__}:{cls.__qualname__}"


def _imported(reference: str) -> type[Method]:
    module, _, path = reference.partition(":")
    if not all(map(str.isidentifier, module.split("."))):
        raise TrellisError(f"expected package.module:Class, got method={reference!r:.80}")
    try:
        found: object = getattr(importlib.import_module(module), path, None)
    except (Exception, SystemExit) as error:  # whatever the user's module does
        reason = f"{type(error).__name__}: {error}"
        raise TrellisError(f"cannot import method {reference!r}: {reason:.200}") from error
    known = next((cls for cls in METHODS.entries.values() if cls is found), None)
    if known is not None:
        return known
    raise TrellisError(
        f"expected a class decorated with @trellis.register_method at {reference!r}, got "
        f"{'nothing' if found is None else repr(found)[:80]}"
    )


def resolved(method: object, options: Mapping[str, Any]) -> Method:
    """Return the method that ``method=`` and further arguments of `trellis.prune` mean.

    >>> resolved("chains", {"surrogate": "global"}).surrogate
    'global'
    """
    if isinstance(method, Method):
        cls = type(method)
        if options:
            given = ", ".join(f"{name}=…" for name in options)
            raise TrellisError(
                f"got {given} beside a method object; give options to the object: "
                f"{cls.__name__}({given})"
            )
        if METHODS.entries.get(cls.name) is not cls:
            raise TrellisError(
                f"method {cls.__name__} has no name; decorate the class with "
                '@trellis.register_method("name")'
            )
        return method
    if isinstance(method, type) and issubclass(method, Method):
        raise TrellisError(
            f"expected a name or an object as method, got the class {method.__name__}; "
            f"write {method.__name__}()"
        )
    cls = method_class(method)
    known = [option.name for option in options_of_class(cls)]
    unknown = [name for name in options if name not in known]
    if unknown:
        raise TrellisError(
            f"method {cls.name!r} has no option {unknown[0]!r}; "
            + (f"its options: {', '.join(known)}" if known else "it has no options of its own")
            + _owners(unknown[0])
        )
    return cls(**options)


def _owners(option: str) -> str:
    """Which methods have an option, as the end of an error message."""
    owners = [
        name
        for name, cls in METHODS.entries.items()
        if option in {field.name for field in options_of_class(cls)}
    ]
    return f" ({option!r} belongs to {', '.join(owners)})" if owners else ""


# What a class says about its options.


def options_of_class(cls: type[Method]) -> tuple[Field[Any], ...]:
    """Return the options of a method as dataclass fields."""
    found: Mapping[str, Any] = getattr(cls, "__dataclass_fields__", {})
    return tuple(f for f in fields(cls) if f.init) if found else ()  # type: ignore[arg-type]


def default_of(option: Field[Any]) -> Any:
    """Return the default of an option."""
    factory = option.default_factory
    return option.default if factory is MISSING else factory()


@lru_cache(maxsize=256)
def option_types(cls: type[Method]) -> dict[str, Any]:
    """Return the types of a method's options; empty if annotations cannot be evaluated."""
    try:
        return get_type_hints(cls)
    except (NameError, TypeError):  # names that exist in a function or a notebook cell only
        return {}


def option_help(cls: type[Method]) -> dict[str, str]:
    """Return the description of each option, from the ``Args:`` sections of the docstrings.

    >>> from trellis.methods import Chains
    >>> option_help(Chains)["surrogate"][:7]
    '"local"'
    """
    found: dict[str, str] = {}
    for base in reversed(cls.__mro__):
        _, _, section = cleandoc(base.__doc__ or "").partition("\nArgs:\n")
        entries = re.findall(r"^    (\w+):[ ](.*(?:\n {8,}.*)*)", section, re.MULTILINE)
        found |= {name: " ".join(text.split()) for name, text in entries}
    return found
