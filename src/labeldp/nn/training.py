"""The loop that trains a network: take a batch, change and mix it, follow the gradient of a loss, report each step.

>>> evidence = Evidence(kind="forward", values=torch.tensor([[1.0, 0.0]]), n_classes=2)
>>> z = torch.tensor([[1.0, 0.0]])
>>> value, gradient = evidence.loss(z, torch.tensor([0]))
>>> bool(torch.isclose(value, -z.log_softmax(1)[0, 0])), [round(float(g), 4) for g in gradient[0]]
(True, [-0.2689, 0.2689])

*Losses* are those of `labeldp.nn.losses`, averaged over a batch: plain (labels as they are), weighted, soft (posterior targets, and
signed unbiased ones) and forward (likelihoods).

*Mixup* [Zhang et al. 2018] replaces inputs by keep x_i + (1 - keep) x_j and the loss by the same mixture of losses, keep
drawn from Beta(alpha, alpha) for each batch; j is the example before i in the batch, whose order is random. For targets
that is the mixed target, for a likelihood it is the mixed log-likelihood.

References: Zhang, Cisse, Dauphin, Lopez-Paz, "mixup: Beyond Empirical Risk Minimization" (2018).

*bfloat16.* With `precision="bfloat16"` the forward pass runs under torch's autocast: convolutions and products of matrices round what they
multiply to 8 significant bits and sum in float32; backward follows what forward did. Logits become float32 before the loss, and the
gradients of weights before the optimizer, which with the weights and their average knows nothing of it: a step much smaller than a
weight is not lost. The exponent has as many bits as that of float32, so that no loss needs to be scaled.

Design notes. The gradient in the logits is written out and handed to `backward`: half the work of recording the loss, and
the forward loss costs what cross entropy costs. Everything random (order, mixup, augmentation, dropout) comes from torch's
own generators, seeded for the run and put back afterwards, so that the run is a function of its seed and a checkpoint is
two generator states and some arrays.
"""

from __future__ import annotations

import copy
import hashlib
import math
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from labeldp.channel import LazyRows
from labeldp.display import open_bar
from labeldp.errors import Described, LabelDPError, SlowPrecisionWarning, invalid
from labeldp.nn.fast_cnn import Muon
from labeldp.nn.inputs import Inputs, check_batch
from labeldp.nn.losses import Rows, forward_rows, plain_rows, soft_rows, weighted_rows
from labeldp.nn.presets import Training

#: (steps done, steps in all, loss of the last step)
Listener = Callable[[int, int, float], None]

MOMENTUM = 0.9


@dataclass(kw_only=True)
class Run:
    """A run and how far it has come.

    `module` is trained by `optimizer`; `average` is the moving average of its weights, if the settings ask for one.
    `epoch` counts the epochs done and `history` holds the mean loss of each.
    """

    module: nn.Module
    optimizer: torch.optim.Optimizer
    average: nn.Module | None
    epoch: int = 0
    history: list[float] = field(default_factory=list)

    @property
    def result(self) -> nn.Module:
        """The network that predicts: the average where there is one."""
        return self.module if self.average is None else self.average


