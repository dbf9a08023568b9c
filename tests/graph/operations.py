"""Single operations, each with the shapes of its inputs: what the rules are tried on.

The first dimension is one, so that none of it is taken for a batch, unless it matters.
"""

import math
from collections.abc import Callable, Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

Case = tuple[Callable[..., Any], Sequence[Sequence[int]]]
LINE, PLANE, CUBE = (1, 2, 6), (1, 2, 4, 5), (1, 1, 3, 3, 4)
INF = math.inf
INDEX = torch.tensor([2, 0, 2])
MASK = torch.tensor([[True, False, True, True]])

MOVES: dict[str, Case] = {
    "reshape": (lambda x: x.reshape(2, -1), [PLANE]),
    "flatten": (lambda x: x.flatten(1, 2), [PLANE]),
    "unflatten": (lambda x: x.unflatten(1, (-1, 2)), [(1, 6)]),
    "permute": (lambda x: x.permute(3, 0, 2, 1), [PLANE]),
    "transpose": (lambda x: x.transpose(-1, 1), [PLANE]),
    "t": (lambda x: x.t(), [(2, 3)]),
    "mT": (lambda x: x.mT, [LINE]),
    "movedim": (lambda x: x.movedim(1, -1), [PLANE]),
    "unsqueeze": (lambda x: x.unsqueeze(-1), [LINE]),
    "squeeze": (lambda x: x.squeeze(), [LINE]),
    "squeeze_dims": (lambda x: x.squeeze((0, 2)), [(1, 3, 1, 2)]),
    "expand": (lambda x: x.expand(3, 2, -1), [(1, 2, 4)]),
    "select": (lambda x: x.select(-1, -2), [LINE]),
    "slice": (lambda x: x[:, :, 1:-1:2], [LINE]),
    "narrow": (lambda x: x.narrow(2, 1, 3), [LINE]),
    "ellipsis": (lambda x: x[..., None, 0], [PLANE]),
    "index": (lambda x: x[:, :, INDEX], [LINE]),
    "index_pairs": (lambda x: x[:, torch.tensor([0, 1]), torch.tensor([3, 3])], [LINE]),
    "boolean_index": (lambda x: x[:, :, torch.tensor([True, False] * 3)], [LINE]),
    "index_select": (lambda x: x.index_select(2, INDEX), [LINE]),
    "gather": (lambda x: x.gather(2, torch.tensor([[[5, 0], [1, 1]]])), [LINE]),
    "take": (lambda x: x.take(torch.tensor([0, 7, 7])), [LINE]),
    "flip": (lambda x: x.flip(1, 2), [LINE]),
    "roll": (lambda x: x.roll(2, 2), [LINE]),
    "roll_flat": (lambda x: x.roll(5), [LINE]),
    "rot90": (lambda x: x.rot90(1, (2, 3)), [PLANE]),
    "repeat": (lambda x: x.repeat(1, 2, 3), [LINE]),
    "repeat_more_dims": (lambda x: x.repeat(2, 1, 1, 2), [LINE]),
    "tile": (lambda x: x.tile(2, 2), [LINE]),
    "repeat_interleave": (lambda x: x.repeat_interleave(2, 2), [LINE]),
    "unfold": (lambda x: x.unfold(2, 3, 2), [LINE]),
    "im2col": (lambda x: F.unfold(x, (2, 3), padding=1, stride=2), [PLANE]),
    "col2im": (lambda x: F.fold(x, (3, 4), (2, 2)), [(1, 4, 6)]),
    "diagonal": (lambda x: x.diagonal(1, 2, 3), [PLANE]),
    "tril": (lambda x: x.tril(), [PLANE]),
    "triu": (lambda x: x.triu(1), [PLANE]),
    "pixel_shuffle": (lambda x: F.pixel_shuffle(x, 2), [(1, 4, 2, 3)]),
    "pixel_unshuffle": (lambda x: F.pixel_unshuffle(x, 2), [(1, 1, 4, 2)]),
    "channel_shuffle": (lambda x: F.channel_shuffle(x, 2), [(1, 4, 2, 3)]),
    "chunk": (lambda x: x.chunk(4, 2), [LINE]),
    "split": (lambda x: x.split(4, 2), [LINE]),
    "split_sizes": (lambda x: x.split([1, 3, 2], 2)[::2], [LINE]),
    "tensor_split": (lambda x: x.tensor_split(4, 2), [LINE]),
    "unbind": (lambda x: x.unbind(1), [LINE]),
    "cat": (lambda x, y: torch.cat([x, y, x], -1), [LINE, (1, 2, 3)]),
    "cat_constant": (lambda x: torch.cat([x, torch.ones(1, 2, 2)], -1), [LINE]),
    "stack": (lambda x, y: torch.stack([x, y], -1), [LINE, LINE]),
    "hstack": (lambda x, y: torch.hstack([x, y]), [LINE, LINE]),
    "pad": (lambda x: F.pad(x, (1, 2, 0, 1)), [PLANE]),
    "pad_value": (lambda x: F.pad(x, (1, 2), value=3.0), [PLANE]),
    "pad_negative": (lambda x: F.pad(x, (-1, 2)), [LINE]),
    "pad_reflect": (lambda x: F.pad(x, (2, 1), mode="reflect"), [LINE]),
    "pad_reflect2d": (lambda x: F.pad(x, (2, 1, 1, 2), mode="reflect"), [PLANE]),
    "pad_replicate": (lambda x: F.pad(x, (2, 1, 0, 3), mode="replicate"), [PLANE]),
    "pad_circular": (lambda x: F.pad(x, (2, 1, 0, 3), mode="circular"), [PLANE]),
    "meshgrid": (lambda x, y: torch.meshgrid(x[0], y[0], indexing="ij"), [(1, 2), (1, 3)]),
    "broadcast": (lambda x, y: torch.broadcast_tensors(x, y), [(1, 2, 1), (1, 1, 3)]),
}

