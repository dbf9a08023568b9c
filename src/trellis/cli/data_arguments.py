"""Arguments that commands share: recordings and how to divide them, device and precision."""

from __future__ import annotations

import ctypes
import re
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import tyro

from ..errors import TrellisError
from ..integrations.ray import Cluster
from ..skeleton import Fold, Skeletons
from ..skeleton.data.readers.text import shown

if TYPE_CHECKING:
    import torch

    from ..skeleton import Recognizer


def arg(**options: Any) -> Any:
    """Describe an argument as ``tyro.conf.arg`` does, but show only defaults that say something.

    "(default: None)" or "(default: False)" tells nobody what happens. The help of such an argument
    says it in words.
    """

    def default(label: str) -> str:
        return "" if label in ("None", "False", "") else f"(default: {label})"

    return tyro.conf.arg(**{"help_behavior_hint": default, **options})


# Arguments that commands share, with the help they show.


Target = Annotated[
    str,
    tyro.conf.Positional,
    arg(
        metavar="MODULE:FACTORY|FOLDER",
        help="Model, as package.module:factory: a torch.nn.Module, or a function or class that "
        "returns one when called without arguments, in the current folder or an installed "
        "package. Or the folder of a saved model, such as `trellis train` writes, with its "
        "weights, masks and inputs.",
    ),
]

Inputs = Annotated[
    tuple[str, ...],
    tyro.conf.UseAppendAction,
    arg(
        name="input",
        metavar="[TYPE:]SHAPE[=VALUE]",
        help="Example input, such as 1x3x224x224 or int64:1x128; one for each argument of "
        "forward(), in order. Default values: seeded random floats, integers 0, booleans true. "
        "int64:1x128=1 sets a value, as for an attention mask.",
    ),
]

Weights = Annotated[
    Path | None,
    arg(
        metavar="FILE",
        help="Safetensors file with the model's state dict (default: the weights that the factory "
        "sets).",
    ),
]
OwnSparsity = Annotated[
    float | None,
    arg(
        metavar="FRACTION",
        help="Fraction of connections removed, to take one out of nested networks (`trellis "
        "shrink` with several fractions). Any fraction in their range. Default: the largest.",
        help_behavior_hint="",
    ),
]

Json = Annotated[
    bool,
    arg(name="json", help="JSON on stdout, and nothing else."),
]


# Recordings named on the command line, and which of them to train on and to test on.


_SOURCE = (
    "Recordings. fpha:PATH, sbu:PATH, nw-ucla:PATH, shrec17:PATH, mtm1:PATH: a published set, as "
    "unpacked. npz:FILE, csv:FOLDER: your own recordings. hands45: built-in synthetic data. "
    "NAME:PATH: a reader of an installed package."
)
DataSource = Annotated[str, arg(metavar="SOURCE", help=_SOURCE)]
Source = Annotated[DataSource, tyro.conf.Positional]
OptionalSource = Annotated[
    str | None,
    tyro.conf.Positional,
    arg(metavar="SOURCE", help=_SOURCE, help_behavior_hint="(required, here or as --data)"),
]
DataAlias = Annotated[
    str | None,
    arg(metavar="SOURCE", help="The same as SOURCE.", help_behavior_hint=""),
]
_WAYS = "Protocol that divides recordings: fpha 1:1 or subjects, shrec17 14 or 28."
Protocol = Annotated[str | None, arg(metavar="NAME", help=f"{_WAYS} Default: the first.")]
OwnProtocol = Annotated[
    str | None,
    arg(
        metavar="NAME",
        help=f"{_WAYS} Default: that of the model's training, for data of the same kind.",
    ),
]
_FOLD = "by name or counted from 1, where there are several (`trellis data info` lists them)."
FoldName = Annotated[
    str | None,
    arg(
        metavar="NAME|NUMBER",
        help=f"Fold to train and test on, {_FOLD} Default: the first.",
    ),
]
OwnFold = Annotated[
    str | None,
    arg(
        metavar="NAME|NUMBER",
        help=f"Fold, {_FOLD} Default: the one the model was trained on; for data of another "
        "kind, the first.",
    ),
]
SkipBad = Annotated[
    bool, arg(help="Skip and count recordings that cannot be read (default: stop).")
]


