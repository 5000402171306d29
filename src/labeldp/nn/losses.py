"""The losses of what was released: modules for a training loop of your own, and what `NetClassifier` itself follows.

>>> loss = ForwardLoss()
>>> logits = torch.tensor([[2.0, 0.0, -1.0], [0.0, 1.0, 0.0]], requires_grad=True)
>>> likelihood = torch.tensor([[0.6, 0.2, 0.2], [0.2, 0.2, 0.6]])  # Pr[what was released | label k], a row per example
>>> value = loss(logits, likelihood)
>>> value.backward()
>>> bool(torch.allclose(value, -(logits.softmax(1) * likelihood).sum(1).log().mean()))
True

With logits z, p = softmax(z), and of one example:

| loss | evidence, a row of K numbers | value | gradient in z |
|---|---|---|---|
| `ForwardLoss` | l_k = Pr[what was released given label k] | -log sum_k p_k l_k | p - r,  r_k = p_k l_k / sum_j p_j l_j |
| `UnbiasedLoss` | signed targets t, sum_k t_k = 1, of mean one-hot | -sum_k t_k log p_k | p - t |
| `PosteriorLoss` | l_k, and a prior q | -sum_k s_k log p_k,  s_k = q_k l_k / sum_j q_j l_j | p - s |

*Which.* The forward loss is the likelihood of what was released: it is right in the limit of many examples, bounded below, and takes
every kind of release (labels, candidate sets, sets of labels, arcs, matrices). The unbiased loss has the clean loss as its mean,
over the noise, and is not bounded below: a network that fits single examples drives it to minus infinity. It needs a channel
that can be inverted. The posterior loss trains on what is believed of each label. With a prior that is a model's own
prediction it is a step of EM, and its gradient is that of the forward loss where the model is the one that is trained.

`release.dataset(X)` yields the evidence of each example: likelihoods, or with `evidence="unbiased"` the signed targets.

**Privacy.** A release is all that these losses see. Whatever is trained with them is post-processing of it: nothing is spent.

*Numbers.* The forward loss is one softmax, a product and a sum. Where every p_k with l_k > 0 underflows, it is
log sum exp(z) - log sum exp(z + log l) instead. Logits of half precision are brought to float32 first: under autocast a network may compute as it likes, its loss does not.

References: Patrini, Rozza, Menon, Nock, Qu, "Making Deep Neural Networks Robust to Label Noise" (2017), for the forward loss;
Natarajan, Dhillon, Ravikumar, Tewari, "Learning with Noisy Labels" (2013), for the unbiased one.

Design notes. Values and gradients of rows are written out in one place, the functions at the end of this file; half the work of
recording the loss. `NetClassifier` hands the gradient to `backward` itself, and the modules hand it to autograd. Who differentiates
twice (`create_graph=True`) is given the gradient again, recorded. Evidence is followed by no gradient: it is public and fixed.
A look at its values costs a few small operations; where it lies on a GPU it makes the processor wait, so hand it over as the
loader gives it, on the CPU, or say `check=False`.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.utils.data import Dataset

from labeldp.errors import Described, invalid
from labeldp.release import ReleasedItems
from labeldp.validate import check_choice


class ReleasedDataset(ReleasedItems, Dataset[Any]):
    """What `release.dataset(X)` returns, as a `torch.utils.data.Dataset`: for libraries that ask whether something is one."""


REDUCTIONS = ("mean", "sum", "none")
#: Of so many rows of signed targets, some entry is not above 0: of one row, an answer that says nothing may have none.
SURE = 16


class RowLoss(nn.Module):
    """What the losses share: the reduction over a batch, weights of examples, and the look at what they are given.

    Parameters
    ----------
    reduction : {"mean", "sum", "none"}
        Of the losses of a batch. Weights multiply them before; the mean is over the number of examples, so that with
        weights of mean 1 over the data set the mean of batches is the weighted mean of all.
    check : bool
        Whether values of the evidence and of weights are looked at; shapes always are. Logits are not: a look at them would make
        the processor wait for a GPU in every step, and NaN in them is NaN in the loss, as with PyTorch's own losses.
    """

    def __init__(self, *, reduction: str = "mean", check: bool = True) -> None:
        super().__init__()
        self.reduction = check_choice(type(self).__name__, "reduction", reduction, REDUCTIONS)
        self.check = bool(check)

    def extra_repr(self) -> str:
        """Return what is not the default."""
        told = [f"reduction={self.reduction!r}"] if self.reduction != "mean" else []
        return ", ".join([*told, *([] if self.check else ["check=False"])])

    def _reduce(self, rows: Tensor, sample_weight: Any) -> Tensor:
        if sample_weight is not None:
            given = torch.as_tensor(sample_weight)
            if given.shape != rows.shape:
                got = Described(f"a tensor of shape {tuple(given.shape)}")
                raise invalid(type(self).__name__, "sample_weight", f"have shape ({len(rows)},)", got=got)
            if self.check:
                check_weights(type(self).__name__, given)
            rows = rows * given.to(rows.device, rows.dtype)
        if self.reduction == "none":
            return rows
        return rows.mean() if self.reduction == "mean" else rows.sum()

    def _check(self, logits: Any, evidence: Any, name: str) -> tuple[Tensor, Tensor]:
        """Return logits of at least float32, and evidence as a tensor where it is; shapes must agree."""
        owner = type(self).__name__
        if not isinstance(logits, Tensor) or logits.ndim != 2 or not logits.is_floating_point():
            raise invalid(owner, "logits", "be a tensor (n, K) of floats", got=describe(logits))
        if not len(logits):
            raise invalid(owner, "logits", "have a row or more", got=Described("an empty batch"))
        rows = evidence if isinstance(evidence, Tensor) else np.asarray(evidence)
        # None, for one: of objects there is no tensor.
        objects = isinstance(rows, np.ndarray) and rows.dtype.kind not in "fiub"
        found = evidence if objects else torch.as_tensor(rows)
        if objects or found.shape != logits.shape or not found.is_floating_point():
            fix = (
                "Give each example's row of `release.dataset(X)`, for the examples of the logits and in their order; "
                "one logit for each class of the release."
            )
            must = f"have a row of numbers for each example, {tuple(logits.shape)}"
            raise invalid(owner, name, must, got=describe(found), fix=fix)
        if found.requires_grad:
            fix = "It is what was released, public and fixed: use `.detach()`."
            raise invalid(owner, name, "need no gradient", got=Described("a tensor that does"), fix=fix)
        return logits.float() if logits.element_size() < 4 else logits, found


class ForwardLoss(RowLoss):
    """-log of the chance of what was released, given the network's probabilities.

    Call it with logits (n, K) and likelihoods (n, K): Pr[what was released of the example | label k], up to a factor for each
    row. Other arguments as for `RowLoss`.
    """

    def forward(self, logits: Tensor, likelihood: Any, *, sample_weight: Any = None) -> Tensor:
        """Return the loss of a batch."""
        logits, likelihood = self._check(logits, likelihood, "likelihood")
        if self.check:
            check_chances("ForwardLoss", likelihood)
        return self._reduce(follow(forward_rows, logits, likelihood), sample_weight)


class UnbiasedLoss(RowLoss):
    """Cross entropy with signed targets whose mean over the noise is the true label's: its mean is the clean loss.

    Call it with logits (n, K) and targets (n, K), of `release.dataset(X, evidence="unbiased")`: rows sum to one and have entries
    below 0. Other arguments as for `RowLoss`.
    """

    def forward(self, logits: Tensor, targets: Any, *, sample_weight: Any = None) -> Tensor:
        """Return the loss of a batch; it may be negative."""
        logits, targets = self._check(logits, targets, "targets")
        if self.check:
            check_signed("UnbiasedLoss", targets)
        return self._reduce(follow(soft_rows, logits, targets), sample_weight)


class PosteriorLoss(RowLoss):
    """Cross entropy with what is believed of each label: prior times likelihood, normalised.

    Parameters
    ----------
    prior : K numbers >= 0, optional
        The belief in each class before the release is looked at; equal beliefs if it is left out.
    reduction, check : as for `RowLoss`

    Notes
    -----
    Call it with logits (n, K), likelihoods (n, K) as `ForwardLoss`, and, where beliefs differ from example to example,
    `prior=` (n, K): the probabilities of an earlier model, or of a moving average of this one. No gradient follows them.
    """

    prior: Tensor | None

    def __init__(self, *, prior: Any = None, reduction: str = "mean", check: bool = True) -> None:
        super().__init__(reduction=reduction, check=check)
        shares = None if prior is None else torch.as_tensor(np.asarray(prior, np.float64)).float()
        if shares is not None and (shares.ndim != 1 or not bool((shares >= 0).all() & (0 < shares.sum() < math.inf))):
            got = describe(shares)
            raise invalid("PosteriorLoss", "prior", "be K finite numbers >= 0, not all of them 0", got=got)
        self.register_buffer("prior", shares)

    def forward(self, logits: Tensor, likelihood: Any, *, prior: Any = None, sample_weight: Any = None) -> Tensor:
        """Return the loss of a batch."""
        logits, likelihood = self._check(logits, likelihood, "likelihood")
        believed = self.prior if prior is None else torch.as_tensor(prior).detach()
        if self.check:
            check_chances("PosteriorLoss", likelihood)
        targets = likelihood.to(logits.device, logits.dtype)
        if believed is not None:
            if believed.shape not in (logits.shape, logits.shape[1:]):
                must = f"have shape {tuple(logits.shape[1:])} or {tuple(logits.shape)}"
                raise invalid("PosteriorLoss", "prior", must, got=describe(believed))
            targets = targets * believed.to(logits.device, logits.dtype)
        if self.check and believed is not None:
            # A belief of 0 in every label that explains the answer leaves nothing to believe.
            check_chances("PosteriorLoss", targets, name="prior")
        targets = targets / targets.sum(dim=1, keepdim=True)
        return self._reduce(follow(soft_rows, logits, targets), sample_weight)


# --------------------------------------------------------------------------------------------------------------- checks


def describe(value: Any) -> Described:
    """Return what somebody gave in words: shape and type of a tensor, else the kind of thing."""
    if isinstance(value, Tensor):
        return Described(f"a tensor of shape {tuple(value.shape)} and type {str(value.dtype).removeprefix('torch.')}")
    return Described(f"a {type(value).__name__}")


def check_chances(owner: str, rows: Tensor, *, name: str = "likelihood") -> None:
    """Refuse chances that are negative or no numbers, and a row of zeros, which no label explains."""
    if rows.is_meta or not len(rows):
        return
    sums = rows.sum(dim=1)
    low, high = torch.aminmax(sums)
    if float(rows.amin()) >= 0 and float(low) > 0 and float(high) < math.inf:  # NaN is none of it
        return
    lows = rows.amin(dim=1)
    wrong = ~((lows >= 0) & (sums > 0) & (sums < math.inf))
    got = Described(f"row {int(wrong.int().argmax())} of the batch")
    fix = "Signed targets are for UnbiasedLoss." if name == "likelihood" and bool((lows < 0).any()) else ""
    raise invalid(owner, name, "be finite, >= 0 and not all zero in a row", got=got, fix=fix)


def check_weights(owner: str, weights: Tensor) -> None:
    """Refuse weights of examples that are negative or no numbers."""
    if weights.is_meta:
        return
    low, high = torch.aminmax(weights)
    if not (float(low) >= 0 and float(high) < math.inf):  # NaN is neither
        wrong = ~((weights >= 0) & (weights < math.inf))
        got = Described(f"another one in row {int(wrong.int().argmax())} of the batch")
        raise invalid(owner, "sample_weight", "be finite and >= 0", got=got)


def check_signed(owner: str, targets: Tensor) -> None:
    """Refuse targets that are no numbers, do not sum to one, or are chances: all of them above 0."""
    if targets.is_meta or not len(targets):
        return
    # float32 targets are welcome, and rounding grows with the largest entry of a signed row.
    room = 1e-4 * targets.abs().amax(dim=1).clamp(min=1.0)
    right = ((targets.sum(dim=1) - 1.0).abs() <= room) & (room < math.inf)
    if not bool(right.all()):
        got = Described(f"row {int((~right).int().argmax())} of the batch")
        raise invalid(owner, "targets", "be finite, with rows that sum to 1", got=got, fix=UNBIASED)
    if len(targets) >= SURE and float(targets.amin()) > 0:
        got = Described("a batch without any entry <= 0, as likelihoods are")
        raise invalid(owner, "targets", "be signed", got=got, fix=UNBIASED)


UNBIASED = 'They come of `release.dataset(X, evidence="unbiased")`.'


# ------------------------------------------------------------------------------------- values and gradients, row by row

#: (logits (n, K), evidence of the batch) -> losses (n,), their gradients in the logits (n, K)
Rows = Callable[[Tensor, Tensor], tuple[Tensor, Tensor]]

#: A sum of float32 products below this may have lost its digits to underflow (the smallest normal is 1e-38).
LEAST_SUM = 1e-30


def plain_rows(logits: Tensor, codes: Tensor) -> tuple[Tensor, Tensor]:
    """Return cross entropy with the codes of labels (n,): -log p_y, and p - e_y."""
    logarithms = torch.log_softmax(logits, dim=1)
    at = codes[:, None]
    values = -logarithms.gather(1, at)[:, 0]
    return values, logarithms.exp_().scatter_add_(1, at, logits.new_full((), -1.0).expand(at.shape))


def weighted_rows(logits: Tensor, evidence: Tensor) -> tuple[Tensor, Tensor]:
    """Return weighted cross entropy; `evidence` (n, 2) holds codes and weights, both as floats."""
    values, gradients = plain_rows(logits, evidence[:, 0].long())
    weights = evidence[:, 1].to(logits.dtype)
    return values * weights, gradients.mul_(weights[:, None])


def soft_rows(logits: Tensor, targets: Tensor) -> tuple[Tensor, Tensor]:
    """Return cross entropy with targets (n, K) whose rows sum to one; entries may be negative."""
    logarithms = torch.log_softmax(logits, dim=1)
    values = -(logarithms * targets).sum(dim=1)
    return values, logarithms.exp_().sub_(targets)


def forward_rows(logits: Tensor, likelihood: Tensor) -> tuple[Tensor, Tensor]:
    """Return -log of the chance of what was released; `likelihood` (n, K), a row has at least one positive entry."""
    if logits.device.type != "cpu":  # a look at a sum would make the processor wait for the device
        return _forward_by_logarithms(logits, likelihood)
    believed = torch.softmax(logits, dim=1)
    explained = believed * likelihood
    reached = explained.sum(dim=1, keepdim=True)
    if len(logits) and reached.amin() < LEAST_SUM:
        return _forward_by_logarithms(logits, likelihood)
    return -reached.log()[:, 0], believed.sub_(explained.div_(reached))


def _forward_by_logarithms(logits: Tensor, likelihood: Tensor) -> tuple[Tensor, Tensor]:
    """Return the same without underflow, for the price of two exponentials."""
    explained = logits + likelihood.log()
    values = torch.logsumexp(logits, dim=1) - torch.logsumexp(explained, dim=1)
    return values, torch.softmax(logits, dim=1).sub_(torch.softmax(explained, dim=1))


def follow(rows: Rows, logits: Tensor, evidence: Tensor) -> Tensor:
    """Return the losses of rows as part of autograd's graph; evidence is brought to where the logits are."""
    values: Tensor = _Follow.apply(logits, evidence.to(logits.device, logits.dtype), rows)  # type: ignore[no-untyped-call]
    return values


#: The gradients again, written so that autograd can record them: for who differentiates twice.
RECORDED: dict[Rows, Callable[[Tensor, Tensor], Tensor]] = {
    soft_rows: lambda logits, targets: torch.softmax(logits, dim=1) - targets,
    forward_rows: lambda logits, likelihood: (
        torch.softmax(logits, dim=1) - torch.softmax(logits + likelihood.log(), dim=1)
    ),
}


class _Follow(torch.autograd.Function):
    """Losses whose gradient in the logits was computed beside them."""

    @staticmethod
    def forward(ctx: Any, logits: Tensor, evidence: Tensor, rows: Rows) -> Tensor:
        values, gradients = rows(logits, evidence)
        ctx.save_for_backward(logits, evidence, gradients)
        ctx.rows = rows
        return values

    @staticmethod
    def backward(ctx: Any, *outer: Tensor) -> tuple[Tensor, None, None]:
        logits, evidence, gradients = ctx.saved_tensors
        if torch.is_grad_enabled():  # create_graph=True
            gradients = RECORDED[ctx.rows](logits, evidence)
        return outer[0][:, None] * gradients, None, None