SUMS: dict[str, Case] = {
    "sum": (lambda x: x.sum(), [LINE]),
    "sum_dims": (lambda x: x.sum((1, -1), keepdim=True), [PLANE]),
    "mean": (lambda x: x.mean(2), [PLANE]),
    "cumsum": (lambda x: x.cumsum(-1), [LINE]),
    "logsumexp": (lambda x: x.logsumexp(2, keepdim=True), [LINE]),
    "logcumsumexp": (lambda x: x.logcumsumexp(2), [LINE]),
    "var": (lambda x: x.var(-1), [LINE]),
    "std_last_keepdim": (lambda x: x / x.std(-1, keepdim=True), [LINE]),
    "std_of_all": (lambda x: x.std(unbiased=False), [LINE]),
    "var_mean_last_keepdim": (lambda x: torch.var_mean(x, -1, True, True), [LINE]),
    "std_keepdim": (lambda x: x.std((1, 2), keepdim=True), [LINE]),
    "var_mean": (lambda x: torch.var_mean(x, 2), [LINE]),
    "std_mean_keepdim": (lambda x: torch.std_mean(x, 2, keepdim=True), [LINE]),
    "norm": (lambda x: x.norm(dim=2), [LINE]),
    "norm_3": (lambda x: torch.linalg.vector_norm(x, 3, 1, keepdim=True), [LINE]),
    "normalize": (lambda x: F.normalize(x, dim=1), [(1, 4, 2)]),
    "cosine_similarity": (lambda x, y: F.cosine_similarity(x, y, 1), [(1, 4, 2), (1, 4, 2)]),
    "trace": (lambda x: x[0].trace(), [(1, 3, 3)]),
}

EXTREMES: dict[str, Case] = {  # the slope shows one winner at a time
    "max": (lambda x: x.max(), [(1, 5)]),
    "max_dim": (lambda x: x.max(-1).values, [(1, 2, 4)]),
    "amax": (lambda x: x.amax((1, 2)), [(1, 2, 3)]),
    "min_dim": (lambda x: x.min(1, keepdim=True).values, [(1, 3, 2)]),
    "grid_sample": (
        lambda x, y: F.grid_sample(x, 2 * y - 1.2, align_corners=False),
        [(1, 2, 2, 3), (1, 2, 1, 2)],
    ),
    "median": (lambda x: x.median(-1).values, [(1, 2, 3)]),
    "cummax": (lambda x: x.cummax(-1).values, [(1, 2, 4)]),
    "maximum": (torch.maximum, [(1, 4), (1, 4)]),
    "sort": (lambda x: x.sort(-1).values, [(1, 2, 3)]),
    "topk": (lambda x: x.topk(2, -1).values, [(1, 2, 4)]),
    "max_pool1d": (lambda x: F.max_pool1d(x, 2), [(1, 2, 5)]),
    "max_pool2d": (lambda x: F.max_pool2d(x, 3, 2, 1), [PLANE]),
    "max_pool2d_ceil": (lambda x: F.max_pool2d(x, 2, 2, ceil_mode=True), [(1, 1, 5, 5)]),
    "max_pool2d_ceil_padded": (lambda x: F.max_pool2d(x, 2, 3, 1, ceil_mode=True), [(1, 1, 5, 4)]),
    "max_pool2d_dilated": (lambda x: F.max_pool2d(x, 2, 1, dilation=2), [PLANE]),
    "max_pool3d": (lambda x: F.max_pool3d(x, 2, 1), [CUBE]),
    "adaptive_max_pool1d": (lambda x: F.adaptive_max_pool1d(x, 4), [LINE]),
    "adaptive_max_pool2d": (lambda x: F.adaptive_max_pool2d(x, (3, 2)), [PLANE]),
}

