r"""The training behind `DPSGDClassifier`: opacus clips each example's gradient and accounts, the noise is labeldp's own.

In every step each record is in the batch with probability q, independently; the gradients of the batch are cut to norm
C and summed; N(0, (z C)^2) is added to every coordinate; the sum over q n is the gradient that is followed.

*Guarantee.* A step is a Gaussian mechanism of noise multiplier z on a Poisson sample. Its Renyi curve for one record
added or removed is opacus' `compute_rdp` (Mironov, Talwar, Zhang 2019); steps add up. The curve is the guarantee.

>>> round(renyi_guarantee(noise_multiplier=1.0, sample_rate=0.01, steps=1000).epsilon(1e-5), 1)
2.1

References: Abadi et al., "Deep Learning with Differential Privacy" (2016); Mironov, Talwar, Zhang, "Renyi Differential
Privacy of the Sampled Gaussian Mechanism" (2019); Yousefpour et al., "Opacus" (2021).

Design notes. opacus draws its noise from torch's generator, which is not cryptographic; its `secure_mode` needs a
package that is no longer built for current torch. So `add_noise` is replaced, and noise and sampling both come from the
release's AES key. What remains is floating point, and the guarantee says so.
"""

from __future__ import annotations

import math
import warnings
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt
import scipy.sparse

from labeldp.arrays import Float64s
from labeldp.errors import PrivacyError, invalid, missing_extra
from labeldp.guarantee import Guarantee, Unit
from labeldp.random import BitStream
from labeldp.release.vectors import Procedure, normals, uniforms

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # of opacus and torch, about their own insides
    try:
        import torch
        from opacus import GradSampleModule
        from opacus.accountants.analysis.rdp import compute_rdp
        from opacus.accountants.utils import get_noise_multiplier
        from opacus.optimizers import DPOptimizer
    except ImportError as error:
        raise missing_extra("opacus", "opacus", "DPSGDClassifier") from error

#: Orders of the curve. Whole ones only: opacus sums them without cancellation, where it cuts the series of others off.
#: The curve is convex, so that few do. Small epsilon has its optimum near 2 log(1/delta)/epsilon: 230 at epsilon 0.1 and delta 1e-5. Beyond 1020 it overflows.
ORDERS = (*range(2, 32), *range(32, 64, 4), *(round(64 * 2 ** (k / 4)) for k in range(16)), 1000)
#: What the logarithm of a sum of positive float64 terms may have lost, and far more: each of its terms is exact to 1e-13.
ROUNDING = 1e-12
PUBLIC_SIZE = "the number of records is public: the sampling rate is computed from it"
POISSON = "each batch is a fresh Poisson sample that is not shown"


def renyi_guarantee(*, noise_multiplier: float, sample_rate: float, steps: int) -> Guarantee:
    """Return the promise of `steps` sampled Gaussians; without noise there is none."""
    notes = (PUBLIC_SIZE, POISSON)
    if noise_multiplier == 0:
        return Guarantee.pure(math.inf, unit=Unit.RECORD_ADD_REMOVE, assumptions=notes)
    orders, values = _sound_curve(noise_multiplier, sample_rate, steps)
    return Guarantee.rdp(orders, values, unit=Unit.RECORD_ADD_REMOVE, assumptions=notes)


def _sound_curve(noise_multiplier: float, sample_rate: float, steps: int) -> tuple[list[float], list[float]]:
    """Return opacus' curve as far as its numbers can be right.

    A Renyi divergence is positive and grows with its order. Where opacus' numbers overflow into NaN or fall, nothing is
    used from there on: that only loosens the guarantee. What is used is raised by what rounding may have lost.
    """
    raw = compute_rdp(q=sample_rate, noise_multiplier=noise_multiplier, steps=steps, orders=list(ORDERS))
    orders: list[float] = []
    values: list[float] = []
    for order, value in zip(ORDERS, map(float, raw), strict=True):
        if not (math.isfinite(value) and value > 0 and (not values or value >= values[-1])):
            break
        orders.append(float(order))
        values.append(value + steps * ROUNDING)
    if not orders:
        raise PrivacyError(
            "DPSGDClassifier: opacus' accountant gives no bound here. Use larger batches or fewer steps."
        )
    return orders, values


@lru_cache(maxsize=64)
def calibrated_noise(*, epsilon: float, delta: float, sample_rate: float, steps: int) -> float:
    """Return opacus' noise multiplier for this budget, to a thousandth of epsilon on its safe side; 0 for infinity."""
    if math.isinf(epsilon):
        return 0.0
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # that the best order is the last one tried: looser, not wrong
            found = get_noise_multiplier(
                target_epsilon=epsilon - 2 * steps * ROUNDING,
                target_delta=delta,
                sample_rate=sample_rate,
                steps=steps,
                accountant="rdp",
                epsilon_tolerance=1e-3 * epsilon,
                alphas=list(ORDERS),
            )
    except ValueError:
        fix = "Raise epsilon or delta, or ask for fewer epochs."
        raise invalid("DPSGDClassifier", "epsilon", "be within the accountant's reach", got=epsilon, fix=fix) from None
    return float(found)


