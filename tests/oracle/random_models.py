"""Random small models with biases, attention of every form, embeddings, gates and norms.

`dependent` differentiates the model itself, with its real curves, in float64: which weights can
matter to how outputs depend on the input. Unlike the straight lines of `autograd` it does not know
which of them count as biases, so it says what is dead for certain, and nothing more.
"""

import random
from collections.abc import Callable, Mapping

import torch
import torch.nn.functional as F
from torch import Tensor, nn

Example = tuple[nn.Module, tuple[Tensor, ...]]


class Attention(nn.Module):
    """One of many ways to attend, (1, L, width) to (1, L, width)."""

    def __init__(self, width: int, form: str, length: int, bias: bool, chance: random.Random):
        super().__init__()
        self.form, self.heads = form, chance.choice([1, 2])
        self.head = width // self.heads
        kept = self.heads if form != "grouped" else 1
        self.q = nn.Linear(width, width, bias=bias)
        self.k, self.v = (nn.Linear(width, kept * self.head, bias=bias) for _ in range(2))
        self.out = nn.Linear(width, width, bias=bias)
        self.memory = nn.Linear(width, width, bias=bias)
        mask = torch.zeros(length, length)
        mask[
            torch.rand(length, length, generator=torch.Generator().manual_seed(length)) < 0.4
        ] = -torch.inf
        mask.fill_diagonal_(0)
        self.mask: Tensor
        self.register_buffer("mask", mask)
        self.position = nn.Parameter(torch.randn(self.heads, length, length))

    def split(self, x: Tensor) -> Tensor:
        return x.unflatten(-1, (-1, self.head)).transpose(1, 2)  # (1, heads, L, head)

    def forward(self, x: Tensor) -> Tensor:
        form = self.form
        source = x
        if form == "cross":  # to keys that are one summary, moved on by a weight at each place
            source = self.memory(x).flip(1)
        elif form == "single":
            source = x[:, :1]
        elif form == "broadcast":
            source = self.memory(x.mean(1, keepdim=True)).expand(x.shape)
        q, k, v = self.split(self.q(x)), self.split(self.k(source)), self.split(self.v(source))
        if form == "eager":
            scores = torch.softmax(q @ k.transpose(-2, -1) + self.mask, -1)
            y = scores @ v
        elif form == "learned":
            y = F.scaled_dot_product_attention(q, k, v, attn_mask=self.position)
        elif form == "additive":
            y = F.scaled_dot_product_attention(q, k, v, attn_mask=self.mask)
        elif form == "grouped":
            y = F.scaled_dot_product_attention(q, k, v, enable_gqa=self.heads > 1)
        elif form == "pooled":
            weights = torch.softmax(k.sum(-1, keepdim=True), 2)
            y = (weights * v).sum(2, keepdim=True).expand(q.shape)
        else:
            y = F.scaled_dot_product_attention(q, k, v, is_causal=form == "causal")
        return self.out(y.transpose(1, 2).flatten(2))


FORMS = [
    "plain",
    "causal",
    "single",
    "cross",
    "grouped",
    "additive",
    "eager",
    "learned",
    "pooled",
    "broadcast",
]


class Stock(nn.Module):
    """`nn.MultiheadAttention`, as it comes."""

    def __init__(self, width: int, chance: random.Random):
        super().__init__()
        self.attention = nn.MultiheadAttention(
            width, chance.choice([1, 2]), batch_first=True, bias=chance.random() < 0.8,
            add_bias_kv=chance.random() < 0.3, add_zero_attn=chance.random() < 0.3,
        )  # fmt: skip

    def forward(self, x: Tensor) -> Tensor:
        found: Tensor = self.attention(x, x, x, need_weights=False)[0]
        return found


class Gated(nn.Module):
    def __init__(self, width: int, bias: bool):
        super().__init__()
        self.a, self.b = (nn.Linear(width, width, bias=bias) for _ in range(2))

    def forward(self, x: Tensor) -> Tensor:
        return self.a(x) * F.silu(self.b(x))


class Residual(nn.Module):
    def __init__(self, inner: nn.Module):
        super().__init__()
        self.inner = inner

    def forward(self, x: Tensor) -> Tensor:
        found: Tensor = x + self.inner(x)
        return found


class Recurrent(nn.Module):
    def __init__(self, width: int, bias: bool, chance: random.Random):
        super().__init__()
        kind: Callable[..., nn.Module] = chance.choice([nn.LSTM, nn.GRU, nn.RNN])
        self.cell = kind(width, width, bias=bias, batch_first=True)

    def forward(self, x: Tensor) -> Tensor:
        found: Tensor = self.cell(x)[0]
        return found