POOLS: dict[str, Case] = {
    "avg_pool1d": (lambda x: F.avg_pool1d(x, 3, 2, 1), [LINE]),
    "avg_pool2d_ceil": (lambda x: F.avg_pool2d(x, 2, 2, ceil_mode=True), [(1, 1, 5, 3)]),
    "avg_pool2d_ceil_padded": (lambda x: F.avg_pool2d(x, 2, 3, 1, ceil_mode=True), [(1, 1, 5, 4)]),
    "avg_pool2d": (lambda x: F.avg_pool2d(x, (2, 3), (1, 2), (1, 0)), [PLANE]),
    "avg_pool3d": (lambda x: F.avg_pool3d(x, (1, 2, 2)), [CUBE]),
    "lp_pool2d": (lambda x: F.lp_pool2d(x, 2, 2), [PLANE]),
    "adaptive_avg_pool1d": (lambda x: F.adaptive_avg_pool1d(x, 4), [LINE]),
    "adaptive_avg_pool2d": (lambda x: F.adaptive_avg_pool2d(x, (3, 2)), [PLANE]),
    "adaptive_avg_pool2d_none": (lambda x: F.adaptive_avg_pool2d(x, (None, 2)), [PLANE]),
    "adaptive_avg_pool2d_one": (lambda x: F.adaptive_avg_pool2d(x, 1), [PLANE]),
    "adaptive_avg_pool3d": (lambda x: F.adaptive_avg_pool3d(x, (2, 3, 2)), [CUBE]),
    "nearest1d": (lambda x: F.interpolate(x, scale_factor=2), [LINE]),
    "nearest2d": (lambda x: F.interpolate(x, (3, 8)), [PLANE]),
    "nearest_ratio": (lambda x: F.interpolate(x, scale_factor=(1.5, 0.7)), [PLANE]),
    "nearest_exact": (lambda x: F.interpolate(x, (3, 8), mode="nearest-exact"), [PLANE]),
    "linear": (lambda x: F.interpolate(x, 9, mode="linear"), [LINE]),
    "bilinear": (lambda x: F.interpolate(x, scale_factor=2, mode="bilinear"), [PLANE]),
    "bilinear_corners": (
        lambda x: F.interpolate(x, (7, 3), mode="bilinear", align_corners=True), [PLANE]),
    "bilinear_ratio": (lambda x: F.interpolate(x, scale_factor=1.7, mode="bilinear"), [PLANE]),
    "bilinear_recomputed": (
        lambda x: F.interpolate(
            x, scale_factor=1.7, mode="bilinear", recompute_scale_factor=True), [PLANE]),
    "bicubic": (lambda x: F.interpolate(x, (6, 8), mode="bicubic"), [PLANE]),
    "trilinear": (lambda x: F.interpolate(x, (4, 2, 5), mode="trilinear"), [CUBE]),
}  # fmt: skip

