"""Models written with the names that torch and Nova share.

Residual networks, inverted residuals with squeeze and excitation (MobileNetV3), a U-Net, a
variational autoencoder, a DCGAN and a vision transformer. Every class takes its layers from `nn`
and its functions from `lib`, so that a test can run the same source with torch.

    python examples/model_zoo.py
"""

from __future__ import annotations

from typing import Any

import numpy as np

import nova as lib
from nova import nn

# --- ResNet (He et al., 2015) ---------------------------------------------------------------------


class ResidualBlock(nn.Module):
    """Two convolutions and a shortcut."""

    def __init__(self, channels: int, width: int, stride: int = 1):
        super().__init__()
        self.conv1 = nn.Conv2d(channels, width, 3, stride, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(width)
        self.conv2 = nn.Conv2d(width, width, 3, 1, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(width)
        self.shortcut = nn.Sequential()
        if stride != 1 or channels != width:
            self.shortcut = nn.Sequential(
                nn.Conv2d(channels, width, 1, stride, bias=False), nn.BatchNorm2d(width)
            )

    def forward(self, x: Any) -> Any:
        y = lib.relu(self.bn1(self.conv1(x)))
        return lib.relu(self.bn2(self.conv2(y)) + self.shortcut(x))


class Bottleneck(nn.Module):
    """A convolution of 3 x 3 between two of 1 x 1, the last four times as wide, and a shortcut."""

    def __init__(self, channels: int, width: int, stride: int = 1):
        super().__init__()
        self.layers = nn.Sequential(
            nn.Conv2d(channels, width, 1, bias=False), nn.BatchNorm2d(width), nn.ReLU(),
            nn.Conv2d(width, width, 3, stride, 1, bias=False), nn.BatchNorm2d(width), nn.ReLU(),
            nn.Conv2d(width, 4 * width, 1, bias=False), nn.BatchNorm2d(4 * width),
        )  # fmt: skip
        self.shortcut = nn.Sequential()
        if stride != 1 or channels != 4 * width:
            self.shortcut = nn.Sequential(
                nn.Conv2d(channels, 4 * width, 1, stride, bias=False), nn.BatchNorm2d(4 * width)
            )

    def forward(self, x: Any) -> Any:
        return lib.relu(self.layers(x) + self.shortcut(x))


class ResNet(nn.Module):
    """Stages of residual blocks.

    `(2, 2, 2, 2)` and a width of 64 is ResNet-18; `(3, 4, 6, 3)` bottlenecks are ResNet-50.
    """

    def __init__(
        self,
        blocks: tuple[int, ...] = (2, 2, 2, 2),
        width: int = 64,
        classes: int = 10,
        bottleneck: bool = False,
    ):
        super().__init__()
        self.stem = nn.Sequential(
            nn.Conv2d(3, width, 3, 1, 1, bias=False), nn.BatchNorm2d(width), nn.ReLU()
        )
        stages, channels = [], width
        for i, count in enumerate(blocks):
            for j in range(count):
                stride = 2 if i and not j else 1
                block = Bottleneck if bottleneck else ResidualBlock
                stages.append(block(channels, width << i, stride))
                channels = (width << i) * (4 if bottleneck else 1)
        self.stages = nn.Sequential(*stages)
        self.head = nn.Linear(channels, classes)

    def forward(self, x: Any) -> Any:
        return self.head(self.stages(self.stem(x)).mean((2, 3)))


# --- MobileNetV3 (Howard et al., 2019) ------------------------------------------------------------


class InvertedResidual(nn.Module):
    """Expand, depthwise convolution, squeeze and excitation, project."""

    def __init__(self, channels: int, expanded: int, kernel: int = 3):
        super().__init__()
        self.expand = nn.Sequential(
            nn.Conv2d(channels, expanded, 1, bias=False), nn.BatchNorm2d(expanded), nn.Hardswish()
        )
        self.depthwise = nn.Sequential(
            nn.Conv2d(expanded, expanded, kernel, 1, kernel // 2, groups=expanded, bias=False),
            nn.BatchNorm2d(expanded),
            nn.Hardswish(),
        )
        self.excite = nn.Sequential(
            nn.AdaptiveAvgPool2d(1),
            nn.Conv2d(expanded, max(1, expanded // 4), 1),
            nn.ReLU(),
            nn.Conv2d(max(1, expanded // 4), expanded, 1),
            nn.Hardsigmoid(),
        )
        self.project = nn.Sequential(
            nn.Conv2d(expanded, channels, 1, bias=False), nn.BatchNorm2d(channels)
        )

    def forward(self, x: Any) -> Any:
        y = self.depthwise(self.expand(x))
        return x + self.project(y * self.excite(y))


class MobileNet(nn.Module):
    """A stem, inverted residuals, and a classifier."""

    def __init__(self, width: int = 16, blocks: int = 3, classes: int = 10):
        super().__init__()
        self.stem = nn.Sequential(
            nn.Conv2d(3, width, 3, 2, 1, bias=False), nn.BatchNorm2d(width), nn.Hardswish()
        )
        self.blocks = nn.Sequential(*[InvertedResidual(width, 4 * width) for _ in range(blocks)])
        self.head = nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(width, classes))

    def forward(self, x: Any) -> Any:
        return self.head(self.blocks(self.stem(x)))


# --- U-Net (Ronneberger et al., 2015) -------------------------------------------------------------


class UNet(nn.Module):
    """Down by pooling, up by transposed convolutions, with connections across."""

    def __init__(self, channels: int = 3, width: int = 16, classes: int = 2):
        super().__init__()

        def double(inputs: int, outputs: int) -> Any:
            return nn.Sequential(
                nn.Conv2d(inputs, outputs, 3, padding=1), nn.GroupNorm(4, outputs), nn.SiLU(),
                nn.Conv2d(outputs, outputs, 3, padding=1), nn.GroupNorm(4, outputs), nn.SiLU(),
            )  # fmt: skip

        self.down1, self.down2 = double(channels, width), double(width, 2 * width)
        self.middle = double(2 * width, 4 * width)
        self.up2 = nn.ConvTranspose2d(4 * width, 2 * width, 2, 2)
        self.merge2 = double(4 * width, 2 * width)
        self.up1 = nn.ConvTranspose2d(2 * width, width, 2, 2)
        self.merge1 = double(2 * width, width)
        self.pool = nn.MaxPool2d(2)
        self.head = nn.Conv2d(width, classes, 1)

    def forward(self, x: Any) -> Any:
        first = self.down1(x)
        second = self.down2(self.pool(first))
        y = self.up2(self.middle(self.pool(second)))
        y = self.up1(self.merge2(lib.cat([y, second], 1)))
        return self.head(self.merge1(lib.cat([y, first], 1)))


# --- variational autoencoder (Kingma and Welling, 2013) -------------------------------------------


class VAE(nn.Module):
    """The mean and log variance of a code, and its decoder; the noise is an argument."""

    def __init__(self, features: int = 64, hidden: int = 32, code: int = 4):
        super().__init__()
        self.encoder = nn.Sequential(nn.Linear(features, hidden), nn.ReLU())
        self.mean, self.log_variance = nn.Linear(hidden, code), nn.Linear(hidden, code)
        self.decoder = nn.Sequential(
            nn.Linear(code, hidden), nn.ReLU(), nn.Linear(hidden, features), nn.Sigmoid()
        )

    def forward(self, x: Any, noise: Any) -> Any:
        """The negative evidence lower bound per example."""
        hidden = self.encoder(x)
        mean, log_variance = self.mean(hidden), self.log_variance(hidden)
        decoded = self.decoder(mean + lib.exp(log_variance * 0.5) * noise)
        error = ((decoded - x) ** 2).sum(-1)
        divergence = (lib.exp(log_variance) + mean**2 - 1.0 - log_variance).sum(-1) * 0.5
        return (error + divergence).mean()


# --- DCGAN (Radford et al., 2015) -----------------------------------------------------------------


class Generator(nn.Module):
    """Noise to an image of 16 x 16, by transposed convolutions."""

    def __init__(self, noise: int = 8, width: int = 8):
        super().__init__()
        self.layers = nn.Sequential(
            nn.ConvTranspose2d(noise, 2 * width, 4, 1, 0, bias=False),
            nn.BatchNorm2d(2 * width),
            nn.ReLU(),
            nn.ConvTranspose2d(2 * width, width, 4, 2, 1, bias=False),
            nn.BatchNorm2d(width),
            nn.ReLU(),
            nn.ConvTranspose2d(width, 1, 4, 2, 1),
            nn.Tanh(),
        )

    def forward(self, z: Any) -> Any:
        return self.layers(z)


class Discriminator(nn.Module):
    """The logit that an image is real."""

    def __init__(self, width: int = 8):
        super().__init__()
        self.layers = nn.Sequential(
            nn.Conv2d(1, width, 4, 2, 1), nn.LeakyReLU(0.2),
            nn.Conv2d(width, 2 * width, 4, 2, 1), nn.LeakyReLU(0.2),
            nn.Flatten(), nn.Linear(32 * width, 1),
        )  # fmt: skip

    def forward(self, x: Any) -> Any:
        return self.layers(x)


# --- vision transformer (Dosovitskiy et al., 2020) ------------------------------------------------


class ViT(nn.Module):
    """Patches as tokens of a transformer encoder."""

    def __init__(
        self, patch: int = 4, width: int = 32, heads: int = 4, layers: int = 2, classes: int = 10
    ):
        super().__init__()
        self.patches = nn.Conv2d(3, width, patch, patch)
        block = nn.TransformerEncoderLayer(
            width, heads, 2 * width, 0.0, "gelu", batch_first=True, norm_first=True
        )
        self.encoder = nn.TransformerEncoder(block, layers, nn.LayerNorm(width))
        self.head = nn.Linear(width, classes)

    def forward(self, x: Any) -> Any:
        tokens = self.patches(x).flatten(2).swapaxes(1, 2)
        return self.head(self.encoder(tokens).mean(1))


def main(steps: int = 5) -> dict[str, list[float]]:
    """Train each classifier for a few steps; returns their losses."""
    rng = np.random.default_rng(0)
    images = rng.standard_normal((8, 3, 16, 16)).astype("f4")
    labels = rng.integers(0, 10, 8)
    losses = {}
    for model in (ResNet((1, 1), 8), MobileNet(8, 2), ViT()):
        step = lib.train_step(
            model,
            lambda m, x, y: lib.cross_entropy(m(x), y),
            lib.optim.AdamW(model.parameters(), 3e-3),
        )
        name = type(model).__name__
        losses[name] = [float(step(images, labels)) for _ in range(steps)]
        print(f"{name:10} {losses[name][0]:.3f} -> {losses[name][-1]:.3f}")
    return losses


if __name__ == "__main__":
    main()
