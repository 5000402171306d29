"""The losses of a release in a loop of one's own: the plain formula, finite differences, the network's own loop, bad input."""

from __future__ import annotations

import copy
import pickle

import numpy as np
import pytest
import torch
from torch.autograd import gradcheck, gradgradcheck

from labeldp import InformativeResponse, RandomizedResponse, SensitiveLabels, privatize
from labeldp.channel import CandidateChannel
from labeldp.errors import LabelDPError
from labeldp.mechanisms import RRWithPrior
from labeldp.nn import ForwardLoss, NetClassifier, PosteriorLoss, UnbiasedLoss
from labeldp.nn.inputs import ArrayInputs
from labeldp.nn.models import build
from labeldp.nn.training import Evidence, Task, draw_batches, seed_torch, share_of_peak

K = 5
PRIOR = [0.1, 0.4, 0.2, 0.2, 0.1]
LOSSES = {"forward": ForwardLoss(), "unbiased": UnbiasedLoss(), "posterior": PosteriorLoss(prior=PRIOR)}


def make_logits(n: int = 7, dtype: torch.dtype = torch.float64) -> torch.Tensor:
    return (torch.randn(n, K, generator=torch.Generator().manual_seed(0), dtype=torch.float64) * 3).to(dtype)


def make_evidence(name: str, n: int = 7) -> torch.Tensor:
    drawn = torch.rand(n, K, dtype=torch.float64, generator=torch.Generator().manual_seed(1)) + 0.05
    if name == "unbiased":
        signed = 4 * drawn - 2
        return signed - signed.mean(1, keepdim=True) + 1 / K  # rows sum to one, entries of both signs
    drawn[:, 2] = 0.0  # a label that cannot have given the answer
    return drawn


def plain_formula(name: str, logits: torch.Tensor, evidence: torch.Tensor) -> torch.Tensor:
    """The definition, as a textbook has it; a value per example."""
    if name == "forward":
        return -(logits.softmax(1) * evidence).sum(1).log()
    if name == "posterior":
        joint = evidence * torch.tensor(PRIOR, dtype=torch.float64)
        evidence = joint / joint.sum(1, keepdim=True)
    return -(evidence * logits.log_softmax(1)).sum(1)


@pytest.mark.parametrize("name", LOSSES)
@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
@pytest.mark.parametrize("weighted", [False, True])
def test_it_is_the_plain_formula(name: str, reduction: str, *, weighted: bool):
    evidence = make_evidence(name)
    weights = torch.arange(7, dtype=torch.float64) if weighted else None
    outer = torch.linspace(-1, 2, 7, dtype=torch.float64) if reduction == "none" else None
    ours, theirs = (make_logits().requires_grad_() for _ in range(2))
    loss = copy.deepcopy(LOSSES[name])
    loss.reduction = reduction
    value = loss(ours, evidence, sample_weight=weights)
    value.backward(outer)
    rows = plain_formula(name, theirs, evidence) * (1.0 if weights is None else weights)
    expected = {"mean": rows.mean(), "sum": rows.sum(), "none": rows}[reduction]
    expected.backward(outer)
    # float64: the two ways differ by the order of a handful of additions, and PosteriorLoss holds its prior as float32 (1e-7).
    room = 1e-6 if name == "posterior" else 1e-11
    assert torch.allclose(value, expected, rtol=room, atol=room)
    assert torch.allclose(ours.grad, theirs.grad, rtol=room, atol=room)


@pytest.mark.parametrize("name", LOSSES)
def test_finite_differences_once_and_twice(name: str):
    evidence, logits = make_evidence(name), make_logits().requires_grad_()
    for reduction in ("mean", "none"):
        loss = copy.deepcopy(LOSSES[name])
        loss.reduction = reduction
        assert gradcheck(lambda z, loss=loss: loss(z, evidence), (logits,))
        assert gradgradcheck(lambda z, loss=loss: loss(z, evidence), (logits,))


def test_finite_differences_catch_a_wrong_gradient():
    """The broken twin: the posterior's gradient for the forward loss's value."""

    class Wrong(torch.autograd.Function):
        @staticmethod
        def forward(ctx, z, likelihood):
            ctx.save_for_backward(z, likelihood)
            return plain_formula("forward", z, likelihood)

        @staticmethod
        def backward(ctx, outer):
            z, likelihood = ctx.saved_tensors
            return outer[:, None] * (z.softmax(1) - likelihood / likelihood.sum(1, keepdim=True)), None

    logits, evidence = make_logits().requires_grad_(), make_evidence("forward")
    assert not gradcheck(lambda z: Wrong.apply(z, evidence), (logits,), raise_exception=False)


