"""`NetClassifier`: a PyTorch network as a scikit-learn classifier that takes soft, signed or unseen targets.

>>> import numpy as np
>>> X = np.repeat([[-1.0, 0.5], [1.0, -0.5]], 40, axis=0)
>>> y = np.repeat(["no", "yes"], 40)
>>> model = NetClassifier("mlp", hidden=8, epochs=20, batch_size=16).fit(X, y)
>>> model.predict([[-1.0, 0.5], [1.0, -0.5]]).tolist()
['no', 'yes']

Design notes. The methods mean what `SoftmaxRegression`'s mean, so that `LabelPrivateClassifier` drives either through its
stages. Nothing here is private or secret: labels that come in have been released already, or are public; the loss that a
progress bar shows is that of the labels given.

A fitted network is stored, copied and sent as arrays by name, never as a pickled module: copying, pickling and skops
(`labeldp.learn.save_model`) all ask `__getstate__`, which packs the state (`labeldp.nn.state`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import torch
from sklearn.base import BaseEstimator, ClassifierMixin, clone
from sklearn.utils import check_random_state
from sklearn.utils.validation import _check_sample_weight, check_is_fitted
from torch import Tensor, nn

from labeldp.arrays import Array, Float32s, Floats
from labeldp.channel import LazyRows
from labeldp.errors import Described, LabelDPError, invalid
from labeldp.items import Items, is_dataset
from labeldp.nn.checkpoint import Checkpoints, check_place
from labeldp.nn.fast_cnn import FastCNN, default_width, sample_rows, shrink_images
from labeldp.nn.inputs import (
    ArrayInputs,
    DatasetInputs,
    Inputs,
    Scale,
    check_examples,
    check_likelihood,
    check_targets,
    order_axes,
    read_examples,
    same_draws,
    takes_images,
)
from labeldp.nn.models import (
    Ensemble,
    check_device,
    check_module,
    check_network,
    check_sample,
    find_last_linear,
    list_members,
    make_network,
    place_network,
    try_network,
)
from labeldp.nn.presets import FAST, Training, count_networks, resolve_training, settle_training
from labeldp.nn.pretraining import check_groups, describe_images, describe_pretraining, replace_head
from labeldp.nn.state import find_width, pack_state, unpack_state
from labeldp.nn.training import (
    Evidence,
    Run,
    Task,
    check_precision,
    check_progress,
    compute_in,
    open_progress,
    seed_torch,
    start_run,
    train,
    watch_pieces,
)
from labeldp.validate import check_classes, check_integer, check_real, warn_of_scale

#: Width of the hidden layer of the MLP.
HIDDEN = 256
#: Examples that are predicted together: rows of features are small, images are not.
ROWS_TOGETHER, IMAGES_TOGETHER = 4096, 256
#: Probabilities that are predicted together: 64 MiB of float64.
CELLS_TOGETHER = 1 << 23


class Plan(NamedTuple):
    """How a fit will go, its settings checked: what there is before the network."""

    device: torch.device
    inputs: Inputs
    scale: Scale
    training: Training
    width: int
    dropout: float
    pretrain: int
    members: int
    going_on: bool


class NetClassifier(ClassifierMixin, BaseEstimator):  # type: ignore[misc]  # scikit-learn has no types
    """A network trained on plain labels (`fit`), soft targets (`fit_targets`) or likelihoods (`fit_likelihood`).

    Parameters
    ----------
    module : str, torch.nn.Module or callable
        "mlp", "small-cnn", "fast-cnn", "resnet18", "inception", "ncf"; a module, which is copied; or a callable that makes
        one from `n_classes` and `sample_shape`. A module returns logits, one per class.
    preset : {"cpu", "paper", "minutes", "hours"} or Training
        Where the settings that are None below come from. "fast-cnn" has "minutes" (5 of one core; its "cpu" too) and "hours" (60).
        "resnet18" and "inception" are the paper's, for a GPU: "paper", or "cpu" with `epochs` of your own.
    cpu_minutes : float, optional
        Of "fast-cnn": how many minutes of one core of 64 GFLOP/s (110 in bfloat16) a fit may take. They are turned into a number of epochs
        (200 at most) before it begins, so that a plan is the same on every machine, however busy; `progress` shows what is left of it.
    precision : {"float32", "bfloat16"}, optional
        What the layers multiply while they are trained; float32 unless the preset says otherwise. bfloat16 is for processors that have
        instructions for it, of others a `SlowPrecisionWarning` tells. What is stored, and predictions, are float32 in both.
    epochs, batch_size, lr, weight_decay : optional
        Batches are as equal as can be and no larger than `batch_size`; every example is in one of them.
    optimizer : {"adamw", "sgd", "muon"}, optional
        sgd has momentum 0.9; muon is for "fast-cnn".
    schedule : {"linear", "piecewise", "constant"}, optional
        Each warms up linearly; then a line to 0, a tenth at 30, 60 and 90% of the run, or the peak all along.
    mixup : float, optional
        alpha of Beta(alpha, alpha); 0 for none.
    augment : str or Augment, optional
        For images: "crop,flip,cutout", some of them, or sizes; "shift" is half of "crop". No preset of ours for a CPU flips, since
        digits, letters and scans are not what their mirror images are: say "shift,flip" for photographs with "fast-cnn",
        which then answers with the mean over an image, its mirror image, and both moved by a pixel.
    ema : float, optional
        Decay of the moving average of the weights that predicts in their place; 0 for none.
    members : int, optional
        How many networks are trained, each from first weights and in an order of its own; they answer with the mean of their
        probabilities. They share `cpu_minutes`; `epochs` are those of each. By default one, and for "fast-cnn" one for each hour of
        `cpu_minutes`, as long as each has 40 passes: more of them would teach it the noise of the answers.
    hidden, dropout : int, float
        Of the MLP, 256 by default (and the dropout of "ncf"); `hidden` also of the last stage of "fast-cnn": 192, and 256 for runs
        of more than 30 minutes.
    image_shape : (height, width) or (height, width, channels), optional
        How rows (n, d) are folded to images, for the networks by name that take images; square grey ones need not say it.
    device : str
        "cpu", "cuda", ...
    pretrain : int
        Of "fast-cnn": first learn to tell so many groups of images that look alike (`labeldp.nn.pretraining`), for a quarter of the
        epochs at the smallest size, on top of `cpu_minutes`, then the labels; 0 for none. No label is used for it. For small epsilon,
        where no quick estimator reads the answers first (`labeldp.learn.readers`): where one does, as by default, it adds nothing.
    warm_start : bool
        Start from the weights and BatchNorm statistics of the last fit, the optimizer fresh.
    checkpoint : directory, optional
        Where the state is kept after each epoch. A fit that finds its own state there (same data, targets, settings, seed
        and first weights) goes on from it and ends with the same weights as one that was never stopped. All items of a
        Dataset are read once more to compare them, which takes as long as the reading of an epoch.
    progress : bool or callable (steps done, steps in all, loss)
        Show a bar with the loss, which is that of the labels given, or be told.
    random_state : int or numpy RandomState
        Seed of first weights, order, mixup and dropout. Not a privacy matter.

    Attributes
    ----------
    module_ : torch.nn.Module
        The fitted network, in evaluation mode; of several, what averages them.
    classes_, n_features_in_ : as in scikit-learn
    history_ : tuple of float
        The mean loss of each epoch, of several networks one after the other.
    training_ : Training
        The settings used, nothing left open.

    Notes
    -----
    *Edge cases.*
    One example, or one class in `fit`, is refused. A loss that is not finite ends the fit with an error; a fit that fails
    leaves the one before as it was. A last batch of one example joins another, since BatchNorm needs two.
    """

    #: `fit_targets` and `fit_likelihood` take `labeldp.channel.LazyRows`.
    takes_lazy_rows = True
    #: X may be a torch Dataset.
    takes_datasets = True
    _scale: Scale
    _sample_shape: tuple[int, ...]
    _sizes: tuple[int, ...]

    @property
    def reads_features(self) -> bool:
        """Whether rows with near features are near for the network: for "mlp" they are, pixels of images are not."""
        return bool(isinstance(self.module, str) and self.module == "mlp")

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
        members: int | None = None,
        hidden: int | None = None,
        dropout: float = 0.2,
        image_shape: Sequence[int] | None = None,
        cpu_minutes: float | None = None,
        precision: str | None = None,
        pretrain: int = 0,
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
        self.members = members
        self.hidden = hidden
        self.dropout = dropout
        self.image_shape = image_shape
        self.cpu_minutes = cpu_minutes
        self.precision = precision
        self.pretrain = pretrain
        self.device = device
        self.warm_start = warm_start
        self.checkpoint = checkpoint
        self.progress = progress
        self.random_state = random_state

    @property
    def fits_once(self) -> bool:
        """Whether a fit takes so long that a plan should have one of them (`labeldp.learn.recipe`)."""
        return isinstance(self.module, str) and self.module == FAST

    def make_reader(self) -> NetClassifier:
        """Return a quick network for the features that `read_images` makes, which reads answers first, or chooses what is asked.

        Who uses it is `labeldp.learn.readers`: one hidden layer, trained in seconds, on mixtures of examples.
        """
        return NetClassifier(
            "mlp", mixup=1.0, device=self.device, progress=self.progress is True, random_state=self.random_state
        )

    @property
    def planned_minutes(self) -> float:
        """The minutes of one core that a fit is planned to take; 0 where it is told passes (`epochs`)."""
        return self._resolve_training().cpu_minutes

    def are_grey(self, X: Any) -> bool:
        """Whether these are images of one channel, as far as the first of them tells; rows are folded as `image_shape` says."""
        if is_dataset(X):
            X = X if isinstance(X, Items) else Items(X, owner="NetClassifier")
        shape = X.shape if hasattr(X, "shape") else (len(X), *np.shape(X[0])) if len(X) else (0, 0)
        if len(shape) == 4:  # what an array of this shape and of no memory becomes
            return bool(order_axes(np.broadcast_to(np.uint8(0), shape)).shape[1] == 1)
        return len(shape) == 3 or self.image_shape is None or tuple(self.image_shape)[2:] in ((), (1,))

    def read_images(self, X: Any) -> Float32s:
        """Return features of images that need no label (`PatchFeatures`): (n, d), or (n, 2, d) where mirror images are as good."""
        X = check_examples(clone(self), X, reset=True)  # a fitted network stays as it is
        inputs = self._wrap_inputs(X, self._measure_scale(X), torch.device("cpu"))
        check_sample(FAST, inputs.sample_shape)
        flips: Any = "views" if self._resolve_training().augment.flip else False
        preset = "colour" if inputs.sample_shape[0] > 1 else "full"
        watch = partial(watch_pieces, words="features of images") if self.progress is True else iter
        return describe_images(inputs, preset=preset, flips=flips, watch=watch)

    @property
    def blurs_beliefs(self) -> bool:
        """Whether mixup makes beliefs about single examples flatter than what the network knows (`labeldp.learn.stages`)."""
        return self._resolve_training().mixup > 0

    # Fitting

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> NetClassifier:
        """Fit on plain labels.

        `sample_weight` (n,), >= 0, multiplies the losses of the examples; weights are brought to mean 1.
        """
        X = check_examples(self, X, reset=True)
        y = check_classes("NetClassifier", "y", y)
        if len(y) != len(X):
            raise invalid("NetClassifier", "y", f"have {len(X)} labels", got=Described(f"{len(y)}"))
        classes, codes = np.unique(y, return_inverse=True)
        if len(classes) < 2:
            raise invalid(
                "NetClassifier", "y", "have two classes or more", got=Described("one class" if len(classes) else "none")
            )
        values = codes.astype(np.int64)
        if sample_weight is None:
            return self._fit(X, classes, "plain", torch.from_numpy(values))
        weights = _check_sample_weight(sample_weight, y, dtype=np.float64, ensure_non_negative=True)
        both = np.stack([values, weights / max(weights.mean(), np.finfo(np.float64).tiny)], axis=1)
        return self._fit(X, classes, "weighted", torch.from_numpy(both))

    def fit_targets(self, X: Any, targets: Any, *, classes: Sequence[Any]) -> NetClassifier:
        """Fit on soft targets (n, K), columns in the order of `classes`: rows sum to one; entries may be negative.

        With many classes they may be `labeldp.channel.LazyRows`: those of a batch are made in its step, and forgotten.
        """
        X = check_examples(self, X, reset=True)
        matrix = check_targets(targets, n=len(X), n_classes=len(classes))
        return self._fit(X, np.asarray(classes), "soft", as_values(matrix))

    def fit_likelihood(self, X: Any, likelihood: Any, *, classes: Sequence[Any]) -> NetClassifier:
        """Fit the forward loss: `likelihood` (n, K) is Pr[what was observed | label k], k in the order of `classes`.

        With many classes it may be `labeldp.channel.Evidence`: likelihoods of a batch are made in its step, and forgotten.
        """
        X = check_examples(self, X, reset=True)
        matrix = check_likelihood(likelihood, n=len(X), n_classes=len(classes))
        return self._fit(X, np.asarray(classes), "forward", as_values(matrix))

    def check_fit(self, X: Any, *, n_classes: int, n_rows: int | None = None) -> None:
        """Refuse what a fit on these examples would refuse, whatever their labels are; train nothing, and write nothing.

        For who pays before a fit begins (`labeldp.learn.rehearsal`). All numbers of X are read, a block at a time; a module or a
        callable of the user's own is copied or called, and tried on two examples. Networks by name are not built: that they take
        such examples is known. No random number of anybody's is used up.

        Parameters
        ----------
        X : array or dataset
            The examples, as `fit` takes them.
        n_classes : int
            How many classes there will be.
        n_rows : int, optional
            The fewest examples that a fit will have; by default all.
        """
        # A dataset, or a network of the user's own, may draw: from torch, on the device too, from NumPy or from Python.
        with seed_torch(0, check_device(self.device)), same_draws():
            first, n = read_examples(clone(self), X)
            plan = self._plan_fit(first, n_classes=n_classes, n_examples=n if n_rows is None else n_rows)
            if plan.going_on or not isinstance(self.module, str):
                self._prepare_network(first, plan, n_classes=n_classes)

    def _plan_fit(self, X: Any, *, n_classes: int, n_examples: int) -> Plan:
        """Return how checked examples will be trained on; what can be refused before there is a network is refused here.

        X may be the first few of the examples, where nothing will be trained: `n_examples` is how many there will be.
        """
        check_module(self.module)
        check_progress(self.progress)
        if self.checkpoint is not None:
            check_place(self.checkpoint)
        device, training = check_device(self.device), self._resolve_training()
        check_precision(training.precision, device)
        _check_seed(self.random_state)
        going_on = bool(self.warm_start) and hasattr(self, "module_")
        scale = self._scale if going_on else self._measure_scale(X)
        inputs = self._wrap_inputs(X, scale, device)
        if n_examples < 2:
            raise invalid("NetClassifier", "X", "have two examples or more", got=Described("1 sample"))
        pretrain = check_integer("NetClassifier", "pretrain", self.pretrain, least=0)
        if pretrain and self.module != FAST:
            raise invalid("NetClassifier", "pretrain", f"be 0 for a network other than {FAST!r}", got=self.pretrain)
        if pretrain and not going_on:
            check_groups(pretrain, n_examples)
        dropout = check_real("NetClassifier", "dropout", self.dropout)
        if not 0 <= dropout < 1:
            raise invalid("NetClassifier", "dropout", "be in [0, 1)", got=self.dropout)
        width = self._choose_width(training, going_on=going_on)
        shape = inputs.sample_shape
        if isinstance(self.module, str):
            check_sample(self.module, shape)
        shapes: dict[str, Any] = {
            "n_examples": n_examples,
            "sample_shape": shape,
            "n_classes": n_classes,
            "width": width,
            "own": isinstance(self.preset, Training),
        }
        members = len(list_members(self.module_)) if going_on else self._choose_members(training, shapes)
        training = settle_training(replace(training, cpu_minutes=training.cpu_minutes / members), **shapes)
        return Plan(device, inputs, scale, training, width, dropout, pretrain, members, going_on)

    def _fit(self, X: Any, classes: Array, kind: str, values: Tensor | LazyRows) -> NetClassifier:
        """Train on checked examples and evidence; a fit that fails leaves the one before as it was."""
        plan = self._plan_fit(X, n_classes=len(classes), n_examples=len(X))
        evidence = Evidence(kind=kind, values=values, n_classes=len(classes))
        task = Task(inputs=plan.inputs, evidence=evidence, training=plan.training)
        rng, runs, sizes = check_random_state(self.random_state), list[Run](), tuple[int, ...]()
        for number in range(plan.members):
            seed = int(rng.randint(2**31))
            with seed_torch(seed, plan.device):
                network, sizes = self._prepare_network(X, plan, n_classes=len(classes), number=number)
                if not plan.going_on and plan.pretrain:
                    self._pretrain(network, task, count=plan.pretrain, seed=seed)
                run = start_run(network, plan.training)
                runs.append(self._train(run, task, seed=seed, number=number, of=plan.members))
        self.module_ = runs[0].result if len(runs) == 1 else Ensemble([run.result for run in runs]).eval()
        self.history_, self.training_ = tuple(loss for run in runs for loss in run.history), plan.training
        self.classes_ = classes
        self._scale, self._sample_shape, self._sizes = plan.scale, plan.inputs.sample_shape, sizes
        return self

    def _resolve_training(self) -> Training:
        """Return the settings of the preset, with those that the user gave in their place."""
        names = (
            "epochs",
            "batch_size",
            "lr",
            "weight_decay",
            "optimizer",
            "schedule",
            "mixup",
            "augment",
            "ema",
            "cpu_minutes",
            "precision",
        )
        changes = {name: getattr(self, name) for name in names}
        module = self.module if isinstance(self.module, str) else None
        return resolve_training("NetClassifier", self.preset, module, changes)

    def _choose_width(self, training: Training, *, going_on: bool) -> int:
        """Return the width of the network: what the user says, that of the last fit, or a default."""
        said = None if self.hidden is None else check_integer("NetClassifier", "hidden", self.hidden, least=1)
        if self.module != FAST:
            return HIDDEN if said is None else said
        if going_on:
            return find_width(self.module_)
        return default_width(training.cpu_minutes) if said is None else said

    def _choose_members(self, training: Training, shapes: dict[str, Any]) -> int:
        """Return how many networks a new fit has: what the user says, or what the minutes are enough for."""
        if self.members is not None:
            return check_integer("NetClassifier", "members", self.members, least=1)
        return count_networks(training, **shapes)

    def _prepare_network(
        self, X: Any, plan: Plan, *, n_classes: int, number: int = 0
    ) -> tuple[nn.Module, tuple[int, ...]]:
        """Return a network to train, new or a copy of that of the last fit, and the numbers of users and items it knows.

        `number` says which of several.
        """
        inputs = plan.inputs
        if plan.going_on:
            self._check_unchanged(inputs, n_classes)
            source, sizes = list_members(self.module_)[number], self._sizes
        else:
            source = self.module
            sizes = tuple(int(top) + 1 for top in X.max(axis=0)) if self.module == "ncf" else ()
        shape = inputs.sample_shape
        network = make_network(
            source, n_classes=n_classes, sample_shape=shape, hidden=plan.width, dropout=plan.dropout, sizes=sizes
        )
        if not plan.going_on and isinstance(network, FastCNN):
            start = plan.training.find_size(0.0)
            network.fit_whitening(shrink_images(inputs.batch(rows), start) for rows in sample_rows(len(inputs)))
        network = place_network(network, sample_shape=shape, device=plan.device)
        first = inputs.batch(torch.arange(min(2, len(inputs))), view=0)
        check_network(network, first, n_classes=n_classes, n_views=inputs.n_views)
        if plan.training.precision != "float32":
            try:
                with compute_in(plan.training.precision, plan.device):
                    try_network(network, first)
            except LabelDPError as error:
                fix = "It says: " + str(error.__cause__ or error).partition("\n")[0]
                must = "be 'float32' for a module that takes no other"
                raise invalid("NetClassifier", "precision", must, got=plan.training.precision, fix=fix) from error
        return network, sizes

    def _pretrain(self, network: nn.Module, task: Task, *, count: int, seed: int) -> None:
        """Train a new network to tell which images look alike; its last layer is put back as it was."""
        assert isinstance(network, FastCNN)
        first = describe_pretraining(task.inputs, task.training, count=count, seed=seed)
        head = replace_head(network, first.evidence.n_classes)
        self._train(start_run(network, first.training), first, seed=seed, words="images that look alike")
        network.head = head

    def _check_unchanged(self, inputs: Inputs, n_classes: int) -> None:
        """Refuse a warm start on examples of another shape or on another number of classes."""
        if inputs.sample_shape != self._sample_shape or n_classes != len(self.classes_):
            was, now = (self._sample_shape, len(self.classes_)), (inputs.sample_shape, n_classes)
            got = Described(f"examples of shape {now[0]} with {now[1]} classes after {was[0]} with {was[1]}")
            fix = "Set warm_start=False to begin anew."
            raise invalid("NetClassifier", "X", "be as in the last fit under warm_start", got=got, fix=fix)

    def _train(self, run: Run, task: Task, *, seed: int, words: str = "", number: int = 0, of: int = 1) -> Run:
        """Train to the end, from the last checkpoint of this very fit if there is one.

        `words` say what is learned beside labels, and `number` and `of` which of several networks this is.
        """
        kept = None if self.checkpoint is None else Checkpoints.of(self.checkpoint, run, task, seed=seed)
        if kept is not None:
            kept.restore(run)
        name = self.module if isinstance(self.module, str) else type(run.module).__name__
        words = f"{name}, {words}" if words else name
        words = words if of == 1 else f"{words}, {number + 1} of {of}"
        with open_progress(self.progress, task, words=words, number=number, of=of) as listener:
            train(run, task, after_step=listener, after_epoch=None if kept is None else kept.save)
        return run

    # Inputs

    def arrange_examples(self, X: Any) -> Any:
        """Return an array of three axes or more as `fit` will see it: images for a network by name with their channels first."""
        return order_axes(X) if takes_images(self.module) else X

    def _measure_scale(self, X: Any) -> Scale:
        """Return the scale of an array; indices and the items of a Dataset are taken as they are."""
        return Scale.measure(X) if isinstance(X, np.ndarray) and self.module != "ncf" else Scale.identity()

    def _wrap_inputs(self, X: Any, scale: Scale, device: torch.device) -> Inputs:
        """Return checked examples as batches on a device."""
        if not isinstance(X, np.ndarray):
            return DatasetInputs(items=X, device=str(device), images=takes_images(self.module))
        if self.module == "ncf":
            return ArrayInputs.of_indices(X, device=str(device))
        return ArrayInputs.of(X, scale=scale, device=str(device))

    def _check_inputs(self, X: Any) -> Inputs:
        """Return examples to predict, in the scale of the fit; refuse examples of another shape."""
        check_is_fitted(self, "module_")
        X = check_examples(self, X, reset=False)
        inputs = self._wrap_inputs(X, self._scale, check_device(self.device))
        if inputs.sample_shape != self._sample_shape:
            got = Described(f"examples of shape {inputs.sample_shape}")
            raise invalid("NetClassifier", "X", f"have examples of shape {self._sample_shape}, as in fit", got=got)
        if isinstance(X, np.ndarray):
            warn_of_scale("NetClassifier", X, self._scale.pixels)
        return inputs

    # Prediction

    def predict_proba(self, X: Any) -> Floats:
        """Return class probabilities (n, K), in the order of `classes_`, averaged over the views of an example."""
        return self._average_views(self._check_inputs(X), self._predict_batch)

    def predict(self, X: Any) -> Array:
        """Return the likeliest class of each example; probabilities of all of them are never in memory at once."""
        best = self._average_views(self._check_inputs(X), self._predict_batch, lambda rows: rows.argmax(axis=1))
        return np.asarray(self.classes_[best])

    def _predict_batch(self, batch: Tensor) -> Tensor:
        answer: Tensor = self.module_(batch).double().softmax(dim=1)
        return answer

    def hidden_features(self, X: Any) -> Float32s:
        """Return what feeds the last linear layer, float32 (n, width), averaged over the views of an example.

        Of several networks that answer together, all of it, side by side.
        """
        inputs = self._check_inputs(X)
        last = [find_last_linear(network) for network in list_members(self.module_)]
        seen: dict[nn.Module, Tensor] = {}
        hooks = [
            layer.register_forward_pre_hook(lambda layer, given: seen.__setitem__(layer, given[0])) for layer in last
        ]

        def run_to_last(batch: Tensor) -> Tensor:
            self.module_(batch)
            return torch.cat([seen[layer].flatten(1) for layer in last], dim=1)

        try:
            return self._average_views(inputs, run_to_last)
        finally:
            for hook in hooks:
                hook.remove()

    def _average_views(self, inputs: Inputs, answer: Any, finish: Any = np.asarray) -> Array:
        """Return the mean over views of `answer` (a function of a batch), batch by batch; `finish` is done to each mean."""
        together = ROWS_TOGETHER if len(inputs.sample_shape) == 1 else IMAGES_TOGETHER
        together = max(1, min(together, CELLS_TOGETHER // len(self.classes_)))
        self.module_.eval()
        look = self.training_.look_again if len(inputs.sample_shape) == 3 else lambda rows: [(1.0, rows)]
        parts = []
        with torch.inference_mode():
            for rows in torch.split(torch.arange(len(inputs)), together):
                seen = [inputs.batch(rows, view=view) for view in range(inputs.n_views)]
                total = sum(share * answer(view) for batch in seen for share, view in look(batch))
                parts.append(finish((total / len(seen)).cpu().numpy()))
        return np.concatenate(parts)

    # State

    def __getstate__(self) -> dict[str, Any]:
        state: dict[str, Any] = super().__getstate__().copy()
        state["progress"] = bool(state["progress"]) and not callable(state["progress"])
        state["checkpoint"] = None if self.checkpoint is None else str(self.checkpoint)
        return pack_state(state)

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(unpack_state(state))

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.three_d_array = True
        return tags


def _check_seed(random_state: Any) -> None:
    """Refuse a seed that is none; nothing is drawn."""
    try:
        check_random_state(random_state)
    except ValueError as error:
        fix = "For example 0."
        raise invalid(
            "NetClassifier", "random_state", "be an integer >= 0 or a RandomState", got=random_state, fix=fix
        ) from error


def as_values(matrix: Any) -> Tensor | LazyRows:
    """Return checked targets or likelihoods as a tensor; lazy ones stay lazy."""
    return matrix if isinstance(matrix, LazyRows) else torch.from_numpy(matrix.astype(np.float32))
