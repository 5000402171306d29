"""What a network is trained to explain, as a value and a gradient in the logits.

With logits z, p = softmax(z) and B examples in a batch (all means over the batch):

    plain     -log p_y                           gradient p - e_y
    soft      -sum_k q_k log p_k, sum_k q_k = 1   gradient p - q           (posterior targets, and signed unbiased ones)
    forward   -log sum_k p_k l_k                 gradient p - r,  r_k = p_k l_k / sum_j p_j l_j

The forward loss is log sum exp(z) - log sum exp(z + log l). Both sums share one exponential: with e = exp(z - max z) it is
log sum e - log sum e l, and r = e l / sum e l. Where every e_k with l_k > 0 underflows, the logarithms are used instead.

>>> import torch
>>> z = torch.tensor([[1.0, 0.0]])
>>> value, gradient = forward_loss(z, torch.tensor([[1.0, 0.0]]))
>>> bool(torch.isclose(value, -z.log_softmax(1)[0, 0])), [round(float(g), 4) for g in gradient[0]]
(True, [-0.2689, 0.2689])

Design notes. The gradient in the logits is written out and handed to `backward`: half the work of recording the loss, and
the forward loss costs what cross entropy costs. Mixup adds the losses of the two evidences with weights lam, 1 - lam: for
targets that is the mixed target, for a likelihood it is the mixed log-likelihood.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

#: (logits, evidence of the batch) -> mean loss, its gradient in the logits
Loss = Callable[[Tensor, Tensor], tuple[Tensor, Tensor]]

#: A sum of float32 exponentials below this may have lost its digits to underflow (the smallest normal is 1e-38).
LEAST_SUM = 1e-30


def plain_loss(logits: Tensor, codes: Tensor) -> tuple[Tensor, Tensor]:
    """Return cross entropy with the codes of labels."""
    logarithms = torch.log_softmax(logits, dim=1)
    at = codes[:, None]
    value = -logarithms.gather(1, at).mean()
    gradient = logarithms.exp_().scatter_add_(1, at, logits.new_full((), -1.0).expand(at.shape))
    return value, gradient.div_(len(logits))


def soft_loss(logits: Tensor, targets: Tensor) -> tuple[Tensor, Tensor]:
    """Return cross entropy with targets whose rows sum to one; entries may be negative."""
    logarithms = torch.log_softmax(logits, dim=1)
    value = -(logarithms * targets).sum() / len(logits)
    return value, logarithms.exp_().sub_(targets).div_(len(logits))


def forward_loss(logits: Tensor, likelihood: Tensor) -> tuple[Tensor, Tensor]:
    """Return -log of the chance of what was observed; `likelihood` (n, K) is that chance under each label."""
    mass = (logits - logits.amax(dim=1, keepdim=True)).exp_()
    explained = mass * likelihood
    total, reached = mass.sum(dim=1, keepdim=True), explained.sum(dim=1, keepdim=True)
    if reached.amin() < LEAST_SUM:
        return _forward_by_logarithms(logits, likelihood)
    value = (total.log() - reached.log()).mean()
    gradient = mass.div_(total).sub_(explained.div_(reached))
    return value, gradient.div_(len(logits))


def _forward_by_logarithms(logits: Tensor, likelihood: Tensor) -> tuple[Tensor, Tensor]:
    """Return the same without underflow, for two exponentials."""
    explained = logits + likelihood.log()
    value = (torch.logsumexp(logits, dim=1) - torch.logsumexp(explained, dim=1)).mean()
    gradient = torch.softmax(logits, dim=1).sub_(torch.softmax(explained, dim=1))
    return value, gradient.div_(len(logits))


def weighted_loss(logits: Tensor, evidence: Tensor) -> tuple[Tensor, Tensor]:
    """Return weighted cross entropy; `evidence` (n, 2) holds codes and weights, both as floats."""
    logarithms = torch.log_softmax(logits, dim=1)
    at, weights = evidence[:, :1].long(), evidence[:, 1:]
    value = -(logarithms.gather(1, at) * weights).sum() / len(logits)
    gradient = logarithms.exp_().mul_(weights).scatter_add_(1, at, -weights.to(logits.dtype))
    return value, gradient.div_(len(logits))


LOSSES: dict[str, Loss] = {
    "plain": plain_loss,
    "weighted": weighted_loss,
    "soft": soft_loss,
    "forward": forward_loss,
}


@dataclass(frozen=True, kw_only=True, eq=False)
class Evidence:
    """What is known about the labels of all examples: `values` has a row per example, `kind` says what it means."""

    kind: str
    values: Tensor
    n_classes: int

    def loss(self, logits: Tensor, rows: Tensor, *, keep: float = 1.0) -> tuple[Tensor, Tensor]:
        """Return loss and gradient for a batch; below 1, `keep` mixes each example with the one before it in the batch."""
        function = LOSSES[self.kind]
        batch = self.values.index_select(0, rows).to(logits.device)
        value, gradient = function(logits, batch)
        if keep >= 1.0:
            return value, gradient
        other_value, other_gradient = function(logits, batch.roll(1, 0))
        return torch.lerp(other_value, value, keep), torch.lerp(other_gradient, gradient, keep)
