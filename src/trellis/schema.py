"""What the files of a run or a model may hold, and the one way to read them.

A file may come from anywhere. It is read in three steps: its size, before any of it is in memory;
its JSON (`parsed`), whose numbers are finite, keys unique and nesting limited; and its schema
(`fitted`), one class below for each kind of file. Each step raises a `TrellisError` of one line:
``FILE: expected X at $.path, got Y; do Z``. What two values of a file must have in common (a label
and the number of classes) is checked where the file is opened.

Keys that a schema does not know are ignored, so that a file of a later release can be read.
"""

from __future__ import annotations

import json
import math
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal, TypedDict, TypeVar

import msgspec
from msgspec import Meta
from typing_extensions import NotRequired

from .errors import TrellisError
from .limits import read_limited

LARGEST = 1 << 26  # bytes of one JSON file
LARGEST_LINES = 1 << 30  # bytes of a file with one JSON value a line
DEEPEST = 200  # lists and objects inside of each other
_DIGITS = 1000  # of a whole number

Kind = TypeVar("Kind")


# --- the kinds of values ------------------------------------------------------------------------

Text = Annotated[str, Meta(max_length=65_536)]
Count = Annotated[int, Meta(ge=0, le=2**63 - 1)]
Index = Annotated[int, Meta(ge=0, lt=2**31)]
Size = Annotated[int, Meta(ge=1, le=1_000_000)]  # of one dimension of a network
Share = Annotated[float, Meta(ge=0, le=1)]
Seconds = Annotated[float, Meta(ge=0, le=1e15)]
Positive = Annotated[float, Meta(ge=1e-30, le=1e30)]  # as single precision can divide by
Place = Annotated[float, Meta(ge=-1e30, le=1e30)]


class SkeletonLayout(TypedDict):
    """`trellis.skeleton.Layout`, which checks that joints exist."""

    name: Text
    joints: Annotated[list[Text], Meta(min_length=1, max_length=100_000)]
    parents: list[Annotated[int, Meta(ge=-1, lt=100_000)]]
    roots: Annotated[list[Index], Meta(min_length=1)]
    mirror: NotRequired[list[Index] | None]
    body: NotRequired[list[Index] | None]


# --- a run of `trellis reproduce` ---------------------------------------------------------------

Epochs = Annotated[int, Meta(ge=1, le=10**9)]


class RunRecipe(TypedDict):
    """`trellis.training.Recipe`, which checks how its values relate."""

    name: Text
    epochs: Epochs
    tune_epochs: Epochs
    rate: float
    tune_rate: float
    schedule: Text
    batch: NotRequired[Annotated[int, Meta(ge=1, le=2**31)] | None]
    momentum: NotRequired[float]
    decay: NotRequired[float]
    smoothing: NotRequired[float]
    noise: NotRequired[float]
    prune_epochs: NotRequired[Epochs]
    prune_rate: NotRequired[float]
    prune_every: NotRequired[Epochs]
    tune_smoothing: NotRequired[float | None]
    first_weights: NotRequired[Text]
    origin: NotRequired[Text]


class RunSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """`trellis.paper.Settings`. Others than these would ask for other work than was done, so
    unknown and missing keys are errors."""

    table: Literal["table1", "table2", "table3"]
    data: Text
    seeds: Annotated[int, Meta(ge=1, le=10_000)]
    recipe: RunRecipe
    device: Literal["cpu", "cuda"]
    precision: Text
    protocol: Text | None
    skip_bad: bool
    rates: Annotated[tuple[float, ...], Meta(max_length=1000)]
    rows: Annotated[tuple[Text, ...], Meta(max_length=1000)]
    inverse_alphas: Annotated[tuple[float, ...], Meta(max_length=1000)]
    chunks: Annotated[int, Meta(ge=1, le=100_000)]
    heads: Size
    filters: Size
    blocks: Annotated[int, Meta(ge=1, le=1000)]
    shared: bool
    stack: Size | None


Fold = Annotated[int, Meta(ge=1, le=10**9)]  # recordings of one