def test_a_penalty_of_the_gradient_trains():
    """Who differentiates twice gets what autograd gives for the plain formula."""
    evidence = make_evidence("forward")
    found = []
    for function in (ForwardLoss(), lambda z, e: plain_formula("forward", z, e).mean()):
        logits = make_logits().requires_grad_()
        (slope,) = torch.autograd.grad(function(logits, evidence), logits, create_graph=True)
        slope.square().sum().backward()
        found.append(logits.grad)
    assert torch.allclose(*found, rtol=1e-10, atol=1e-12)  # float64, another order of additions


def test_a_posterior_of_the_model_itself_has_the_forward_gradient():
    """EM and the likelihood have one gradient where the E-step is of this very model."""
    evidence = make_evidence("forward")
    one, other = (make_logits().requires_grad_() for _ in range(2))
    ForwardLoss()(one, evidence).backward()
    PosteriorLoss()(other, evidence, prior=other.softmax(1)).backward()
    assert torch.allclose(one.grad, other.grad, rtol=1e-11, atol=1e-13)  # float64


# ------------------------------------------------------------------------------------------ one implementation for both


@pytest.mark.parametrize(("kind", "name"), [("forward", "forward"), ("soft", "unbiased")])
def test_the_network_s_own_loop_uses_them(kind: str, name: str):
    evidence, logits = make_evidence(name).float(), make_logits(dtype=torch.float32)
    value, gradient = Evidence(kind=kind, values=evidence, n_classes=K).loss(logits, torch.arange(7))
    leaf = logits.clone().requires_grad_()
    ours = LOSSES[name](leaf, evidence)
    ours.backward()
    assert ours.item() == value.item()
    # Autograd multiplies each row by 1/7, where the loop divides by 7.
    assert torch.allclose(leaf.grad, gradient, rtol=1e-6, atol=0)


def test_a_loop_by_hand_ends_where_net_classifier_does(blobs):
    """The same batches, rates and first weights: the same network but for rounding."""
    X, y = blobs
    release = privatize(SensitiveLabels(y, classes=range(3)), InformativeResponse(3.0), rng=0)
    likelihood = release.channel.likelihood(release.codes)
    settings = {
        "epochs": 2,
        "batch_size": 64,
        "dropout": 0.0,
        "ema": 0.0,
        "mixup": 0.0,
        "schedule": "constant",
        "lr": 1e-3,
    }
    model = NetClassifier("mlp", hidden=8, optimizer="sgd", weight_decay=0.0, random_state=3, **settings)
    made = NetClassifier(
        "mlp", hidden=8, dropout=0.0, epochs=1, batch_size=512, lr=1e-30, optimizer="sgd", random_state=3
    )
    made.set_params(weight_decay=0.0, ema=0.0, mixup=0.0).fit_likelihood(X, likelihood, classes=range(3))
    network = copy.deepcopy(made.module_)  # one step of rate 1e-30: the first weights of this seed
    model.fit_likelihood(X, likelihood, classes=range(3))

    inputs = ArrayInputs.of(X)
    task = Task(
        inputs=inputs, evidence=Evidence(kind="forward", values=torch.zeros(1), n_classes=3), training=model.training_
    )
    optimizer = torch.optim.SGD(network.parameters(), lr=1e-3, momentum=0.9)
    loss, network = ForwardLoss(), network.train()
    rows_of_evidence = torch.from_numpy(likelihood).float()
    seed = int(np.random.RandomState(3).randint(2**31))
    with seed_torch(seed, torch.device("cpu")):
        build("mlp", n_classes=3, sample_shape=(5,), hidden=8, dropout=0.0)  # draws what the first weights drew
        total, number = task.epochs * task.steps_per_epoch, 0
        for _ in range(task.epochs):
            for rows, _keep in draw_batches(task):
                rate = share_of_peak("constant", (number + 0.5) / total, warm_up=model.training_.warm_up)
                for group in optimizer.param_groups:
                    group["lr"] = 1e-3 * rate
                optimizer.zero_grad()
                loss(network(inputs.batch(rows)), rows_of_evidence[rows]).backward()
                optimizer.step()
                number += 1
    for ours, theirs in zip(network.parameters(), model.module_.parameters(), strict=True):
        # float32, 16 steps; 1/n is multiplied here and divided there.
        assert torch.allclose(ours, theirs, rtol=1e-4, atol=1e-6)


