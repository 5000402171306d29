r"""Who comes first once noise is added: exact, though it is computed in floating point.

>>> import numpy as np
>>> from labeldp.random import BitStream, NoiseKey
>>> bits = BitStream(NoiseKey.from_seed(1))
>>> draw_order(bits, np.array([90, 3, 88]), k=2, scale=2.0).tolist()
[0, 2]
>>> draw_winner(bits, np.array([90, 3, 80]), noise="laplace", scale=1.0)
0

A selection releases an order, never a noisy score. So the order alone must have the law that the guarantee is about, and
it can have it exactly, without a single exact logarithm.

**Gumbel noise.** Let E = -ln(1 - V) for V uniform in (0, 1), and G = -ln E. The score of a runner is

    (whole + extra) / scale + ln(size) + G,

with whole numbers that are private, real ones that are public, and `size` for a group of equals (the largest of m
Gumbels is one Gumbel moved by ln m). V is a real number whose binary digits are drawn as they are needed. 64 of them
confine it to an interval, and the score with it. Two runners whose intervals do not meet are in the order of their
intervals; where they meet, more digits are drawn, until they do not. Every comparison comes out as it would for the
real numbers, so the law of the order is the exponential mechanism's at precisely this scale: Mironov's attack and its
likes, which look for floats that one data set cannot reach, have nothing to look at.

**How wide the first interval is.** Let v be the distance of V to the nearer end of (0, 1), at most 1/2, and take the
middle of its interval of width 2^-64. Then v is right to a relative d = 2^-65 / v + 2^-52. E is -ln(1 - v) or -ln(v),
and |v E'(v) / E(v)| <= 1.45 for both, so that E is right to 1.45 d, and G to 1.45 d plus what two logarithms err by.
For v >= 2^-31 the first term is below 1.5 * 2^-34; G lies in (-4, 22), and ln(size) is below 44. If a logarithm errs by
at most 2^-40, relative to its result or absolutely, all three together err by less than 70 * 2^-40. The sum is below
2^-32 = `RADIUS`. C libraries and NumPy err by 2^-50 at most, a thousandth of what is allowed here. The quotient is
taken of the distance to one of the whole numbers, which is exact, so that it errs by a few 2^-53 of itself: 2^-50 of it
is added. Runners with v < 2^-31 (one in 2^30) and quotients beyond the floats skip this and start with more digits.

**More digits** are taken 64 at a time, and the ends of the interval are computed with Python's `decimal`, whose
logarithm is correctly rounded. With n binary digits it works to 2 d + 40 decimal ones, d = ceil(0.302 n). 1 - V >= 2^-n
then has an absolute error of 10^-(2d + 40), which is 10^-(d + 40) of V at most; two logarithms and three operations later
the score errs by less than 10^-(d + 10) (1 + |score|). The interval is widened by that much on both sides. It shrinks as
digits come, so that two runners part with probability 1, after one more word but for one pair in 10^19.

**Laplace, exponential and Gaussian noise** is discrete and drawn exactly (`labeldp.samplers`). Whole numbers and noise are added as
64-bit integers. A public real number r is kept as its whole part and the rest, and decides among equal sums: a score
whole + noise + r in floating point would be rounded, and a rounded score moves by more than its data do.

References: von Neumann 1951 (comparing uniforms digit by digit); Karney, "Sampling exactly from the normal distribution"
(2016, digits on demand); Mironov 2012; Durfee & Rogers 2019 (Gumbel noise is the exponential mechanism, one-shot is
peeling).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from decimal import MAX_EMAX, MIN_EMIN, ROUND_HALF_EVEN, Context, Decimal
from fractions import Fraction
from functools import cmp_to_key

import numpy as np

from labeldp.arrays import Float64s, Int64s, Words
from labeldp.errors import Described, invalid
from labeldp.random import BitStream
from labeldp.samplers import discrete_exponential, discrete_gaussian, discrete_laplace, rate_below, variance_above

NOISES = ("gumbel", "exponential", "laplace", "gaussian")
#: What floating point may have got wrong in a score whose quotient is 0: see the module's notes.
RADIUS = 2.0**-32
#: Half of it goes into one.
PARTS = Decimal(1 << 33)
#: The same, for each unit of the quotient.
SLOPE = 2.0**-50
#: Distances of so many scales err by less than a quarter of `RADIUS`.
SPREAD = 2.0**16
#: A distance to the end of (0, 1) below which 64 digits say too little.
NEAREST = 2.0**-31
#: Scores at a time: working arrays of 1 MiB, whatever the number of candidates.
PIECE = 1 << 17
HALF = np.uint64(1) << np.uint64(63)
WORD_BITS = 64
#: Whole numbers stay below 2^53, so that a sum with noise below this fits in 64 bits.
LARGEST_NOISE = 1 << 62


def draw_order(
    bits: BitStream,
    whole: Int64s,
    *,
    k: int,
    scale: float,
    extra: Float64s | None = None,
    sizes: Int64s | None = None,
) -> Int64s:
    """Return the places of the k largest of (whole + extra) / scale + ln(sizes) + Gumbel noise, largest first.

    `whole`: integers below 2^53 in size. `extra`: public reals, `sizes`: how many equals a place stands for, >= 1; left
    out they are 0 and 1. *Guarantee*: the order has exactly the law of real Gumbel noise (see the module's notes):
    places are drawn one after the other without replacement, each in proportion to sizes exp((whole + extra) / scale).
    """
    words = bits.take(whole.size)
    centre = _find_centre(whole, k, scale)
    scores, radius = _approximate_scores(words, whole - centre, scale=scale, extra=extra, sizes=sizes)
    field = _Field(bits=bits, words=words, whole=whole, scale=scale, extra=extra, sizes=sizes, centre=centre, known={})
    for place in np.flatnonzero(np.isinf(radius)).tolist():
        scores[place], radius[place] = field.runner(place).narrow()
    low, high = scores - radius, scores + radius
    if k < whole.size:
        # k runners are at least as good as `least` for sure: who is surely worse is out.
        least = np.partition(low, whole.size - k)[whole.size - k]
        lead = np.flatnonzero(high >= least)
    else:
        lead = np.arange(whole.size)
    order: Int64s = lead[np.argsort(-scores[lead], kind="stable")]
    # A cut is sure where everyone before it is surely better than everyone after it.
    floors = np.minimum.accumulate(low[order])
    roofs = np.maximum.accumulate(high[order][::-1])[::-1]
    ends = np.append(np.flatnonzero(floors[:-1] > roofs[1:]) + 1, order.size)
    starts = np.append(0, ends[:-1])
    for start, end in zip(*(side[ends - starts > 1].tolist() for side in (starts, ends)), strict=True):
        order[start:end] = sorted(order[start:end].tolist(), key=cmp_to_key(field.compare))
    return order[:k]


def draw_winner(bits: BitStream, whole: Int64s, *, noise: str, scale: float, extra: Float64s | None = None) -> int:
    """Return the place of the largest whole + extra + noise of this kind and scale (Gaussian: sigma).

    `extra` is public; -inf keeps a place out. Equal sums with discrete noise go to the smaller place.
    """
    if extra is not None and np.isneginf(extra).any():
        open_places = np.flatnonzero(np.isfinite(extra))
        won = draw_winner(bits, whole[open_places], noise=noise, scale=scale, extra=extra[open_places])
        return int(open_places[won])
    if noise == "gumbel":
        return int(draw_order(bits, whole, k=1, scale=scale, extra=extra)[0])
    if noise in ("laplace", "exponential"):
        draw = discrete_laplace if noise == "laplace" else discrete_exponential
        draws = draw(bits, rate=laplace_rate(scale), size=whole.size)
    else:
        draws = discrete_gaussian(bits, variance=variance_above(scale**2), size=whole.size)
    if draws.max() >= LARGEST_NOISE or draws.min() <= -LARGEST_NOISE:
        fix = "Use a larger epsilon: noise of this size says nothing."
        raise invalid("selection", "noise", "be below 2^62", got=Described("a larger draw"), fix=fix)
    sums = whole + draws
    if extra is None:
        return int(np.argmax(sums))
    floor = np.floor(extra)
    sums += floor.astype(np.int64)
    leading = np.flatnonzero(sums == sums.max())
    return int(leading[np.argmax((extra - floor)[leading])])


def laplace_rate(scale: float) -> Fraction:
    """Return a rational rate <= 1 / scale: the quotient is first moved down by an ulp, which covers its rounding."""
    return rate_below(math.nextafter(1 / scale, 0.0))


def _find_centre(whole: Int64s, k: int, scale: float) -> int:
    """Return the whole number from which distances are taken: the errors of a score grow with its distance from it.

    The largest, as a rule. Where counts are spread over more than `SPREAD` scales it is the k-th largest: at most k
    runners are then far above it, and the many that could be taken for each other are near it.
    """
    top = int(whole.max())
    if k == 1 or top - int(whole.min()) <= SPREAD * scale:
        return top
    return int(np.partition(whole, whole.size - k)[whole.size - k])


def _approximate_scores(
    words: Words, distances: Int64s, *, scale: float, extra: Float64s | None, sizes: Int64s | None
) -> tuple[Float64s, Float64s]:
    """Return scores and how far each may be from the truth; `distances` are those of the whole numbers to the centre."""
    scores, radius = np.empty(distances.size), np.empty(distances.size)
    for low in range(0, distances.size, PIECE):
        part = slice(low, low + PIECE)
        upper = words[part] >= HALF
        near = np.ldexp(np.where(upper, ~words[part], words[part]) + 0.5, -WORD_BITS)
        waits = -np.log1p(-near)
        waits[upper] = -np.log(near[upper])
        distance = distances[part].astype(np.float64)
        if extra is not None:
            distance += extra[part]
        with np.errstate(over="ignore"):
            quotient = distance / scale
        scores[part] = quotient - np.log(waits)
        if sizes is not None:
            scores[part] += np.log(sizes[part])
        radius[part] = np.abs(quotient) * SLOPE + RADIUS
        far = (near < NEAREST) | ~np.isfinite(quotient)
        scores[part][far], radius[part][far] = 0.0, np.inf
    return scores, radius


@dataclass(frozen=True, kw_only=True, eq=False)
class _Field:
    """All runners of a race; those that need more than 64 digits are `known` by their place."""

    bits: BitStream
    words: Words
    whole: Int64s
    scale: float
    extra: Float64s | None
    sizes: Int64s | None
    centre: int
    known: dict[int, _Runner]

    def runner(self, place: int) -> _Runner:
        """Return the runner at a place."""
        if place not in self.known:
            extra = Fraction(0) if self.extra is None else Fraction(float(self.extra[place]))
            distance = int(self.whole[place]) - self.centre + extra
            size = 1 if self.sizes is None else int(self.sizes[place])
            quotient = distance / Fraction(self.scale)
            self.known[place] = _Runner(bits=self.bits, quotient=quotient, size=size, digits=int(self.words[place]))
        return self.known[place]

    def compare(self, one: int, two: int) -> int:
        """Return -1 if the first place is ahead of the second, else 1; draws digits until it is known."""
        first, second = self.runner(one), self.runner(two)
        while True:
            if first.low > second.high:
                return -1
            if second.low > first.high:
                return 1
            self.runner(min(one, two)).sharpen()
            self.runner(max(one, two)).sharpen()


class _Runner:
    """One score, confined to [low, high]: its public part, and the binary digits of V that were drawn."""

    def __init__(self, *, bits: BitStream, quotient: Fraction, size: int, digits: int) -> None:
        self.bits, self.quotient, self.size = bits, quotient, size
        self.digits, self.n_digits = digits, WORD_BITS
        self._confine()

    def sharpen(self) -> None:
        """Draw 64 more digits."""
        self.digits = (self.digits << WORD_BITS) | int(self.bits.take(1)[0])
        self.n_digits += WORD_BITS
        self._confine()

    def narrow(self) -> tuple[float, float]:
        """Return the score to within `RADIUS` and its radius; infinity for a score beyond the floats."""
        context = _make_context(50)
        while not context.multiply(context.subtract(self.high, self.low), PARTS) < 1:
            self.sharpen()
        # One end is within half a radius of the truth; its rounding to a float is far below the other half.
        near = float(self.low)
        return (0.0, math.inf) if math.isinf(near) else (near, RADIUS + abs(near) * SLOPE)

    def _confine(self) -> None:
        """Set both ends: a larger V is a longer wait and a smaller score."""
        places = math.ceil(0.302 * self.n_digits)
        context = _make_context(2 * places + 40)
        fixed = context.add(
            context.divide(Decimal(self.quotient.numerator), Decimal(self.quotient.denominator)),
            context.ln(Decimal(self.size)),
        )
        self.low, self.high = (
            self._score(context, fixed, end, margin=places + 10, sign=sign)
            for end, sign in ((self.digits + 1, -1), (self.digits, 1))
        )

    def _score(self, context: Context, fixed: Decimal, end: int, *, margin: int, sign: int) -> Decimal:
        """Return the score at V = end / 2^n, moved outwards by what rounding may have lost."""
        unit = 1 << self.n_digits
        if end in (0, unit):
            return Decimal("Infinity") if end == 0 else Decimal("-Infinity")
        wait = context.minus(context.ln(context.divide(Decimal(unit - end), Decimal(unit))))
        score = context.subtract(fixed, context.ln(wait))
        error = context.scaleb(context.add(Decimal(1), context.abs(score)), -margin)
        return context.add(score, context.multiply(error, Decimal(sign)))


def _make_context(places: int) -> Context:
    """Return arithmetic to that many decimal places, whatever the caller's thread has set for its own."""
    return Context(prec=places, rounding=ROUND_HALF_EVEN, Emin=MIN_EMIN, Emax=MAX_EMAX, clamp=0, flags=[], traps=[])
