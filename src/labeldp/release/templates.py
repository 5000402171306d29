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

An estimator also has settings that are not about what it learns, but about who runs it: folders, functions that are told, seeds. They
are the owner's. One that is to learn raw labels must not have the first two (`check_reticent`), and a model that travels has none of
the three (`forget_owner`).
"""

from __future__ import annotations

import copy
import inspect
import sys
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np
from sklearn.base import BaseEstimator, clone
from sklearn.exceptions import NotFittedError
from sklearn.frozen import FrozenEstimator
from sklearn.pipeline import Pipeline
from sklearn.utils import get_tags
from sklearn.utils.validation import _is_fitted

from labeldp.errors import Described, PrivacyError, invalid

#: What a guarantee calls the weights that a network of the user's own starts from.
FIRST_WEIGHTS = "network's first weights"

#: Settings, by the names that libraries give them, that are places or what writes there: each with the value that is none.
PLACES: Mapping[str, Any] = {
    "allow_writing_files": False,
    "cache": None,
    "cache_dir": None,
    "checkpoint": None,
    "directory": None,
    "folder": None,
    "input_borders": None,
    "ledger": None,
    "memory": None,
    "output_borders": None,
    "save_snapshot": None,
    "snapshot_file": None,
    "train_dir": None,
}
#: Settings by which an estimator tells what it learns while it learns it: a loss on the screen is one of its labels.
TELLING: Mapping[str, Any] = {
    "callback": None,
    "callbacks": None,
    "logging_level": None,
    "progress": False,
    "verbose": 0,
    "verbose_eval": None,
    "verbosity": 0,
}
#: Ends of the names of seeds: LightGBM has half a dozen of them, and a fitted bag has `_seeds`.
SEEDS = ("random_state", "seed", "_seeds")
#: What a seed has become in a fitted estimator, under any name: its state says which one it was to whoever tries them all.
GENERATORS = (np.random.RandomState, np.random.Generator)
#: Parameters that are settings by name, of an estimator inside or of the library's own.
SETTINGS = ("params", "stage_params", "final_params")


def copy_template(owner: str, name: str, template: Any, *, safe: bool = True) -> Any:
    """Return an untrained copy of an estimator; one that would still be trained is refused.

    `safe=False` takes any value: parameters by name, with estimators among them.
    """
    if safe:
        check_template(owner, name, template)
    fresh = clone(template, safe=safe)
    check_untrained(owner, name, fresh)
    return fresh


def check_template(owner: str, name: str, template: Any) -> None:
    """Refuse what is no estimator: a class in the place of one, or another argument that came first."""
    if not isinstance(template, type) and hasattr(template, "get_params"):
        return
    if isinstance(template, type):
        got, fix = Described(f"the class {template.__name__}"), f"Make one: {template.__name__}()."
    else:
        got, fix = Described(f"a {type(template).__name__}"), "Settings such as epsilon= are given by name."
    raise invalid(owner, name, "be an estimator of scikit-learn's kind", got=got, fix=fix)


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


def check_reticent(owner: str, name: str, template: Any) -> None:
    """Refuse an estimator with a part that is set to keep, or to tell, what it learns: for those that learn raw labels.

    >>> from sklearn.neural_network import MLPClassifier
    >>> check_reticent("PATE", "teacher", MLPClassifier(verbose=True))
    Traceback (most recent call last):
        ...
    labeldp.errors.PrivacyError: PATE: `teacher` must keep raw labels to itself, got MLPClassifier with `verbose` set. ...
    """
    off = {**PLACES, **TELLING}
    for part, _ in walk_parts(template):
        params = (
            part.get_params(deep=False) if hasattr(part, "get_params") else part if isinstance(part, Mapping) else {}
        )
        for setting, value in params.items():
            last = str(setting).rpartition("__")[2]
            if last in off and _is_set(value):
                got = Described(f"{type(part).__name__} with `{setting}` set")
                fix = f"What it learned from raw labels would be written, shown or told outside of any guarantee: set {last}={off[last]}."
                raise invalid(owner, name, "keep raw labels to itself", got=got, fix=fix, kind=PrivacyError)


def _is_set(value: Any) -> bool:
    """Whether a setting is on, or any of those that a search would try; numbers below 0 are how LightGBM is silent."""
    if isinstance(value, (list, tuple)):
        return any(map(_is_set, value))
    if isinstance(value, (int, float, np.number, np.bool_)):
        return bool(value > 0)
    return value is not None and not (isinstance(value, str) and value in ("", "Silent"))


def forget_owner(model: Any) -> Any:
    """Return a model, fitted or not, of which every part has the default of each setting that is its owner's: places, who is told, seeds.

    Nothing is changed in place. A model of a file is brought through this too, since the file says what it likes.

    >>> from sklearn.preprocessing import StandardScaler
    >>> forget_owner(Pipeline([("scale", StandardScaler())], memory="cache"))
    Pipeline(steps=[('scale', StandardScaler())])
    """
    return change_parts(model, _forget)


def is_owners(setting: str) -> bool:
    """Whether a setting of this name is about who runs an estimator, and not about what it learns."""
    return setting in PLACES or setting in TELLING or setting.endswith(SEEDS)


def _forget(part: Any) -> Any:
    if not isinstance(part, BaseEstimator):
        return part
    known, new = inspect.signature(type(part).__init__).parameters, {}
    for name, value in vars(part).items():
        if is_owners(name) or isinstance(value, GENERATORS):
            default = known[name].default if name in known else None
            new[name] = None if default is inspect.Parameter.empty else default
        elif name in SETTINGS and isinstance(value, Mapping):
            new[name] = {key: one for key, one in value.items() if not is_owners(str(key).rpartition("__")[2])}
    return replace_attributes(part, new) if any(vars(part)[name] is not one for name, one in new.items()) else part


def change_parts(model: Any, change: Callable[[Any], Any]) -> Any:
    """Return a model with `change` made to it and to every estimator inside of it; what holds a changed one is copied.

    `change` returns what it is given where nothing is to be changed, and what it returns is not looked into if it is another thing of
    another type. Estimators are looked for in attributes, lists, tuples, dicts and arrays of objects.
    """
    done: dict[int, tuple[Any, Any]] = {}  # with what was changed, which keeps its id from being used again

    def walk(part: Any) -> Any:
        if isinstance(part, (list, tuple, dict)) or _holds_objects(part) or _is_estimator(part):
            if id(part) not in done:
                done[id(part)] = (part, part)  # what holds itself is left as it is
                done[id(part)] = (part, rebuild(part))
            return done[id(part)][1]
        return part

    def rebuild(part: Any) -> Any:
        if _is_estimator(part):
            changed = change(part)
            if type(changed) is not type(part) or not isinstance(part, BaseEstimator):
                return changed
            inside = {name: new for name, old in vars(changed).items() if (new := walk(old)) is not old}
            return replace_attributes(changed, inside) if inside else changed
        if isinstance(part, dict):
            inside = {name: new for name, old in part.items() if (new := walk(old)) is not old}
            return _copy_with(part, inside) if inside else part
        if isinstance(part, np.ndarray):
            places = {i: new for i, old in enumerate(part.flat) if (new := walk(old)) is not old}
            if places:
                part = part.copy()
                for i, new in places.items():
                    part.flat[i] = new
            return part
        items = [walk(one) for one in part]
        if all(a is b for a, b in zip(items, part, strict=True)):
            return part
        return type(part)(*items) if hasattr(part, "_fields") else type(part)(items)

    return walk(model)


def _is_estimator(part: Any) -> bool:
    return hasattr(part, "get_params") and not isinstance(part, type)


def _holds_objects(part: Any) -> bool:
    return isinstance(part, np.ndarray) and part.dtype == object


def _copy_with(mapping: dict[Any, Any], changes: Mapping[Any, Any]) -> dict[Any, Any]:
    light = copy.copy(mapping)
    light.update(changes)
    return light


def replace_attributes(part: Any, changes: Mapping[str, Any]) -> Any:
    """Return a copy of an estimator with other attributes; the rest it shares with the first, a network's arrays too."""
    light = object.__new__(type(part))
    light.__dict__.update(vars(part) | changes)
    return light


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
