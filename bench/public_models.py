"""Small random versions of public architectures, with the inputs that they are called with.

Nothing is downloaded: every model is built from its configuration, from a fixed seed, in evaluation
mode. Sizes are cut, so that one network takes seconds; the operations are those of the full size.

Models of timm and torchvision are left out where the packages are missing. They can stand in a
folder of their own, beside a torch without CUDA:

    pip install --no-deps --target build/vision timm==1.0.31 torchvision==0.28.0 pillow pyyaml
    PYTHONPATH=build/vision python bench/architectures.py
"""

from __future__ import annotations

import importlib
import sys
import types
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

Built = tuple[nn.Module, Any]  # the model and its example inputs, as `trellis.prune` takes them


@dataclass(frozen=True)
class Public:
    """An architecture: its package, its name, and how to build it."""

    package: str
    name: str
    make: Callable[[], Built]

    def build(self) -> Built:
        torch.manual_seed(0)
        model, inputs = self.make()
        return model.eval(), inputs


# -- Hugging Face transformers ---------------------------------------------------------------------

WORDS = 96


def tokens(length: int = 12) -> Tensor:
    return torch.randint(3, WORDS, (1, length))


def picture(size: int = 32) -> Tensor:
    return torch.randn(1, 3, size, size)


def of_transformers(kind: str, head: str, inputs: Callable[[], Any], /, **sizes: Any) -> Built:
    """The model `head` of the family `kind`, at its configuration's defaults but for `sizes`."""
    transformers = importlib.import_module("transformers")
    config = transformers.AutoConfig.for_model(kind, **sizes)
    return getattr(transformers, head)(config), inputs()


DECODER: dict[str, Any] = {
    "vocab_size": WORDS, "hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2,
    "num_attention_heads": 4, "num_key_value_heads": 2, "max_position_embeddings": 64,
    "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2,
}  # fmt: skip
ENCODER: dict[str, Any] = {
    "vocab_size": WORDS, "hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2,
    "num_attention_heads": 4, "max_position_embeddings": 64, "pad_token_id": 0,
}  # fmt: skip
SPEECH: dict[str, Any] = {
    "d_model": 32, "encoder_layers": 2, "decoder_layers": 2, "encoder_attention_heads": 4,
    "decoder_attention_heads": 4, "encoder_ffn_dim": 64, "decoder_ffn_dim": 64,
    "vocab_size": WORDS, "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2,
    "decoder_start_token_id": 1,
}  # fmt: skip
VISION: dict[str, Any] = {
    "hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4,
    "image_size": 32, "patch_size": 8,
}  # fmt: skip


def masked() -> dict[str, Tensor]:
    """What a tokenizer returns: token numbers and an attention mask."""
    ids = tokens()
    return {"input_ids": ids, "attention_mask": torch.ones_like(ids)}


def pairs() -> dict[str, Tensor]:
    """What an encoder-decoder reads."""
    return {"input_ids": tokens(), "decoder_input_ids": tokens(6)}


def whisper() -> Built:
    return of_transformers(
        "whisper", "WhisperForConditionalGeneration",
        lambda: {"input_features": torch.randn(1, 16, 40), "decoder_input_ids": tokens(6)},
        num_mel_bins=16, max_source_positions=20, max_target_positions=16,
        **SPEECH,
    )  # fmt: skip


def clip() -> Built:
    text = ENCODER | {"max_position_embeddings": 16, "bos_token_id": 1, "eos_token_id": 2}
    return of_transformers(
        "clip", "CLIPModel", lambda: {"input_ids": tokens(8), "pixel_values": picture()},
        text_config=text, vision_config=VISION, projection_dim=16,
    )  # fmt: skip


