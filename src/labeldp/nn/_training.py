"""The loop that trains a network: take a batch, change and mix it, step, and tell whoever listens.

Everything random (order, mixup, augmentation, dropout) comes from torch's own generators, seeded for the run and put back
afterwards, so that the run is a function of its seed and a checkpoint is two generator states and some arrays.

Mixup [Zhang et al. 2018] replaces inputs by keep x_i + (1 - keep) x_j and the loss by the same mixture of losses, keep drawn
from Beta(alpha, alpha) for each batch; j is the example before i in the batch, whose order is random.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

from labeldp.errors import Described, LabelDPError, invalid
from labeldp.nn._inputs import Inputs
from labeldp.nn._losses import Evidence
from labeldp.nn._presets import Training
from labeldp.nn._schedules import share_of_peak

#: (steps done, steps in all, loss of the last step)
Listener = Callable[[int, int, float], None]

MOMENTUM = 0.9


@dataclass(kw_only=True)
class Run:
    """Where a run has come to; `average` is the moving average of the weights, if there is one."""

    module: nn.Module
    optimizer: torch.optim.Optimizer
    average: nn.Module | None
    epoch: int = 0
    history: list[float] = field(default_factory=list)

    @property
    def result(self) -> nn.Module:
        """The network that predicts."""
        return self.module if self.average is None else self.average


@dataclass(frozen=True, kw_only=True, eq=False)
class Task:
    """What a run works on."""

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
        return self.training.passes(self.steps_per_epoch)


@contextmanager
def seeded(seed: int, device: torch.device) -> Iterator[None]:
    """Seed torch's generators, and put them back as they were at the end."""
    devices = [device] if device.type == "cuda" else []
    with torch.random.fork_rng(devices=devices):
        torch.manual_seed(seed)
        yield


def start(module: nn.Module, training: Training) -> Run:
    """Return a run that has done nothing yet: a fresh optimizer on the module's weights."""
    average = copy.deepcopy(module) if training.ema else None
    return Run(module=module, optimizer=optimizer_of(module, training), average=average)


def optimizer_of(module: nn.Module, training: Training) -> torch.optim.Optimizer:
    """Return the optimizer that the settings name."""
    weights = [weight for weight in module.parameters() if weight.requires_grad]
    if training.optimizer == "adamw":
        return torch.optim.AdamW(weights, lr=training.lr, weight_decay=training.weight_decay)
    return torch.optim.SGD(weights, lr=training.lr, momentum=MOMENTUM, weight_decay=training.weight_decay)


def train(
    run: Run,
    task: Task,
    *,
    after_step: Listener | None = None,
    after_epoch: Callable[[Run], None] | None = None,
) -> None:
    """Train from where the run is to the end."""
    total = task.epochs * task.steps_per_epoch
    run.module.train()
    while run.epoch < task.epochs:
        done = run.epoch * task.steps_per_epoch
        losses = []
        for number, (rows, keep) in enumerate(batches(task), start=done):
            losses.append(step(run, task, rows, keep=keep, done=(number + 0.5) / total, number=number))
            if after_step is not None:
                after_step(number + 1, total, losses[-1])
        run.epoch += 1
        run.history.append(math.fsum(losses) / len(losses))
        if after_epoch is not None:
            after_epoch(run)
    run.result.eval()


def batches(task: Task) -> list[tuple[Tensor, float]]:
    """Return the rows of each batch of an epoch, sizes as equal as can be, and how much mixup keeps of each example."""
    order, count = torch.randperm(len(task.inputs)), task.steps_per_epoch
    alpha = task.training.mixup
    keeps = torch.distributions.Beta(alpha, alpha).sample((count,)).tolist() if alpha else [1.0] * count
    return list(zip(torch.tensor_split(order, count), keeps, strict=True))


def step(run: Run, task: Task, rows: Tensor, *, keep: float, done: float, number: int) -> float:
    """Take one step and return the loss before it."""
    training = task.training
    rate = training.lr * share_of_peak(training.schedule, done, warm_up=training.warm_up)
    for group in run.optimizer.param_groups:
        group["lr"] = rate
    inputs = task.inputs.batch(rows)
    if training.augment and inputs.ndim == 4:
        inputs = training.augment(inputs)
    logits = mixed_logits(run.module, inputs, keep=keep)
    loss, gradient = task.evidence.loss(logits.detach(), rows, keep=keep)
    value = float(loss)
    if not math.isfinite(value):
        raise not_finite(value, epoch=run.epoch, step=number)
    run.optimizer.zero_grad(set_to_none=True)
    logits.backward(gradient)  # type: ignore[no-untyped-call]  # torch leaves it untyped
    run.optimizer.step()
    if run.average is not None:
        follow(run.average, run.module, decay=min(training.ema, (1 + number) / (10 + number)))
    return value


def mixed_logits(module: nn.Module, inputs: Tensor, *, keep: float) -> Tensor:
    """Return the logits of inputs, each mixed with the one before it; numbers are mixed after their embedding."""
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
def follow(average: nn.Module, module: nn.Module, *, decay: float) -> None:
    """Move the average towards the module: average <- decay average + (1 - decay) module; counts are copied."""
    for kept, new in zip(average.state_dict().values(), module.state_dict().values(), strict=True):
        if kept.is_floating_point():
            kept.lerp_(new, 1 - decay)
        else:
            kept.copy_(new)


def not_finite(value: float, *, epoch: int, step: int) -> LabelDPError:
    """Return the error for a loss that is not a number."""
    got = Described(f"{value} in epoch {epoch + 1}, step {step + 1}")
    fix = "Lower lr, or look for extreme values in X. The last checkpoint, if there is one, is as it was."
    return invalid("NetClassifier", "loss", "stay finite", got=got, fix=fix)
