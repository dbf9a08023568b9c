"""What stands above a table: the data, the network, the training, the machine, the command."""

from __future__ import annotations

from .folder import Folder
from .network import architecture_of
from .settings import Data, Settings


def facts(folder: Folder) -> tuple[tuple[str, str], ...]:
    settings, data = folder.settings, folder.data
    devices = list(dict.fromkeys(record["device"] for record in folder.records.values()))
    versions = ", ".join(f"{name} {number}" for name, number in folder.versions.items())
    return (
        ("Data", data_in_words(settings, data)),
        ("Network", _network(settings, data)),
        ("Recipe", _recipe(settings)),
        ("Seeds", f"{settings.seeds} (0 to {settings.seeds - 1})" if settings.seeds > 1 else "0"),
        ("Precision", settings.precision),
        ("Hardware", "; ".join(devices) or "–"),
        ("Versions", versions),
        ("Command", settings.command()),
    )


def data_in_words(settings: Settings, data: Data) -> str:
    kind = "SYNTHETIC, " if data.synthetic else ""
    folds = f"{len(data.folds)} folds" if len(data.folds) > 1 else "one split"
    named = f", protocol {settings.protocol}" if settings.protocol else ""
    left_out = f", {data.left_out:,} left out" if data.left_out else ""
    return (
        f"{settings.data}: {kind}{data.recordings:,} recordings{left_out}, {data.frames:,} frames, "
        f"{data.joints} joints, {data.classes} classes{named}; {folds}: "
        f"{_counts(data.train)} to train on, {_counts(data.test)} to test on"
    )


def _counts(counts: tuple[int, ...]) -> str:
    """
    >>> _counts((600,)), _counts((56, 57, 56))
    ('600', '56, 57, 56')
    """
    return ", ".join(f"{count:,}" for count in counts)


def _network(settings: Settings, data: Data) -> str:
    architecture = architecture_of(settings, data)
    blocks = "" if settings.blocks == 1 else f", {settings.blocks} blocks"
    shared = ", one convolution for all heads" if settings.shared else ""
    return (
        f"GCN, {settings.heads} heads, {settings.filters} filters, {settings.chunks} chunks"
        f"{blocks}{shared}: {architecture.connections:,} weights"
    )


def _recipe(settings: Settings) -> str:
    recipe = settings.recipe
    extras = [
        f"{name} {value:g}"
        for name, value in (
            ("weight decay", recipe.decay),
            ("label smoothing", recipe.smoothing),
            ("input noise", recipe.noise),
        )
        if value
    ]
    return ", ".join(
        [
            f"{recipe.name}: Adam, "
            + ("full batch" if recipe.batch is None else f"batches of at most {recipe.batch}"),
            f"{recipe.epochs:,} epoch{'s' * (recipe.epochs != 1)} from a rate of {recipe.rate:g}",
            f"after pruning {recipe.tune_epochs:,} from {recipe.tune_rate:g}",
            f"schedule {recipe.schedule}",
            *extras,
        ]
    )
