"""Exact laws of every selection on a few candidates, written from the papers' pseudo-code and not from the library.

The library's public constants (scales, offsets, thresholds) go in; a mapping from outcome to probability comes out.
"""

from __future__ import annotations

import itertools
import math
from types import SimpleNamespace

import numpy as np
import pytest


def sorted_counts(h):
    return np.sort(np.asarray(h))[::-1]


def gaps(h):
    ordered = sorted_counts(h)
    return ordered[:-1] - ordered[1:]


def top_set(h, k):
    return frozenset(np.argsort(-np.asarray(h), kind="stable")[:k].tolist())


def softmax(scores):
    weights = np.exp(np.asarray(scores, float) - np.max(scores))
    return weights / weights.sum()


def discrete_laplace(rate, reach=400):
    z = np.arange(-reach, reach + 1)
    law = np.exp(-rate * np.abs(z))
    return z, law / law.sum()


def discrete_exponential(rate, reach=400):
    z = np.arange(reach + 1)
    law = np.exp(-rate * z)
    return z, law / law.sum()


def discrete_noise(noise, scale, reach=400):
    """The law of one draw of this noise and scale."""
    if noise == "gaussian":
        return discrete_gaussian(scale**2, reach)
    return {"laplace": discrete_laplace, "exponential": discrete_exponential}[noise](1 / scale, reach)


def discrete_gaussian(variance, reach=400):
    z = np.arange(-reach, reach + 1)
    law = np.exp(-(z**2) / (2 * variance))
    return z, law / law.sum()


def noisy_argmax(scores, law):
    """Pr[i wins], equal noisy scores going to the smaller index: a sum over i's noise of the others' distribution."""
    z, mass = law
    below = np.concatenate([[0.0], np.cumsum(mass)])
    chances = []
    for i, score in enumerate(scores):
        product = mass.copy()
        for j, other in enumerate(scores):
            if j != i:
                reach = z + score - other - (1 if j < i else 0)
                product *= below[np.clip(reach - z[0] + 1, 0, z.size)]
        chances.append(product.sum())
    return np.array(chances)


def above(law, threshold):
    """Pr[Z > threshold]."""
    z, mass = law
    return mass[z > threshold].sum()


def peeled(scores, k):
    """Pr of each ordered k-tuple under the exponential mechanism without replacement; scores are over the scale."""
    weights = dict(enumerate(np.exp(np.asarray(scores, float))))
    law = {}
    for order in itertools.permutations(weights, k):
        left, chance = dict(weights), 1.0
        for i in order:
            chance *= left[i] / sum(left.values())
            del left[i]
        law[order] = chance
    return law


def as_sets(law):
    sets = {}
    for order, chance in law.items():
        sets[frozenset(order)] = sets.get(frozenset(order), 0.0) + chance
    return sets


def passing(gap, plan_reach, law, offset):
    """Pr[max(g, q) + Z - T > g]."""
    return above(law, offset + plan_reach - max(plan_reach, gap))


def stable(h, *, scale, reach, law, offset, regularizer=0.0):
    """Algorithm 2: outcome (k, set) or (k, None)."""
    choice = softmax((gaps(h) + regularizer) / scale)
    outcomes = {}
    for k, (chance, gap) in enumerate(zip(choice, gaps(h), strict=True), start=1):
        passed = passing(gap, reach, law, offset)
        outcomes[k, top_set(h, k)] = chance * passed
        outcomes[k, None] = chance * (1 - passed)
    return outcomes


def fixed(h, *, k, regularizer, scale, reach, law, offset, refine):
    """Algorithm 3: outcome (proposed, passed, set). `refine(r)` is the Gumbel scale of r rounds."""
    outcomes, counts = {}, np.asarray(h)
    first = stable(h, scale=scale, reach=reach, law=law, offset=offset, regularizer=regularizer)
    for (proposed, leading), chance in first.items():
        pool = sorted(leading) if leading is not None else []
        if leading is None or proposed < k:
            rest = [i for i in range(counts.size) if i not in pool]
            rounds = k - len(pool)
            found = as_sets(peeled(counts[rest] / refine(rounds), rounds))
            law_of_sets = {frozenset(pool) | {rest[i] for i in places}: p for places, p in found.items()}
        elif proposed == k:
            law_of_sets = {leading: 1.0}
        elif k <= proposed - k:
            found = as_sets(peeled(counts[pool] / refine(k), k))
            law_of_sets = {frozenset(pool[i] for i in places): p for places, p in found.items()}
        else:
            rounds = proposed - k
            found = as_sets(peeled(-counts[pool] / refine(rounds), rounds))
            law_of_sets = {leading - {pool[i] for i in places}: p for places, p in found.items()}
        for items, p in law_of_sets.items():
            outcomes[proposed, leading is not None, items] = chance * p
    return outcomes


def near_and_far(plan, k, n):
    """The default regularizer of a fixed k: scale times the logarithm of two distributions over the ranks, added."""
    away = np.abs(np.arange(1, n + 1) - k)
    near, far = np.exp(-away * plan.sure_gap / (k * plan.scale)), 1 / (1 + away)
    return plan.scale * np.log(near / near.sum() + far / far.sum())


def limited(h, *, k, k_bar, scale, reach, offset):
    """Limited Domain: an ordered tuple, with None at its end if the bottom stopped it."""
    counts = np.asarray(h)
    lead = [i for i in sorted(top_set(h, k_bar)) if counts[i] > 0]
    ordered = sorted_counts(h)
    bottom = (ordered[k_bar] if k_bar < counts.size else 0) + reach + offset
    weights = {**{i: math.exp((counts[i] - bottom) / scale) for i in lead}, None: 1.0}
    outcomes = {}

    def walk(prefix, left, chance):
        if len(prefix) == k or (prefix and prefix[-1] is None):
            outcomes[prefix] = chance
            return
        total = sum(left.values())
        for i in left:
            walk((*prefix, i), {j: w for j, w in left.items() if j != i}, chance * left[i] / total)

    walk((), weights, 1.0)
    return outcomes


def sparse(h, *, k, rate, reach, offset):
    """Top Stable: outcome (j, set), or (0, None); a sum over the threshold's noise."""
    z, mass = discrete_laplace(rate)
    r, chance = discrete_laplace(2 * rate)
    q = gaps(h)
    alive, outcomes = chance.copy(), {}
    survival = 1 - np.cumsum(mass)
    for j in range(min(k, q.size), 0, -1):
        need = reach + offset + r - q[j - 1]
        hit = survival[np.clip(need - z[0], 0, z.size - 1)]
        hit = np.where(need < z[0], 1.0, hit)
        outcomes[j, top_set(h, j)] = float((alive * hit).sum())
        alive = alive * (1 - hit)
    outcomes[0, None] = float(alive.sum())
    return outcomes


@pytest.fixture(scope="session")
def exact():
    return SimpleNamespace(**{name: value for name, value in globals().items() if callable(value)})
