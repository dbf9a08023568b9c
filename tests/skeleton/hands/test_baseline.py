"""Hard enough to teach something: plain classifiers are neither lost nor done."""

import numpy as np
import torch
from numpy.typing import NDArray
from torch.nn import functional

from trellis.skeleton import GCN, Normalization, Skeletons, chunked


def parts(data: Skeletons) -> list[NDArray[np.float64]]:
    """Chunked and normalized, (recordings, 21 * 96): to train on, to test on."""
    x, (fold,) = chunked(data.sequences), data.folds
    normalized = Normalization.fit(x[fold.train], data.layout)(x).reshape(len(x), -1)
    return [normalized[part].astype(np.float64) for part in (fold.train, fold.test)]


def ridge(data: Skeletons, penalty: float = 1e-2) -> float:
    """Test accuracy of RBF ridge regression on the classes; the bandwidth is the median's."""

    def squared(a: NDArray[np.float64], b: NDArray[np.float64]) -> NDArray[np.float64]:
        return (a**2).sum(1)[:, None] + (b**2).sum(1) - 2 * a @ b.T

    train, test = parts(data)
    (fold,) = data.folds
    distances = squared(train, train)
    width = np.median(distances[np.triu_indices(len(train), 1)])
    kernel = np.exp(-distances / width) + penalty * np.eye(len(train))
    targets = np.eye(len(data.classes))[data.labels[fold.train]]
    scores = np.exp(-squared(test, train) / width) @ np.linalg.solve(kernel, targets)
    return float((scores.argmax(axis=1) == data.labels[fold.test]).mean())


def test_an_untuned_rbf_ridge_is_right_in_70_to_90_percent(hands: Skeletons) -> None:
    assert 0.70 < ridge(hands) < 0.90


def test_another_seed_is_as_hard(other_hands: Skeletons) -> None:
    assert 0.70 < ridge(other_hands) < 0.90


def test_the_dense_gcn_gets_there_within_20_epochs(hands: Skeletons) -> None:
    (fold,) = hands.folds
    train, test = (torch.from_numpy(x.reshape(-1, 21, 96)).float() for x in parts(hands))
    labels = torch.from_numpy(hands.labels)
    gcn = GCN()
    adam = torch.optim.Adam(gcn.parameters(), 1e-3)
    for _ in range(20):
        adam.zero_grad()
        functional.cross_entropy(gcn(train), labels[fold.train]).backward()
        adam.step()
    with torch.no_grad():
        right = gcn(test).argmax(dim=1) == labels[fold.test]
    assert 0.70 < float(right.float().mean()) < 0.90