CONVOLUTIONS: dict[str, Case] = {
    "conv1d": (nn.Conv1d(2, 3, 3, 2, 1), [LINE]),
    "conv1d_no_batch": (nn.Conv1d(2, 3, 3), [(2, 6)]),
    "conv2d": (nn.Conv2d(2, 4, (3, 2), (1, 2), (1, 0), groups=2), [PLANE]),
    "conv2d_dilated": (nn.Conv2d(2, 2, 2, dilation=(2, 3)), [PLANE]),
    "conv2d_same": (nn.Conv2d(2, 2, 3, padding="same"), [PLANE]),
    "conv2d_same_even": (nn.Conv2d(2, 2, (2, 4), padding="same", dilation=(2, 1)), [PLANE]),
    "conv2d_valid": (nn.Conv2d(2, 2, 3, padding="valid"), [PLANE]),
    "conv2d_circular": (nn.Conv2d(2, 2, 3, padding=1, padding_mode="circular"), [PLANE]),
    "conv2d_reflect": (nn.Conv2d(2, 2, 3, padding=(1, 2), padding_mode="reflect"), [PLANE]),
    "conv2d_replicate": (nn.Conv2d(2, 2, 3, padding=1, padding_mode="replicate"), [PLANE]),
    "conv3d": (nn.Conv3d(1, 2, 2, padding=1), [CUBE]),
    "transposed1d": (nn.ConvTranspose1d(2, 2, 3, 2, 1, output_padding=1), [LINE]),
    "transposed1d_no_batch": (nn.ConvTranspose1d(2, 2, 3, 2), [(2, 6)]),
    "transposed2d": (nn.ConvTranspose2d(2, 4, 3, 2, 1, 1, groups=2), [PLANE]),
    "transposed2d_dilated": (nn.ConvTranspose2d(2, 2, 2, (1, 2), dilation=(2, 1)), [PLANE]),
    "transposed3d": (nn.ConvTranspose3d(1, 1, 2, 2), [CUBE]),
    "fixed_kernel": (lambda x: F.conv2d(x, torch.tensor([[[[1.0, 0.0, 2.0]]]]).double()),
                     [(1, 1, 3, 4)]),
    "fixed_kernel_transposed": (
        lambda x: F.conv_transpose1d(x, torch.tensor([[[1.0, 0.0, 2.0]]]).double(), stride=2),
        [(1, 1, 3)]),
}  # fmt: skip

PRODUCTS: dict[str, Case] = {
    "linear": (nn.Linear(4, 3), [(1, 2, 4)]),
    "bilinear": (nn.Bilinear(2, 3, 2), [(1, 2), (1, 3)]),
    "mul": (torch.mul, [(1, 2, 3), (1, 1, 3)]),
    "mul_zeros": (lambda x: x * MASK, [(1, 2, 4)]),
    "div": (torch.div, [(1, 3), (1, 3)]),
    "one_over": (lambda x: 1 / x, [(1, 3)]),
    "div_constant": (lambda x: x / torch.tensor([1.0, 2.0, 3.0]), [(1, 3)]),
    "pow": (torch.pow, [(1, 3), (1, 3)]),
    "addcmul": (torch.addcmul, [(1, 3), (1, 3), (1, 3)]),
    "addcdiv": (torch.addcdiv, [(1, 3), (1, 3), (1, 3)]),
    "lerp": (torch.lerp, [(1, 3), (1, 3), (1, 3)]),
    "lerp_half": (lambda x, y: torch.lerp(x, y, 0.5), [(1, 3), (1, 3)]),
    "matmul": (torch.matmul, [(1, 2, 3), (1, 3, 2)]),
    "matmul_broadcast": (torch.matmul, [(1, 2, 2, 3), (3, 2)]),
    "matmul_vector": (lambda x, y: x @ y[0], [(1, 2, 3), (1, 3)]),
    "vector_matmul": (lambda x, y: x[0] @ y, [(1, 3), (1, 3, 2)]),
    "mv": (lambda x, y: torch.mv(x[0], y[0]), [(1, 2, 3), (1, 3)]),
    "dot": (lambda x, y: torch.dot(x[0], y[0]), [(1, 3), (1, 3)]),
    "outer": (lambda x, y: torch.outer(x[0], y[0]), [(1, 3), (1, 2)]),
    "bmm": (torch.bmm, [(1, 2, 3), (1, 3, 2)]),
    "baddbmm": (torch.baddbmm, [(1, 2, 2), (1, 2, 3), (1, 3, 2)]),
    "addmm": (lambda a, x, y: torch.addmm(a[0], x[0], y[0]), [(1, 2), (1, 2, 3), (1, 3, 2)]),
    "addmv": (lambda a, x, y: torch.addmv(a[0], x[0], y[0]), [(1, 2), (1, 2, 3), (1, 3)]),
    "addbmm": (torch.addbmm, [(2, 2), (2, 2, 3), (2, 3, 2)]),
    "kron": (lambda x, y: torch.kron(x[0], y[0]), [(1, 2, 2), (1, 1, 2)]),
    "einsum": (lambda x, y: torch.einsum("bij,bjk->bik", x, y), [(1, 2, 3), (1, 3, 2)]),
    "einsum_implicit": (lambda x, y: torch.einsum("cab,cbd", x, y), [(1, 2, 3), (1, 3, 2)]),
    "einsum_ellipsis": (lambda x, y: torch.einsum("...i,ij->...j", x, y), [(1, 2, 3), (3, 2)]),
    "einsum_dots_left": (lambda x, y: torch.einsum("...ij,...jk", x, y), [(1, 2, 2), (2, 3)]),
    "einsum_sum": (lambda x: torch.einsum("bij->b", x), [(1, 2, 3)]),
    "einsum_permute": (lambda x: torch.einsum("bij->jbi", x), [(1, 2, 3)]),
    "einsum_three": (
        lambda x, y, z: torch.einsum("bi,bj,ijk->bk", x, y, z), [(1, 2), (1, 2), (2, 2, 2)]),
    "einsum_constant": (
        lambda x: torch.einsum("bi,ij->bj", x, torch.eye(3).double()), [(1, 3)]),
    "tensordot": (lambda x, y: torch.tensordot(x, y, ([2], [0])), [(1, 2, 3), (3, 2)]),
    "fixed_adjacency": (
        lambda x: torch.tensor([[1.0, 0, 2], [0, 0, 1]]).double() @ x, [(1, 3, 2)]),
    "glu": (lambda x: F.glu(x, 1), [(1, 4, 2)]),
    "prelu": (nn.PReLU(2), [LINE]),
    "prelu_of_signal": (lambda x, a: torch.prelu(x - 2, a[0]), [(1, 2, 3), (1, 2)]),
}  # fmt: skip

