r"""`DPSGDClassifier`: the baseline of whole-record privacy, DP-SGD through opacus, to set beside label privacy.

It hides whether a record is there at all, features and label; a label-private learner hides the label only. Its epsilon
is therefore not that of the others: `guarantee_.unit` says which, and tables must too.

>>> import numpy as np
>>> X = np.repeat([[-1.0], [1.0]], 500, axis=0)
>>> y = np.repeat(["no", "yes"], 500)
>>> model = DPSGDClassifier(epsilon=2.0, epochs=2, batch_size=100, classes=["no", "yes"], random_state=0).fit(X, y)
>>> model.predict([[-1.0], [1.0]]).tolist(), model.guarantee_.unit.sentence
(['no', 'yes'], 'one record added or removed')

*Training.* In every step each record is in the batch with probability q, independently. The gradient of each record is cut
to norm C and written in whole multiples of C / R (`count_in_units`); these integers are added up, discrete Gaussian noise of
deviation z R is added to every coordinate, and the sum over q n, times C / R, is the gradient that is followed.

*Why integers.* A float plus a float is not a real plus a real: with noise as 32-bit floats, whoever knew all records but one
told two versions of it apart 20 times of 20 at epsilon = 0.5. On integers everything is exact. The norm of a record's
integers is compared with R after rounding, and whoever is above is cut again. Sums of whole numbers below 2^53 are exact in
64-bit floats, in any order. q is a multiple of 2^-53, and sampling compares integers. R = 1024 or, for
more than 65,536 parameters, at least 4 sqrt(p). Rounding p coordinates adds about p / 12 to the squared norm, with a
deviation of about R / sqrt(3), so gradients are first cut to R - p / (24 R) - 3/2, half a percent below R at most: that is
five deviations, and hardly any gradient needs a second cut.

*Guarantee.* A step is a Gaussian mechanism of noise multiplier z on a Poisson sample. Its Renyi curve for one record
added or removed is opacus' `compute_rdp` (Mironov, Talwar, Zhang 2019); steps add up. The curve is the guarantee. It holds
for discrete noise as well, at whole orders, the only ones used here. With P the noise and Q the noise moved by a whole
vector v, |v| <= R: the sum over x of Q(x)^i P(x)^(1-i) is exp(i (i - 1) |v|^2 / (2 z^2 R^2)) for whole i, since moving the
discrete Gaussian by the whole vector i v changes no sum over the grid. These are the moments of the continuous Gaussian, and
the binomial expansion of ((1 - q) P + q Q)^a P^(1-a) needs no others. The other direction, P against the mixture, is
never larger (their Theorem 5): x -> v - x swaps P and Q and is its own inverse, on the grid as on the line.

*Step size.* The automatic step is D / (G sqrt T) of projected gradient descent with G^2 = C^2 (1 + p (z/B)^2), p the
number of parameters: where noise outweighs gradients the step shrinks with sqrt p, as the theory has it.

References: Abadi et al., "Deep Learning with Differential Privacy" (2016); Bassily, Smith, Thakurta, "Private Empirical Risk
Minimization: Efficient Algorithms and Tight Error Bounds" (2014), for the step size; Mironov, Talwar, Zhang, "Renyi
Differential Privacy of the Sampled Gaussian Mechanism" (2019); Yousefpour et al., "Opacus" (2021).

Design notes. opacus clips each example's gradient and accounts; the noise is labeldp's own. opacus draws its noise from
torch's generator, which is not cryptographic, and its `secure_mode` needs a package that is no longer built for current
torch. So clipping, summing and noise are replaced, and noise and sampling both come from the release's AES key. What
remains of floating point is the gradient itself: a matrix product may round a row's result differently in another batch, and
the guarantee takes it not to (`ALONE`). A record whose gradient is not finite adds nothing: it is a rule about one record, so
no error tells of it. Noise is drawn for several steps at once, since a draw of a few numbers costs as much as of thousands.
Cutting, summing and noise cost between 0.16 and 1.21 of the gradients' own time (benchmarks/results/dpsgd.json). opacus is imported by `import_opacus`, when a model is fitted: without the extra the class
can be named, cloned and documented, and a fitted model predicts with NumPy alone.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise
from typing import Any

import numpy as np
import scipy.sparse
import torch
from scipy.special import expit, softmax
from sklearn.base import BaseEstimator
from sklearn.utils.validation import check_is_fitted, validate_data

from labeldp import kernels
from labeldp.arrays import Array, Float32s, Float64s, Floats, Int64s, Ints
from labeldp.errors import Described, PrivacyError, hide_warnings, invalid, missing_extra
from labeldp.guarantee import Guarantee, Unit
from labeldp.random import BitStream, as_key
from labeldp.release.labels import box_labels
from labeldp.release.scores import ScoredClassifier
from labeldp.release.vectors import Procedure, curate
from labeldp.samplers import discrete_gaussian, variance_above
from labeldp.validate import check_delta, check_epsilon, check_integer, check_positive

OWNER = "DPSGDClassifier"
#: The automatic step supposes scores within this distance of zero (as LPRRSGD does) and rows about as long as C.
LARGEST_SCORE = 10.0


class DPSGDClassifier(ScoredClassifier, BaseEstimator):  # type: ignore[misc]  # scikit-learn has no types
    """Logistic or softmax regression, or a small network, by DP-SGD at record level.

    Parameters
    ----------
    epsilon, delta : float
        The budget for one record added or removed; delta must be > 0. opacus finds the noise multiplier for it.
    hidden : sequence of int
        Widths of hidden layers with ReLU between; none is a linear model.
    epochs, batch_size
        The expected number of visits of a record, and of records in a batch: batches are Poisson samples. Each step costs.
    max_grad_norm : float
        C, to which the gradient of an example is cut. Bring rows to about this norm by a rule that sees one row only.
    learning_rate : float or "auto"
        "auto" is 2 * 10 / (C^2 sqrt(T (1 + p (z/B)^2))) for T steps, p parameters, noise z and batches of B: no data.
    average : bool
        Whether the second half of the iterates is averaged. Free: all of them are covered by the guarantee.
    classes, random_state, ledger, label_set
        As in LabelPrivateClassifier: None for random_state is secure noise, anything else marks the model `seeded_`.

    Attributes
    ----------
    guarantee_, seeded_ : what is promised, with its unit, and whether a seed made it worthless
    noise_multiplier_, sample_rate_, n_steps_, learning_rate_ : z, q, T and the step; facts, not of the data
    coefs_, intercepts_, classes_, n_features_in_ : the model, a matrix (inputs, outputs) and a row for each layer

    Notes
    -----
    *Guarantee.*
    A Renyi curve that implies (epsilon, delta) when one record is added or removed, by opacus' accountant for Poisson
    samples; trusts a curator. The number of records is taken as public. Noise and samples come from labeldp's AES key,
    not from torch's generator (opacus' default) and not from opacus' `secure_mode`, so they are cryptographic unless
    seeded. Noise is discrete and exact, on sums of whole numbers; that a record's gradient, a floating-point number before
    it is rounded, does not depend on the rest of its batch is among the assumptions of the guarantee.

    *Assumes.*
    Nothing was computed from all rows before: a scaler or encoder fitted on the training features is not covered.

    *Edge cases.*
    delta = 0 is refused. epsilon = inf clips and adds no noise. A batch_size of at least the number of records takes all of
    them in every step. A record whose gradient overflows adds nothing. A constant label is learned as such if `classes` has
    two. Separable data and d > n need no care: gradients are clipped and steps are finitely many. Sparse features are
    made dense one batch at a time.
    """

    def __init__(
        self,
        *,
        epsilon: float = 1.0,
        delta: float = 1e-5,
        hidden: Sequence[int] = (),
        epochs: int = 10,
        batch_size: int = 512,
        max_grad_norm: float = 1.0,
        learning_rate: float | str = "auto",
        average: bool = True,
        classes: Sequence[Any] | None = None,
        random_state: Any = None,
        ledger: Any = None,
        label_set: str = "labels",
    ) -> None:
        self.epsilon = epsilon
        self.delta = delta
        self.hidden = hidden
        self.epochs = epochs
        self.batch_size = batch_size
        self.max_grad_norm = max_grad_norm
        self.learning_rate = learning_rate
        self.average = average
        self.classes = classes
        self.random_state = random_state
        self.ledger = ledger
        self.label_set = label_set

    def fit(self, X: Any, y: Any) -> DPSGDClassifier:
        """Calibrate the noise, charge the ledger, train, and keep the parameters that come out.

        `X` (n, d) may be sparse. Raw labels are seen by `PrivateTraining.run` only, after the ledger agreed to its guarantee.
        """
        import_opacus()
        rows = validate_data(self, X, accept_sparse="csr", dtype=[np.float32, np.float64], reset=True)
        labels = box_labels(OWNER, y, n_rows=rows.shape[0], classes=self.classes, label_set=self.label_set)
        key = as_key(OWNER, self.random_state, name="random_state")
        procedure = self._plan_training(rows, labels.n_classes)
        self._check_budget(procedure.guarantee(n_classes=labels.n_classes, n_examples=len(labels)))
        measured = curate(labels, procedure, rng=key, ledger=self.ledger)
        self.coefs_, self.intercepts_ = _split_layers(measured.value, procedure.widths)
        self.classes_ = np.asarray(labels.classes)
        self.guarantee_, self.seeded_ = measured.guarantee, measured.seeded
        self.noise_multiplier_, self.sample_rate_ = procedure.noise_multiplier, procedure.sample_rate
        self.n_steps_, self.learning_rate_ = procedure.steps, procedure.learning_rate
        return self

    def _plan_training(self, rows: Any, n_classes: int) -> PrivateTraining:
        """Return the procedure: sampling, noise and step are functions of the parameters, n and p, never of the data."""
        epsilon, delta = check_epsilon(OWNER, self.epsilon), check_delta(OWNER, self.delta)
        if epsilon == 0 or (delta == 0 and math.isfinite(epsilon)):
            name = "epsilon" if epsilon == 0 else "delta"
            fix = "Gaussian noise is never pure, and no finite noise says nothing."
            raise invalid(OWNER, name, "be > 0", got=getattr(self, name), fix=fix)
        middle = [check_integer(OWNER, "hidden", width, least=1) for width in self.hidden]
        widths = (rows.shape[1], *middle, 1 if n_classes == 2 else n_classes)  # two classes need one score
        n, epochs = rows.shape[0], check_integer(OWNER, "epochs", self.epochs, least=1)
        batch = min(check_integer(OWNER, "batch_size", self.batch_size, least=1), n)
        rate, steps = round_rate(batch, n), -(-epochs * n // batch)
        noise = calibrate_noise(epsilon=epsilon, delta=delta, sample_rate=rate, steps=steps)
        bound = check_positive(OWNER, "max_grad_norm", self.max_grad_norm)
        if self.learning_rate == "auto":
            size = sum((narrow + 1) * wide for narrow, wide in pairwise(widths))
            step = 2.0 * LARGEST_SCORE / (bound**2 * math.sqrt(steps * (1.0 + size * (noise / (rate * n)) ** 2)))
        else:
            step = check_positive(OWNER, "learning_rate", self.learning_rate)
        return PrivateTraining(
            rows=rows,
            widths=widths,
            noise_multiplier=noise,
            sample_rate=rate,
            steps=steps,
            max_grad_norm=bound,
            learning_rate=step,
            average=bool(self.average),
        )

    def _check_budget(self, promise: Guarantee) -> None:
        """Refuse what the calibration does not meet: the curve decides, not the calibration."""
        spent = promise.epsilon(self.delta)
        if not spent <= self.epsilon:
            fix = "Ask for fewer epochs, or for a larger epsilon."
            raise invalid(OWNER, "epsilon", "be met", got=Described(f"{spent}"), fix=fix, kind=PrivacyError)

    def decision_function(self, X: Any) -> Floats:
        """Return the scores: one column per class, or for two classes one number, > 0 for the second."""
        check_is_fitted(self, "coefs_")
        rows = validate_data(self, X, accept_sparse="csr", dtype=[np.float32, np.float64], reset=False)
        for layer, (matrix, offset) in enumerate(zip(self.coefs_, self.intercepts_, strict=True)):
            rows = np.asarray((rows if layer == 0 else np.maximum(rows, 0.0)) @ matrix) + offset
        scores: Floats = rows[:, 0] if rows.shape[1] == 1 else rows
        return scores

    def predict_proba(self, X: Any) -> Floats:
        """Return class probabilities (n, K), in the order of `classes_`."""
        scores = self.decision_function(X)
        if scores.ndim == 2:
            shares: Floats = softmax(scores, axis=1)
            return shares
        second = expit(scores)
        return np.stack([1.0 - second, second], axis=1)

    def predict(self, X: Any) -> Array:
        """Return the likeliest class of each row."""
        best = self.predict_proba(X).argmax(axis=1)
        labels: Array = self.classes_[best]
        return labels

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        return tags


def _split_layers(flat: Floats, widths: tuple[int, ...]) -> tuple[list[Floats], list[Floats]]:
    """Return matrices and offsets of each layer from torch's order: (outputs, inputs), then the offsets."""
    matrices, offsets, start = [], [], 0
    for narrow, wide in pairwise(widths):
        matrices.append(flat[start : start + narrow * wide].reshape(wide, narrow).T.copy())
        offsets.append(flat[start + narrow * wide : start + (narrow + 1) * wide].copy())
        start += (narrow + 1) * wide
    return matrices, offsets


