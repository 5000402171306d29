"""`NetClassifier`: a PyTorch network as a scikit-learn classifier that takes soft, signed or unseen targets.

>>> import numpy as np
>>> X = np.repeat([[-1.0, 0.5], [1.0, -0.5]], 40, axis=0)
>>> y = np.repeat(["no", "yes"], 40)
>>> NetClassifier("mlp", hidden=8, epochs=20, batch_size=16).fit(X, y).predict([[-1.0, 0.5], [1.0, -0.5]]).tolist()
['no', 'yes']

Design notes. The methods mean what `SoftmaxRegression`'s mean, so that `LabelPrivateClassifier` drives either through its
stages. A fitted network is stored, copied and sent as arrays by name (`__getstate__`), never as a pickled module: a saved
model is rebuilt from its name, and a file cannot bring code. Nothing here is private or secret: labels that come in have
been released already, or are public.

What a `NetClassifier` is given, checked: examples, soft targets and likelihoods.

A bar with the loss while a network trains; the loss is that of the labels given, so it shows no raw one.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils import check_random_state
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import (
    _assert_all_finite,
    _check_sample_weight,
    check_array,
    check_is_fitted,
    column_or_1d,
    validate_data,
)
from torch import Tensor, nn
from torch.utils.data import Dataset

from labeldp.arrays import Floats
from labeldp.errors import Described, invalid
from labeldp.nn.checkpoint import Checkpoints, from_arrays, to_arrays
from labeldp.nn.inputs import (
    ArrayInputs,
    DatasetInputs,
    Inputs,
    Scale,
    check_module,
    checked_device,
    checked_network,
    last_linear,
    made,
    name_of,
    placed,
)
from labeldp.nn.presets import Training, resolved
from labeldp.nn.training import Evidence, Listener, Run, Task, seeded, start, train
from labeldp.validate import check_integer, check_real

#: Examples that are predicted together: rows of features are small, images are not.
ROWS_TOGETHER, IMAGES_TOGETHER = 4096, 256


class NetClassifier(ClassifierMixin, BaseEstimator):  # type: ignore[misc]  # scikit-learn has no types
    """A network trained on plain labels, soft targets or likelihoods.

    Parameters
    ----------
    module : str, torch.nn.Module or callable
        "mlp", "small-cnn", "resnet18", "inception", "ncf"; a module, which is copied; or a callable that makes one from
        `n_classes` and `sample_shape`. A module returns logits, one per class.
    preset : {"cpu", "paper"} or Training
        Where the settings that are None below come from.
    epochs, batch_size, lr, weight_decay : optional
        Batches are as equal as can be and no larger than `batch_size`; every example is in one of them.
    optimizer : {"adamw", "sgd"}, optional
        sgd has momentum 0.9.
    schedule : {"linear", "piecewise", "constant"}, optional
        Each warms up linearly; then a line to 0, a tenth at 30, 60 and 90% of the run, or the peak all along.
    mixup : float, optional
        alpha of Beta(alpha, alpha); 0 for none.
    augment : str or Augment, optional
        For images: "crop,flip,cutout", some of them, or sizes.
    ema : float, optional
        Decay of the moving average of the weights that predicts in their place; 0 for none.
    hidden, dropout : int, float
        Of the MLP (and the dropout of "ncf").
    device : str
        "cpu", "cuda", ...
    warm_start : bool
        Start from the weights and BatchNorm statistics of the last fit, the optimizer fresh.
    checkpoint : directory, optional
        Where the state is kept after each epoch. A fit that finds its own state there (same data, targets, settings, seed
        and first weights) goes on from it and ends with the same weights as one that was never stopped.
    progress : bool or callable (steps done, steps in all, loss)
        Show a bar with the loss, which is that of the labels given, or be told.
    random_state : int or numpy RandomState
        Seed of first weights, order, mixup and dropout. Not a privacy matter.

    Attributes
    ----------
    module_ : the fitted network;  classes_, n_features_in_ : as always
    history_ : mean loss of each epoch;  training_ : the settings used
    """

    _scale: Scale
    _sample_shape: tuple[int, ...]
    _sizes: tuple[int, ...]

    def __init__(
        self,
        module: Any = "mlp",
        *,
        preset: Any = "cpu",
        epochs: int | None = None,
        batch_size: int | None = None,
        lr: float | None = None,
        weight_decay: float | None = None,
        optimizer: str | None = None,
        schedule: str | None = None,
        mixup: float | None = None,
        augment: Any = None,
        ema: float | None = None,
        hidden: int = 256,
        dropout: float = 0.2,
        device: str = "cpu",
        warm_start: bool = False,
        checkpoint: Any = None,
        progress: Any = False,
        random_state: Any = 0,
    ) -> None:
        self.module = module
        self.preset = preset
        self.epochs = epochs
        self.batch_size = batch_size
        self.lr = lr
        self.weight_decay = weight_decay
        self.optimizer = optimizer
        self.schedule = schedule
        self.mixup = mixup
        self.augment = augment
        self.ema = ema
        self.hidden = hidden
        self.dropout = dropout
        self.device = device
        self.warm_start = warm_start
        self.checkpoint = checkpoint
        self.progress = progress
        self.random_state = random_state

    # Fitting

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> NetClassifier:
        """Fit on plain labels."""
        X = checked_examples(self, X, reset=True)
        y = column_or_1d(y, warn=True)
        _assert_all_finite(y, input_name="y", estimator_name="NetClassifier")
        check_classification_targets(y)
        if len(y) != len(X):
            raise invalid("NetClassifier", "y", f"have {len(X)} labels", got=Described(f"{len(y)}"))
        classes, codes = np.unique(y, return_inverse=True)
        if len(classes) < 2:
            raise invalid("NetClassifier", "y", "have two classes or more", got=Described(f"{len(classes)} class"))
        values = codes.astype(np.int64)
        if sample_weight is None:
            return self._fit(X, classes, "plain", torch.from_numpy(values))
        weights = _check_sample_weight(sample_weight, y, dtype=np.float64, ensure_non_negative=True)
        both = np.stack([values, weights / max(weights.mean(), np.finfo(np.float64).tiny)], axis=1)
        return self._fit(X, classes, "weighted", torch.from_numpy(both))

    def fit_targets(self, X: Any, targets: Any, *, classes: Sequence[Any]) -> NetClassifier:
        """Fit on soft targets (n, K): rows sum to one; entries may be negative."""
        X = checked_examples(self, X, reset=True)
        matrix = checked_targets(matrix_for("targets", targets, len(X), len(classes)))
        return self._fit(X, np.asarray(classes), "soft", torch.from_numpy(matrix.astype(np.float32)))

    def fit_likelihood(self, X: Any, likelihood: Any, *, classes: Sequence[Any]) -> NetClassifier:
        """Fit the forward loss: `likelihood` (n, K) is Pr[what was observed | label k]."""
        X = checked_examples(self, X, reset=True)
        matrix = checked_likelihood(matrix_for("likelihood", likelihood, len(X), len(classes)))
        return self._fit(X, np.asarray(classes), "forward", torch.from_numpy(matrix.astype(np.float32)))

    def _fit(self, X: Any, classes: npt.NDArray[Any], kind: str, values: Tensor) -> NetClassifier:
        """Train; a fit that fails leaves the last one as it was."""
        check_module(self.module)
        device, training = checked_device(self.device), self._training()
        going_on = bool(self.warm_start) and hasattr(self, "module_")
        scale = self._scale if going_on else self._measured(X)
        inputs = self._inputs(X, scale, device)
        if len(inputs) < 2:
            raise invalid("NetClassifier", "X", "have two examples or more", got=Described("1 sample"))
        evidence = Evidence(kind=kind, values=values, n_classes=len(classes))
        task = Task(inputs=inputs, evidence=evidence, training=training)
        seed = int(check_random_state(self.random_state).randint(2**31))
        with seeded(seed, device):
            network, sizes = self._network(X, inputs, len(classes), going_on=going_on)
            run = self._run(start(network, training), task, seed=seed)
        self.module_, self.classes_ = run.result, classes
        self.history_, self.training_ = tuple(run.history), training
        self._scale, self._sample_shape, self._sizes = scale, inputs.sample_shape, sizes
        return self

    def _network(self, X: Any, inputs: Inputs, n_classes: int, *, going_on: bool) -> tuple[nn.Module, tuple[int, ...]]:
        """Return the network to train, new or that of the last fit, and the numbers of users and items it knows."""
        if going_on:
            self._check_same(inputs, n_classes)
            network, sizes = made(self.module_, **self._shape(inputs, n_classes, self._sizes)), self._sizes
        else:
            sizes = tuple(int(top) + 1 for top in X.max(axis=0)) if self.module == "ncf" else ()
            network = made(self.module, **self._shape(inputs, n_classes, sizes))
        network = placed(network, sample_shape=inputs.sample_shape, device=checked_device(self.device))
        return checked_network(network, inputs, n_classes=n_classes), sizes

    def _shape(self, inputs: Inputs, n_classes: int, sizes: tuple[int, ...]) -> dict[str, Any]:
        hidden = check_integer("NetClassifier", "hidden", self.hidden, least=1)
        dropout = check_real("NetClassifier", "dropout", self.dropout)
        if not 0 <= dropout < 1:
            raise invalid("NetClassifier", "dropout", "be in [0, 1)", got=self.dropout)
        shape = {"n_classes": n_classes, "sample_shape": inputs.sample_shape, "sizes": sizes}
        return {**shape, "hidden": hidden, "dropout": dropout}

    def _check_same(self, inputs: Inputs, n_classes: int) -> None:
        if inputs.sample_shape != self._sample_shape or n_classes != len(self.classes_):
            was, now = (self._sample_shape, len(self.classes_)), (inputs.sample_shape, n_classes)
            got = Described(f"examples of shape {now[0]} with {now[1]} classes after {was[0]} with {was[1]}")
            fix = "Set warm_start=False to begin anew."
            raise invalid("NetClassifier", "X", "be as in the last fit under warm_start", got=got, fix=fix)

    def _run(self, run: Run, task: Task, *, seed: int) -> Run:
        """Train, from the last checkpoint of this very fit if there is one."""
        kept = None if self.checkpoint is None else Checkpoints.of(self.checkpoint, run, task, seed=seed)
        if kept is not None:
            kept.restore(run)
        with listening(self.progress, task) as told:
            train(run, task, after_step=told, after_epoch=None if kept is None else kept.save)
        return run

    def _training(self) -> Training:
        names = ("epochs", "batch_size", "lr", "weight_decay", "optimizer", "schedule", "mixup", "augment", "ema")
        changes = {name: getattr(self, name) for name in names}
        return resolved("NetClassifier", self.preset, name_of(self.module), changes)

    # Inputs

    def _measured(self, X: Any) -> Scale:
        return Scale.measured(X) if isinstance(X, np.ndarray) and self.module != "ncf" else Scale.none()

    def _inputs(self, X: Any, scale: Scale, device: torch.device) -> Inputs:
        if not isinstance(X, np.ndarray):
            return DatasetInputs(items=X, device=str(device))
        if self.module == "ncf":
            return ArrayInputs.of_indices(X, device=str(device))
        return ArrayInputs.of(X, scale=scale, device=str(device))

    def _checked_inputs(self, X: Any) -> Inputs:
        check_is_fitted(self, "module_")
        X = checked_examples(self, X, reset=False)
        inputs = self._inputs(X, self._scale, checked_device(self.device))
        if inputs.sample_shape != self._sample_shape:
            got = Described(f"examples of shape {inputs.sample_shape}")
            raise invalid("NetClassifier", "X", f"have examples of shape {self._sample_shape}, as in fit", got=got)
        return inputs

    # Prediction

    def predict_proba(self, X: Any) -> Floats:
        """Return class probabilities (n, K), averaged over the views of an example."""
        inputs = self._checked_inputs(X)
        return self._averaged(inputs, lambda batch: self.module_(batch).double().softmax(dim=1))

    def predict(self, X: Any) -> npt.NDArray[Any]:
        """Return the likeliest class of each example."""
        best = self.predict_proba(X).argmax(axis=1)
        return np.asarray(self.classes_[best])

    def hidden_features(self, X: Any) -> npt.NDArray[np.float32]:
        """Return what feeds the last linear layer, float32 (n, width), averaged over the views of an example."""
        inputs = self._checked_inputs(X)
        seen: list[Tensor] = []
        hook = last_linear(self.module_).register_forward_pre_hook(lambda _module, given: seen.append(given[0]))

        def hidden(batch: Tensor) -> Tensor:
            seen.clear()
            self.module_(batch)
            return seen[-1].flatten(1)

        try:
            return self._averaged(inputs, hidden)
        finally:
            hook.remove()

    def _averaged(self, inputs: Inputs, answer: Any) -> npt.NDArray[Any]:
        """Return the mean answer over views, batch by batch."""
        together = ROWS_TOGETHER if len(inputs.sample_shape) == 1 else IMAGES_TOGETHER
        self.module_.eval()
        parts = []
        with torch.inference_mode():
            for rows in torch.split(torch.arange(len(inputs)), together):
                views = [answer(inputs.batch(rows, view=view)) for view in range(inputs.n_views)]
                parts.append(torch.stack(views).mean(dim=0).cpu().numpy())
        return np.concatenate(parts)

    # State

    def __getstate__(self) -> dict[str, Any]:
        state: dict[str, Any] = super().__getstate__().copy()
        state["progress"] = bool(state["progress"]) and not callable(state["progress"])
        state["checkpoint"] = None if self.checkpoint is None else str(self.checkpoint)
        return to_arrays(state)

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(from_arrays(state))

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.three_d_array = True
        return tags


def checked_examples(learner: BaseEstimator, X: Any, *, reset: bool) -> Any:
    """Return a Dataset as it is, and anything else as an array: bytes stay bytes, other numbers become float32."""
    if isinstance(X, Dataset):
        if len(X) < 1:  # type: ignore[arg-type]  # a Dataset without a length is refused by len
            raise invalid("NetClassifier", "X", "have examples", got=Described("an empty Dataset"))
        if learner.module == "ncf":
            raise invalid("NetClassifier", "X", "be an array of pairs for 'ncf'", got=Described("a Dataset"))
        return X
    if getattr(X, "ndim", 2) <= 2:
        dtype = np.float64 if learner.module == "ncf" else np.float32
        rows = validate_data(learner, X, dtype=dtype, reset=reset)
        return rows if learner.module != "ncf" else whole_numbers(rows)
    array = np.asarray(X)
    if array.ndim not in (3, 4):
        got = Described(f"an array with {array.ndim} axes")
        must = "be rows (n, d), views (n, views, d) or images (n, channels, height, width)"
        raise invalid("NetClassifier", "X", must, got=got)
    if array.dtype != np.uint8:
        array = check_array(array, dtype=np.float32, allow_nd=True, input_name="X", estimator=learner)
    if reset:
        learner.n_features_in_ = array.shape[2] if array.ndim == 3 else int(np.prod(array.shape[1:]))
        learner.__dict__.pop("feature_names_in_", None)
    return array


def whole_numbers(rows: Floats) -> Floats:
    """Refuse numbers of users and items that are negative or not whole."""
    wrong = (rows < 0) | (rows != np.floor(rows))
    if wrong.any():
        row = int(np.argmax(wrong.any(axis=1)))
        got = Described(f"{rows[row].tolist()} in row {row}")
        raise invalid("NetClassifier", "X", "hold user and item numbers 0, 1, 2, ...", got=got)
    return rows


def matrix_for(name: str, values: Any, n: int, n_classes: int) -> Floats:
    """Return a finite matrix with a row per example and a column per class."""
    if n_classes < 2:
        raise invalid("NetClassifier", "classes", "be two or more", got=Described(f"{n_classes}"))
    matrix = np.asarray(values)
    if matrix.dtype.kind not in "fiu" or matrix.shape != (n, n_classes):
        got = Described(f"an array of shape {matrix.shape}")
        raise invalid("NetClassifier", name, f"have shape ({n}, {n_classes})", got=got)
    if not np.isfinite(matrix).all():
        raise invalid("NetClassifier", name, "be finite", got=Described("NaN or infinity"))
    return matrix


def checked_targets(targets: Floats) -> Floats:
    """Refuse rows that do not sum to one; rounding grows with the largest entry of a signed row."""
    sums = targets.sum(axis=1, dtype=np.float64)
    wrong = np.abs(sums - 1.0) > 1e-4 * np.maximum(1.0, np.abs(targets).max(axis=1))  # float32 targets are welcome
    if wrong.any():
        row = int(np.argmax(wrong))
        got = Described(f"a sum of {sums[row]:.9g} in row {row}")
        raise invalid("NetClassifier", "targets", "have rows that sum to 1", got=got)
    return targets


def checked_likelihood(likelihood: Floats) -> Floats:
    """Refuse a row that no label explains, and negative chances."""
    wrong = (likelihood < 0).any(axis=1) | (likelihood.max(axis=1) <= 0)
    if wrong.any():
        got = Described(f"row {int(np.argmax(wrong))}")
        fix = "What was observed has a chance under some label."
        raise invalid("NetClassifier", "likelihood", "be >= 0 and not all zero in a row", got=got, fix=fix)
    return likelihood


@contextmanager
def listening(progress: Any, task: Task) -> Iterator[Listener | None]:
    """Give what the loop should tell after each step: nothing, the user's callable, or a bar."""
    if callable(progress):
        yield progress
    elif not isinstance(progress, bool):
        raise invalid("NetClassifier", "progress", "be a bool or a callable", got=progress)
    elif not progress:
        yield None
    else:
        with bar(task) as told:
            yield told


@contextmanager
def bar(task: Task) -> Iterator[Listener]:
    """Draw a bar on the standard error, its numbers refreshed a few times a second."""
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as shown:
        line = shown.add_task("training", total=task.epochs * task.steps_per_epoch)

        def told(done: int, total: int, loss: float) -> None:
            shown.update(line, completed=done, total=total, description=f"loss {loss:.4f}")

        yield told