CHOICES: dict[str, Case] = {
    "where": (lambda x, y: torch.where(MASK, x, y), [(1, 2, 4), (1, 2, 4)]),
    "where_constant": (lambda x: torch.where(MASK, x, torch.ones(()).double()), [(1, 2, 4)]),
    "masked_fill": (lambda x: x.masked_fill(MASK, 0.5), [(1, 2, 4)]),
    "masked_fill_zero": (lambda x: x.masked_fill(MASK, 0.0), [(1, 2, 4)]),
    "clamp": (lambda x: x.clamp(-3, 3), [(1, 4)]),
    "dropout": (nn.Dropout(), [(1, 4)]),
    "index_add": (lambda x, y: x.index_add(2, INDEX, y), [LINE, (1, 2, 3)]),
    "index_copy": (lambda x, y: x.index_copy(2, torch.tensor([3, 0]), y), [LINE, (1, 2, 2)]),
    "index_fill": (lambda x: x.index_fill(2, torch.tensor([3, 0]), 1.0), [LINE]),
    "scatter_add": (
        lambda x, y: x.scatter_add(1, INDEX[None], y), [(1, 5), (1, 3)]),
    "scatter": (lambda x, y: x.scatter(1, torch.tensor([[4, 0]]), y), [(1, 5), (1, 2)]),
    "scatter_value": (lambda x: x.scatter(1, torch.tensor([[4, 0]]), 2.0), [(1, 5)]),
    "scatter_reduce_mean": (
        lambda x, y: x.scatter_reduce(1, INDEX[None], y, "mean"), [(1, 5), (1, 3)]),
    "scatter_reduce_alone": (
        lambda x, y: x.scatter_reduce(1, INDEX[None], y, "sum", include_self=False),
        [(1, 5), (1, 3)]),
    "index_put": (lambda x, y: x.index_put((torch.tensor([0, 0]), torch.tensor([1, 4])), y),
                  [(1, 5), (2,)]),
    "index_put_accumulate": (
        lambda x, y: x.index_put((torch.tensor([0, 0]), torch.tensor([4, 4])), y, True),
        [(1, 5), (2,)]),
    "select_scatter": (lambda x, y: x.select_scatter(y, 1, 1), [(1, 3, 2), (1, 2)]),
    "slice_scatter": (lambda x, y: x.slice_scatter(y, 1, 1, 3), [(1, 4), (1, 2)]),
    "diagonal_scatter": (lambda x, y: x.diagonal_scatter(y, 0, 1, 2), [(1, 3, 3), (1, 3)]),
    "assignment": (lambda x, y: _assigned(x, y), [(1, 5), (1, 2)]),
    "addition_in_place": (lambda x, y: _added(x, y), [(1, 5), (1, 2)]),
    "embedding_of_signal": (lambda x: F.embedding(INDEX, x), [(3, 2)]),
}  # fmt: skip


def _assigned(x: Tensor, y: Tensor) -> Tensor:
    x = x.clone()
    x[:, 1:3] = y
    return x


def _added(x: Tensor, y: Tensor) -> Tensor:
    x = x.clone()
    x[:, 1:3] += y
    return x


