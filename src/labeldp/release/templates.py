"""Estimators that users hand in: a learner trains copies of them, and what a copy knows already must not be the labels.

>>> from sklearn.frozen import FrozenEstimator
>>> from sklearn.linear_model import LogisticRegression
>>> from sklearn.preprocessing import StandardScaler
>>> copy_template("Learner", "estimator", LogisticRegression(C=2.0).fit([[0.0], [1.0]], [0, 1]))
LogisticRegression(C=2.0)
>>> copy_template("Learner", "estimator", FrozenEstimator(LogisticRegression().fit([[0.0], [1.0]], [0, 1])))
Traceback (most recent call last):
    ...
labeldp.errors.PrivacyError: Learner: `estimator` must be untrained, got a fitted FrozenEstimator of LogisticRegression. It may ...

A promise is about what was released. A model that saw the raw labels elsewhere says all of them, whatever the noise here was.
scikit-learn's `clone` forgets what most estimators have learned, and three things pass through it:

- **What is frozen.** `FrozenEstimator`, and whatever else makes its own clones, stays fitted. Where it would learn from labels, or is
  part of what does, it is refused (`check_untrained`).
- **Steps in front of the last one of a pipeline.** They make features, so what the promise says of the features holds for them: they may
  be frozen, as a scaler or an encoder that was fitted on more rows than these often is. One that learns from labels (it says so in its
  tags) is refused here too.
- **Weights of a network.** A torch module keeps them when it is copied, and one that was trained on public images is a good start. No code
  can tell what they saw, so the promise says what it assumes (`list_weights`, for `Budget(given=...)`).

A parameter may be anything, a function of the user's own for example, and may hold anything. What is found here is what happens by
mistake.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from typing import Any

from sklearn.base import BaseEstimator, clone
from sklearn.exceptions import NotFittedError
from sklearn.frozen import FrozenEstimator
from sklearn.pipeline import Pipeline
from sklearn.utils import get_tags
from sklearn.utils.validation import _is_fitted

from labeldp.errors import Described, PrivacyError, invalid

#: What a guarantee calls the weights that a network of the user's own starts from.
FIRST_WEIGHTS = "network's first weights"


def copy_template(owner: str, name: str, template: Any, *, safe: bool = True) -> Any:
    """Return an untrained copy of an estimator; one that would still be trained is refused.

    `safe=False` takes any value: parameters by name, with estimators among them.
    """
    fresh = clone(template, safe=safe)
    check_untrained(owner, name, fresh)
    return fresh


def check_untrained(owner: str, name: str, template: Any) -> None:
    """Refuse an estimator of which a part that learns from labels is trained: it may have learned the raw ones."""
    for part, in_front in walk_parts(template):
        if not _is_trained(part):
            continue
        if not in_front or any(_needs_labels(one) for one, _ in walk_parts(part)):
            inner = f" of {type(part.estimator).__name__}" if isinstance(part, FrozenEstimator) else ""
            got = Described(f"a fitted {type(part).__name__}{inner}")
            fix = (
                "It may have learned the raw labels. Pass it unfitted; a model of public data can be a prior, PublicPrior(model), and "
                "a fitted transformer that needs no labels can stand in front of the last step of a pipeline."
            )
            raise invalid(owner, name, "be untrained", got=got, fix=fix, kind=PrivacyError)


def list_weights(*templates: Any) -> tuple[str, ...]:
    """Return, in words, the weights that networks among these estimators (or values) bring along; () where there are none.

    A network by name, or a class, draws its first weights itself.

    >>> from sklearn.linear_model import LogisticRegression
    >>> list_weights(LogisticRegression())
    ()
    """
    found = any(_brings_weights(part) for part, in_front in walk_parts(list(templates)) if not in_front)
    return (FIRST_WEIGHTS,) if found else ()


def walk_parts(template: Any, *, closed: tuple[type, ...] = ()) -> Iterator[tuple[Any, bool]]:
    """Yield all that is reached through parameters, and whether it is in front of the last step of a pipeline.

    What is of a `closed` type is yielded, and not looked into.
    """
    seen: dict[tuple[int, bool], Any] = {}  # keeps what it has seen: the id of something that is gone may be used again
    stack = [(template, False)]
    while stack:
        part, in_front = stack.pop()
        if (id(part), in_front) in seen or isinstance(part, (type, str, bytes)):
            continue
        seen[id(part), in_front] = part
        yield part, in_front
        if isinstance(part, closed):
            continue
        if isinstance(part, Pipeline):
            last = len(part.steps) - 1
            stack += [(step[-1], in_front or number < last) for number, step in enumerate(part.steps)]
        elif isinstance(part, (Mapping, list, tuple, set, frozenset)):
            stack += [(one, in_front) for one in (part.values() if isinstance(part, Mapping) else part)]
        elif hasattr(part, "get_params"):
            stack += [(value, in_front) for value in part.get_params(deep=False).values()]


def _is_trained(part: Any) -> bool:
    """Whether an estimator has learned something; a pipeline has if a step of it has."""
    if isinstance(part, FrozenEstimator):
        return True
    if isinstance(part, Pipeline) or not hasattr(part, "fit"):
        return False
    if isinstance(part, BaseEstimator) and not get_tags(part).requires_fit:  # it calls itself fitted from the start
        return False
    try:
        fitted = bool(_is_fitted(part))
    except (NotFittedError, TypeError):  # a union of transformers says it so; without attributes nothing was learned
        return False
    if not fitted or hasattr(part, "__sklearn_is_fitted__"):
        return fitted
    # By its attributes that end in "_". Some estimators have them from the start (`model_ = None`): those are no lesson.
    try:
        fresh = vars(type(part)(**part.get_params(deep=False)))
    except (AttributeError, TypeError, ValueError):  # nobody knows what it has from the start
        return True
    learned = {name: value for name, value in vars(part).items() if name.endswith("_") and not name.startswith("__")}
    return not all(name in fresh and _is_same(value, fresh[name]) for name, value in learned.items())


def _is_same(value: Any, other: Any) -> bool:
    """Whether two plain values, or lists without anything in them, are the same; of anything else it is not said."""
    empty = isinstance(value, (list, tuple, dict, set)) and not value
    plain = value is None or isinstance(value, (int, float, str))
    return type(value) is type(other) and (empty or plain) and bool(value == other)


def _needs_labels(part: Any) -> bool:
    return isinstance(part, BaseEstimator) and bool(get_tags(part).target_tags.required)


def _brings_weights(part: Any) -> bool:
    """Whether it is a torch module with arrays, or an estimator whose `module` is made by a function of the user's own."""
    torch = sys.modules.get("torch")  # who has a module has torch loaded
    if torch is not None and isinstance(part, torch.nn.Module):
        return bool(part.state_dict())
    made_by = part.get_params(deep=False).get("module") if hasattr(part, "get_params") else None
    # A class is a network's code, and a module is asked by itself; a function may return a network that exists.
    return callable(made_by) and not isinstance(made_by, type) and not hasattr(made_by, "state_dict")