# ----------------------------------------------------------------------------------------------------------- accounting

#: Orders of the curve. Whole ones only: opacus sums them without cancellation, where it cuts the series of others off.
#: The curve is convex, so that few do. Small epsilon has its optimum near 2 log(1/delta)/epsilon: 230 at epsilon 0.1 and
#: delta 1e-5. Beyond 1020 it overflows.
ORDERS = (*range(2, 32), *range(32, 64, 4), *(round(64 * 2 ** (k / 4)) for k in range(16)), 1000)
#: What the logarithm of a sum of positive float64 terms may have lost, and far more: each of its terms is exact to 1e-13.
ROUNDING = 1e-12
PUBLIC_SIZE = "the number of records is public: the sampling rate is computed from it"
POISSON = "each batch is a fresh Poisson sample that is not shown"
ALONE = "a record's gradient, computed in floating point, does not depend on the other records of its batch"


def import_opacus() -> Any:
    """Return the package opacus with the parts that are used here; without it raise `MissingExtraError`."""
    with hide_warnings():  # of opacus and torch, about their own insides
        try:
            import opacus
            import opacus.accountants.analysis.rdp
            import opacus.accountants.utils
            import opacus.optimizers
        except ImportError as error:
            raise missing_extra("opacus", "opacus", OWNER) from error
    return opacus