class RunData(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """`trellis.paper.Data`."""

    source: Text
    synthetic: bool
    recordings: Count
    frames: Count
    joints: Annotated[int, Meta(ge=1, le=100_000)]
    classes: Size
    folds: Annotated[tuple[Text, ...], Meta(min_length=1, max_length=10_000)]
    train: tuple[Fold, ...]
    test: tuple[Fold, ...]
    left_out: Count
    digest: Text


class RunHead(TypedDict):
    """``settings.json``"""

    settings: dict[str, Any]  # RunSettings
    data: dict[str, Any]  # RunData
    versions: Annotated[dict[Text, Text], Meta(max_length=1000)]


class CellHead(TypedDict):
    """A line of ``cells.jsonl``, of any network."""

    cell: Text
    row: Text
    seed: Index
    fold: Index
    stack: Index
    device: Text


class Refused(CellHead):
    """One that could not be pruned."""

    refused: Text


class Measured(CellHead):
    """One that was trained. Older releases left some of these out."""

    total: Count
    kept: Count
    live: Count
    correct: Count
    test: Fold
    mean_class: Share
    train_correct: Count
    train: Fold
    outputs_reached: NotRequired[Count]
    budget: NotRequired[Count]
    layers: NotRequired[dict[Text, Count]]
    live_layers: NotRequired[dict[Text, Count]]
    said: NotRequired[list[Index]]
    loss: NotRequired[float | None]
    seconds: NotRequired[Seconds]


class RunRecordings(TypedDict):
    """``recordings.json``"""

    classes: list[Text]
    layout: SkeletonLayout
    labels: list[list[Index]]
    pose: list[tuple[Place, Place, Place]]


# --- a search of `trellis shrink` ---------------------------------------------------------------


class CurvePoint(TypedDict):
    """One of ``curve.json``."""

    sparsity: Share
    kept: Count
    budget: NotRequired[Count]
    validation_top1: NotRequired[Share | None]
    top1: NotRequired[Share | None]
    live: NotRequired[Count | None]


# --- a model ------------------------------------------------------------------------------------


class Architecture(TypedDict):
    name: Text
    arguments: dict[str, Any]


class NestedHead(TypedDict):
    """The sizes of nested networks in ``model.json``; see `trellis.saving.nested`."""

    asked: Annotated[list[Index], Meta(min_length=1, max_length=255)]
    total: Index
    budgets: Annotated[list[Index], Meta(min_length=1, max_length=255)]
    inputs: list[dict[str, Any]]


class ModelHead(TypedDict):
    """``model.json``; its format and version are looked at first."""

    tensors: Text
    notes: dict[str, Any]
    architecture: Architecture | None
    nested: NotRequired[NestedHead | None]


class InputNormalization(TypedDict):
    """`trellis.skeleton.Normalization`"""

    roots: Annotated[list[Index], Meta(min_length=1)]
    scale: Positive
    body: NotRequired[list[Index] | None]
    bones: NotRequired[list[tuple[Index, Index]]]
    length: NotRequired[Positive]
    origin: NotRequired[Text]


class StepRecipe(TypedDict, total=False):
    name: Text | None
    epochs: Count | None


class Varied(TypedDict, total=False):
    mirror: float | bool | None


class StepCourse(TypedDict, total=False):
    method: Text | None
    teachers: Count | None
    agreement: float | None
    augmentation: Varied | None
    recipe: StepRecipe | None


class Metrics(TypedDict, total=False):
    top1: Share | None
    mean_class: Share | None
    train_top1: Share | None


class Taught(TypedDict, total=False):
    weight: float | None
    temperature: float | None


class StepRate(TypedDict):
    kept: Count
    asked: bool
    metrics: Metrics


class Step(TypedDict, total=False):
    """A step of a model's history. Each command writes what it knows; readers use these."""

    step: Text | None
    source: Text | None
    fold: Text | None
    protocol: Text | None
    digest: Text | None
    hardware: Text | None
    versions: dict[Text, Text] | None
    precision: Text | None
    seed: Count | None
    seconds: Seconds | None
    skip_bad: bool | None
    synthetic: bool | None
    recipe: StepRecipe | None
    course: StepCourse | None
    augmentation: dict[str, Any] | None
    metrics: Metrics | None
    taught: Taught | None
    teacher: list[Text] | None
    teachers: Count | None
    length: float | None
    at_least: Share | None
    best: Share | None
    met: bool | None
    method: Text | None
    budget: Count | None
    kept: Count | None
    total: Count | None
    weight: float | None
    temperature: float | None
    agreement: float | None
    ignore: list[Text] | Text | None
    asked: list[Count] | None
    rates: list[StepRate] | None


class RecognizerNotes(TypedDict):
    """The notes on a recogniser's inputs in its ``model.json``."""

    chunks: Annotated[int, Meta(ge=1, le=100_000)]
    normalisation: InputNormalization
    classes: Annotated[list[Text], Meta(min_length=1)]
    layout: SkeletonLayout
    history: Annotated[list[Step], Meta(max_length=100_000)]
    channels: NotRequired[list[Text]]
    basis: NotRequired[Text]
    stream: NotRequired[dict[str, Any]]


class CompactedSize(TypedDict):
    """`trellis.deploy.compact.module.Size`"""

    units: Count
    connections: Count
    kept: Count
    dense: Count
    sparse: Count
    bytes: Count


class CompactedStay(TypedDict):
    layer: Text
    units: Count
    why: Text


class CompactedReport(TypedDict):
    before: CompactedSize
    after: CompactedSize
    stays: list[CompactedStay]
    notes: list[Text]


class CompactedInput(TypedDict, total=False):
    """An example input: a tensor's ``dtype`` and ``shape``, or the ``value`` of anything else.

    A keyword input also has its ``name``.
    """

    name: Text
    dtype: Text
    shape: Annotated[list[Annotated[int, Meta(ge=1, le=2**31)]], Meta(max_length=64)]
    value: Any


class CompactedShapes(TypedDict):
    inputs: list[CompactedInput]
    outputs: list[Any]


class CompactedModel(TypedDict):
    """The arguments of a compacted model's architecture."""

    program: dict[str, Any]
    report: CompactedReport
    inputs: list[CompactedInput]
    shapes: NotRequired[CompactedShapes]  # older releases wrote none
    buffers: list[Text]


# --- headers of safetensors files ---------------------------------------------------------------


class CheckpointHeader(TypedDict):
    version: int
    epochs_done: Count
    settings: dict[str, Any]
    seconds: NotRequired[Seconds | None]


class MasksHeader(TypedDict):
    version: int
    budget: Count
    provenance: dict[str, Any]
    shapes: dict[str, Annotated[list[Count], Meta(max_length=64)]]
    digest: NotRequired[Text]  # older releases wrote none


# --- reading ------------------------------------------------------------------------------------


def read_json(path: Path, kind: type[Kind], remedy: str) -> Kind:
    """Read a JSON file and check it against the schema ``kind``.

    Raises:
        FileNotFoundError: The file does not exist.
        TrellisError: The file cannot be read or does not fit the schema. The message ends with
            ``remedy``, which says what to do.
    """
    content = read_limited(path, LARGEST, remedy)
    return parse_json(content, kind, repr(str(path)), remedy)


def parse_json(content: bytes | str, kind: type[Kind], name: str, remedy: str) -> Kind:
    """Check JSON in memory against the schema ``kind``; ``name`` is its name in messages."""
    try:
        return fitted(parsed(content), kind)
    except TrellisError as error:
        raise TrellisError(f"{name}: {error}; {remedy}") from None


def parsed(content: bytes | str) -> Any:
    """Parse JSON; numbers must be finite, keys unique and strings Unicode.

    >>> parsed('{"a": [1, NaN]}')
    Traceback (most recent call last):
        ...
    trellis.errors.TrellisError: expected a finite number at $.a[1], got NaN
    >>> parsed('{"a": 1, "a": 2}')
    Traceback (most recent call last):
        ...
    trellis.errors.TrellisError: expected each key once at $, got 'a' twice
    """
    try:
        text = content if isinstance(content, str) else content.decode("utf-8")
        value = json.loads(
            text,
            parse_int=_whole,
            parse_float=_finite,
            parse_constant=lambda word: _Bad("a finite number", word),
            object_pairs_hook=_object,
        )
    except UnicodeDecodeError as error:
        raise TrellisError(f"expected UTF-8, got another byte at {error.start:,}") from None
    except json.JSONDecodeError as error:
        where = f"line {error.lineno}, column {error.colno}"
        raise TrellisError(f"expected JSON, got an error at {where} ({error.msg})") from None
    except RecursionError:
        raise TrellisError(f"expected at most {DEEPEST} levels of nesting, got more") from None
    _check(value)
    return value


def fitted(value: Any, kind: type[Kind], at: str = "$") -> Kind:
    """Check a JSON value against the schema ``kind``; ``at`` is its path in the file.

    >>> fitted([{"sparsity": 0.5, "kept": -1}], list[CurvePoint])
    Traceback (most recent call last):
        ...
    trellis.errors.TrellisError: expected int >= 0 at $[0].kept, got -1
    """
    try:
        return msgspec.convert(value, kind)
    except msgspec.ValidationError as error:
        raise TrellisError(_told(value, str(error), at)) from None


@dataclass(frozen=True)
class _Bad:
    """What stands for a value that JSON can hold and no file of ours may."""

    expected: str
    got: str


def _whole(text: str) -> int | _Bad:
    if len(text) > _DIGITS:
        return _Bad(f"a number of at most {_DIGITS} digits", f"one of {len(text):,}")
    return int(text)


def _finite(text: str) -> float | _Bad:
    value = float(text)
    return value if math.isfinite(value) else _Bad("a finite number", text[:60])


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any] | _Bad:
    found = dict(pairs)
    if len(found) < len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in names if names.count(name) > 1)
        return _Bad("each key once", f"{twice!r:.60} twice")
    return found