@dataclass(frozen=True, kw_only=True, eq=False)
class PrivateTraining(Procedure):
    """DP-SGD on these rows: what runs inside the door, and what it promises."""

    rows: Any
    widths: tuple[int, ...]
    noise_multiplier: float
    sample_rate: float
    steps: int
    max_grad_norm: float
    learning_rate: float
    average: bool

    def guarantee(self, *, n_classes: int, n_examples: int) -> Guarantee:
        """That of the module."""
        return renyi_guarantee(noise_multiplier=self.noise_multiplier, sample_rate=self.sample_rate, steps=self.steps)

    def run(self, codes: npt.NDArray[Any], *, n_classes: int, bits: BitStream) -> Float64s:
        """Train, and return all parameters in one row: the last iterate, or the mean of the second half of them."""
        with warnings.catch_warnings():
            # opacus hooks modules whose input needs no gradient, which torch remarks upon.
            warnings.filterwarnings("ignore", message=".*backward hook.*")
            return self._run(torch.as_tensor(codes.astype(np.int64)), bits)

    def _run(self, targets: torch.Tensor, bits: BitStream) -> Float64s:
        network = _network(self.widths, seed=int(bits.take(1)[0] >> np.uint64(1)))
        sampled = GradSampleModule(network, loss_reduction="sum")
        optimizer = self._optimizer(network, bits)
        total, kept = torch.zeros(_flat(network).shape, dtype=torch.float64), 0
        for step in range(self.steps):
            chosen = np.flatnonzero(uniforms(bits, len(targets)) < self.sample_rate)
            optimizer.zero_grad()
            scores = _padded(sampled(_dense(self.rows, chosen)))
            loss = torch.nn.functional.cross_entropy(scores, targets[chosen], reduction="sum")
            loss.backward()  # type: ignore[no-untyped-call]  # torch's own
            optimizer.step()
            if 2 * step >= self.steps:
                total += _flat(network)
                kept += 1
        flat: Float64s = (total / kept if self.average else _flat(network)).numpy()
        return flat

    def _optimizer(self, network: torch.nn.Module, bits: BitStream) -> DPOptimizer:
        return _KeyedOptimizer(
            torch.optim.SGD(network.parameters(), lr=self.learning_rate),
            noise_multiplier=self.noise_multiplier,
            max_grad_norm=self.max_grad_norm,
            expected_batch_size=self.sample_rate * self.rows.shape[0],
            loss_reduction="mean",
            bits=bits,
        )


class _KeyedOptimizer(DPOptimizer):  # type: ignore[misc]  # opacus has no types
    """opacus' optimizer with noise from a stream of the release's key."""

    def __init__(self, optimizer: torch.optim.Optimizer, *, bits: BitStream, **settings: Any) -> None:
        super().__init__(optimizer, **settings)
        self._bits = bits

    def add_noise(self) -> None:
        """Add N(0, (z C)^2) to each coordinate of the summed gradients; in place of torch's noise."""
        spread = self.noise_multiplier * self.max_grad_norm
        for parameter in self.params:
            summed = parameter.summed_grad
            drawn = normals(self._bits, summed.numel()).reshape(summed.shape)
            parameter.grad = (summed + torch.as_tensor(spread * drawn, dtype=summed.dtype)).view_as(parameter)


def _network(widths: tuple[int, ...], *, seed: int) -> torch.nn.Module:
    """Return layers of these widths with ReLU between; a single layer starts at zero, others from a public seed."""
    generator = torch.Generator().manual_seed(seed)
    layers: list[torch.nn.Module] = []
    for narrow, wide in pairwise(widths):
        layer = torch.nn.Linear(narrow, wide)
        with torch.no_grad():
            layer.weight.normal_(0.0, math.sqrt(2.0 / narrow) if len(widths) > 2 else 0.0, generator=generator)
            layer.bias.zero_()
        layers += [layer, torch.nn.ReLU()]
    return torch.nn.Sequential(*layers[:-1])


def _dense(rows: Any, chosen: npt.NDArray[Any]) -> torch.Tensor:
    """Return the chosen rows as a float32 tensor: sparse features are dense one batch at a time."""
    batch = rows[chosen]
    return torch.as_tensor(np.asarray(batch.toarray() if scipy.sparse.issparse(batch) else batch, np.float32))


def _padded(scores: torch.Tensor) -> torch.Tensor:
    """Return a column per class: the single score of two classes is that of the second, the first has 0."""
    return torch.cat([torch.zeros_like(scores), scores], dim=1) if scores.shape[1] == 1 else scores


def _flat(network: torch.nn.Module) -> torch.Tensor:
    """Return all parameters, in order, as one float64 row."""
    return torch.cat([part.detach().reshape(-1) for part in network.parameters()]).double()
