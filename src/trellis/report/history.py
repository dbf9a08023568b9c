"""A model's history in words and figures, and the commands that made it."""

from __future__ import annotations

import math
import shlex
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from ..methods import available
from ..methods.method import default_of, options_of_class
from ..methods.prune import DEFAULT
from ..training import RECIPES
from ..training.checkpoint import in_words

Step = Mapping[str, Any]


def taught_by(step: Step) -> str:
    """Describe the teachers of a network that a course trained.

    >>> taught_by({"teachers": 1}), taught_by({"teachers": 0})
    ('1 network with a hundredth of the connections, and labels', 'labels alone')
    """
    given, kind = step, "network{} with a hundredth of the connections,"
    if "teachers" not in step:  # of an earlier release
        given, kind = step.get("course") or {}, "dense network{}"
    count = given.get("teachers", 0)
    if not isinstance(count, int) or count < 1:
        return "labels alone"
    return f"{count} {kind.format('s' * (count > 1))} and labels"


def left_and_right(step: Step) -> str | None:
    """Describe whether a course mirrored left and right, and why; None if not asked for.

    >>> left_and_right({"mirror": "no one said", "course": {"augmentation": {"mirror": 0.0}}})
    'not exchanged: no one said'
    """
    why, course = step.get("mirror"), step.get("course")
    varied = course.get("augmentation") if isinstance(course, Mapping) else None
    if not isinstance(why, str) or not isinstance(varied, Mapping):
        return None
    done = "exchanged in half of the variants" if varied.get("mirror") else "not exchanged"
    return f"{done}: {why}"


def missed(step: Step) -> str | None:
    """Describe a search that found no network of the wanted accuracy; None if it found one.

    >>> missed({"at_least": 0.95, "met": False, "best": 0.9})[-37:]
    'the best had 90.0 %, 5.0 points short'
    >>> missed({"at_least": 0.95, "met": True, "best": 0.96})
    """
    asked, best = step.get("at_least"), step.get("best")
    if step.get("met") is not False or asked is None or best is None:
        return None
    return (
        f"no network of this kind held {100 * asked:.1f} % on the recordings held out: the best "
        f"had {100 * best:.1f} %, {100 * (asked - best):.1f} points short"
    )


def known(history: Sequence[Step], name: str) -> Any:
    return next((step[name] for step in reversed(history) if step.get(name) is not None), None)


def last_metrics(history: Sequence[Step]) -> Mapping[str, Any]:
    """Return what the last step measured; empty if the network changed after it."""
    found: Mapping[str, Any] = history[-1].get("metrics", {}) if history else {}
    return found


def dense_metrics(history: Sequence[Step], is_pruned: bool) -> Mapping[str, Any] | None:
    for step in history:
        if step.get("step") in ("prune", "shrink"):  # what follows is measured of a pruned one
            break
        if "metrics" in step:
            found: Mapping[str, Any] = step["metrics"]
            return found
    return None if is_pruned else {}


def method_of(history: Sequence[Step]) -> str:
    method = known(history, "method") or (known(history, "course") or {}).get("method")
    return str(method) if method else "pruned"


_TRAINS = {"train": "train", "tune": "tune", "shrink": "train, prune and tune"}


def spent(history: Sequence[Step]) -> list[tuple[str, str]]:
    """Return the versions, the device and the time of the training, if the history has them.

    >>> train = {"step": "train", "hardware": "CPU x", "seconds": 600}
    >>> train["versions"] = {"torch": "2.13"}
    >>> spent([train, {"step": "prune"}, train | {"step": "tune", "seconds": 41.3}])[1:]
    [('Hardware', 'CPU x'), ('Time', '10 minutes to train, 41 seconds to tune')]
    >>> spent([train])[0], spent([{"step": "train"}])[0]
    (('Versions', 'torch 2.13'), ('Versions', 'not recorded'))
    """
    steps = [step for step in history if step.get("step") in _TRAINS]
    if not steps:
        return []
    on = dict.fromkeys(str(step["hardware"]) for step in steps if step.get("hardware"))
    by = dict.fromkeys(
        ", ".join(f"{name} {number}" for name, number in step["versions"].items())
        for step in steps
        if step.get("versions")
    )
    times = [
        f"{in_words(float(step['seconds']))} to {_TRAINS[step['step']]}"
        for step in steps
        if isinstance(step.get("seconds"), int | float)
    ]
    found = {"Versions": "; ".join(by), "Hardware": "; ".join(on), "Time": ", ".join(times)}
    return [(name, text or "not recorded") for name, text in found.items()]


# Told, or of no use to read.
_ELSEWHERE = ("step", "digest", "hardware", "versions", "seconds", "rates")