_PLAIN = {int, float, bool, type(None)}


def _check(value: Any) -> None:
    """Check every value, without recursion, whose depth a file could exhaust."""
    waiting: list[tuple[Any, tuple[Any, ...], int]] = [(value, (), 0)]
    while waiting:
        one, path, depth = waiting.pop()
        if isinstance(one, _Bad):
            raise TrellisError(f"expected {one.expected} at {_path(path)}, got {one.got}")
        if depth > DEEPEST:
            raise TrellisError(f"expected at most {DEEPEST} levels of nesting, got more")
        if isinstance(one, str) and not _is_unicode(one):
            raise TrellisError(f"expected Unicode at {_path(path)}, got half a character")
        if isinstance(one, dict):
            for key, inner in one.items():
                waiting.append((inner, (path, key), depth + 1))
                if not _is_unicode(key):
                    raise TrellisError(f"expected Unicode keys at {_path(path)}, got {key!r:.60}")
        elif isinstance(one, list) and not set(map(type, one)) <= _PLAIN:
            waiting += [(inner, (path, i), depth + 1) for i, inner in enumerate(one)]


def _is_unicode(text: str) -> bool:
    """Return whether a text can be encoded: ``"\\ud800"`` in JSON is half a character."""
    return text.isascii() or not any("\ud800" <= letter <= "\udfff" for letter in text)