@dataclass(frozen=True, kw_only=True, eq=False)
class Evidence:
    """What is known about the labels of all examples: `values` has a row per example, `kind` says what it means.

    | kind | a row of `values` |
    |---|---|
    | "plain" | the code of the label |
    | "weighted" | the code and the weight of the example, as floats |
    | "soft" | a target for each class; the row sums to one, entries may be negative |
    | "forward" | Pr[what was observed given label k], for each class k |

    With many classes the last two may be `LazyRows`: the rows of a batch are made when its loss is asked for.
    """

    kind: str
    values: Tensor | LazyRows
    n_classes: int

    def take(self, rows: Tensor) -> Tensor:
        """Return the evidence of the examples of a batch."""
        if isinstance(self.values, LazyRows):
            return torch.from_numpy(check_batch(self.kind, self.values.make(rows.numpy())))
        return self.values.index_select(0, rows)

    def update_digest(self, digest: hashlib.blake2b) -> None:
        """Add the evidence of all examples to the fingerprint of a run."""
        if isinstance(self.values, LazyRows):
            for batch in self.values:
                digest.update(check_batch(self.kind, batch).data)
        else:
            digest.update(np.ascontiguousarray(self.values.numpy()).data)

    def loss(self, logits: Tensor, rows: Tensor, *, keep: float = 1.0) -> tuple[Tensor, Tensor]:
        """Return the mean loss of a batch and its gradient in the logits.

        `rows` are the examples of the batch. With `keep` below 1 the evidence of each example counts with weight `keep`,
        and that of the one before it in the batch with weight 1 - `keep`: the second half of mixup.
        """
        function = LOSSES[self.kind]
        batch = self.take(rows).to(logits.device)
        values, gradients = function(logits, batch)
        value, gradient = values.mean(), gradients.div_(len(logits))
        if keep >= 1.0:
            return value, gradient
        others, other_gradients = function(logits, batch.roll(1, 0))
        other_gradient = other_gradients.div_(len(logits))
        return torch.lerp(others.mean(), value, keep), torch.lerp(other_gradient, gradient, keep)