# -------------------------------------------------------------------------------------------------- precision and devices


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize("name", LOSSES)
def test_half_precision_is_computed_in_float32(name: str, dtype: torch.dtype):
    evidence = make_evidence(name).float()
    logits = make_logits(dtype=dtype).requires_grad_()
    value = LOSSES[name](logits, evidence)
    value.backward()
    exact = plain_formula(name, logits.detach().double(), evidence.double()).mean()
    assert value.dtype == torch.float32
    assert value.item() == pytest.approx(float(exact), rel=1e-5, abs=1e-5)  # of float32; halves are off by 1e-3
    assert logits.grad.dtype == dtype


def test_autocast_trains():
    network = torch.nn.Linear(4, K)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        logits = network(torch.ones(7, 4))
        value = ForwardLoss()(logits, make_evidence("forward"))
    value.backward()
    assert logits.dtype == torch.bfloat16
    assert value.dtype == torch.float32
    assert all(torch.isfinite(weight.grad).all() for weight in network.parameters())


def test_a_difference_of_two_hundred_does_not_underflow():
    logits = torch.tensor([[200.0, 0.0, -50.0]], requires_grad=True)
    value = ForwardLoss()(logits, torch.tensor([[0.0, 0.25, 0.0]]))
    value.backward()
    assert value.item() == pytest.approx(200 - np.log(0.25), rel=1e-6)  # e^-200 beside 1; float32 has seven digits
    assert logits.grad[0].tolist() == pytest.approx([1.0, -1.0, 0.0], abs=1e-6)


@pytest.mark.parametrize("name", LOSSES)
def test_everything_stays_on_the_device_of_the_logits(name: str):
    """The device "meta" holds no numbers and refuses to mix with the CPU, as a GPU does: all that is made must be made there."""
    logits = torch.empty(7, K, device="meta", requires_grad=True)
    with pytest.raises(RuntimeError, match="expected device meta"):
        logits * torch.ones(7, K)
    value = LOSSES[name](logits, make_evidence(name).float(), sample_weight=torch.ones(7))
    (slope,) = torch.autograd.grad(value, logits, create_graph=True)
    slope.sum().backward()
    assert value.device.type == logits.grad.device.type == "meta"
    Evidence(kind="forward", values=torch.ones(7, K), n_classes=K).loss(logits.detach(), torch.arange(7), keep=0.5)


# ------------------------------------------------------------------------------------------------------ kinds of releases

CHANNELS = {
    "labels": RandomizedResponse(1.0),
    "sets without a prior": InformativeResponse(1.0),
    "sets by a prior": InformativeResponse(1.0),
    "candidates": RRWithPrior(1.0),
}


@pytest.mark.parametrize("name", CHANNELS)
def test_every_kind_of_release_gives_its_likelihood(name: str):
    rng = np.random.default_rng(0)
    prior = rng.dirichlet(np.ones(K), size=40) if name in {"sets by a prior", "candidates"} else None
    labels = SensitiveLabels(rng.integers(0, K, 40), classes=range(K))
    release = privatize(labels, CHANNELS[name], prior=prior, rng=0)
    assert isinstance(release.channel, CandidateChannel) == (name == "candidates")
    data = release.dataset(np.zeros((40, 2)))
    batch = torch.utils.data.default_collate(data.__getitems__(list(range(40))))[1]
    assert np.allclose(batch.numpy(), release.channel.likelihood(release.codes), rtol=1e-6)  # as float32
    logits = make_logits(40).requires_grad_()
    ForwardLoss()(logits, batch).backward()
    assert torch.isfinite(logits.grad).all()


def test_unbiased_targets_have_the_clean_loss_as_their_mean():
    """Over all outputs of the channel, exactly: the oracle is enumeration."""
    release = privatize(SensitiveLabels([2], classes=range(3)), RandomizedResponse(1.0), rng=0)
    logits = torch.tensor([[0.3, -1.0, 2.0]], dtype=torch.float64)
    targets = release.channel.unbiased_targets(np.arange(3))
    losses = [UnbiasedLoss()(logits, torch.from_numpy(row[None])).item() for row in targets]
    expected = -logits.log_softmax(1)[0]
    assert np.allclose(release.channel.matrix(0) @ losses, expected, rtol=1e-12)  # float64