def transformers_models() -> list[Public]:
    causal = [
        ("Llama", "llama", "LlamaForCausalLM", {}),
        ("Mistral", "mistral", "MistralForCausalLM", {"sliding_window": 8}),
        ("Phi-3", "phi3", "Phi3ForCausalLM", {}),
        ("Qwen2", "qwen2", "Qwen2ForCausalLM", {}),
        ("Qwen3", "qwen3", "Qwen3ForCausalLM", {"head_dim": 8}),
        ("Gemma", "gemma", "GemmaForCausalLM", {"head_dim": 8}),
        ("Gemma 2", "gemma2", "Gemma2ForCausalLM", {"head_dim": 8}),
        ("Gemma 3", "gemma3_text", "Gemma3ForCausalLM", {"head_dim": 8}),
        ("SmolLM3", "smollm3", "SmolLM3ForCausalLM", {}),
        ("OLMo 2", "olmo2", "Olmo2ForCausalLM", {}),
        ("StableLM", "stablelm", "StableLmForCausalLM", {}),
        ("GPT-NeoX", "gpt_neox", "GPTNeoXForCausalLM", {}),
        ("Falcon", "falcon", "FalconForCausalLM", {}),
        ("Mixtral", "mixtral", "MixtralForCausalLM", {"num_local_experts": 4}),
        ("OLMoE", "olmoe", "OlmoeForCausalLM", {"num_experts": 4, "num_experts_per_tok": 2}),
        ("Qwen2-MoE", "qwen2_moe", "Qwen2MoeForCausalLM",
         {"num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 16,
          "shared_expert_intermediate_size": 16}),
    ]  # fmt: skip
    encoders = [
        ("BERT", "bert", "BertForSequenceClassification", {}),
        ("RoBERTa", "roberta", "RobertaForMaskedLM", {}),
        ("ALBERT", "albert", "AlbertForSequenceClassification", {"embedding_size": 16}),
        ("ELECTRA", "electra", "ElectraForSequenceClassification", {"embedding_size": 32}),
        ("MPNet", "mpnet", "MPNetModel", {}),
        ("DeBERTa-v2", "deberta-v2", "DebertaV2ForSequenceClassification", {}),
        ("ModernBERT", "modernbert", "ModernBertForSequenceClassification", {}),
    ]
    found = [
        Public(
            "transformers", title, partial(of_transformers, kind, head, masked, **DECODER, **own)
        )
        for title, kind, head, own in causal
    ]
    found += [
        Public("transformers", title, partial(of_transformers, kind, head, masked, **ENCODER | own))
        for title, kind, head, own in encoders
    ]
    gpt2 = {"vocab_size": WORDS, "n_embd": 32, "n_layer": 2, "n_head": 4, "n_positions": 64}
    distil = {"vocab_size": WORDS, "dim": 32, "hidden_dim": 64, "n_layers": 2, "n_heads": 4}
    t5 = {
        "vocab_size": WORDS, "d_model": 32, "d_kv": 8, "d_ff": 64, "num_layers": 2, "num_heads": 4,
        "decoder_start_token_id": 1, "pad_token_id": 0, "eos_token_id": 2,
    }  # fmt: skip
    fnet = ENCODER | {"tpu_short_seq_length": 12}
    mamba = {"vocab_size": WORDS, "hidden_size": 16, "state_size": 4, "num_hidden_layers": 2}
    swin = {"image_size": 32, "patch_size": 2, "embed_dim": 8, "depths": [2, 2],
            "num_heads": [2, 4], "window_size": 4}  # fmt: skip
    convnext = {"num_channels": 3, "hidden_sizes": [8, 16, 24, 32], "depths": [1, 1, 2, 1]}
    segformer = {"hidden_sizes": [8, 16, 24, 32], "depths": [1, 1, 1, 1],
                 "num_attention_heads": [1, 2, 2, 4], "decoder_hidden_size": 32}  # fmt: skip
    wave = {
        "hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2, "vocab_size": 32,
        "num_attention_heads": 4, "conv_dim": (16, 16), "conv_kernel": (10, 3),
        "conv_stride": (5, 2), "num_feat_extract_layers": 2, "num_conv_pos_embeddings": 16,
        "num_conv_pos_embedding_groups": 4,
    }  # fmt: skip
    rest: list[tuple[str, str, str, Callable[[], Any], dict[str, Any]]] = [
        ("GPT-2", "gpt2", "GPT2LMHeadModel", masked, gpt2),
        ("OPT", "opt", "OPTForCausalLM", masked,
         DECODER | {"ffn_dim": 64, "word_embed_proj_dim": 32}),
        ("BLOOM", "bloom", "BloomForCausalLM", masked,
         {"vocab_size": WORDS, "hidden_size": 32, "n_layer": 2, "n_head": 4}),
        ("Mamba", "mamba", "MambaForCausalLM", tokens, mamba),
        ("DistilBERT", "distilbert", "DistilBertForSequenceClassification", masked, distil),
        ("FNet", "fnet", "FNetForSequenceClassification", tokens, fnet),
        ("T5", "t5", "T5ForConditionalGeneration", pairs, t5),
        ("BART", "bart", "BartForConditionalGeneration", pairs, SPEECH),
        ("wav2vec 2.0", "wav2vec2", "Wav2Vec2ForCTC", lambda: torch.randn(1, 800), wave),
        ("ViT", "vit", "ViTForImageClassification", picture, VISION),
        ("DeiT", "deit", "DeiTForImageClassification", picture, VISION),
        ("BEiT", "beit", "BeitForImageClassification", picture, VISION),
        ("DINOv2", "dinov2", "Dinov2ForImageClassification", picture, VISION),
        ("SigLIP", "siglip_vision_model", "SiglipVisionModel", picture, VISION),
        ("Swin", "swin", "SwinForImageClassification", picture, swin),
        ("Swin v2", "swinv2", "Swinv2ForImageClassification", picture, swin),
        ("ConvNeXt", "convnext", "ConvNextForImageClassification", picture, convnext),
        ("ConvNeXt v2", "convnextv2", "ConvNextV2ForImageClassification", picture, convnext),
        ("SegFormer", "segformer", "SegformerForSemanticSegmentation", picture, segformer),
        ("MobileViT", "mobilevit", "MobileViTForImageClassification", picture,
         {"hidden_sizes": [16, 24, 32], "neck_hidden_sizes": [8, 8, 16, 16, 24, 32, 48],
          "image_size": 32}),
        ("PoolFormer", "poolformer", "PoolFormerForImageClassification", picture,
         {"hidden_sizes": [8, 16, 24, 32], "depths": [1, 1, 1, 1]}),
        ("RegNet", "regnet", "RegNetForImageClassification", picture,
         {"embedding_size": 8, "hidden_sizes": [8, 16, 24, 32], "depths": [1, 1, 1, 1],
          "groups_width": 8}),
    ]  # fmt: skip
    found += [
        Public("transformers", title, partial(of_transformers, kind, head, inputs, **sizes))
        for title, kind, head, inputs, sizes in rest
    ]
    return [
        *found,
        Public("transformers", "Whisper", whisper),
        Public("transformers", "CLIP", clip),
    ]


