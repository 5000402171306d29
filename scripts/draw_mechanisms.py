"""Draw what goes into each mechanism and what comes out, at three values of epsilon: the pictures of docs/mechanisms.md.

Every number is exact: it is read off the channel that the mechanism makes (for peers, off their accountant; for counts, off the
law of the noise). Classes are A to E, and what is believed about them, where a mechanism asks for that, is `PRIOR`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np
from drawing import RULE, SOFT, box, line, picture, series, sticks, text

from labeldp.accounting import calibrate_peers
from labeldp.mechanisms import (
    BinnedResponse,
    ClusterRR,
    InformativeResponse,
    LaplaceResponse,
    MeanInformation,
    NumericMechanism,
    OptimalResponse,
    PeerToPeerRR,
    RandomizedResponse,
    RRTopK,
    RRWithPrior,
    UnbiasedResponse,
)

EPSILONS = (0.5, 1.0, 4.0)
LETTERS, STARS = "ABCDE", "12345"
PRIOR = np.array([0.5, 0.25, 0.13, 0.08, 0.04])
STAR_PRIOR = np.array([0.05, 0.1, 0.25, 0.35, 0.25])
AMOUNT, BOUNDS = 25.0, (0.0, 100.0)
PEERS, DELTA = 200, 1e-5

#: In pixels: the width of a drawing and of a panel, where panels begin, and the size of a cell of a matrix.
WIDTH, PANEL_WIDTH, LEFT, TOP = 680.0, 212.0, 30.0, 30.0
CELL = 31.0
#: How full the cell of a certain answer is: numbers keep a contrast above 4.5 to it, on light screens and on dark ones.
FULL = 0.5


def draw_prior(prior: np.ndarray, letters: str, *, top: float, title: str = "what is believed") -> list[str]:
    """What is believed before: a bar for each class, with its share."""
    parts = [text(LEFT, top + 36, title, size=13, colour=SOFT)]
    for place, (letter, mass) in enumerate(zip(letters, prior, strict=True)):
        x, high = LEFT + 140 + 96 * place, 40 * float(mass) / float(prior.max())
        parts.append(box(x, top + 40 - high, 26, high, fill=SOFT, stroke="none", strength=0.7, round_by=1))
        parts.append(text(x + 30, top + 38, f"{letter} {100 * mass:.0f}%", size=13))
    return parts


def draw_matrix(matrix: np.ndarray, rows: Sequence[str], columns: Sequence[str], *, x: float, top: float) -> list[str]:
    """A square for each true label and answer, as full as the answer is likely; names of answers stand over their columns."""
    parts = []
    for place, name in enumerate(columns):
        for depth, letter in enumerate(name):
            y = top - 6 - 14 * (len(name) - 1 - depth)
            parts.append(text(x + 22 + CELL * (place + 0.5), y, letter, size=13, anchor="middle"))
    for number, name in enumerate(rows):
        y = top + CELL * number
        parts.append(text(x + 14, y + 20, name, size=13, bold=True, anchor="end"))
        for place, chance in enumerate(matrix[number]):
            left, share = x + 22 + CELL * place, float(chance)
            parts.append(
                box(left, y, CELL - 2, CELL - 2, fill=series(0), stroke=RULE, strength=FULL * share, round_by=3)
            )
            if share >= 0.005:
                parts.append(text(left + CELL / 2 - 1, y + 19, f"{100 * share:.0f}", size=12, anchor="middle"))
    return parts


def draw_panels(
    panel: Callable[[float, float, float], tuple[list[str], str]],
    *,
    height: float,
    words: str,
    head: Sequence[str] = (),
    foot: str = "",
) -> str:
    """Three panels beside each other, each under its epsilon and over what it says of itself."""
    top = TOP + (58 if head else 0)
    parts = list(head)
    for place, epsilon in enumerate(EPSILONS):
        x = LEFT + (PANEL_WIDTH + 6) * place
        drawn, says = panel(epsilon, x - 14, top + 28)
        parts += [text(x + 8, top, f"epsilon {epsilon:g}", size=15, bold=True), *drawn]
        parts.append(text(x + 8, top + height + 30, says, size=13))
    bottom = top + height + 46
    if foot:
        parts.append(text(LEFT, bottom + 8, foot, size=13, colour=SOFT))
        bottom += 20
    return picture(WIDTH, bottom + 6, parts, words=words)


def draw_response(
    make: Callable[[float], np.ndarray],
    *,
    words: str,
    prior: np.ndarray | None = None,
    believed: str = "what is believed",
    letters: str = LETTERS,
) -> str:
    """A mechanism that answers with a label: rows are what is true, columns what is said."""
    beliefs = np.full(5, 0.2) if prior is None else prior

    def panel(epsilon: float, x: float, top: float) -> tuple[list[str], str]:
        matrix = make(epsilon)
        right = 100 * float(beliefs @ np.diagonal(matrix))
        return draw_matrix(matrix, letters, letters, x=x, top=top), f"the label is right: {right:.0f}%"

    head = [] if prior is None else draw_prior(prior, letters, top=6, title=believed)
    foot = "down: what is true; across: what is said; numbers are %"
    return draw_panels(panel, height=CELL * 5 + 20, words=words, head=head, foot=foot)


def draw_sets(prior: np.ndarray | None, *, words: str) -> str:
    """InformativeResponse: columns are sets of classes."""
    beliefs = np.full(5, 0.2) if prior is None else prior

    def panel(epsilon: float, x: float, top: float) -> tuple[list[str], str]:
        channel = InformativeResponse(epsilon, n_classes=5).channel(None if prior is None else prior[None])
        matrix = channel.matrix(0)
        given = np.flatnonzero(matrix.max(axis=0) > 0)
        inside = matrix > matrix.min(axis=0)
        names = ["".join(np.array(list(LETTERS))[inside[:, answer]]) for answer in given]
        right = 100 * float(beliefs @ np.where(inside, matrix, 0.0).sum(axis=1))
        return draw_matrix(
            matrix[:, given], LETTERS, names, x=x, top=top + 28
        ), f"it names the true class: {right:.0f}%"

    head = [] if prior is None else draw_prior(prior, LETTERS, top=6)
    foot = "down: what is true; across: the set of classes that is said; numbers are %"
    return draw_panels(panel, height=CELL * 5 + 48, words=words, head=head, foot=foot)


def draw_optimal() -> str:
    """OptimalResponse for stars: few answers, each of which stands for a group of neighbours."""
    objective = MeanInformation(values=(1, 2, 3, 4, 5))

    def panel(epsilon: float, x: float, top: float) -> tuple[list[str], str]:
        matrix = OptimalResponse(epsilon, objective=objective).channel(STAR_PRIOR).matrix()
        matrix = matrix[:, matrix.max(axis=0) > 0]
        said = [f"#{number + 1}" for number in range(matrix.shape[1])]
        parts = draw_matrix(matrix, STARS, [""] * len(said), x=x, top=top)
        parts += [
            text(x + 22 + CELL * (n + 0.5), top - 6, name, size=13, anchor="middle") for n, name in enumerate(said)
        ]
        return parts, f"{len(said)} answers"

    words = "OptimalResponse for a rating of one to five stars: at a small epsilon it answers with one of two groups of stars."
    foot = "down: how many stars; across: the answer that is given; numbers are %"
    return draw_panels(panel, height=CELL * 5 + 20, words=words, head=draw_prior(STAR_PRIOR, STARS, top=6), foot=foot)


def draw_number(kind: Callable[[float], NumericMechanism], *, words: str) -> str:
    """A mechanism for numbers: the law of its answers to one amount, and the amount."""
    channels = {epsilon: kind(epsilon).channel() for epsilon in EPSILONS}

    def panel(epsilon: float, x: float, top: float) -> tuple[list[str], str]:
        channel, height = channels[epsilon], 110.0
        level = int(np.argmin(np.abs(channel.levels - AMOUNT)))
        chances, values = channel.transition[0, level], channel.values[0]
        if not math.isclose(channel.levels[level], AMOUNT):  # between two levels: rounded at random, its mean kept
            other = level + (1 if channel.levels[level] < AMOUNT else -1)
            share = (AMOUNT - channel.levels[level]) / (channel.levels[other] - channel.levels[level])
            chances = (1 - share) * chances + share * channel.transition[0, other]
        there = np.flatnonzero(chances > 1e-4)
        low, high = min(float(values[there].min()), BOUNDS[0]), max(float(values[there].max()), BOUNDS[1])

        def at(value: float) -> float:
            return x + 30 + (PANEL_WIDTH - 44) * (value - low) / (high - low)

        most = float(chances[there].max())
        parts = [
            box(
                at(BOUNDS[0]),
                top,
                at(BOUNDS[1]) - at(BOUNDS[0]),
                height,
                fill=SOFT,
                stroke="none",
                strength=0.12,
                round_by=0,
            )
        ]
        parts.append(line(x + 26, top + height, x + PANEL_WIDTH - 8, top + height))
        tall = [(at(float(values[answer])), (height - 8) * float(chances[answer]) / most) for answer in there]
        parts.append(sticks(tall, top + height, stroke=series(0)))
        parts.append(line(at(AMOUNT), top - 4, at(AMOUNT), top + height, stroke=series(1), width=2, dash="5 3"))
        parts.append(text(at(low), top + height + 16, f"{low:.0f}", size=12, anchor="middle"))
        parts.append(text(at(high), top + height + 16, f"{high:.0f}", size=12, anchor="middle"))
        spread = math.sqrt(float(chances @ (values - AMOUNT) ** 2))
        return parts, f"off by {spread:.0f} (root mean square)"

    foot = f"The true amount is {AMOUNT:.0f} (dashed), and the mean of the answers; amounts lie in the grey part, {BOUNDS[0]:.0f} to {BOUNDS[1]:.0f}."
    return draw_panels(panel, height=140, words=words, foot=foot)


def draw_peers() -> str:
    """PeerToPeerRR: how often a label is flipped so that the learner is told epsilon, and what a peer is told."""

    def panel(epsilon: float, x: float, top: float) -> tuple[list[str], str]:
        alpha = calibrate_peers(epsilon=epsilon, delta=DELTA, cluster_size=PEERS, theta=1.0)
        flips = np.array([[1 - alpha, alpha], [alpha, 1 - alpha]])
        told = PeerToPeerRR(alpha, theta=1.0).peer_guarantee.epsilon()
        return draw_matrix(flips, ("no", "yes"), ("N", "Y"), x=x + 14, top=top), f"to a peer: epsilon {told:.2f}"

    words = f"PeerToPeerRR in a cluster of {PEERS}: each label is flipped by its owner, then told under somebody else's name."
    foot = f"down: her label; across: what she tells whoever asks her, %. Epsilon is the learner's, {PEERS} peers, delta {DELTA:g}."
    return draw_panels(panel, height=CELL * 2 + 20, words=words, foot=foot)


def draw_counts() -> str:
    """`measure` with LabelCounts: the law of the noise on one count."""

    def panel(epsilon: float, x: float, top: float) -> tuple[list[str], str]:
        rate, height, reach = epsilon / 2, 110.0, 20
        parts = [line(x + 26, top + height, x + PANEL_WIDTH - 8, top + height)]

        def at(noise: int) -> float:
            return x + 30 + (PANEL_WIDTH - 44) * (noise + reach) / (2 * reach)

        # Chances are proportional to e^(-rate |noise|), and the stick of no noise is the tallest.
        tall = [(at(noise), (height - 8) * math.exp(-rate * abs(noise))) for noise in range(-reach, reach + 1)]
        parts.append(sticks(tall, top + height, stroke=series(0)))
        parts += [
            text(at(noise), top + height + 16, f"{400 + noise}", size=12, anchor="middle")
            for noise in (-reach, 0, reach)
        ]
        spread = math.sqrt(2 * math.exp(-rate)) / (1 - math.exp(-rate))
        return parts, f"off by {spread:.1f} (root mean square)"

    words = "The noisy count of a class that 400 rows have: whole numbers around 400, spread the less the larger epsilon is."
    foot = "A class has 400 rows, of three classes or more: what a curator releases as its count."
    return draw_panels(panel, height=140, words=words, foot=foot)


DRAWINGS: dict[str, Callable[[], str]] = {
    "mechanism-RandomizedResponse": lambda: draw_response(
        lambda epsilon: RandomizedResponse(epsilon, n_classes=5).channel().matrix(),
        words="RandomizedResponse among five classes: the label is kept more often the larger epsilon is, and is else any other.",
    ),
    "mechanism-RRTopK": lambda: draw_response(
        lambda epsilon: RRTopK(epsilon, k=2).channel(PRIOR).matrix(),
        prior=PRIOR,
        words="RRTopK with k = 2: only the two likeliest classes are ever said.",
    ),
    "mechanism-RRWithPrior": lambda: draw_response(
        lambda epsilon: RRWithPrior(epsilon).channel(PRIOR).matrix(),
        prior=PRIOR,
        words="RRWithPrior: at a small epsilon the likeliest class is said always, at a larger one more classes may be said.",
    ),
    "mechanism-InformativeResponse": lambda: draw_sets(
        None,
        words="InformativeResponse without a prior: the answer is a set of classes, which has the true one in it more often than any other.",
    ),
    "mechanism-InformativeResponse-prior": lambda: draw_sets(
        PRIOR, words="InformativeResponse with a prior: sets of about equal weight, one of which is said."
    ),
    "mechanism-OptimalResponse": draw_optimal,
    "mechanism-ClusterRR": lambda: draw_response(
        lambda epsilon: ClusterRR(epsilon).channel(PRIOR).matrix(),
        prior=PRIOR,
        believed="shares in the cluster",
        words="ClusterRR in a cluster with these shares: a label is kept, or redrawn from the shares of its cluster.",
    ),
    "mechanism-PeerToPeerRR": draw_peers,
    "mechanism-UnbiasedResponse": lambda: draw_number(
        lambda epsilon: UnbiasedResponse(epsilon, bounds=BOUNDS),
        words="UnbiasedResponse to an amount of 25: a few answers, some outside of the bounds, whose mean is 25.",
    ),
    "mechanism-LaplaceResponse": lambda: draw_number(
        lambda epsilon: LaplaceResponse(epsilon, bounds=BOUNDS),
        words="LaplaceResponse to an amount of 25: answers around it, which reach far outside of the bounds.",
    ),
    "mechanism-BinnedResponse": lambda: draw_number(
        lambda epsilon: BinnedResponse(epsilon, bounds=BOUNDS),
        words="BinnedResponse to an amount of 25: randomized response among a few levels, stretched so that its mean is right.",
    ),
    "mechanism-LabelCounts": draw_counts,
}