NORMS: dict[str, Case] = {
    "softmax": (lambda x: x.softmax(1), [(1, 4, 2)]),
    "softmax_masked": (lambda x: x.masked_fill(~MASK, -INF).softmax(-1), [(1, 3, 4)]),
    "softmax_added_mask": (
        lambda x: (x + torch.tensor([0.0, -INF, -1e9, 0.0])).softmax(-1), [(1, 3, 4)]),
    "log_softmax": (lambda x: x.log_softmax(-1), [(1, 4)]),
    "softmin": (lambda x: F.softmin(x, -1), [(1, 4)]),
    "layer_norm": (nn.LayerNorm((3, 4)), [(1, 2, 3, 4)]),
    "rms_norm": (nn.RMSNorm(4), [(1, 2, 4)]),
    "group_norm": (nn.GroupNorm(2, 4), [(1, 4, 3)]),
    "instance_norm": (nn.InstanceNorm1d(2), [LINE]),
    "instance_norm_affine": (nn.InstanceNorm2d(2, affine=True), [PLANE]),
    "batch_norm": (nn.BatchNorm2d(2), [PLANE]),
    "batch_norm_without_statistics": (nn.BatchNorm1d(2, track_running_stats=False), [LINE]),
    "local_response_norm": (lambda x: F.local_response_norm(x, 3), [(1, 4, 2)]),
    "attention": (F.scaled_dot_product_attention, [(1, 2, 3), (1, 4, 3), (1, 4, 2)]),
    "attention_masked": (
        lambda q, k, v: F.scaled_dot_product_attention(q, k, v, attn_mask=MASK),
        [(1, 2, 3), (1, 4, 3), (1, 4, 2)]),
    "attention_grouped": (
        lambda q, k, v: F.scaled_dot_product_attention(q, k, v, enable_gqa=True),
        [(1, 4, 2, 2), (1, 2, 2, 2), (1, 2, 2, 2)]),
    "multihead_attention": (nn.MultiheadAttention(4, 2, batch_first=True), [(1, 3, 4)] * 3),
}  # fmt: skip

CELLS: dict[str, Case] = {
    "lstm": (nn.LSTM(2, 3), [(3, 1, 2)]),
    "gru_backwards": (nn.GRU(2, 2, bidirectional=True, batch_first=True), [(1, 3, 2)]),
    "rnn_stacked": (nn.RNN(2, 2, 2), [(3, 1, 2)]),
    "lstm_cell": (nn.LSTMCell(2, 3), [(1, 2)]),
    "gru_cell": (nn.GRUCell(2, 3), [(1, 2), (1, 3)]),
    "rnn_cell": (nn.RNNCell(2, 3), [(1, 2), (1, 3)]),
    "lstm_no_batch": (nn.LSTM(2, 3), [(3, 2)]),
}

TURN = torch.tensor([[[0.7, -0.7, 0.1], [0.6, 0.8, -0.2]]], dtype=torch.float64)
FOURIER: dict[str, Case] = {  # of odd sizes, whose cosines are not zero
    "fft_of_two_dims": (
        lambda x: torch.fft.fft(torch.fft.fft(x, dim=-1), dim=-2).real, [(1, 3, 5)]),
    "rfft_parts": (
        lambda x: (torch.view_as_real(torch.fft.rfft(x)) * torch.tensor([1.0, 3.0])).sum(-1),
        [(1, 2, 5)]),
    "rfft_filter": (
        lambda x, y: torch.fft.irfft2(torch.fft.rfft2(x) * torch.fft.rfft2(y), (3, 5)),
        [(1, 2, 3, 5), (3, 5)]),
    "complex": (
        lambda x, y: (torch.fft.ifft(torch.complex(x, y), dim=1) * (1 + 2j)).imag,
        [(1, 3, 2), (1, 3, 2)]),
}  # fmt: skip
SAMPLES: dict[str, Case] = {
    "grid_sample_of_constant_places": (
        lambda x: F.grid_sample(x, F.affine_grid(TURN, [1, 2, 3, 4], False), align_corners=False),
        [(1, 2, 5, 4)]),
    "grid_sample_nearest": (
        lambda x: F.grid_sample(
            x, F.affine_grid(TURN, [1, 1, 2, 3], False), "nearest", align_corners=False),
        [(1, 1, 3, 4)]),
}  # fmt: skip

OPERATIONS = (
    FOURIER | SAMPLES | MOVES | SUMS | POOLS | CONVOLUTIONS | PRODUCTS | CHOICES | NORMS | CELLS
)
