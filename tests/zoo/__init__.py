"""Reference architectures, built from a fixed seed.

`ZOO` holds small variants for fast tests (fewer than 200,000 weights, pictures of at most 32x32);
`FULL` the real sizes. A value builds `(model in eval mode, example inputs)`, batch 1.

>>> model, inputs = ZOO["mlp"]()
>>> model(*inputs).shape
torch.Size([1, 5])
"""

from collections.abc import Callable
from functools import partial

from . import attention, convolution, gates, graph, norms, plain, recurrent, tied, wiring
from .densenet import densenet_block
from .mobilenet import mobilenet, mobilenet_block
from .pyg import gat_conv, gcn_conv
from .resnet import resnet18, resnet50
from .seeded import Example
from .transformer import bert, gpt2, llama, vit
from .unet import unet

tiny_gcn = partial(graph.gcn, nodes=4, channels=3, classes=3, heads=2, filters=4)

ZOO: dict[str, Callable[[], Example]] = {
    "mlp": plain.mlp,
    "mlp_without_bias": partial(plain.mlp, bias=False),
    "lenet": plain.lenet,
    "lenet_without_bias": partial(plain.lenet, bias=False),
    "text_classifier": plain.text_classifier,
    "resnet18": partial(resnet18, size=32, classes=10, width=4),
    "resnet50": partial(resnet50, size=32, classes=10, width=4),
    "mobilenet_block": mobilenet_block,
    "mobilenet": mobilenet,
    "densenet_block": densenet_block,
    "unet": unet,
    "vit": partial(vit, small=True),
    "vit_eager": partial(vit, small=True, attention="eager"),
    "gpt2": partial(gpt2, small=True),
    "gpt2_eager": partial(gpt2, small=True, attention="eager"),
    "llama": llama,
    "bert": partial(bert, small=True),
    "bert_eager": partial(bert, small=True, attention="eager"),
    "multihead_attention": attention.multihead_attention,
    "cross_attention": attention.cross_attention,
    "causal_attention": attention.causal_attention,
    "transformer_encoder": attention.transformer_encoder,
    "gcn": tiny_gcn,
    "gcn_einsum": partial(tiny_gcn, form="einsum"),
    "gcn_shared": partial(tiny_gcn, form="shared"),
    "gcn_stacked": partial(tiny_gcn, blocks=2),
    "stgcn": graph.stgcn,
    "stgcn_weighted_edges": partial(graph.stgcn, learned=False),
    "adaptive_graph": graph.adaptive_graph,
    "gcn_conv": gcn_conv,
    "gcn_conv_buffer": partial(gcn_conv, buffer=True),
    "gat_conv": gat_conv,
    "gat_conv_buffer": partial(gat_conv, buffer=True),
    "squeeze_excite": gates.squeeze_excite,
    "glu": gates.glu,
    "swiglu": gates.swiglu,
    "product": gates.product,
    "highway": gates.highway,
    "tied_autoencoder": tied.tied_autoencoder,
    "tied_embedding": tied.tied_embedding,
    "shared_layer": tied.shared_layer,
    "tanh_parametrized": tied.tanh_parametrized,
    "weight_norm": tied.weight_norm,
    "rnn_by_hand": recurrent.rnn_by_hand,
    "gru_by_hand": recurrent.gru_by_hand,
    "lstm": recurrent.lstm,
    "lstm_stacked": partial(recurrent.lstm, layers=2, both=True),
    "gru": recurrent.gru,
    "gru_stacked": partial(recurrent.gru, layers=2, both=True),
    "rnn": recurrent.rnn,
    "strided_convolution": convolution.strided_convolution,
    "convolution1d": convolution.convolution1d,
    "convolution3d": convolution.convolution3d,
    "transposed_convolution": convolution.transposed_convolution,
    "pooling": convolution.pooling,
    "upsampling": convolution.upsampling,
    "layer_norm": norms.layer_norm,
    "rms_norm": norms.rms_norm,
    "group_norm": norms.group_norm,
    "instance_norm": norms.instance_norm,
    "instance_norm_remembered": partial(norms.instance_norm, statistics=True),
    "convnext_block": norms.convnext_block,
    "fourier_block": norms.fourier_block,
    "wiring": wiring.wiring,
    "several": wiring.several,
    "residual": wiring.residual,
}

FULL: dict[str, Callable[[], Example]] = {
    "gcn": graph.gcn,
    "resnet18": resnet18,
    "resnet50": resnet50,
    "vit_b": vit,
    "gpt2": gpt2,
    "bert": bert,
}

__all__ = ["FULL", "ZOO", "Example"]
