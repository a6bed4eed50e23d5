"""A recurrent network that tags the words of sentences, in Nova and in torch, of equal weights."""

from __future__ import annotations

from typing import Any

import torch

from nova import nn


class Tagger(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.lstm = nn.LSTM(6, 10, batch_first=True)
        self.out = nn.Linear(10, 3)

    def forward(self, x: Any) -> Any:
        return self.out(self.lstm(x)[0])


class TorchTagger(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.lstm = torch.nn.LSTM(6, 10, batch_first=True)
        self.out = torch.nn.Linear(10, 3)

    def forward(self, x: Any) -> Any:
        return self.out(self.lstm(x)[0])


def taggers() -> tuple[Tagger, TorchTagger]:
    torch.manual_seed(3)
    mine, theirs = Tagger(), TorchTagger()
    mine.load_state_dict({name: p.detach().numpy() for name, p in theirs.state_dict().items()})
    return mine, theirs