@dataclass(frozen=True, kw_only=True, eq=False)
class Task:
    """What a run works on: examples, what is known about their labels, and the settings."""

    inputs: Inputs
    evidence: Evidence
    training: Training

    @property
    def steps_per_epoch(self) -> int:
        """The least number of batches that are no larger than asked for and have two examples each."""
        n = len(self.inputs)
        return max(1, min(-(-n // self.training.batch_size), n // 2))

    @property
    def epochs(self) -> int:
        """The number of passes over the data."""
        return self.training.count_epochs(self.steps_per_epoch)


@contextmanager
def seed_torch(seed: int, device: torch.device) -> Iterator[None]:
    """Seed torch's generators inside the `with`, and put them back as they were at its end."""
    devices = [device] if device.type == "cuda" else []
    with torch.random.fork_rng(devices=devices):
        torch.manual_seed(seed)
        yield


def start_run(module: nn.Module, training: Training) -> Run:
    """Return a run that has done nothing yet: a fresh optimizer on those of the module's weights that are trained."""
    weights = [weight for weight in module.parameters() if weight.requires_grad]
    optimizer: torch.optim.Optimizer
    if training.optimizer == "muon":
        make: Any = module.weight_groups  # "fast-cnn" alone has it
        optimizer = Muon(make(batch_size=training.batch_size, decay=training.weight_decay), lr=training.lr)
    elif training.optimizer == "adamw":
        optimizer = torch.optim.AdamW(weights, lr=training.lr, weight_decay=training.weight_decay)
    else:
        optimizer = torch.optim.SGD(weights, lr=training.lr, momentum=MOMENTUM, weight_decay=training.weight_decay)
    return Run(module=module, optimizer=optimizer, average=copy.deepcopy(module) if training.ema else None)


def train(
    run: Run,
    task: Task,
    *,
    after_step: Listener | None = None,
    after_epoch: Callable[[Run], None] | None = None,
) -> None:
    """Train from where the run is to the end, and leave `run.result` in evaluation mode.

    `after_step` is called after each step, `after_epoch` with the run after each epoch: an exception that they raise ends
    the run. A loss that is not finite is an error; the weights are then those before the step.
    """
    total = task.epochs * task.steps_per_epoch
    run.module.train()
    while run.epoch < task.epochs:
        done = run.epoch * task.steps_per_epoch
        losses = []
        for number, (rows, keep) in enumerate(draw_batches(task), start=done):
            losses.append(take_step(run, task, rows, keep=keep, part=(number + 0.5) / total, number=number))
            if after_step is not None:
                after_step(number + 1, total, losses[-1])
        run.epoch += 1
        run.history.append(math.fsum(losses) / len(losses))
        if after_epoch is not None:
            after_epoch(run)
    run.result.eval()


def draw_batches(task: Task) -> list[tuple[Tensor, float]]:
    """Return the batches of an epoch: the rows of each, sizes as equal as can be, and how much mixup keeps of an example."""
    order, count = torch.randperm(len(task.inputs)), task.steps_per_epoch
    alpha = task.training.mixup
    keeps = torch.distributions.Beta(alpha, alpha).sample((count,)).tolist() if alpha else [1.0] * count
    return list(zip(torch.tensor_split(order, count), keeps, strict=True))


def take_step(run: Run, task: Task, rows: Tensor, *, keep: float, part: float, number: int) -> float:
    """Take one step and return the loss before it.

    `part` in [0, 1] is the place in the run, which decides the rate and the size of images; `number` counts steps from 0 over
    the whole run. The moving average forgets faster in its first steps: its decay is at most (1 + number) / (10 + number).
    """
    training = task.training
    rate = training.lr * share_of_peak(training.schedule, training.measure_work(part), warm_up=training.warm_up)
    for group in run.optimizer.param_groups:
        group["lr"] = rate
    inputs = task.inputs.batch(rows)
    if inputs.ndim == 4:
        inputs = training.show_images(inputs, rows, part=part, epoch=run.epoch)
    with compute_in(training.precision, inputs.device):
        logits = mix_logits(run.module, inputs, keep=keep)
    if training.precision != "float32":
        logits = logits.float()
    loss, gradient = task.evidence.loss(logits.detach(), rows, keep=keep)
    value = float(loss)
    if not math.isfinite(value):
        raise _describe_divergence(value, epoch=run.epoch, step=number)
    run.optimizer.zero_grad(set_to_none=True)
    logits.backward(gradient)  # type: ignore[no-untyped-call]  # torch leaves it untyped
    run.optimizer.step()
    if run.average is not None:
        update_average(run.average, run.module, decay=min(training.ema, (1 + number) / (10 + number)))
    return value


def compute_in(precision: str, device: torch.device) -> AbstractContextManager[Any]:
    """Return what the forward pass of a step runs in: for "float32" it does nothing at all."""
    return nullcontext() if precision == "float32" else torch.autocast(device.type, dtype=torch.bfloat16)


def check_precision(precision: str, device: torch.device) -> None:
    """Refuse numbers that the device does not compute with; warn of a processor that has no instructions for them."""
    try:
        with compute_in(precision, device):
            pass
    except RuntimeError as error:
        fix = f"torch says: {str(error).splitlines()[0]}"
        raise invalid("NetClassifier", "precision", f"be 'float32' on {device}", got=precision, fix=fix) from error
    if precision == "bfloat16" and device.type == "cpu" and not multiplies_bfloat16():
        warnings.warn(
            "NetClassifier: this processor has no instructions for bfloat16, so that precision='bfloat16' takes longer than 'float32', "
            "and than the minutes that were asked for.",
            SlowPrecisionWarning,
            stacklevel=5,  # of `NetClassifier.fit`, who called it
        )


def multiplies_bfloat16() -> bool:
    """Whether the processor has instructions for bfloat16, as far as torch tells.

    Older versions of torch say how long the vectors of a processor are, and no more: where they are short there are none.
    """
    tell: Any = getattr(torch.cpu, "get_capabilities", None)
    if tell is None:
        return torch.backends.cpu.get_cpu_capability() not in WITHOUT_BFLOAT16
    found = tell()
    return any(found.get(name, False) for name in WITH_BFLOAT16)


#: What torch calls instructions for bfloat16, of x86 and of ARM; and kinds of processors of which none has them.
WITH_BFLOAT16 = ("avx512_bf16", "amx_bf16", "bf16", "sve_bf16")
WITHOUT_BFLOAT16 = ("NO AVX", "AVX2")


def _describe_divergence(value: float, *, epoch: int, step: int) -> LabelDPError:
    """Return the error for a loss that is not a number."""
    got = Described(f"{value} in epoch {epoch + 1}, step {step + 1}")
    fix = "Lower lr, or look for extreme values in X. The last checkpoint, if there is one, is as it was."
    return invalid("NetClassifier", "loss", "stay finite", got=got, fix=fix)


#: Where the paper's piecewise constant rate falls by ten.
FALLS = (0.3, 0.6, 0.9)


def share_of_peak(schedule: str, done: float, *, warm_up: float) -> float:
    """Return the learning rate as a share of its peak at `done` in [0, 1] of the run.

    Every schedule rises linearly in the first `warm_up` of the run. Then "linear" is a line to 0, "piecewise" falls to a
    tenth at 30, 60 and 90% of the run, and "constant" stays.

    >>> [round(share_of_peak("linear", at, warm_up=0.1), 2) for at in (0.0, 0.05, 0.1, 0.55, 1.0)]
    [0.0, 0.5, 1.0, 0.5, 0.0]
    >>> [round(share_of_peak("piecewise", at, warm_up=0.15), 3) for at in (0.15, 0.3, 0.6, 0.95)]
    [1.0, 0.1, 0.01, 0.001]
    """
    if done < warm_up:
        return done / warm_up
    if schedule == "linear":
        return (1 - done) / (1 - warm_up)
    if schedule == "piecewise":
        return float(0.1 ** sum(done >= fall for fall in FALLS))
    return 1.0


def mix_logits(module: nn.Module, inputs: Tensor, *, keep: float) -> Tensor:
    """Return the logits of inputs, each mixed with the one before it in the batch; `keep` 1 mixes nothing.

    Whole numbers (users and items) cannot be mixed: a module with `embed` and `head` is mixed between the two.
    """
    if keep >= 1.0:
        logits: Tensor = module(inputs)
        return logits
    embed: Any = getattr(module, "embed", None)
    head: Any = getattr(module, "head", None)
    if inputs.is_floating_point() or embed is None or head is None:
        mixed: Tensor = module(torch.lerp(inputs.roll(1, 0), inputs, keep))
        return mixed
    embedded = embed(inputs)
    answer: Tensor = head(torch.lerp(embedded.roll(1, 0), embedded, keep))
    return answer


@torch.no_grad()
def update_average(average: nn.Module, module: nn.Module, *, decay: float) -> None:
    """Move the average towards the module: average <- decay average + (1 - decay) module.

    BatchNorm's statistics are averaged like weights; its counts, which are whole numbers, are copied.
    """
    for kept, new in zip(average.state_dict().values(), module.state_dict().values(), strict=True):
        if kept.is_floating_point():
            kept.lerp_(new, 1 - decay)
        else:
            kept.copy_(new)


#: What a row of evidence of each kind means to the loss.
LOSSES: dict[str, Rows] = {
    "plain": plain_rows,
    "weighted": weighted_rows,
    "soft": soft_rows,
    "forward": forward_rows,
}


# ------------------------------------------------------------------------------------------------------------- progress


def check_progress(progress: Any) -> None:
    """Refuse what `open_progress` does not know."""
    if not callable(progress) and not isinstance(progress, bool):
        raise invalid("NetClassifier", "progress", "be a bool or a callable", got=progress)


@contextmanager
def open_progress(progress: Any, task: Task, *, words: str, number: int = 0, of: int = 1) -> Iterator[Listener | None]:
    """Give what is called after each step: nothing for False, the user's callable, or for True a bar on standard error.

    `words` say which network learns: a private fit may train several, one after the other. Of networks that will answer together
    this is `number`, from 0, `of` so many: steps, and the bar, are those of all of them.
    """
    if callable(progress):
        yield lambda done, total, loss: progress(number * total + done, of * total, loss)
    elif not progress:
        yield None
    else:
        with open_bar(words, total=of, done=number) as told:
            # The bar goes by work, since steps on larger images take longer: what is left of it is then what it says.
            measure = task.training.measure_work
            yield lambda done, total, loss: told(
                number + measure(done / total),
                words=f"{words}: loss {loss:.4f}, step {number * total + done} of {of * total}",
            )


def watch_pieces(pieces: Sequence[Any], *, words: str) -> Iterator[Any]:
    """Give pieces one after the other, and show on standard error how far they are."""
    with open_bar(words, total=len(pieces)) as told:
        for number, piece in enumerate(pieces):
            yield piece
            told(number + 1)
