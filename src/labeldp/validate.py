"""Checks of arguments that many modules share.

Each takes the name of the public call that refuses (`owner`) and of the argument, and returns the value in its normal
form or raises `labeldp.errors.invalid`.

>>> check_epsilon("demo", 1), check_integer("demo", "k", 3, least=1)
(1.0, 3)
>>> check_delta("demo", 1.5)
Traceback (most recent call last):
    ...
labeldp.errors.LabelDPError: demo: `delta` must be in [0, 1), got 1.5. Use 0 for pure privacy.

Nothing is repaired: a prior that does not sum to one, a float where an integer is meant or a boolean where a number is
meant are mistakes of the caller, who is told so.
"""

from __future__ import annotations

import math
import operator
import re
import warnings
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

import numpy as np

from labeldp.arrays import Array, Floats
from labeldp.errors import Described, HeavyRowWarning, LabelDPError, PixelScaleWarning, invalid

#: Weights that make rows worth less than this share of their number are warned of.
LEAST_EFFECTIVE = 0.01
#: A probability row may miss 1 by this much: what a softmax in that precision, summed in any order, leaves behind
#: at 100,000 classes (rounding grows like sqrt(K) ulp: 2e-5 in float32, 4e-14 in float64), with room to spare.
ROW_SUM_TOLERANCE = {np.dtype(np.float32): 1e-4, np.dtype(np.float64): 1e-6}


def check_real(owner: str, name: str, value: Any, *, fix: str = "") -> float:
    """Return `value` as a float; complex, text, arrays and booleans are refused."""
    if isinstance(value, (bool, np.bool_)) or not isinstance(value, (int, float, np.integer, np.floating)):
        raise invalid(owner, name, "be a number", got=value, fix=fix)
    try:
        return float(value)
    except OverflowError:  # a whole number may be larger than any float
        got = Described("a whole number of more than 308 digits")
        raise invalid(owner, name, "be a number that a float holds", got=got, fix=fix) from None


def check_epsilon(owner: str, epsilon: Any, *, name: str = "epsilon") -> float:
    """Return epsilon as a float in [0, inf]."""
    value = check_real(owner, name, epsilon)
    if math.isnan(value) or value < 0:
        raise invalid(owner, name, "be >= 0", got=epsilon, fix="Use math.inf for no privacy.")
    return value + 0.0  # -0.0 becomes 0.0: nobody spends less than nothing, not even in print


def check_delta(owner: str, delta: Any, *, name: str = "delta") -> float:
    """Return delta as a float in [0, 1)."""
    value = check_real(owner, name, delta)
    if not 0 <= value < 1:
        raise invalid(owner, name, "be in [0, 1)", got=delta, fix="Use 0 for pure privacy.")
    return value


def check_positive(owner: str, name: str, value: Any, *, fix: str = "") -> float:
    """Return a finite float > 0."""
    number = check_real(owner, name, value, fix=fix)
    if not (number > 0 and math.isfinite(number)):
        raise invalid(owner, name, "be finite and > 0", got=value, fix=fix)
    return number


def check_integer(owner: str, name: str, value: Any, *, least: int, most: int | None = None, fix: str = "") -> int:
    """Return an int in [least, most]; a float is refused even when it is whole."""
    bounds = f"an integer >= {least}" if most is None else f"an integer in [{least}, {most}]"
    try:
        number = None if isinstance(value, (bool, np.bool_)) else operator.index(value)
    except TypeError:
        number = None
    if number is None or number < least or (most is not None and number > most):
        raise invalid(owner, name, f"be {bounds}", got=value, fix=fix)
    return number


def check_class_list(owner: str, classes: Any) -> tuple[Any, ...]:
    """Return a list of classes as plain Python values; refuse one text, which would be read as the list of its characters."""
    if isinstance(classes, (str, bytes)) or not isinstance(classes, Iterable):
        got = Described("one text" if isinstance(classes, (str, bytes)) else f"a {type(classes).__name__}")
        fix = 'A list, with an entry for each class: classes=["no", "yes"], or range(3).'
        raise invalid(owner, "classes", "be a list of classes", got=got, fix=fix)
    return tuple(one.item() if isinstance(one, np.generic) else one for one in classes)