# ---------------------------------------------------------------------------------------------------------- bad input


def test_bad_input_is_refused_with_the_fix():
    logits, likelihood = make_logits(20), make_evidence("forward", 20)
    loss = ForwardLoss()
    for wrong in (
        likelihood[:19],
        likelihood[:, :4],
        likelihood[0],
        torch.ones(20, dtype=torch.long),
        None,
        ["a"] * 20,
    ):
        with pytest.raises(LabelDPError, match=r"ForwardLoss: `likelihood` must have a row .* `release\.dataset\(X\)`"):
            loss(logits, wrong)
    for wrong in (logits[0], logits.long(), "logits"):
        with pytest.raises(LabelDPError, match="`logits` must be a tensor"):
            loss(wrong, likelihood)
    for place, value in (((3, 1), float("nan")), ((3, 1), float("inf")), ((3, 1), -0.1), ((3, slice(None)), 0.0)):
        wrong = likelihood.clone()
        wrong[place] = value
        with pytest.raises(LabelDPError, match="row 3 of the batch"):
            loss(logits, wrong)
    with pytest.raises(LabelDPError, match="need no gradient"):
        loss(logits, likelihood.clone().requires_grad_())
    with pytest.raises(LabelDPError, match="sample_weight"):
        loss(logits, likelihood, sample_weight=torch.ones(19))
    for value in (-1.0, float("nan"), float("inf")):
        weights = torch.ones(20)
        weights[5] = value
        with pytest.raises(LabelDPError, match="`sample_weight` must be finite and >= 0, got another one in row 5"):
            loss(logits, likelihood, sample_weight=weights)
    for each in (ForwardLoss(), PosteriorLoss(), UnbiasedLoss()):
        with pytest.raises(LabelDPError, match="`logits` must have a row or more, got an empty batch"):
            each(logits[:0], likelihood[:0])
    assert torch.isnan(loss(logits * float("nan"), likelihood))  # as PyTorch's own: docs/pytorch.md says why
    with pytest.raises(LabelDPError, match="reduction"):
        ForwardLoss(reduction="median")


def test_evidence_of_the_wrong_kind_is_refused():
    logits = make_logits(20)
    with pytest.raises(LabelDPError, match="Signed targets are for UnbiasedLoss"):
        ForwardLoss()(logits, make_evidence("unbiased", 20))
    # Randomized response's likelihoods sum to one, as signed targets do.
    likelihood = RandomizedResponse(1.0, n_classes=K).channel().likelihood(np.zeros(20, int))
    assert np.allclose(likelihood.sum(axis=1), 1)
    with pytest.raises(LabelDPError, match='evidence="unbiased"'):
        UnbiasedLoss()(logits, likelihood)
    with pytest.raises(LabelDPError, match="sum to 1"):
        UnbiasedLoss()(logits, make_evidence("forward", 20))
    one_hot = torch.eye(K, dtype=torch.float64)[torch.arange(20) % K]  # epsilon infinite: signed targets without a sign
    assert UnbiasedLoss()(logits, one_hot).item() > 0


def test_a_prior_must_leave_something_to_believe():
    with pytest.raises(LabelDPError, match="prior"):
        PosteriorLoss(prior=[0.5, -0.5])
    with pytest.raises(LabelDPError, match="prior"):
        PosteriorLoss()(make_logits(), make_evidence("forward"), prior=torch.ones(3))
    none = torch.tensor([0.0, 0.0, 1.0, 0.0, 0.0])
    with pytest.raises(LabelDPError, match="row 0 of the batch"):
        PosteriorLoss()(make_logits(), make_evidence("forward"), prior=none)


def test_modules_travel():
    loss = PosteriorLoss(prior=PRIOR, reduction="sum", check=False)
    copied = pickle.loads(pickle.dumps(loss))  # our own object in our own test
    assert repr(copied) == "PosteriorLoss(reduction='sum', check=False)"
    assert torch.equal(copied.prior, loss.prior)
    assert list(loss.state_dict()) == ["prior"]
