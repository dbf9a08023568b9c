"""The paper's figures, exactly as printed. All are of FPHA, 1:1 split.

Every accuracy in Tables 2 and 3 is k / 575 in percent, truncated to two decimals. It is the top-1
accuracy of one network on the test recordings.
"""

from __future__ import annotations

from dataclasses import dataclass

TEST_RECORDINGS = 575
TRAIN_RECORDINGS = 600
PARAMETERS = 1_967_616
DENSE_ACCURACY = 86.08


@dataclass(frozen=True)
class Related:
    """A row of Table 1: the inputs of a method, and its accuracy in percent."""

    method: str
    color: bool
    depth: bool
    pose: bool
    accuracy: float


@dataclass(frozen=True)
class Cell:
    """A row of Table 2; ``accuracy`` is None where the paper says NA (disconnected)."""

    kept: int
    live: float
    accuracy: float | None


# Groups as separated by lines in the paper.
TABLE1: tuple[tuple[Related, ...], ...] = (
    (
        Related("Two stream-color", True, False, False, 61.56),
        Related("Two stream-flow", True, False, False, 69.91),
        Related("Two stream-all", True, False, False, 75.30),
    ),
    (
        Related("HOG2-depth", False, True, False, 59.83),
        Related("HOG2-depth+pose", False, True, True, 66.78),
        Related("HON4D", False, True, False, 70.61),
        Related("Novel View", False, True, False, 69.21),
    ),
    (
        Related("1-layer LSTM", False, False, True, 78.73),
        Related("2-layer LSTM", False, False, True, 80.14),
    ),
    (
        Related("Moving Pose", False, False, True, 56.34),
        Related("Lie Group", False, False, True, 82.69),
        Related("HBRNN", False, False, True, 77.40),
        Related("Gram Matrix", False, False, True, 85.39),
        Related("TF", False, False, True, 80.69),
    ),
    (
        Related("JOULE-color", True, False, False, 66.78),
        Related("JOULE-depth", False, True, False, 60.17),
        Related("JOULE-pose", False, False, True, 74.60),
        Related("JOULE-all", True, True, True, 78.78),
    ),
    (
        Related("Huang et al. [Huangcc2017]", False, False, True, 84.35),
        Related("Huang et al. [ref23]", False, False, True, 77.57),
    ),
    (Related("The paper's GCN baseline", False, False, True, DENSE_ACCURACY),),
)

# By method, then by pruning rate in percent.
TABLE2: dict[str, dict[float, Cell]] = {
    "mp": {
        50: Cell(983_808, 100.0, 86.08),
        75: Cell(491_904, 99.4, 85.73),
        90: Cell(196_760, 89.9, 85.04),
        95: Cell(98_379, 72.3, 83.82),
        99: Cell(19_674, 21.2, 76.00),
        99.9: Cell(1_966, 1.2, 2.78),
    },
    "stochastic-mp": {
        50: Cell(983_808, 100.0, 86.08),
        75: Cell(491_904, 99.8, 85.91),
        90: Cell(196_760, 92.3, 85.56),
        95: Cell(98_379, 76.5, 85.39),
        99: Cell(19_674, 28.2, 74.08),
        99.9: Cell(1_966, 0.0, None),
    },
    "tc": {
        50: Cell(983_808, 100.0, 86.08),
        75: Cell(491_904, 100.0, 84.86),
        90: Cell(196_760, 100.0, 83.65),
        95: Cell(98_379, 100.0, 85.73),
        99: Cell(19_674, 100.0, 83.47),
        99.9: Cell(1_966, 100.0, 70.08),
    },
    "tc-stochastic": {
        50: Cell(983_808, 100.0, 86.08),
        75: Cell(491_904, 100.0, 85.91),
        90: Cell(196_760, 100.0, 85.56),
        95: Cell(98_379, 100.0, 84.86),
        99: Cell(19_674, 100.0, 80.69),
        99.9: Cell(1_966, 100.0, 73.39),
    },
}

# Accuracy by 1/α, at a rate of 99.9 %, with TC and stochasticity.
TABLE3: dict[float, float] = {
    1: 69.56,
    1.5: 71.82,
    2.5: 72.34,
    7: 73.21,
    10: 76.17,
    20: 72.86,
    50: 66.60,
}
TABLE3_RATE = 99.9
