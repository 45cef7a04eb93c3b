"""The networks that come with Muster."""

from typing import List, Tuple

import torch
from torch import nn


class CNN(nn.Module):
    """A small convolutional network for images of 8 by 8 pixels and more: blocks that halve the size, then their mean or a few pixels."""

    def __init__(self, shape: "Tuple[int, int, int]", classes: int, width: int = 32) -> None:
        super().__init__()
        channels, high, wide = shape
        blocks: "List[nn.Module]" = []
        while min(high, wide) >= 4 and len(blocks) < 5:
            blocks.append(_block(channels, width))
            channels, width = width, min(width * 2, 256)
            high, wide = high // 2, wide // 2
        self.body = nn.Sequential(*blocks)
        pooled = high * wide > 16
        self.head = nn.Sequential(_Mean() if pooled else nn.Flatten(), nn.Dropout(0.25), nn.Linear(channels if pooled else channels * high * wide, classes or 1))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(self.body(x))  # type: ignore[no-any-return]


def _block(channels: int, width: int) -> nn.Module:
    return nn.Sequential(nn.Conv2d(channels, width, 3, padding=1, bias=False), nn.BatchNorm2d(width), nn.ReLU(), nn.MaxPool2d(2))


class _Mean(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x.mean((2, 3))


class MLP(nn.Module):
    """Layers of neurons for examples of any shape."""

    def __init__(self, shape: "Tuple[int, ...]", classes: int, hidden: "Tuple[int, ...]" = (128, 64)) -> None:
        super().__init__()
        size = 1
        for n in shape:
            size *= n
        layers: "List[nn.Module]" = [nn.Flatten()]
        for n in hidden:
            layers += [nn.Linear(size, n), nn.ReLU(), nn.Dropout(0.1)]
            size = n
        self.layers = nn.Sequential(*layers, nn.Linear(size, classes or 1))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.layers(x)  # type: ignore[no-any-return]