def check_apart(out: Path, source: str) -> None:
    """Raise if the output would lie among the recordings: their folder is read whole."""
    kind, _, path = source.partition(":")
    try:
        there, here = Path(path).expanduser().resolve(), out.resolve()
        if not path or not there.is_dir():
            return
    except RuntimeError as error:  # an unknown user (~nobody), or a loop of links
        raise TrellisError(f"{source!r} or --out {str(out)!r}: {error}") from None
    except OSError as error:  # a name that is too long
        raise TrellisError(f"{source!r} cannot be read: {error.strerror}") from None
    if here == there or (kind == "csv" and there in here.parents):
        raise TrellisError(
            f"--out {str(out)!r} lies in the recordings of {source!r}: name a folder elsewhere"
        )


def chosen_fold(data: Skeletons, wanted: str | None) -> Fold:
    """Return a fold by name or by number from 1; by default the first."""
    if wanted is None:
        return data.folds[0]
    for fold in data.folds:
        if fold.name == wanted:
            return fold
    if re.fullmatch("[0-9]{1,9}", wanted) and 1 <= int(wanted) <= len(data.folds):
        return data.folds[int(wanted) - 1]
    names = ", ".join(fold.name for fold in data.folds)
    raise TrellisError(
        f"--fold {wanted!r}: {data.source!r} has {names}; give a name or 1 to {len(data.folds)}"
    )


def described(data: Skeletons) -> str:
    """Return the source's name, marked if the data is synthetic."""
    return f"{shown(data.source)} (synthetic)" if data.synthetic else shown(data.source)


def left_out(data: Skeletons) -> list[str]:
    """Return lines about recordings that were skipped, with the first few reasons."""
    if not data.left_out:
        return []
    count = len(data.left_out)
    first = [f"  {shown(item.name)}: {shown(item.why)}" for item in data.left_out[:5]]
    more = [f"  and {count - 5:,} more"] if count > 5 else []
    return [f"left out: {count:,}", *first, *more]


ModelFolder = Annotated[
    Path,
    tyro.conf.Positional,
    arg(metavar="FOLDER", help="Model folder that `trellis train`, `prune` or `tune` wrote."),
]


def protocol_for(recogniser: Recognizer, source: str, wanted: str | None) -> str | None:
    """Return the given protocol, or that of the model's last training on such data."""
    found = _last(recogniser, source).get("protocol") if wanted is None else wanted
    return None if found is None else str(found)


def fold_for(recogniser: Recognizer, data: Skeletons, wanted: str | None) -> Fold:
    """Return the given fold, or the one the model was last trained on.

    Another fold would test the model on its training data. So it is an error if the data lacks the
    model's fold. Data of another kind (``csv:`` after ``fpha:``) counts as new recordings, and the
    first fold is used. Two ``csv:`` folders may hold the same recordings: they are of one kind.
    """
    step = _last(recogniser, data.source)
    names = [fold.name for fold in data.folds]
    if wanted is None and step:
        wanted = str(step["fold"])
        if wanted not in names:
            by = f" by protocol {step['protocol']!r}" if step.get("protocol") else ""
            raise TrellisError(
                f"the model was trained on fold {wanted!r} of {step['source']!r}{by}, and "
                f"{data.source!r} has {', '.join(names)}, whose test recordings it may have seen: "
                "divide the data as it was then (--protocol), or name a fold all the same (--fold)"
            )
    return chosen_fold(data, wanted)


def _last(recogniser: Recognizer, source: str) -> dict[str, Any]:
    """Return the last training step on data of this kind, or an empty dict."""
    steps = [step for step in recogniser.history if "fold" in step and "source" in step]
    same = [step for step in steps if _kind(str(step["source"])) == _kind(source)]
    return same[-1] if same else {}


def _kind(source: str) -> str:
    """
    >>> _kind("fpha:~/hands"), _kind("hands45")
    ('fpha', 'hands45')
    """
    return source.partition(":")[0]


# Memory that was freed, kept for the next step of training.


_TRIM, _MMAP = -1, -3  # of glibc's mallopt: M_TRIM_THRESHOLD and M_MMAP_THRESHOLD
_MOST = {_TRIM: (1 << 31) - 1, _MMAP: 1 << 30}  # bytes


def keep_freed() -> bool:
    """Let this process keep freed memory, and return whether its C library can (glibc).

    Each training step frees tens of megabytes that the next step needs again. If they went back to
    the system, it would clear every page anew. On a CPU this takes a fifth of the time for one
    network, and half of it for four trained together.
    """
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (AttributeError, OSError, TypeError):  # another C library; Windows has no CDLL(None)
        return False
    return all(mallopt(option, most) == 1 for option, most in _MOST.items())