def check_choice(owner: str, name: str, value: Any, choices: tuple[str, ...]) -> str:
    """Return `value` if it is one of the named choices."""
    if value not in choices:
        listed = ", ".join(repr(c) for c in choices)
        raise invalid(owner, name, f"be one of {listed}", got=value)
    return str(value)


def check_probability_rows(owner: str, name: str, rows: Any, *, first_row: int = 0) -> Floats:
    """Return a C-contiguous float32/float64 matrix whose rows are probability vectors, or say which row is not.

    Integers and other floats become float64. Nothing is renormalised: a caller who hands in something that is not
    a distribution is told so. `first_row` is the number of the first row in the whole data set, for messages.
    """
    array = as_float_matrix(owner, name, rows)
    bad = ~(np.isfinite(array).all(axis=1) & (array >= 0).all(axis=1))
    if bad.any():
        row = int(np.argmax(bad))
        raise bad_row(owner, name, first_row + row, array[row])
    sums = array.sum(axis=1, dtype=np.float64)
    bad = np.abs(sums - 1.0) > ROW_SUM_TOLERANCE[array.dtype]
    if bad.any():
        row = int(np.argmax(bad))
        raise bad_row(owner, name, first_row + row, array[row])
    return array


def bad_row(owner: str, name: str, row: int, values: Floats) -> LabelDPError:
    """Return the error for a row that is not a probability vector, saying which row and why."""
    total = float(values.sum(dtype=np.float64))
    if np.isnan(values).any():
        got, fix = f"NaN in row {row}", "Fill or drop missing probabilities first."
    elif np.isinf(values).any():
        got, fix = f"an infinite value in row {row}", "Pass probabilities, not logits."
    elif (values < 0).any():
        got, fix = f"{float(values.min()):g} in row {row}", "Probabilities are >= 0; pass probabilities, not logits."
    elif total == 0:
        got, fix = f"only zeros in row {row}", "Use a uniform row where nothing is known."
    else:
        got, fix = f"a sum of {total:.9g} in row {row}", "Divide each row by its sum."
    return invalid(owner, name, "have rows of probabilities that sum to 1", got=Described(got), fix=fix)


def as_float_matrix(owner: str, name: str, rows: Any) -> Floats:
    """Return `rows` as a 2-d C-contiguous float32 or float64 array, without copying where it already is one."""
    array = np.asarray(rows)
    if array.ndim != 2 or array.shape[1] == 0:
        got = Described(f"an array of shape {array.shape}")
        raise invalid(owner, name, "be a matrix with a column per class", got=got)
    if array.dtype.kind not in "fiub":
        raise invalid(owner, name, "hold numbers", got=Described(f"dtype {array.dtype}"))
    if array.dtype not in (np.float32, np.float64):
        array = array.astype(np.float64)
    return np.ascontiguousarray(array)


#: What scikit-learn says of labels without showing any: these words are passed on, the others are not.
_HARMLESS = re.compile(
    r"Complex data not supported|Unknown label type: [a-z-]+|Support for labels represented as bytes is not supported"
    r"|Input \w+ contains (NaN|infinity or a value too large for dtype\('\w+'\))|inhomogeneous shape"
    r"|y should be a 1d array, got an array of shape \([\d, ]*\) instead"
    r"|Found input variables with inconsistent numbers of samples: \[[\d, ]+\]"
)


@contextmanager
def hide_labels(owner: str, name: str, *, must: str, fix: str = "") -> Iterator[None]:
    """Inside, raw labels are handed to scikit-learn or NumPy; what these say of them may quote them, and is said in our words.

    An object in the place of a label may say anything in any exception, so all of them end here.
    """
    try:
        yield
    except (LabelDPError, MemoryError):
        raise
    except Exception as error:  # noqa: BLE001
        found = _HARMLESS.search(str(error))
        words = f"{found[0]}. {fix}".strip() if found else fix
        raise invalid(owner, name, must, got=Described("something else"), fix=words) from None


