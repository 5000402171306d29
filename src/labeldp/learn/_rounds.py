r"""Training on beliefs about all examples: distilling a prior, and rounds of expectation and maximisation.

Let p_i be the last model's probabilities for example i, and L_i[y] = Pr[what was released of i | y]; L_i = 1 where
nothing was released of it (yet). The targets of the next fit are

    q_i[y] = p_i[y] L_i[y] / sum_k p_i[k] L_i[k],

the posterior under the model as prior: the E-step of EM for the labels, the fit being its M-step, which maximises a lower
bound of sum_i log sum_y p(y | x_i) L_i[y]. Examples without evidence get the model's own beliefs, so that the features
of all examples count. Everything here reads what was released and nothing else: post-processing, free at any number of
rounds.

Without any evidence at all the beliefs would only repeat themselves: a round then sharpens them, q = p^(1/temperature).

References: Dempster, Laird, Rubin 1977 (EM); Hinton, Vinyals, Dean 2015 (distillation); RECIPES.md.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
from sklearn.base import BaseEstimator, clone

from labeldp.learn._corrections import fit_soft
from labeldp.learn._settings import Settings
from labeldp.priors import PriorTable, model_probabilities, tempered

Floats = npt.NDArray[np.floating[Any]]

#: A model that rules a label out altogether could contradict what was released; it never quite does.
LEAST_BELIEF = 1e-12


def distilled(X: Any, table: PriorTable, settings: Settings) -> Any:
    """Return an estimator fitted on the prior's own beliefs as soft targets."""
    return fit_soft(fresh(settings, 0), X, table.probabilities(), settings.classes)


def refined(model: Any, X: Any, parts: Sequence[Any], settings: Settings, *, number: int, final: bool) -> Any:
    """Return a fresh estimator fitted on the model's posteriors for all examples; `number` fits came before."""
    beliefs = model_probabilities(model, X, settings.classes)
    if not parts:
        return fit_soft(
            fresh(settings, number, final=final), X, tempered(beliefs, settings.temperature), settings.classes
        )
    targets = posteriors(beliefs, parts)
    return fit_soft(fresh(settings, number, final=final), X, targets, settings.classes)


def posteriors(beliefs: Floats, parts: Sequence[Any]) -> Floats:
    """Return q of the module: beliefs (n, K) times the likelihood of what each part's rows released, normalised."""
    joint = np.maximum(beliefs, LEAST_BELIEF)
    for part in parts:
        joint[part.rows] *= part.channel.likelihood(part.codes)
    joint /= joint.sum(axis=1, keepdims=True)
    return joint


def fresh(settings: Settings, number: int, *, final: bool = False) -> BaseEstimator:
    """Return an unfitted estimator for the fit after `number` others, with its parameters set.

    A whole-number `random_state` is moved on by `number`: a fresh start that repeats the last one's accidents would
    learn the last one's mistakes by heart.
    """
    estimator = clone(settings.estimator)
    params = estimator.get_params(deep=False)
    seed = params.get("random_state")
    if isinstance(seed, (int, np.integer)) and not isinstance(seed, bool):
        estimator.set_params(random_state=int(seed) + number)
    estimator.set_params(**params_of(settings, number))
    if final and settings.final_params:
        estimator.set_params(**settings.final_params)
    return estimator


def params_of(settings: Settings, number: int) -> Mapping[str, Any]:
    """Return the parameters for a stage (from 0); the last ones given hold for all that come later."""
    given = settings.stage_params
    return given[min(number, len(given) - 1)] if given else {}