def renyi_guarantee(*, noise_multiplier: float, sample_rate: float, steps: int) -> Guarantee:
    """Return the promise of `steps` Gaussian mechanisms on Poisson samples; without noise there is none.

    >>> round(renyi_guarantee(noise_multiplier=1.0, sample_rate=0.01, steps=1000).epsilon(1e-5), 1)
    2.1
    """
    notes = (PUBLIC_SIZE, POISSON, ALONE)
    if noise_multiplier == 0:
        return Guarantee.pure(math.inf, unit=Unit.RECORD_ADD_REMOVE, assumptions=notes)
    orders, values = _compute_curve(noise_multiplier, sample_rate, steps, ORDERS)
    return Guarantee.rdp(orders, values, unit=Unit.RECORD_ADD_REMOVE, assumptions=notes)


@lru_cache(maxsize=64)
def _compute_curve(
    noise_multiplier: float, sample_rate: float, steps: int, asked: tuple[int, ...]
) -> tuple[list[float], list[float]]:
    """Return orders and values of opacus' curve at the orders asked for, as far as its numbers can be right.

    A Renyi divergence is positive and grows with its order. Where opacus' numbers overflow into NaN or fall, nothing is
    used from there on: that only loosens the guarantee. What is used is raised by what rounding may have lost.
    """
    compute_rdp = import_opacus().accountants.analysis.rdp.compute_rdp
    raw = compute_rdp(q=sample_rate, noise_multiplier=noise_multiplier, steps=steps, orders=list(asked))
    orders: list[float] = []
    values: list[float] = []
    for order, value in zip(asked, map(float, raw), strict=True):
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
def calibrate_noise(*, epsilon: float, delta: float, sample_rate: float, steps: int) -> float:
    """Return opacus' noise multiplier for this budget, to a thousandth of epsilon on its safe side; 0 for infinity."""
    if math.isinf(epsilon):
        return 0.0
    try:
        with hide_warnings():  # that the best order is the last one tried: looser, not wrong
            found = import_opacus().accountants.utils.get_noise_multiplier(
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
        raise invalid(OWNER, "epsilon", "be within the accountant's reach", got=epsilon, fix=fix) from None
    return float(found)


# ------------------------------------------------------------------------------------------------------------- training


@dataclass(frozen=True, kw_only=True, eq=False)
class PrivateTraining(Procedure):
    """DP-SGD on these rows: what `curate` runs on the raw labels, and what it promises.

    `widths` are those of all layers, features first. The other fields are z, q, T, C, the step, and whether the second
    half of the iterates is averaged.
    """

    rows: Any
    widths: tuple[int, ...]
    noise_multiplier: float
    sample_rate: float
    steps: int
    max_grad_norm: float
    learning_rate: float
    average: bool
    exact_noise = True

    def guarantee(self, *, n_classes: int, n_examples: int) -> Guarantee:
        """Return the Renyi guarantee of all steps; it depends neither on the classes nor on the labels."""
        return renyi_guarantee(noise_multiplier=self.noise_multiplier, sample_rate=self.sample_rate, steps=self.steps)

    def run(self, codes: Ints, *, n_classes: int, bits: BitStream) -> Float64s:
        """Train, and return all parameters in one row: the last iterate, or the mean of the second half of them."""
        targets = torch.as_tensor(codes.astype(np.int64))
        network = _make_network(self.widths, seed=int(bits.take(1)[0] >> np.uint64(1)))
        total, kept = torch.zeros(_flatten(network).shape, dtype=torch.float64), 0
        # opacus hooks modules whose input needs no gradient, which torch remarks upon.
        with hide_warnings(message=".*backward hook.*"):
            sampled = import_opacus().GradSampleModule(network, loss_reduction="sum")
            optimizer = self._make_optimizer(network, bits)
            for step in range(self.steps):
                chosen = draw_batch(bits, len(targets), self.sample_rate)
                optimizer.zero_grad()
                scores = _pad_scores(sampled(_take_dense(self.rows, chosen)))
                loss = torch.nn.functional.cross_entropy(scores, targets[chosen], reduction="sum")
                loss.backward()  # type: ignore[no-untyped-call]  # torch's own
                optimizer.step()
                if step >= self.steps // 2:  # a single step is its own second half
                    total += _flatten(network)
                    kept += 1
        flat: Float64s = (total / kept if self.average else _flatten(network)).numpy()
        return flat

    def _make_optimizer(self, network: torch.nn.Module, bits: BitStream) -> Any:
        """Return opacus' optimizer with noise from a stream of the release's key."""
        size = sum(part.numel() for part in network.parameters())
        units = units_of_bound(size)
        noise = _NoiseStore(bits, spread=self.noise_multiplier * units, size=size)

        class KeyedOptimizer(import_opacus().optimizers.DPOptimizer):  # type: ignore[misc]  # opacus has no types
            def clip_and_accumulate(self) -> None:
                """Cut each record's gradient and add them up in whole units; in place of opacus' float sums."""
                parts = [part.detach().flatten(start_dim=1).numpy() for part in self.grad_samples]
                sums = count_in_units(parts, bound=self.max_grad_norm, units=units)
                for parameter, summed in zip(self.params, sums, strict=True):
                    parameter.summed_grad = torch.as_tensor(summed)

            def add_noise(self) -> None:
                """Add whole noise of deviation z R, and go back to the units of the gradient; in place of torch's noise."""
                drawn, start = noise.take(), 0
                for parameter in self.params:
                    end = start + parameter.numel()
                    noisy = (parameter.summed_grad + drawn[start:end]) * (self.max_grad_norm / units)
                    parameter.grad = noisy.to(parameter.dtype).view_as(parameter)
                    start = end

        return KeyedOptimizer(
            torch.optim.SGD(network.parameters(), lr=self.learning_rate),
            noise_multiplier=self.noise_multiplier,
            max_grad_norm=self.max_grad_norm,
            expected_batch_size=self.sample_rate * self.rows.shape[0],
            loss_reduction="mean",
        )


#: The bound C in units of the grid, at least: fine enough that rounding is far below the noise.
LEAST_UNITS = 1024
#: Draws of noise at a time, at least.
AHEAD = 1 << 13


def round_rate(batch_size: int, n: int) -> float:
    """Return the largest multiple of 2^-53 that is at most batch_size / n <= 1: the probability that is drawn and paid.

    >>> round_rate(1, 4), round_rate(4, 4)
    (0.25, 1.0)
    """
    return (batch_size * 2**53 // n) / 2**53


def draw_batch(bits: BitStream, n: int, rate: float) -> Int64s:
    """Return which of n records are in a batch: each with probability `rate`, a multiple of 2^-53, exactly."""
    if rate == 1.0:
        return np.arange(n)
    return np.flatnonzero(bits.take(n) >> np.uint64(11) < np.uint64(int(rate * 2**53)))


def units_of_bound(size: int) -> int:
    """Return R, the bound on a record's gradient in units of the grid, for that many parameters: a power of two."""
    return max(LEAST_UNITS, 1 << math.ceil(math.log2(4 * math.sqrt(size))))


def count_in_units(parts: Sequence[Float32s], *, bound: float, units: int) -> list[Float64s]:
    """Return the sum over records of their gradients, cut to norm `bound` = `units` whole steps and rounded.

    `parts` has a matrix (records, numbers) for each parameter; the sums are whole numbers. *Guarantee*: one record moves
    all sums together by a whole vector of 2-norm at most `units`; one whose gradient is not finite does not move them.
    """
    n_records, size = len(parts[0]), sum(part.shape[1] for part in parts)
    squares = np.zeros(n_records)
    for part in parts:
        kernels.add_squares(part, squares)
    good = np.isfinite(squares)
    target = units - size / (24 * units) - 1.5
    factors = np.zeros(n_records, np.float32)
    factors[good] = target / np.maximum(np.sqrt(squares[good]), bound)
    above = good
    while above.any():
        squares = np.zeros(n_records)
        for part in parts:
            kernels.add_whole_squares(part, factors, squares)
        above = good & ~(squares <= units**2)
        factors[above] *= np.float32(0.99)
    sums = [np.zeros(part.shape[1]) for part in parts]
    for part, total in zip(parts, sums, strict=True):
        kernels.add_wholes(part, factors, total)
    return sums


class _NoiseStore:
    """Discrete Gaussian noise of one deviation, a vector at a time; without noise, zeros."""

    def __init__(self, bits: BitStream, *, spread: float, size: int) -> None:
        self.bits, self.size = bits, size
        # The square is rounded to nearest: an ulp more is on the safe side.
        self.variance = variance_above(math.nextafter(spread**2, math.inf)) if spread else None
        self.ahead: list[torch.Tensor] = []

    def take(self) -> torch.Tensor:
        """Return noise that was not handed out before."""
        if self.variance is None:
            return torch.zeros(self.size, dtype=torch.float64)
        if not self.ahead:
            rows = -(-AHEAD // self.size)
            drawn = discrete_gaussian(self.bits, variance=self.variance, size=rows * self.size)
            self.ahead = list(torch.as_tensor(drawn.reshape(rows, self.size), dtype=torch.float64))
        return self.ahead.pop()


def _make_network(widths: tuple[int, ...], *, seed: int) -> torch.nn.Module:
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


def _take_dense(rows: Any, chosen: Ints) -> torch.Tensor:
    """Return the chosen rows as a float32 tensor: sparse features are dense one batch at a time."""
    batch = rows[chosen]
    return torch.as_tensor(np.asarray(batch.toarray() if scipy.sparse.issparse(batch) else batch, np.float32))


def _pad_scores(scores: torch.Tensor) -> torch.Tensor:
    """Return a column per class: the single score of two classes is that of the second, the first has 0."""
    return torch.cat([torch.zeros_like(scores), scores], dim=1) if scores.shape[1] == 1 else scores


def _flatten(network: torch.nn.Module) -> torch.Tensor:
    """Return all parameters, in order, as one float64 row."""
    return torch.cat([part.detach().reshape(-1) for part in network.parameters()]).double()