def check_classes(owner: str, name: str, y: Any, *, numeric: bool = False) -> Any:
    """Return one class per row as scikit-learn takes them, a vector; refuse what is none without showing it.

    A matrix of one column is taken with scikit-learn's warning. `numeric` is for labels that may be any numbers.
    """
    from sklearn.utils.multiclass import check_classification_targets
    from sklearn.utils.validation import _assert_all_finite, column_or_1d

    with hide_labels(owner, name, must="be one class per row"):
        column = column_or_1d(y, warn=True)
        _assert_all_finite(column, input_name=name, estimator_name=owner)
    if not numeric:
        fix = "Numbers: LabelPrivateRegressor(bounds=(low, high)), with public bounds."
        with hide_labels(owner, name, must="be classes", fix=fix), suppress(TypeError):
            check_classification_targets(column)  # a mixture cannot be sorted; where classes are listed it need not be
    return column


def refuse_repeats(owner: str, X: Any) -> None:
    """Refuse a table or data frame with two columns of one name: nobody can say which of them is meant."""
    listed = getattr(X, "column_names", getattr(X, "columns", None))
    if listed is None or callable(listed):
        return
    repeated = next((name for name, count in Counter(listed).items() if count > 1), None)
    if repeated is not None:
        got = Described(f"{str(repeated)!r} more than once")
        raise invalid(owner, "X", "have columns of different names", got=got, fix="Rename one of them.")


@contextmanager
def expect_numbers(owner: str, X: Any) -> Iterator[None]:
    """Inside, features are made rows of numbers; where that fails, say what in them is none, and what makes numbers of it.

    Words, dates, gaps and images are told apart. What else scikit-learn finds wrong it says itself.
    """
    refuse_repeats(owner, X)
    try:
        yield
    except LabelDPError:
        raise
    except (TypeError, ValueError) as error:
        found = describe_words(X, error)
        if found is not None:
            raise invalid(owner, "X", "be numbers", got=Described(found), fix=ENCODE) from error
        said = str(error).split("\n", 1)[0].rstrip(".")
        if "contains NaN" in said:
            gaps = name_gaps(X)
            fix = f"{ENCODE} For an array: sklearn.impute.SimpleImputer(add_indicator=True)."
            fix = fix if getattr(X, "ndim", 2) <= 2 else "Fill them: np.nan_to_num(X), for instance."
            raise invalid(owner, "X", "have no gaps", got=Described(f"{gaps} ({said})"), fix=fix) from error
        if "contains infinity" in said:
            raise invalid(
                owner, "X", "be finite", got=Described(said), fix="Clip such numbers, or drop them."
            ) from error
        if "Found array with dim" in said:
            fix = (
                "Images: labeldp.features.PatchFeatures() in front, or labeldp.nn.NetClassifier. Rows of all numbers of an example: "
                "X.reshape(len(X), -1)."
            )
            raise invalid(owner, "X", "be rows of numbers, (n, d)", got=Described(said), fix=fix) from error
        raise


#: What makes numbers of a table.
ENCODE = (
    "labeldp.learn.TableEncoder() in front makes numbers of words, dates and gaps, without a label: "
    "make_pipeline(TableEncoder(), estimator)."
)


def describe_words(X: Any, error: Exception) -> str | None:
    """Name what in these features is no number: columns of a data frame, or text in an array; None where that is not what is wrong."""
    types: Any = getattr(X, "dtypes", None)
    if hasattr(types, "items"):
        columns = [repr(str(name)) for name, kind in types.items() if getattr(kind, "kind", "f") in "OSUMm"]
        return f"words or dates in {_name_few(columns)}" if columns else None
    return "text" if "could not convert string" in str(error) else None


def name_gaps(X: Any) -> str:
    """Name the columns of a data frame with missing values, the first few of many; of an array the first row that has one."""
    if hasattr(X, "isna") and hasattr(X, "columns"):
        gone = X.isna().any()
        return f"missing values in {_name_few([repr(str(name)) for name in X.columns[gone.to_numpy()]])}"
    try:
        missing = np.isnan(np.asarray(X, np.float64)).reshape(len(X), -1).any(axis=1)
    except (TypeError, ValueError):  # of a sparse matrix, or another thing that is none
        return "some"
    return f"one in row {int(np.argmax(missing))}" if missing.any() else "some"


