"""The head on label-free features: one hidden layer, seconds on a CPU.

>>> sum(p.numel() for p in mlp(640, n_classes=10, hidden=256).parameters())
167178
"""

from __future__ import annotations

from torch import nn


def mlp(n_features: int, *, n_classes: int, hidden: int = 256, dropout: float = 0.2) -> nn.Sequential:
    """Return Linear, BatchNorm, ReLU, Dropout, Linear."""
    return nn.Sequential(
        nn.Linear(n_features, hidden),
        nn.BatchNorm1d(hidden),
        nn.ReLU(),
        nn.Dropout(dropout),
        nn.Linear(hidden, n_classes),
    )
