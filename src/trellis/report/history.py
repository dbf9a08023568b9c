"""A model's history: what was done to it, as command lines, in words and in figures."""

from __future__ import annotations

import math
import shlex
from collections.abc import Mapping, Sequence
from typing import Any

from ..skeleton.shrink import COURSES
from ..train import RECIPES
from ..train.provenance import in_words

Step = Mapping[str, Any]


def commands(
    history: Sequence[Step],
    architecture: Mapping[str, Any],
    own: Mapping[str, str],
) -> list[str]:
    """The command lines of a model's history, as far as it tells; ``architecture`` are the options
    of its training that the history leaves out, by name; ``own`` are those that `trellis shrink`
    takes by itself for such skeletons.

    >>> train = {"step": "train", "source": "hands45", "fold": "1:1", "seed": 3}
    >>> quick = {"recipe": {"name": "quick", "epochs": 5}}
    >>> commands([train | quick], {"heads": 2, "blocks": 1}, {})
    ['trellis train hands45 --fold 1:1 --recipe quick --epochs 5 --seed 3 --heads 2 --out dense']
    >>> course = {"teachers": 2, "agreement": 1.0}
    >>> shrink = {"step": "shrink", "source": "hands45", "kept": 9, "course": course}
    >>> commands([shrink], {"basis": "chunks"}, {"basis": "cosines"})
    ['trellis shrink --data hands45 --keep 9 --no-mirror --teachers 2 --agreement 1 --basis chunks']
    """
    found, last = [], "dense"
    for step in history:
        kind, source = step.get("step"), str(step.get("source"))
        course = str(step.get("recipe", {}).get("name"))
        if kind == "train" and not course.startswith("shrink"):
            line = ["train", source, *_training(step), *_architecture(architecture)]
            line += ["--out", "dense"]
        elif kind == "prune":
            line = ["prune", last, "--keep", str(step.get("budget"))]
            line += ["--method", str(step["method"])] if "method" in step else []
            line += ["--out", last := "pruned"]
        elif kind == "tune":
            line = ["tune", last, "--data", source, *_training(step), "--out", "tuned"]
            last = "tuned"
        elif kind in ("shrink", "train"):
            least = step.get("at_least")
            line = ["shrink", "--data", source]
            if kind == "train":  # the dense network of a course: the same whatever is kept of it
                line += ["--sparsity", "0.5"]
            else:
                asked = step.get("budget", step.get("kept"))
                line += ["--keep", str(asked)] if least is None else [
                    "--at-least", f"{least:g}"]  # fmt: skip
            line += ["--course", "quick"] if course.endswith("quick") else []
            length = step.get("length", 1)
            line += ["--length", f"{length:g}"] if length != 1 else []
            line += [] if step.get("mirror") else ["--no-mirror"]
            line += [*_own(step, "teachers"), *_own(step, "agreement")]
            line += [*_training(step), *_architecture(architecture, **own)]
        else:
            continue
        found.append(shlex.join(["trellis", *line]))
    return found


_DEFAULTS = {"heads": 16, "filters": 128, "blocks": 1, "shared": False, "combine": "concat",
             "bias": False, "activation": "relu", "bones": "free", "chunks": 32,
             "channels": ("coordinates",), "basis": "chunks", "frame": "camera",
             "size": "recorded"}  # fmt: skip


def _architecture(given: Mapping[str, Any], **changes: str) -> list[str]:
    """Options that are not as the command has them by itself; ``changes`` are defaults of one that
    differ from those of `trellis train`."""
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
    own = str(recipe.get("name")).startswith("shrink")  # a course varies recordings by itself
    return words + (["--augment"] if varied and not own else [])


def taught_by(step: Step) -> str:
    """Who taught the network that a course made, in words.

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
    """Whether a course exchanged them, and why, in words; None where nobody asked.

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
    """That a search found no network that held what was asked for, in words; None where one did.

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


def _own(step: Step, name: str) -> list[str]:
    """A setting of a course, as an option, where it is not what the course takes by itself. One
    that does not tell had none."""
    course = step.get("course")
    if course is None:
        return []
    quick = str(step.get("recipe", {}).get("name")).endswith("quick")
    given, usual = course.get(name, 0), getattr(COURSES["quick" if quick else "default"], name)
    said = f"{given:g}" if isinstance(given, float) else str(given)
    return [] if given in (usual, None) else [f"--{name}", said]


def _teacher(step: Step) -> list[str]:
    """The models that a step learnt from, where it says where they were.

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
        words += [option, f"{how[name]:g}"] if how.get(name) is not None else []
    return words


def known(history: Sequence[Step], name: str) -> Any:
    return next((step[name] for step in reversed(history) if step.get(name) is not None), None)


def last_metrics(history: Sequence[Step]) -> Mapping[str, Any]:
    """What the last step measured; nothing after a step that changed the network unmeasured."""
    found: Mapping[str, Any] = history[-1].get("metrics", {}) if history else {}
    return found


def dense_metrics(history: Sequence[Step], is_pruned: bool) -> Mapping[str, Any] | None:
    for step in history:
        if step.get("step") == "prune":
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
    """With what it was trained, on what, and how long that took, as far as the history tells.

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


def told(step: Mapping[str, Any]) -> str:
    """A step of the history on one line, its nested parts by name; `spent` tells the rest."""
    parts = []
    for name, value in step.items():
        if name in ("step", "hardware", "versions", "seconds") or value is None or value == {}:
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