def told(step: Mapping[str, Any]) -> str:
    """Describe a step of the history on one line; `spent` describes its time and device."""
    parts = []
    for name, value in step.items():
        if name in _ELSEWHERE or value is None or value == {}:
            continue
        if isinstance(value, Mapping):
            if value.get("recipe") == step.get("recipe"):  # of a course: it need not be said twice
                value = {part: own for part, own in value.items() if part != "recipe"}
            parts.append(f"{name}: {_listed(value)}")
        else:
            parts.append(f"{name} {_number(value)}")
    return "; ".join(parts).replace("_", " ")


def _listed(values: Mapping[str, Any]) -> str:
    """
    >>> _listed({"rate": 0.001, "name": "quick", "of": {"a": 1}, "none": None})
    'rate 0.001, name quick, of (a 1)'
    """
    return ", ".join(
        f"{name} ({_listed(value)})" if isinstance(value, Mapping) else f"{name} {_number(value)}"
        for name, value in values.items()
        if value is not None
    )


def _number(value: Any) -> str:
    if isinstance(value, float) and not math.isinf(value):
        return f"{value:g}"
    return str(value)


# Settings as command-line options.


def exact(value: Any) -> str:
    """Return a number in its shortest exact form, and anything else as text.

    >>> exact(1.0), exact(0.5), exact(2 / 3), exact(3), exact("many")
    ('1', '0.5', '0.6666666666666666', '3', 'many')
    """
    return repr(float(value)).removesuffix(".0") if isinstance(value, float) else str(value)


# Defaults of `trellis prune` that do not depend on the method.
PRUNE = {"saliency": "magnitude", "stochastic": False, "seed": 0, "cover_outputs": True,
         "cover_layers": True, "ignore": []}  # fmt: skip


def pruning(step: Mapping[str, Any]) -> list[str]:
    """Return the flags for the options of a pruning step that differ from their defaults.

    Steps of earlier releases may lack some options, or hold options of other methods.

    >>> step = {"method": "magnitude", "scope": "erk", "consistent": True, "ignore": ["head.*"]}
    >>> " ".join(pruning(step))
    '--method magnitude --consistent yes --scope erk --ignore head.*'

    A history does not store the names of files with saliencies or counts. A placeholder is used.

    >>> given = {"method": "magnitude", "saliency": "given", "scope": {"dense.weight": 9}}
    >>> " ".join(pruning(given))
    '--method magnitude --scope FILE.json --saliency FILE.safetensors'
    """
    words = ["--method", str(step["method"])] if "method" in step else []
    method = available().get(step.get("method", DEFAULT))  # None if its module is not imported
    consistent = method is not None and method.consistent
    if step.get("consistent", consistent) is not consistent:
        words += ["--consistent", "no" if consistent else "yes"]
    own = () if method is None else options_of_class(method)
    for name, usual in ({option.name: default_of(option) for option in own} | PRUNE).items():
        value, option = step.get(name, usual), f"--{name.replace('_', '-')}"
        if value == usual:
            continue
        if name == "ignore":
            for pattern in value if isinstance(value, list) else [value]:
                words += [option, str(pattern)]
        elif value is False:
            words.append(f"--no-{option[2:]}")
        elif value is True:
            words.append(option)
        elif name == "saliency":
            words += [option, "FILE.safetensors"]
        else:
            words += [option, "FILE.json" if isinstance(value, Mapping) else exact(value)]
    return words


_GO_ON = ("prune", "tune")  # steps that start from a model's folder