Device = Annotated[
    str,
    arg(
        metavar="auto|cpu|cuda|cuda:N",
        help="Device to train on. auto: a GPU if there is one. cuda:1: the second GPU.",
    ),
]
RayAddress = Annotated[
    str | None,
    arg(
        metavar="auto|HOST:PORT",
        help="Compute on a Ray cluster: auto for the one that this machine belongs to. Default: on "
        "this machine.",
    ),
]
CellCpus = Annotated[
    int, arg(metavar="N", help="With --ray: cores of one cell, a piece of the work.")
]
CellGpus = Annotated[
    float | None,
    arg(
        metavar="SHARE",
        help="With --ray: GPUs of one cell; 0.25 puts four cells on a GPU (default: 1 with "
        "--device cuda, else 0).",
    ),
]
Precision = Annotated[
    Literal["fp32", "tf32", "bf16"],
    arg(
        help="Precision of products. tf32 and bf16 are faster on GPUs that support them; bf16 also "
        "on CPUs with AVX512_BF16 or AMX.",
    ),
]

_BF16 = "_is_avx512_bf16_supported", "_is_amx_tile_supported"  # public names are newer


def chosen_device(name: str, precision: str) -> torch.device:
    """Return the device of that name, ready for training in that precision.

    ``auto`` is a GPU if there is one.

    >>> chosen_device("cpu", "fp32")
    device(type='cpu')
    """
    import torch  # takes a second, which --help need not wait for

    if not re.fullmatch(r"auto|cpu|cuda(:\d{1,4})?", name, re.ASCII):
        raise TrellisError(f"--device {name!r}: expected auto, cpu, cuda or cuda:N")
    if name == "auto":
        name = "cuda" if torch.cuda.is_available() else "cpu"
    device = torch.device("cpu") if name == "cpu" else _gpu(name)
    if device.type == "cpu" and precision == "tf32":
        raise TrellisError("--precision tf32 needs a GPU: on a CPU use fp32 or bf16")
    if precision == "bf16" and not knows_bf16(device):
        unable = "this CPU does not support it (those with AVX512_BF16 or AMX"
        if device.type == "cuda":
            name = torch.cuda.get_device_name(device)
            unable = f"{name} does not support it (compute capability 8.0 and up"
        raise TrellisError(f"--precision bf16: {unable} do); use fp32")
    if device.type == "cpu":
        keep_freed()
    return device


def cluster_of(
    ray: str | None, cpus: int, gpus: float | None, device: str, precision: str
) -> tuple[Cluster, torch.device]:
    """Return the cluster of --ray and the device that its cells train on.

    ``auto`` is a GPU if a node has one. This machine need not have one.
    """
    import torch

    if not re.fullmatch(r"auto|cpu|cuda", device):
        raise TrellisError(f"--device {device!r}: expected auto, cpu or cuda with --ray")
    cluster = Cluster("auto" if ray is None else ray, cpus, gpus or 0.0)
    if device == "auto":
        device = "cuda" if cluster.has_gpus else "cpu"
    if device == "cpu" and precision == "tf32":
        raise TrellisError("--precision tf32 needs a GPU: on a CPU use fp32 or bf16")
    if gpus is None and device == "cuda":
        cluster = replace(cluster, gpus=1.0)
    _ = cluster.together  # raises now for a cluster that is not there or too small
    return cluster, torch.device(device)


def check_ray(ray: str | None, cpus: int, gpus: float | None) -> None:
    """Raise if resources of cells are given without a cluster."""
    if ray is None and (cpus != 1 or gpus is not None):
        raise TrellisError("--cell-cpus and --cell-gpus need --ray; give --ray auto or HOST:PORT")


def knows_bf16(device: torch.device) -> bool:
    """Whether the device multiplies bfloat16 natively. Emulation is many times slower than fp32."""
    import torch

    if device.type == "cuda":
        return torch.cuda.get_device_capability(device) >= (8, 0)
    told = (getattr(torch.cpu, name, None) for name in _BF16)
    return any(ask() for ask in told if ask is not None)


def _gpu(name: str) -> torch.device:
    import torch

    if not torch.cuda.is_available():
        raise TrellisError(f"--device {name!r}: there is no CUDA device here; use cpu")
    index = name.partition(":")[2]
    count = torch.cuda.device_count()
    if index and (len(index) > 9 or int(index) >= count):
        raise TrellisError(f"--device {name!r}: there are {count} of them, from cuda:0")
    try:
        device = torch.device("cuda", int(index) if index else torch.cuda.current_device())
        torch.cuda.set_device(device)  # captured graphs and kernels run on the current one
        torch.zeros(1, device=device)
    except RuntimeError as error:
        reason = (str(error).strip() or type(error).__name__).splitlines()[0]
        raise TrellisError(f"--device {name!r} cannot be used: {reason:.200}") from None
    return device
