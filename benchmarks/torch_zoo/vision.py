"""Models of torchvision, and a U-Net. Each entry makes (module, positional args)."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import torch
from torch import nn

Case = tuple[nn.Module, tuple[Any, ...]]


def import_torchvision() -> Any:
    """torchvision; its own operators are declared where its wheel is built for another torch."""
    if not _libraries:
        _libraries.append(torch.library.Library("torchvision", "FRAGMENT"))
        try:
            import torchvision  # a wheel of this torch declares its operators itself
        except RuntimeError:
            for name in [m for m in sys.modules if m.split(".")[0] == "torchvision"]:
                del sys.modules[name]
            for op in ("nms", "qnms"):
                _libraries[0].define(f"{op}(Tensor dets, Tensor scores, float threshold) -> Tensor")
    import torchvision

    return torchvision


_libraries: list[torch.library.Library] = []


class UNet(nn.Module):
    """Ronneberger et al., 2015, with two levels."""

    def __init__(self, width: int = 8):
        super().__init__()
        self.down1, self.down2 = self._block(3, width), self._block(width, 2 * width)
        self.bottom = self._block(2 * width, 4 * width)
        self.up2 = nn.ConvTranspose2d(4 * width, 2 * width, 2, stride=2)
        self.join2 = self._block(4 * width, 2 * width)
        self.up1 = nn.ConvTranspose2d(2 * width, width, 2, stride=2)
        self.join1 = self._block(2 * width, width)
        self.head = nn.Conv2d(width, 2, 1)

    @staticmethod
    def _block(inputs: int, outputs: int) -> nn.Module:
        return nn.Sequential(
            nn.Conv2d(inputs, outputs, 3, padding=1, bias=False),
            nn.BatchNorm2d(outputs),
            nn.ReLU(),
            nn.Conv2d(outputs, outputs, 3, padding=1, bias=False),
            nn.BatchNorm2d(outputs),
            nn.ReLU(),
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        pool = nn.functional.max_pool2d
        a = self.down1(x)
        b = self.down2(pool(a, 2))
        c = self.bottom(pool(b, 2))
        b = self.join2(torch.cat([self.up2(c), b], 1))
        a = self.join1(torch.cat([self.up1(b), a], 1))
        return self.head(a)


def _image(size: int, batch: int = 2) -> torch.Tensor:
    return torch.randn(batch, 3, size, size)


def _classifier(name: str, size: int = 64, batch: int = 2, **options: Any) -> Callable[[], Case]:
    def make() -> Case:
        models = import_torchvision().models
        return getattr(models, name)(weights=None, num_classes=10, **options), (
            _image(size, batch),
        )

    return make


def _resnet(block: str, layers: list[int], **options: Any) -> Callable[[], Case]:
    def make() -> Case:
        resnet = import_torchvision().models.resnet
        net = resnet.ResNet(getattr(resnet, block), layers, num_classes=10, **options)
        return net, (_image(64),)

    return make


def _densenet() -> Case:
    net = import_torchvision().models.densenet.DenseNet(8, (2, 2, 2), 16, num_classes=10)
    return net, (_image(64),)


def _convnext() -> Case:
    convnext = import_torchvision().models.convnext
    blocks = [
        convnext.CNBlockConfig(16, 32, 1),
        convnext.CNBlockConfig(32, 64, 1),
        convnext.CNBlockConfig(64, None, 1),
    ]
    return convnext.ConvNeXt(blocks, num_classes=10), (_image(64),)


def _swin(block: str = "SwinTransformerBlock") -> Callable[[], Case]:
    def make() -> Case:
        swin = import_torchvision().models.swin_transformer
        merging = swin.PatchMergingV2 if block.endswith("V2") else swin.PatchMerging
        net = swin.SwinTransformer(
            [4, 4],
            16,
            [2, 2],
            [2, 4],
            [4, 4],
            stochastic_depth_prob=0.0,
            num_classes=10,
            block=getattr(swin, block),
            downsample_layer=merging,
        )
        return net, (_image(32),)

    return make


def _vit() -> Case:
    vit = import_torchvision().models.vision_transformer
    return vit.VisionTransformer(32, 8, 2, 4, 32, 64, num_classes=10), (_image(32),)


def _maxvit() -> Case:
    maxvit = import_torchvision().models.maxvit
    net = maxvit.MaxVit((64, 64), 16, 4, [16, 32], [1, 1], 8, 0.0, num_classes=10)
    return net, (_image(64),)


def _segmentation(name: str) -> Callable[[], Case]:
    def make() -> Case:
        models = import_torchvision().models.segmentation
        net = getattr(models, name)(weights=None, weights_backbone=None, num_classes=4)
        return net, (_image(64),)

    return make


def _video() -> Case:
    net = import_torchvision().models.video.r3d_18(weights=None, num_classes=5)
    return net, (torch.randn(1, 3, 4, 24, 24),)


MODELS: dict[str, Callable[[], Case]] = {
    "resnet18": _resnet("BasicBlock", [2, 2, 2, 2]),
    "resnet50 (1 block a stage)": _resnet("Bottleneck", [1, 1, 1, 1]),
    "resnext (1 block a stage)": _resnet("Bottleneck", [1, 1, 1, 1], groups=32, width_per_group=4),
    "densenet": _densenet,
    "mobilenet_v2": _classifier("mobilenet_v2", width_mult=0.25),
    "mobilenet_v3_small": _classifier("mobilenet_v3_small", width_mult=0.5),
    "mnasnet0_5": _classifier("mnasnet0_5"),
    "shufflenet_v2": _classifier("shufflenet_v2_x0_5"),
    "squeezenet1_1": _classifier("squeezenet1_1"),
    "efficientnet_b0": _classifier("efficientnet_b0", stochastic_depth_prob=0.0),
    "regnet_y_400mf": _classifier("regnet_y_400mf"),
    "vgg11_bn": _classifier("vgg11_bn", size=32),
    "alexnet": _classifier("alexnet", size=64),
    "googlenet": _classifier("googlenet", aux_logits=False, init_weights=False),
    "convnext": _convnext,
    "swin": _swin(),
    "swin_v2": _swin("SwinTransformerBlockV2"),
    "vit": _vit,
    "maxvit": _maxvit,
    "lraspp_mobilenet": _segmentation("lraspp_mobilenet_v3_large"),
    "r3d_18": _video,
    "unet": lambda: (UNet(), (_image(32),)),
}