def _name_few(names: list[str]) -> str:
    return ", ".join(names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "")


def stack_examples(owner: str, X: Any) -> Any:
    """Return a list of images as one array, and a tensor of torch as the array of its numbers; anything else as it is.

    So that all who take images take them in the same forms. Lists of rows and of texts are not touched. No example at all is
    refused, where X is a list or has more axes than rows have.

    >>> stack_examples("demo", [np.zeros((2, 3)), np.ones((2, 3))]).shape, stack_examples("demo", [[1, 2], [3, 4]])
    ((2, 2, 3), [[1, 2], [3, 4]])
    """
    listed = isinstance(X, (list, tuple))
    if hasattr(X, "detach"):
        X = X.detach().cpu().numpy()
    if listed and len(X) and _count_axes(X[0]) >= 2:
        arrays = [item.detach().cpu().numpy() if hasattr(item, "detach") else np.asarray(item) for item in X]
        odd = next((row for row, array in enumerate(arrays) if array.shape != arrays[0].shape), None)
        if odd is not None:
            got = Described(f"{arrays[0].shape} at first and {arrays[odd].shape} in place {odd}")
            raise invalid(owner, "X", "have images of one shape", got=got, fix="Bring them to one size first.")
        return np.stack(arrays)
    if (listed or getattr(X, "ndim", 0) > 2) and not len(X):
        raise invalid(owner, "X", "have examples", got=Described("none"))
    return X


def _count_axes(item: Any) -> int:
    """Return how many axes an item of a list has as an array; 0 for what makes none."""
    try:
        return int(np.ndim(item))
    except ValueError:  # lists of different lengths
        return 0


def keep_axes(learner: Any, array: Array) -> None:
    """Let a learner keep how many numbers an example has: of images all of them, as rows of their pixels would have; of views one's."""
    learner.n_features_in_ = array.shape[2] if array.ndim == 3 else math.prod(array.shape[1:])
    vars(learner).pop("feature_names_in_", None)


#: More channels than this are no image of anybody's camera: the axis is a side.
MOST_CHANNELS = 4


def check_sides(owner: str, image_shape: Iterable[Any]) -> tuple[int, ...]:
    """Return the sides of an image as an `image_shape` has them; refuse PyTorch's order, the channels first."""
    sides = tuple(check_integer(owner, "image_shape", side, least=1) for side in image_shape)
    if len(sides) == 3 and sides[0] <= MOST_CHANNELS < sides[2]:
        turned = (*sides[1:], sides[0])
        got = Described(f"{sides}, whose first side is that of channels")
        fix = f"image_shape is (height, width, channels): {turned}, if a row has the channels of a pixel together."
        raise invalid(owner, "image_shape", "have the channels last", got=got, fix=fix)
    return sides


#: Images that are looked at for their scale, evenly spaced: all of them have one, so that a few show it.
LOOKED_AT = 64
#: From here on, the largest pixel is of another scale: bytes of a drawing in sixteen greys, beside floats up to 1.
FAR = 16.0