# -- timm and torchvision --------------------------------------------------------------------------


def vision_packages() -> bool:
    """Whether torchvision and timm can be imported; their compiled operators are not needed."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            name = "torchvision._meta_registrations"  # of operators that were built for CUDA
            sys.modules.setdefault(name, types.ModuleType(name))
            importlib.import_module("torchvision")
            importlib.import_module("timm")
        return True
    except ImportError:
        return False


def of_timm(name: str, size: int, /, **sizes: Any) -> Built:
    timm = importlib.import_module("timm")
    return timm.create_model(name, pretrained=False, num_classes=10, **sizes), picture(size)


def of_torchvision(name: str, size: int) -> Built:
    models = importlib.import_module("torchvision.models")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = getattr(models, name)(num_classes=10)
    return model, picture(size)


def vision_models() -> list[Public]:
    named = [
        ("MLP-Mixer", "mixer_s32_224", 224, {}),
        ("ResMLP", "resmlp_12_224", 64, {"img_size": 64}),
        ("EfficientNet", "efficientnet_b0", 32, {}),
        ("MobileNetV3", "mobilenetv3_small_100", 32, {}),
        ("ResNeSt", "resnest14d", 32, {}),
        ("CaiT", "cait_xxs24_224", 32,
         {"img_size": 32, "patch_size": 8, "embed_dim": 32, "depth": 2, "num_heads": 4}),
        ("MaxViT", "maxvit_rmlp_pico_rw_256", 64, {"img_size": 64}),
        ("CoAtNet", "coatnet_nano_rw_224", 64, {"img_size": 64}),
        ("EVA", "eva02_tiny_patch14_224", 28,
         {"img_size": 28, "embed_dim": 48, "depth": 2, "num_heads": 4}),
        ("GhostNet", "ghostnet_100", 32, {}),
    ]  # fmt: skip
    found = [
        Public("timm", title, partial(of_timm, name, size, **own))
        for title, name, size, own in named
    ]
    plain = [
        ("ResNet-18", "resnet18", 32), ("DenseNet-121", "densenet121", 32),
        ("MobileNetV2", "mobilenet_v2", 32), ("ShuffleNetV2", "shufflenet_v2_x0_5", 32),
        ("SqueezeNet", "squeezenet1_1", 32), ("MNASNet", "mnasnet0_5", 32),
        ("GoogLeNet", "googlenet", 32),
    ]  # fmt: skip
    found += [
        Public("torchvision", title, partial(of_torchvision, name, size))
        for title, name, size in plain
    ]
    return found


# -- torch's own layers, and well-known networks that no package here holds ------------------------


class Recurrent(nn.Module):
    """Tokens, an embedding, a recurrent layer, a head on the last state."""

    def __init__(self, kind: Callable[..., nn.RNNBase]) -> None:
        super().__init__()
        self.embedding = nn.Embedding(WORDS, 16)
        self.cells = kind(16, 24, num_layers=2, batch_first=True, bidirectional=True)
        self.head = nn.Linear(48, 5)

    def forward(self, ids: Tensor) -> Tensor:
        found: Tensor = self.head(self.cells(self.embedding(ids))[0][:, -1])
        return found


class Bag(nn.Module):
    """fastText: the mean of the tokens' vectors, and a linear head."""

    def __init__(self) -> None:
        super().__init__()
        self.bag = nn.EmbeddingBag(WORDS, 16, mode="mean")
        self.head = nn.Linear(16, 4)

    def forward(self, ids: Tensor) -> Tensor:
        found: Tensor = self.head(self.bag(ids))
        return found