def commands(
    history: Sequence[Step],
    architecture: Mapping[str, Any],
    own: Mapping[str, str],
) -> list[str]:
    """Return the command lines of a model's history.

    ``architecture`` are the options of its training that the history lacks, by name; ``own`` are
    the defaults of `trellis shrink` for such skeletons.

    >>> train = {"step": "train", "source": "hands45", "fold": "1:1", "seed": 3}
    >>> quick = {"recipe": {"name": "quick", "epochs": 5}}
    >>> commands([train | quick], {"heads": 2, "blocks": 1}, {})
    ['trellis train hands45 --fold 1:1 --recipe quick --epochs 5 --seed 3 --heads 2 --out dense']
    >>> shrink = {"step": "shrink", "source": "hands45", "kept": 9}
    >>> commands([shrink], {"basis": "chunks"}, {"basis": "cosines"})
    ['trellis shrink --data hands45 --keep 9 --no-mirror --basis chunks']

    >>> commands([shrink | {"asked": [90, 9]}], {}, {})
    ['trellis shrink --data hands45 --keep 90 9 --no-mirror']

    Each starts from the folder that the previous one wrote, and no two write to the same folder:

    >>> prune = {"step": "prune", "budget": 6}
    >>> for line in commands([shrink, prune, prune | {"budget": 4}], {}, {}):
    ...     print(line.replace(" --no-mirror", " ..."))
    trellis shrink --data hands45 --keep 9 ... --out shrunk
    trellis prune shrunk/model --keep 6 --out pruned
    trellis prune pruned --keep 4 --out pruned-2
    """
    found, last, names = [], "dense", _Names()
    for number, step in enumerate(history):
        kind, source = step.get("step"), str(step.get("source"))
        course = str(step.get("recipe", {}).get("name"))
        if kind == "train" and not course.startswith("shrink"):
            recipe = RECIPES.get(course)
            usual = {} if recipe is None else {"origin": recipe.origin}
            line = ["train", source, *_training(step), *_architecture(architecture, **usual)]
            line += ["--out", last := names.fresh("dense")]
        elif kind == "prune":
            line = ["prune", last, "--keep", str(step.get("budget")), *pruning(step)]
            line += ["--out", last := names.fresh("pruned")]
        elif kind == "tune":
            line = ["tune", last, "--data", source, *_training(step)]
            line += ["--out", last := names.fresh("tuned")]
        elif kind in ("shrink", "train"):
            least = step.get("at_least")
            line = ["shrink", "--data", source]
            if kind == "train":  # the dense network of a course: the same whatever is kept of it
                line += ["--sparsity", "0.5"]
            else:
                asked = step.get("asked") or [step.get("budget", step.get("kept"))]
                kept = ["--keep", *map(str, asked)]
                line += kept if least is None else ["--at-least", exact(least)]
            line += ["--course", "quick"] if course.endswith("quick") else []
            length = step.get("length")
            line += ["--length", exact(length)] if length not in (None, 1) else []
            line += [] if step.get("mirror") else ["--no-mirror"]
            line += [*_training(step), *_architecture(architecture, **own)]
            if any(later.get("step") in _GO_ON for later in history[number + 1 :]):
                line += ["--out", folder := names.fresh("shrunk")]
                last = f"{folder}/{'dense' if kind == 'train' else 'model'}"
        else:
            continue
        found.append(shlex.join(["trellis", *line]))
    return found


class _Names:
    """Names of the folders that commands write, all different.

    >>> names = _Names()
    >>> names.fresh("tuned"), names.fresh("pruned"), names.fresh("tuned")
    ('tuned', 'pruned', 'tuned-2')
    """

    def __init__(self) -> None:
        self._times: Counter[str] = Counter()

    def fresh(self, name: str) -> str:
        self._times[name] += 1
        return name if self._times[name] == 1 else f"{name}-{self._times[name]}"


_DEFAULTS = {"heads": 16, "filters": 128, "blocks": 1, "shared": False, "combine": "concat",
             "bias": False, "activation": "relu", "bones": "free", "chunks": 32,
             "channels": ("coordinates",), "basis": "chunks", "frame": "camera",
             "size": "recorded", "origin": "recording"}  # fmt: skip


def _architecture(given: Mapping[str, Any], **changes: str) -> list[str]:
    """Return options that are not defaults; ``changes`` are defaults that differ from those of
    `trellis train`."""
    words = []
    for name, default in (_DEFAULTS | changes).items():
        value = given.get(name, default)
        if value != default:
            values = value if isinstance(value, tuple) else () if value is True else (value,)
            words += [f"--{name}", *map(str, values)]
    return words


def _training(step: Step) -> list[str]:
    words = []
    for name in ("protocol", "fold"):
        if step.get(name) is not None:
            words += [f"--{name}", str(step[name])]
    recipe = step.get("recipe", {})
    known_recipe = RECIPES.get(str(recipe.get("name")))
    if known_recipe is not None:
        words += ["--recipe", known_recipe.name]
        tunes = step.get("step") == "tune"
        usual = known_recipe.tune_epochs if tunes else known_recipe.epochs
        if recipe.get("epochs", usual) != usual:
            words += ["--epochs", str(recipe["epochs"])]
    words += ["--seed", str(step["seed"])] if step.get("seed") else []
    precision = str(step.get("precision", "fp32"))
    words += ["--precision", precision] if precision != "fp32" else []
    words += ["--skip-bad"] if step.get("skip_bad") else []
    words += _teacher(step)
    varied = step.get("augmentation") is not None
    own = str(recipe.get("name")).startswith("shrink")  # a course always augments
    return words + (["--augment"] if varied and not own else [])


def _teacher(step: Step) -> list[str]:
    """Return the options for the teachers of a step, if it holds their folders.

    >>> step = {"teacher": ["a", "b"], "taught": {"weight": 0.5, "temperature": 2.0}}
    >>> " ".join(_teacher(step))
    '--teacher a b --teacher-weight 0.5 --temperature 2'
    >>> _teacher({"teacher": ["a"], "taught": {"weight": None}})  # a file may hold anything
    ['--teacher', 'a']
    """
    folders, how = step.get("teacher"), step.get("taught") or {}
    if not isinstance(folders, list) or not folders:
        return []
    words = ["--teacher", *map(str, folders)]
    for option, name in (("--teacher-weight", "weight"), ("--temperature", "temperature")):
        words += [option, exact(how[name])] if how.get(name) is not None else []
    return words