def _path(linked: tuple[Any, ...]) -> str:
    parts = []
    while linked:
        linked, key = linked
        parts.append(f"[{key}]" if isinstance(key, int) else f".{key}")
    return _cut("$" + "".join(reversed(parts)), 200)


_ERROR = re.compile(r"(.*?)(?: - at `(?:key in )?([^`]*)`)?", re.DOTALL)
_KEYS = re.compile(r"\.([^.\[]+)|\[(\d+)\]")


def _told(value: Any, error: str, at: str) -> str:
    """Turn a message of msgspec into ``expected X, got Y`` with the value found."""
    found = _ERROR.fullmatch(error)
    assert found is not None
    what, path = found[1].replace("`", ""), found[2] or "$"
    where = _cut(at + path.removeprefix("$"), 200)
    if missing := re.fullmatch(r"Object missing required field (.*)", what, re.DOTALL):
        return f"expected the key {missing[1]!r} at {where}, got none"
    if unknown := re.fullmatch(r"Object contains unknown field (.*)", what, re.DOTALL):
        return f"expected known keys at {where}, got {unknown[1]!r:.60}"
    expected, _, got = what.partition(", got ")
    if "[...]" not in path:
        got = _brief(_found(value, path))
    named = re.match(r"Expected (.*)", expected, re.DOTALL)
    if named is None:  # an enum value, or a number that no float holds
        expected = "a known word" if "enum" in expected else "a number in range"
    return f"expected {named[1] if named else expected} at {where}, got {got or 'something else'}"


def _found(value: Any, path: str) -> Any:
    for name, index in _KEYS.findall(path):
        try:
            value = value[int(index)] if index else value[name]
        except (KeyError, IndexError, TypeError):
            return None  # a key with a dot in it
    return value


def _brief(value: Any) -> str:
    if isinstance(value, list | dict):
        return f"{'a list' if isinstance(value, list) else 'an object'} of {len(value):,}"
    return _cut(repr(value), 60)


def _cut(text: str, most: int) -> str:
    return text if len(text) <= most else f"{text[: most - 1]}…"