class Positions(nn.Module):
    def __init__(self, length: int, width: int):
        super().__init__()
        self.table = nn.Parameter(torch.randn(length, width))

    def forward(self, x: Tensor) -> Tensor:
        return x + self.table


class Ends(nn.Module):
    """The last step: every place, their mean, or one of them; perhaps a log-softmax."""

    def __init__(self, width: int, kind: str, bias: bool):
        super().__init__()
        self.kind, self.head = kind, nn.Linear(width, 3, bias=bias)

    def forward(self, x: Tensor) -> Tensor:
        if self.kind == "mean":
            x = x.mean(1)
        elif self.kind == "last":
            x = x[:, -1]
        y: Tensor = self.head(x)
        return torch.log_softmax(y, -1) if self.kind == "every" else y


def random_model(seed: int) -> Example:
    chance = random.Random(seed)
    torch.manual_seed(seed)
    width, length = chance.choice([4, 6]), chance.choice([1, 2, 3, 4])
    bias = chance.random() < 0.7
    layers: list[nn.Module] = []
    tokens = chance.random() < 0.4
    rows = chance.choice([3, 5, 7])
    if tokens:
        layers.append(nn.Embedding(rows, width))
    elif chance.random() < 0.5:
        layers.append(nn.Linear(width, width, bias=bias))
    if chance.random() < 0.4:
        layers.append(Positions(length, width))
    for _ in range(chance.choice([1, 2])):
        kind = chance.choice(["attention", "attention", "stock", "gated", "recurrent", "encoder"])
        inner: nn.Module
        if kind == "attention":
            inner = Attention(width, chance.choice(FORMS), length, bias, chance)
        elif kind == "stock":
            inner = Stock(width, chance)
        elif kind == "gated":
            inner = Gated(width, bias)
        elif kind == "recurrent":
            inner = Recurrent(width, bias, chance)
        else:
            inner = nn.TransformerEncoderLayer(
                width, 2, 6, 0.0, "gelu", batch_first=True, norm_first=chance.random() < 0.5,
                bias=bias,
            )  # fmt: skip
        if chance.random() < 0.5:
            inner = nn.Sequential(nn.LayerNorm(width), inner)
        layers.append(Residual(inner) if chance.random() < 0.5 else inner)
        if chance.random() < 0.3:
            layers.append(nn.Sequential(nn.Linear(width, width, bias=bias), nn.Tanh()))
    layers.append(Ends(width, chance.choice(["every", "mean", "last", "plain"]), bias))
    model = nn.Sequential(*layers).eval()
    ids = torch.randint(0, rows, (1, length))
    return model, (ids if tokens else torch.randn(1, length, width),)


def dependent(
    model: nn.Module,
    inputs: tuple[Tensor, ...],
    kept: Mapping[str, Tensor],
    *,
    draws: int = 6,
    samples: int = 24,
    seed: int = 0,
) -> dict[str, Tensor]:
    """Of each connection, whether the derivative of an output by it changes with the input, for
    some draw of all weights, biases and inputs."""
    model = model.double()
    generator = torch.Generator().manual_seed(seed)
    tokens = next((m.num_embeddings for m in model.modules() if isinstance(m, nn.Embedding)), 0)
    found = {name: torch.zeros(mask.shape, dtype=torch.bool) for name, mask in kept.items()}
    for _ in range(draws):
        values = {}
        for name, p in model.named_parameters():
            value = torch.randn(p.shape, generator=generator, dtype=torch.float64)
            values[name] = value * kept[name] if name in kept else value
        if tokens:
            (ids,) = inputs
            batch = torch.randint(0, tokens, (samples, *ids.shape[1:]), generator=generator)
        else:
            shape = (samples, *inputs[0].shape[1:])
            batch = torch.randn(shape, generator=generator, dtype=torch.float64)
        names = list(kept)
        leaves = {n: values[n].requires_grad_() for n in names}
        out = torch.func.functional_call(model, {**values, **leaves}, (batch,)).reshape(samples, -1)
        probe = torch.randn(out.shape[1], generator=generator, dtype=torch.float64)
        slopes = []
        for row in out @ probe:
            grads = torch.autograd.grad(
                row, list(leaves.values()), retain_graph=True, materialize_grads=True
            )
            slopes.append(grads)
        top = max(float(g.abs().max()) for grads in slopes for g in grads)
        for name, mine in zip(names, zip(*slopes, strict=True), strict=True):
            stacked = torch.stack(mine)
            spread = (stacked - stacked[:1]).abs().amax(0)
            found[name] |= (spread > 1e-12 * max(top, 1e-3)) & kept[name]
    return found