class SpatialTransformer(nn.Module):
    """A network that predicts how to turn and scale its picture, then classifies it."""

    def __init__(self) -> None:
        super().__init__()
        self.localize = nn.Sequential(
            nn.Conv2d(1, 4, 5, 2), nn.ReLU(), nn.Flatten(), nn.Linear(4 * 36, 16), nn.ReLU(),
            nn.Linear(16, 6),
        )  # fmt: skip
        self.classify = nn.Sequential(
            nn.Conv2d(1, 6, 3, 2), nn.ReLU(), nn.Flatten(), nn.Linear(6 * 49, 10)
        )

    def forward(self, x: Tensor) -> Tensor:
        theta = self.localize(x).view(-1, 2, 3)
        where = F.affine_grid(theta, list(x.shape), align_corners=False)
        found: Tensor = self.classify(F.grid_sample(x, where, align_corners=False))
        return found


class GlobalFilter(nn.Module):
    """GFNet: a learned filter in the frequency domain, between two channel layers."""

    def __init__(self, size: int = 8, width: int = 12) -> None:
        super().__init__()
        self.first = nn.Linear(3, width)
        self.filter = nn.Parameter(torch.randn(size, size // 2 + 1, width, 2) * 0.1)
        self.last = nn.Linear(width, 5)

    def forward(self, x: Tensor) -> Tensor:
        h = self.first(x.permute(0, 2, 3, 1))
        waves = torch.fft.rfft2(h, dim=(1, 2), norm="ortho")
        waves = waves * torch.view_as_complex(self.filter)
        h = torch.fft.irfft2(waves, s=h.shape[1:3], dim=(1, 2), norm="ortho")
        found: Tensor = self.last(h.mean((1, 2)))
        return found


class UNet(nn.Module):
    """Down twice, up twice, with skips."""

    def __init__(self, width: int = 8) -> None:
        super().__init__()

        def block(a: int, b: int) -> nn.Module:
            return nn.Sequential(
                nn.Conv2d(a, b, 3, padding=1), nn.BatchNorm2d(b), nn.ReLU(),
                nn.Conv2d(b, b, 3, padding=1), nn.BatchNorm2d(b), nn.ReLU(),
            )  # fmt: skip

        self.down1, self.down2 = block(3, width), block(width, 2 * width)
        self.bottom = block(2 * width, 4 * width)
        self.up2 = nn.ConvTranspose2d(4 * width, 2 * width, 2, 2)
        self.join2 = block(4 * width, 2 * width)
        self.up1 = nn.ConvTranspose2d(2 * width, width, 2, 2)
        self.join1 = block(2 * width, width)
        self.head = nn.Conv2d(width, 4, 1)

    def forward(self, x: Tensor) -> Tensor:
        a = self.down1(x)
        b = self.down2(F.max_pool2d(a, 2))
        c = self.bottom(F.max_pool2d(b, 2))
        b = self.join2(torch.cat([b, self.up2(c)], 1))
        found: Tensor = self.head(self.join1(torch.cat([a, self.up1(b)], 1)))
        return found


class WaveNet(nn.Module):
    """Dilated causal convolutions with gates, residual and skip connections."""

    def __init__(self, width: int = 12, layers: int = 4) -> None:
        super().__init__()
        self.first = nn.Conv1d(1, width, 1)
        self.gates = nn.ModuleList(
            nn.Conv1d(width, 2 * width, 2, dilation=2**i) for i in range(layers)
        )
        self.back = nn.ModuleList(nn.Conv1d(width, width, 1) for _ in range(layers))
        self.skip = nn.ModuleList(nn.Conv1d(width, width, 1) for _ in range(layers))
        self.head = nn.Conv1d(width, 16, 1)

    def forward(self, x: Tensor) -> Tensor:
        x, total = self.first(x), torch.zeros(())
        for i, (gate, back, skip) in enumerate(zip(self.gates, self.back, self.skip, strict=True)):
            a, b = gate(F.pad(x, (2**i, 0))).chunk(2, 1)
            h = torch.tanh(a) * torch.sigmoid(b)
            x, total = x + back(h), total + skip(h)
        found: Tensor = self.head(F.relu(total))
        return found


class Chomp(nn.Module):
    """Weight-normalised causal convolution of a TCN."""

    def __init__(self, fan_in: int, fan_out: int, dilation: int) -> None:
        super().__init__()
        norm = torch.nn.utils.parametrizations.weight_norm
        self.conv = norm(nn.Conv1d(fan_in, fan_out, 3, padding=2 * dilation, dilation=dilation))
        self.cut = 2 * dilation
        self.side = nn.Conv1d(fan_in, fan_out, 1)

    def forward(self, x: Tensor) -> Tensor:
        found: Tensor = F.relu(self.conv(x)[..., : -self.cut]) + self.side(x)
        return found


class MatrixFactors(nn.Module):
    """Users times items: a recommender with two embeddings."""

    def __init__(self) -> None:
        super().__init__()
        self.users, self.items = nn.Embedding(40, 8), nn.Embedding(50, 8)
        self.deep = nn.Sequential(nn.Linear(16, 16), nn.ReLU(), nn.Linear(16, 1))

    def forward(self, user: Tensor, item: Tensor) -> Tensor:
        u, v = self.users(user), self.items(item)
        found: Tensor = (u * v).sum(-1, keepdim=True) + self.deep(torch.cat([u, v], -1))
        return found


def torch_models() -> list[Public]:
    def transformer() -> Built:
        model = nn.Transformer(32, 4, 2, 2, 64, batch_first=True)
        return model, (torch.randn(1, 8, 32), torch.randn(1, 6, 32))

    def tcn() -> Built:
        body = nn.Sequential(Chomp(3, 12, 1), Chomp(12, 12, 2), Chomp(12, 12, 4))
        return nn.Sequential(body, nn.AdaptiveAvgPool1d(1), nn.Flatten(), nn.Linear(12, 5)), (
            torch.randn(1, 3, 24)
        )

    def autoencoder() -> Built:
        return nn.Sequential(
            nn.Conv2d(1, 8, 3, 2, 1), nn.ReLU(), nn.Conv2d(8, 16, 3, 2, 1), nn.ReLU(),
            nn.ConvTranspose2d(16, 8, 4, 2, 1), nn.ReLU(), nn.ConvTranspose2d(8, 1, 4, 2, 1),
        ), torch.randn(1, 1, 16, 16)  # fmt: skip

    def zero_head() -> Built:
        model = nn.Sequential(
            nn.Linear(512, 512), nn.ReLU(), nn.Linear(512, 512), nn.ReLU(), nn.Linear(512, 10)
        )
        nn.init.zeros_(model[-1].weight)  # type: ignore[arg-type]
        return model, torch.randn(1, 512)

    rows: list[tuple[str, Callable[[], Built]]] = [
        ("nn.Transformer", transformer),
        ("LSTM", lambda: (Recurrent(nn.LSTM), tokens())),
        ("GRU", lambda: (Recurrent(nn.GRU), tokens())),
        ("EmbeddingBag", lambda: (Bag(), tokens())),
        ("Spatial transformer", lambda: (SpatialTransformer(), torch.randn(1, 1, 16, 16))),
        ("GFNet filter", lambda: (GlobalFilter(), picture(8))),
        ("U-Net", lambda: (UNet(), picture(16))),
        ("WaveNet", lambda: (WaveNet(), torch.randn(1, 1, 24))),
        ("TCN", tcn),
        ("Autoencoder", autoencoder),
        ("Recommender", lambda: (MatrixFactors(), (torch.tensor([3]), torch.tensor([4])))),
        ("MLP, zero head", zero_head),
    ]
    return [Public("torch", title, make) for title, make in rows]


# -- PyTorch Geometric -----------------------------------------------------------------------------


class OnGraph(nn.Module):
    """Two layers of a graph network and a head per node; the graph is an input."""

    def __init__(self, layer: str, width: int = 12, **sizes: Any) -> None:
        super().__init__()
        kind = getattr(importlib.import_module("torch_geometric.nn"), layer)
        if layer == "GINConv":
            self.first, self.last = kind(nn.Linear(6, width)), kind(nn.Linear(width, 4))
        else:
            self.first, self.last = kind(6, width, **sizes), kind(width, 4, **sizes)

    def forward(self, x: Tensor, edges: Tensor) -> Tensor:
        found: Tensor = self.last(F.relu(self.first(x, edges)), edges)
        return found


def on_graph(layer: str, sizes: dict[str, Any]) -> Built:
    edges = torch.tensor([[0, 1, 1, 2, 2, 3, 3, 4, 4, 0], [1, 0, 2, 1, 3, 2, 4, 3, 0, 4]])
    return OnGraph(layer, **sizes), (torch.randn(5, 6), edges)


def graph_models() -> list[Public]:
    layers: list[tuple[str, dict[str, Any]]] = [
        ("GCNConv", {}), ("GATv2Conv", {}), ("SAGEConv", {}), ("GINConv", {}), ("GraphConv", {}),
        ("ChebConv", {"K": 2}), ("TransformerConv", {}),
    ]  # fmt: skip
    return [
        Public("torch-geometric", layer, partial(on_graph, layer, sizes)) for layer, sizes in layers
    ]


def public_models() -> list[Public]:
    """Every architecture whose package is installed."""
    found = [*torch_models(), *transformers_models()]
    found += graph_models()
    return found + (vision_models() if vision_packages() else [])
