"""Neural collaborative filtering for ratings as classes: two branches over users and items.

One branch multiplies an embedding of the user with one of the item (generalised matrix factorisation), the other puts two
further embeddings side by side through hidden layers; a linear layer reads both.

>>> import torch
>>> network = NeuralCollaborativeFiltering(4, 6, n_classes=5)
>>> network(torch.tensor([[0, 5], [3, 0], [99, 2]])).shape
torch.Size([3, 5])

References: He, Liao, Zhang, Nie, Hu, Chua, "Neural Collaborative Filtering" (2017).

Design notes. Numbers beyond those of training share one extra embedding, which stays at zero: the network then answers from
the other side. `embed` and `head` are apart because mixup cannot mix numbers: it mixes what `embed` returns.
"""

from __future__ import annotations

from typing import cast

import torch
from torch import Tensor, nn

#: Spread of the first embeddings: small, so that a pair begins near the mean rating.
SPREAD = 0.05


class NeuralCollaborativeFiltering(nn.Module):
    """Two branches over (user, item) numbers, n x 2."""

    def __init__(
        self,
        n_users: int,
        n_items: int,
        *,
        n_classes: int,
        dimensions: int = 16,
        hidden: int = 32,
        dropout: float = 0.2,
    ) -> None:
        super().__init__()
        self.users = _embedding(n_users, 2 * dimensions)
        self.items = _embedding(n_items, 2 * dimensions)
        self.tower = nn.Sequential(
            nn.Linear(2 * dimensions, hidden), nn.ReLU(), nn.Dropout(dropout), nn.Linear(hidden, hidden), nn.ReLU()
        )
        self.output = nn.Linear(dimensions + hidden, n_classes)

    def embed(self, pairs: Tensor) -> Tensor:
        """Return the product of the first halves beside the second halves, (n, 3 dimensions)."""
        users, items = (
            table(pairs[:, side].clamp(max=table.num_embeddings - 1))
            for side, table in enumerate((self.users, self.items))
        )
        half = users.shape[1] // 2
        return torch.cat([users[:, :half] * items[:, :half], users[:, half:], items[:, half:]], dim=1)

    def head(self, embedded: Tensor) -> Tensor:
        """Return the logits of what `embed` returned."""
        third = embedded.shape[1] // 3
        deep = self.tower(embedded[:, third:])
        return cast("Tensor", self.output(torch.cat([embedded[:, :third], deep], dim=1)))

    def forward(self, pairs: Tensor) -> Tensor:
        """Return logits (n, K)."""
        return self.head(self.embed(pairs.long()))


def _embedding(count: int, width: int) -> nn.Embedding:
    """Return an embedding with one more row, at zero, for what training never saw."""
    table = nn.Embedding(count + 1, width, padding_idx=count)
    nn.init.normal_(table.weight, std=SPREAD)
    with torch.no_grad():
        table.weight[count].zero_()
    return table