def measure_pixels(images: Array) -> tuple[float, float]:
    """Return the smallest and the largest number in images, or rows of pixels; at most about twice `LOOKED_AT` are read."""
    some = images[:: max(1, len(images) // LOOKED_AT)]
    return float(some.min()), float(some.max())


def warn_of_scale(owner: str, images: Array, fitted: tuple[float, float] | None) -> None:
    """Warn of images on another scale than those of the fit, whose smallest and largest pixels are `fitted`.

    Scaled by what the fit measured, they would all be nearly black, or nearly white: what is made of them is no better than
    chance, and nothing else says so. Told are floats up to 1 after whole numbers of `FAR` or more, and numbers far above all
    of the fit. Bytes up to 1 after bytes are dark images. Without `fitted` (models of older versions) nothing is known.
    """
    if fitted is None or not len(images):
        return
    least, largest = measure_pixels(images)
    low = fitted[0] >= 0 and fitted[1] >= FAR and least >= 0 and 0 < largest <= 1 and images.dtype != np.uint8
    high = largest >= FAR * max(abs(fitted[0]), fitted[1]) > 0
    if low or high:
        warnings.warn(
            f"{owner}: pixels were {fitted[0]:.4g} to {fitted[1]:.4g} in the fit, and are {least:.4g} to {largest:.4g} here: what is "
            "made of them is no better than chance. Bring both to one scale: bytes in both, or both divided by 255.",
            PixelScaleWarning,
            stacklevel=4,
        )


def check_not_alone(owner: str, name: str, counts: Any, *, find_row: Callable[[int], int]) -> None:
    """Refuse a list of classes, read off labels, with a class that one row alone has.

    The list becomes public with a release, whatever the noise. Without that row the class would not be on it: whoever
    knows the other labels would know hers for certain. The message says which row it is, and not which class.

    `counts` says how often each class occurs, and `find_row(j)` is asked for the position of the row that has class j.
    """
    alone = np.flatnonzero(np.asarray(counts) == 1)
    if alone.size:
        got = Described(f"one that row {find_row(int(alone[0])):,} alone has (rows count from 0)")
        fix = (
            "The list of classes becomes public and would give that row away: merge its class into another one, or pass "
            "classes= (--classes), the full list, if everyone knows which classes there are."
        )
        raise invalid(owner, name, "have each class more than once where the classes are read off", got=got, fix=fix)


def check_weights(owner: str, name: str, weights: Any, *, n_rows: int) -> Floats:
    """Return one public weight per row as float64: finite, >= 0, and not all of them 0.

    A mean with these weights errs as one of (sum w)^2 / sum w^2 rows does (Kish 1965), the effective number of rows. Where that is
    below a hundredth of the rows that have a weight, a few rows decide everything, and a `HeavyRowWarning` gives both numbers.

    >>> check_weights("demo", "sample_weight", [1, 0, 2], n_rows=3).tolist()
    [1.0, 0.0, 2.0]
    """
    try:
        array = np.asarray(weights)
        values = array.astype(np.float64)
    except (TypeError, ValueError):
        raise invalid(owner, name, "hold numbers", got=Described(type(weights).__name__)) from None
    if array.dtype.kind not in "fiubO":
        raise invalid(owner, name, "hold numbers", got=Described(f"dtype {array.dtype}"))
    if values.shape != (n_rows,):
        got = Described(f"an array of shape {values.shape} for {n_rows} rows")
        raise invalid(owner, name, "have one weight per row", got=got)
    wrong = ~(np.isfinite(values) & (values >= 0))
    if wrong.any():
        row = int(np.argmax(wrong))
        raise invalid(owner, name, "be finite and >= 0", got=Described(f"{float(values[row])!r} in row {row}"))
    with np.errstate(over="ignore"):
        total = values.sum()
    if not 0 < total < np.inf:
        got = Described("weights that are all zero" if not total else "weights whose sum overflows")
        raise invalid(owner, name, "have a sum > 0", got=got, fix="A weight of 0 leaves its row out of training.")
    _warn_of_heavy_rows(owner, name, values)
    return values


def _warn_of_heavy_rows(owner: str, name: str, values: Floats) -> None:
    """Warn where a few rows have nearly all of the weight."""
    shares = values / values.max()  # so that no square overflows, or vanishes beside the largest
    effective, rows = float(shares.sum() ** 2 / (shares @ shares)), int(np.count_nonzero(values))
    if effective < LEAST_EFFECTIVE * rows:
        warnings.warn(
            f"{owner}: `{name}` makes {rows:,} rows worth {effective:.3g}: a few have nearly all of the weight, and what is fitted"
            " follows the noise of their labels. Cut the largest weights, or check their unit.",
            HeavyRowWarning,
            stacklevel=4,
        )


def code_dtype(n_codes: int) -> np.dtype[Any]:
    """Return the smallest unsigned dtype that holds 0 .. n_codes - 1.

    >>> code_dtype(256), code_dtype(257)
    (dtype('uint8'), dtype('uint16'))
    """
    return np.min_scalar_type(max(n_codes - 1, 0))
