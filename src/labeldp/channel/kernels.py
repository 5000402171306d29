"""The compiled loops of answers that are sets: public circles, balanced blocks, and the draw of one block.

Everything here is plain loops over arrays, compiled by numba and called by `labeldp.channel.sets`, which owns the
mathematics. Public randomness is a function of a public seed, of the row's position and of a counter (`mix_word`); it is no
noise and protects nothing. The only secret is one 64-bit word a row, which `find_rank` compares with integers.

>>> int(mix_word(np.uint64(7), np.uint64(0))) == int(mix_word(np.uint64(7), np.uint64(1)))
False

**Circles.** K - 1 random transpositions make a uniform order of the labels: for i = K-1 .. 1 places i and r_i change,
r_i uniform in 0 .. i. A draw needs the place of one label alone, which is followed through the transpositions (`draw_arcs`),
for few labels by tables of all outcomes of a public number (`draw_few_arcs`). Where the list of all labels is needed the
transpositions are made (`list_circles`). Several r_i come from one 32-bit number, while the product of their ranges is below
`MOST_PRODUCT`; so each is uniform to within 2^-16 of its probability.

**Blocks, up to 16 labels** (`draw_few_blocks`). Masses are integers with the number of the block in their lowest bits, kept in
order. Which shapes (b, d) to try is looked up by the three largest masses of the row (`choose_shapes`), once for each way
in which the others may go on; where these disagree, the blocks of each are filled and the most informative ones stay.

**Cells, more labels** (`draw_cells`). Labels are ordered by a coarse key of their prior, ties at random, and go one by one to
the lightest cell, which a heap knows.

Nothing is summed in another order than it is written, so that every machine makes the same blocks of the same prior.
"""

from __future__ import annotations

from typing import Any

import numba
import numpy as np

from labeldp.kernels import compile_loop

_JIT: dict[str, Any] = {"nogil": True, "boundscheck": False, "error_model": "numpy"}
#: The most labels whose circles are tabulated, and the most labels and blocks of `draw_few_blocks`.
FEW = 16
#: One 32-bit number gives several choices while the product of their ranges is at most this.
MOST_PRODUCT = 5040
#: A mass of 1 in the integers of blocks, which have the block's number in four bits below.
UNIT = 1 << 40
#: Bins of each of the three shares by which a shape is found.
BINS = 16
#: How the masses after the third may go on, each with a suggestion of its own: falling by the same share, level, three level
#: and then little, or falling by the same steps.
TAILS = 4
#: Entries of the table of a block's score, over the square root of its mass.
TABLE = 1024

_GOLDEN = np.uint64(0x9E3779B97F4A7C15)
_MIX_ONE = np.uint64(0xBF58476D1CE4E5B9)
_MIX_TWO = np.uint64(0x94D049BB133111EB)
#: Their inverses modulo 2^64.
_UNMIX_ONE, _UNMIX_TWO = (np.uint64(pow(int(word), -1, 1 << 64)) for word in (_MIX_ONE, _MIX_TWO))
_LOW = np.uint64(0xFFFFFFFF)
_S27, _S30, _S31, _S32 = np.uint64(27), np.uint64(30), np.uint64(31), np.uint64(32)
_ONE, _ZERO = np.uint64(1), np.uint64(0)
#: The counter of the word that decides whether a row explores: no order of labels gets there.
_EXPLORE = np.uint64(1 << 40)


@numba.njit(inline="always")
def mix_word(state: Any, counter: Any) -> Any:
    """Return the public word of a state and a counter: the finalizer of SplitMix64 at state + (counter + 1) golden."""
    z = state + (counter + _ONE) * _GOLDEN
    z = (z ^ (z >> _S30)) * _MIX_ONE
    z = (z ^ (z >> _S27)) * _MIX_TWO
    return z ^ (z >> _S31)


@numba.njit(inline="always")
def row_state(seed: Any, place: Any) -> Any:
    """Return the state of the row at a position; `mix_word` makes words of it that have nothing to do with its neighbours'."""
    return seed + np.uint64(place) * _MIX_TWO


@numba.njit
def find_place(seed: Any, word: Any) -> Any:
    """Return the position whose first public word it is: `mix_word(row_state(seed, place), 0)` is a bijection of 64 bits."""
    z = word ^ (word >> _S31) ^ (word >> np.uint64(62))
    z *= _UNMIX_TWO
    z = z ^ (z >> _S27) ^ (z >> np.uint64(54))
    z *= _UNMIX_ONE
    z = z ^ (z >> _S30) ^ (z >> np.uint64(60))
    return (z - _GOLDEN - seed) * _UNMIX_TWO


def plan_choices(n_classes: int) -> np.ndarray[Any, np.dtype[np.bool_]]:
    """Return fresh[i]: whether the choice of r_i begins a new 32-bit number, for i = K-1 .. 1."""
    fresh = np.zeros(n_classes, np.bool_)
    product = MOST_PRODUCT + 1
    for i in range(n_classes - 1, 0, -1):
        product *= i + 1
        if product > MOST_PRODUCT:
            fresh[i], product = True, i + 1
    return fresh


@compile_loop(**_JIT)
def list_circles(places: Any, seed: Any, fresh: Any, out: Any) -> None:  # pragma: no cover - compiled
    """Write the labels in the order of each row's circle."""
    n_classes = out.shape[1]
    for r in range(out.shape[0]):
        state, counter, word, number = row_state(seed, places[r]), _ZERO, _ZERO, _ZERO
        for k in range(n_classes):
            out[r, k] = k
        for i in range(n_classes - 1, 0, -1):
            if fresh[i]:
                if counter & _ONE:
                    number = word >> _S32
                else:
                    word = mix_word(state, counter >> _ONE)
                    number = word & _LOW
                counter += _ONE
            product = number * np.uint64(i + 1)
            other = np.int64(product >> _S32)
            number = product & _LOW
            kept = out[r, i]
            out[r, i] = out[r, other]
            out[r, other] = kept


@compile_loop(**_JIT)
def draw_arcs(
    codes: Any, words: Any, places: Any, seed: Any, fresh: Any, integers: Any, n_classes: Any, size: Any, out: Any
) -> None:  # pragma: no cover - compiled
    """Draw an arc of `size` labels for each row: the place of its label, less the rank of its word.

    `fresh` is empty where labels stay in their order, as `tabulate_circles` has it: it says nothing of how many they are.
    """
    for r in range(codes.shape[0]):
        state, counter, word, number = row_state(seed, places[r]), _ZERO, _ZERO, _ZERO
        at: Any = np.int64(codes[r])
        for i in range(fresh.shape[0] - 1, 0, -1):
            if fresh[i]:
                if counter & _ONE:
                    number = word >> _S32
                else:
                    word = mix_word(state, counter >> _ONE)
                    number = word & _LOW
                counter += _ONE
            product = number * np.uint64(i + 1)
            other = np.int64(product >> _S32)
            number = product & _LOW
            at = other if at == i else (i if at == other else at)
        rank = find_rank(words[r, 0], integers, np.int64(size))
        arc = at - rank
        arc = arc + n_classes if arc < 0 else arc
        out[r] = np.int32(0 if rank < 0 else arc)


@compile_loop(**_JIT)
def draw_few_arcs(
    codes: Any, words: Any, begin: Any, places: Any, seed: Any, first: Any, second: Any, guess: Any, lasts: Any,
    rest: Any, out: Any,
) -> None:  # pragma: no cover - compiled  # fmt: skip
    """`draw_arcs` for few labels, without a branch: `first` and `second` are the tables of `tabulate_walks`.

    guess[the upper 12 bits of a word] is its rank or one less: `lasts` are the last words of each rank. Words above
    `rest` are left over. Where `places` is empty, positions go on from `begin`.
    """
    n_classes = np.int64(first.shape[1])
    n_first, n_second = np.uint64(first.shape[0]), np.uint64(second.shape[0])
    listed = places.shape[0] > 0
    for r in range(codes.shape[0]):
        secret = words[r, 0]
        low = np.uint64(guess[secret >> GUESS_SHIFT])
        rank = np.int64(low) + (1 if secret > lasts[low] else 0)
        word = mix_word(row_state(seed, places[r] if listed else begin + r), _ZERO)
        middle = np.uint64(first[((word & _LOW) * n_first) >> _S32, np.uint64(codes[r])])
        at = np.int64(second[((word >> _S32) * n_second) >> _S32, middle])
        arc = at - rank
        arc = arc + n_classes if arc < 0 else arc
        out[r] = np.int32(0 if secret > rest else arc)


#: The upper bits of a word by which its rank is guessed, and the fewest words of a rank for which a guess is off by one at most.
GUESSES = 1 << 12
GUESS_SHIFT = np.uint64(52)
LEAST_WORDS = 1 << 52


def tabulate_walks(n_classes: int) -> tuple[Any, Any]:
    """Return how many outcomes each 32-bit number of a circle has, and for each outcome where every place goes.

    One number decides several transpositions; its outcome in [0, product) has their choices as digits, so a table takes a
    place through all of them at once. The tables of all numbers stand one below the other.
    """
    groups: list[list[int]] = []
    for i, fresh in zip(range(n_classes - 1, 0, -1), plan_choices(n_classes)[:0:-1], strict=True):
        groups = [*groups, [i]] if fresh else [*groups[:-1], [*groups[-1], i]]
    sizes, tables = [], []
    for group in groups:
        size = int(np.prod([i + 1 for i in group]))
        outcome, rest = np.arange(size), size
        walk = np.tile(np.arange(n_classes, dtype=np.uint8), (size, 1))
        for i in group:
            rest //= i + 1
            other, outcome = np.divmod(outcome, rest)
            at_i, at_other = walk == i, walk == other[:, None]
            walk = np.where(at_i, other[:, None], np.where(at_other, i, walk)).astype(np.uint8)
        sizes.append(size)
        tables.append(walk)
    return np.array(sizes, np.uint64), np.concatenate(tables)


@numba.njit(inline="always")
def find_rank(word: Any, integers: Any, size: Any) -> Any:
    """Return the rank of the answer among the blocks, those with the label first, or -1 for a left-over word.

    `integers` are A, B and the last word that is not left over: word // A within d A words, then d + (word - d A) // B.
    """
    if word > integers[2]:
        return np.int64(-1)
    inside = integers[0] * np.uint64(size)
    if word < inside:
        return np.int64(word // integers[0])
    return size + np.int64((word - inside) // integers[1])


@compile_loop(**_JIT)
def find_bad_row(prior: Any, tolerance: Any) -> Any:  # pragma: no cover - compiled
    """Return the first row that is no probability vector, or the number of rows: one pass, in the order of the entries."""
    for r in range(prior.shape[0]):
        total, least = 0.0, 0.0
        for k in range(prior.shape[1]):
            value = np.float64(prior[r, k])
            least = min(least, value)
            total += value
        if least < 0.0 or not abs(total - 1.0) <= tolerance:  # a NaN is in the total
            return r
    return prior.shape[0]


# ------------------------------------------------------------------------------------------- up to 16 labels


@numba.njit(inline="always")
def _score(mass: Any, table: Any) -> Any:
    """Return the score of a block of this mass (0 .. 1): a straight line between entries over its square root."""
    place = np.sqrt(mass) * TABLE
    low: Any = min(np.int64(place), np.int64(TABLE - 1))
    return table[low] + (place - low) * (table[low + 1] - table[low])


@numba.njit(inline="always")
def _read_row(prior: Any, state: Any, explore: Any, mix: Any, masses: Any) -> None:
    """Write the mixed masses of a row; equal ones where public chance wants to explore."""
    n_classes = prior.shape[0]
    total = 0.0
    for k in range(n_classes):
        total += np.float64(prior[k])
    flat = explore > _ZERO and mix_word(state, _EXPLORE) < explore
    share = 1.0 / n_classes if flat else mix / n_classes
    scale = 0.0 if flat else (1.0 - mix) / total
    for k in range(n_classes):
        masses[k] = scale * np.float64(prior[k]) + share


@numba.njit(inline="always")
def _order_few(masses: Any, state: Any, units: Any, order: Any, keys: Any) -> None:
    """Write masses as integers, and the labels by falling mass; ties, to a millionth, by public chance."""
    word, n_classes = mix_word(state, _ZERO), masses.shape[0]
    for k in range(n_classes):
        units[k] = max(np.int64(masses[k] * UNIT), 1)
        chance = np.int64((word >> np.uint64(4 * k)) & np.uint64(15))
        keys[k] = ((units[k] >> 20) << 8) | (chance << 4) | k
    for k in range(n_classes):  # counting the larger keys, all of which differ, takes no branch
        rank = 0
        for j in range(n_classes):
            rank += 1 if keys[j] > keys[k] else 0
        order[rank] = k


@numba.njit(inline="always")
def _find_cell(masses: Any, order: Any) -> Any:
    """Return the cell of `choose_shapes` for a row: its three largest masses, each as a share of what is left."""
    n_classes = masses.shape[0]
    left, cell = 1.0, 0
    for t in range(min(3, n_classes - 1)):
        mass = masses[order[t]]
        least = 1.0 / (n_classes - t)
        share = mass / left if left > mass else 1.0
        place: Any = np.int64((share - least) / (1.0 - least) * BINS)
        cell = cell * BINS + min(max(place, 0), BINS - 1)
        left -= mass
    return cell


@numba.njit(inline="always")
def _fill_blocks(units: Any, order: Any, b: Any, d: Any, keys: Any, raised: Any, masks: Any) -> None:
    """Put labels, in their order, into the d lightest blocks; masks[k] has a bit for each block of label k.

    Keys are masses with the block's number below them. The first b // d labels find empty blocks. After that the keys are kept
    in order: the first d grow by the same mass, stay in order among themselves, and are merged with the rest. With d = 1 the
    least key is enough.
    """
    n_classes = order.shape[0]
    filled = min(b // d, n_classes)
    for t in range(filled):
        k = order[t]
        masks[k] = ((1 << d) - 1) << (b - (t + 1) * d)
        for j in range(b - (t + 1) * d, b - t * d):
            keys[j] = (units[k] << 4) | j
    for j in range(b - filled * d):
        keys[j] = j
    if d == 1:
        for t in range(filled, n_classes):
            k = order[t]
            least = keys[0]
            for j in range(1, b):
                least = min(least, keys[j])
            masks[k] = 1 << (least & 15)
            keys[least & 15] = least + (units[k] << 4)
        return
    keys[b] = np.int64(1) << 62
    raised[d] = np.int64(1) << 62
    for t in range(filled, n_classes):
        k = order[t]
        more, mask = units[k] << 4, 0
        for j in range(d):
            mask |= 1 << (keys[j] & 15)
            raised[j] = keys[j] + more
        masks[k] = mask
        i, j = 0, d
        for at in range(b):
            one, other = raised[i], keys[j]
            first = one < other
            keys[at] = one if first else other
            i += 1 if first else 0
            j += 0 if first else 1


@numba.njit(inline="always")
def _score_blocks(keys: Any, b: Any, table: Any) -> Any:
    """Return the sum of the scores of filled blocks."""
    value = 0.0
    for j in range(b):
        value += _score(min(np.float64(keys[j] >> 4) / UNIT, 1.0), table)
    return value


@numba.njit(inline="always")
def _arrange_few(
    masses: Any,
    state: Any,
    shapes: Any,
    norms: Any,
    table: Any,
    choice: Any,
    order: Any,
    units: Any,
    keys: Any,
    raised: Any,
    trial: Any,
    masks: Any,
) -> Any:
    """Fill the blocks of a row in the suggested shapes, keep those with most information, and return their shape."""
    _order_few(masses, state, units, order, keys)
    cell = _find_cell(masses, order)
    at = np.int64(choice[cell, 0])
    _fill_blocks(units, order, shapes[at, 0], shapes[at, 1], keys, raised, masks)
    best = -1.0
    for tail in range(1, TAILS):
        other = np.int64(choice[cell, tail])
        if other == choice[cell, 0]:
            break  # `choose_shapes` writes those that differ first
        if best < 0.0:
            best = _score_blocks(keys, shapes[at, 0], table) / norms[at]
        _fill_blocks(units, order, shapes[other, 0], shapes[other, 1], keys, raised, trial)
        value = _score_blocks(keys, shapes[other, 0], table) / norms[other]
        if value > best:
            best, at = value, other
            for k in range(masses.shape[0]):
                masks[k] = trial[k]
    return at


@compile_loop(**_JIT)
def choose_shapes(
    n_classes: Any, shapes: Any, norms: Any, table: Any, slack: Any, out: Any
) -> None:  # pragma: no cover
    """Write, for each cell, shapes among which every way to go on has one whose information is within `slack` of the best one's.

    That is one of an earlier way, or else the first: rows try every shape of their cell. Where they are fewer than the ways,
    the first stands again behind them.
    A cell stands for priors with their three largest masses in the middle of its bins.
    """
    masses, order = np.empty(n_classes, np.float64), np.arange(n_classes)
    units, masks = np.empty(n_classes, np.int64), np.empty(FEW, np.int64)
    keys, raised, values = np.empty(FEW + 1, np.int64), np.empty(FEW + 1, np.int64), np.empty(shapes.shape[0])
    digits = min(3, n_classes - 1)
    for cell in range(out.shape[0]):
        different = 0
        for tail in range(TAILS):
            left, rest, share = 1.0, cell, 0.0
            for t in range(n_classes):
                least = 1.0 / (n_classes - t)
                if t < digits:
                    scale = BINS ** (digits - 1 - t)
                    share = least + (rest // scale + 0.5) / BINS * (1.0 - least)
                    rest %= scale
                    masses[t] = left * share
                elif tail == 0:
                    masses[t] = left * max(share, least)
                elif tail == 3:
                    masses[t] = left * 2.0 / (n_classes - t + 1)
                elif tail == 1 or t >= 6:
                    masses[t] = left * least
                else:
                    masses[t] = left * max(0.9 / (6 - t), least)
                masses[t] = min(masses[t], masses[t - 1]) if t > 0 else masses[t]
                left -= masses[t]
            for t in range(n_classes):
                units[t] = max(np.int64(masses[t] / (1.0 - left) * UNIT), 1)
            best = 0.0
            for s in range(shapes.shape[0]):
                _fill_blocks(units, order, shapes[s, 0], shapes[s, 1], keys, raised, masks)
                values[s] = _score_blocks(keys, shapes[s, 0], table) / norms[s]
                best = max(best, values[s])
            enough, found = best * (1.0 - slack), -1
            for earlier in range(different):  # a shape that is tried anyway costs nothing more
                if values[out[cell, earlier]] >= enough:
                    found = 0
            for s in range(shapes.shape[0]):
                if found < 0 and values[s] >= enough:
                    found = s
                    out[cell, different] = s
                    different += 1
        for tail in range(different, TAILS):
            out[cell, tail] = out[cell, 0]


@compile_loop(**_JIT)
def draw_few_blocks(
    codes: Any,
    words: Any,
    places: Any,
    prior: Any,
    rows: Any,
    chance: Any,
    mix: Any,
    shapes: Any,
    norms: Any,
    table: Any,
    choice: Any,
    integers: Any,
    out: Any,
) -> None:  # pragma: no cover - compiled
    """Answer each row with a block: its shape's number, and the labels of the block as bits.

    `rows` says which row of the prior an example has; where it is empty, example r has row r. `chance` is the public seed,
    and below which words a row explores.
    """
    n_classes = prior.shape[1]
    masses = np.empty(n_classes, np.float64)
    order, units = np.empty(n_classes, np.int64), np.empty(n_classes, np.int64)
    keys, raised = np.empty(FEW + 1, np.int64), np.empty(FEW + 1, np.int64)
    trial, masks = np.empty(FEW, np.int64), np.empty(FEW, np.int64)
    own = rows.shape[0] == 0
    for r in range(codes.shape[0]):
        state = row_state(chance[0], places[r])
        _read_row(prior[r if own else rows[r]], state, chance[1], mix, masses)
        at = _arrange_few(masses, state, shapes, norms, table, choice, order, units, keys, raised, trial, masks)
        d = shapes[at, 1]
        rank = find_rank(words[r, 0], integers[at], d)
        mine = masks[codes[r]]
        block = 0
        if rank >= 0:  # the rank-th block with the label, or without it
            inside = rank < d
            rank = rank if inside else rank - d
            mine = mine if inside else ~mine
            for _ in range(rank):
                mine &= mine - 1
            mine &= -mine  # its lowest bit
            while mine > 1:
                mine >>= 1
                block += 1
        word = 0
        for k in range(n_classes):
            word |= ((masks[k] >> block) & 1) << k
        out[r, 0] = np.uint8(at)
        for byte in range(1, out.shape[1]):
            out[r, byte] = np.uint8((word >> (8 * (byte - 1))) & 0xFF)


@compile_loop(**_JIT)
def show_few_blocks(
    places: Any,
    prior: Any,
    rows: Any,
    chance: Any,
    mix: Any,
    shapes: Any,
    norms: Any,
    table: Any,
    choice: Any,
    chosen: Any,
    blocks: Any,
) -> None:  # pragma: no cover - compiled
    """Write the shape of each row, and for each label the bits of its blocks: what `draw_few_blocks` draws from."""
    n_classes = prior.shape[1]
    masses = np.empty(n_classes, np.float64)
    order, units = np.empty(n_classes, np.int64), np.empty(n_classes, np.int64)
    keys, raised = np.empty(FEW + 1, np.int64), np.empty(FEW + 1, np.int64)
    trial, masks = np.empty(FEW, np.int64), np.empty(FEW, np.int64)
    own = rows.shape[0] == 0
    for r in range(chosen.shape[0]):
        state = row_state(chance[0], places[r])
        _read_row(prior[r if own else rows[r]], state, chance[1], mix, masses)
        at = _arrange_few(masses, state, shapes, norms, table, choice, order, units, keys, raised, trial, masks)
        chosen[r] = at
        for k in range(n_classes):
            blocks[r, k] = masks[k]


# ------------------------------------------------------------------------------------------------ many labels


@numba.njit(inline="always")
def _order_labels(masses: Any, state: Any, order: Any, spare: Any, keys: Any, counts: Any) -> None:
    """Order labels by falling mass: two passes of a radix sort over a coarse key, ties in a public random order."""
    n_classes = masses.shape[0]
    for k in range(n_classes):
        order[k] = k
    word, counter = _ZERO, _ZERO
    for i in range(n_classes - 1, 0, -1):
        if counter & _ONE:
            number = word >> _S32
        else:
            word = mix_word(state, counter >> _ONE)
            number = word & _LOW
        counter += _ONE
        other = np.int64((number * np.uint64(i + 1)) >> _S32)
        kept = order[i]
        order[i] = order[other]
        order[other] = kept
    for k in range(n_classes):
        # The square root spreads small masses: labels within a few per cent of each other are tied.
        keys[k] = 65535 - min(np.int64(np.sqrt(masses[k]) * 65535.0), np.int64(65535))
    for shift in (0, 8):
        for j in range(257):
            counts[j] = 0
        for k in range(n_classes):
            counts[((keys[k] >> shift) & 255) + 1] += 1
        for j in range(256):
            counts[j + 1] += counts[j]
        for t in range(n_classes):
            k = order[t]
            digit = (keys[k] >> shift) & 255
            spare[counts[digit]] = k
            counts[digit] += 1
        for t in range(n_classes):
            order[t] = spare[t]


@numba.njit(inline="always")
def _choose_cells(masses: Any, order: Any, shapes: Any, norms: Any, odds: Any) -> Any:
    """Return the number of the shape whose water-filled cells have most information."""
    n_classes = masses.shape[0]
    log_ratio = np.log1p(odds)
    best, chosen = -1.0, 0
    for s in range(shapes.shape[0]):
        cells = np.float64(shapes[s, 0])
        left, value = 1.0, 0.0
        for t in range(n_classes):
            mass = masses[order[t]]
            if cells < 2.0 or mass * cells <= left:
                break
            value += mass * (1.0 + odds) * log_ratio - (1.0 + mass * odds) * np.log1p(mass * odds)
            left -= mass
            cells -= 1.0
        level = min(max(left, 0.0) / cells, 1.0)
        value += cells * (level * (1.0 + odds) * log_ratio - (1.0 + level * odds) * np.log1p(level * odds))
        value /= norms[s]
        if value > best:
            best, chosen = value, s
    return chosen


@numba.njit(inline="always")
def _fill_cells(masses: Any, order: Any, b: Any, heap: Any, cells: Any) -> None:
    """Put labels, in their order, into the lightest of b cells: a heap of masses with the cell's number below them."""
    for j in range(b):
        heap[j] = j
    for t in range(order.shape[0]):
        k = order[t]
        top = heap[0]
        cells[k] = top & 0xFFFF
        key = top + (max(np.int64(masses[k] * (1 << 40)), np.int64(1)) << 16)
        at = 0
        while True:
            child = 2 * at + 1
            if child >= b:
                break
            if child + 1 < b and heap[child + 1] < heap[child]:
                child += 1
            if heap[child] >= key:
                break
            heap[at] = heap[child]
            at = child
        heap[at] = key


@compile_loop(**_JIT)
def draw_cells(
    codes: Any,
    words: Any,
    places: Any,
    prior: Any,
    rows: Any,
    chance: Any,
    mix: Any,
    shapes: Any,
    norms: Any,
    odds: Any,
    integers: Any,
    out: Any,
) -> None:  # pragma: no cover - compiled
    """Answer each row with a cell of its labels: its shape's number, and the labels of the cell as bits."""
    n_classes = prior.shape[1]
    masses, keys = np.empty(n_classes, np.float64), np.empty(n_classes, np.int64)
    order, spare = np.empty(n_classes, np.int64), np.empty(n_classes, np.int64)
    cells, counts = np.empty(n_classes, np.int64), np.empty(257, np.int64)
    heap = np.empty(max(n_classes, 2), np.int64)
    own = rows.shape[0] == 0
    for r in range(codes.shape[0]):
        state = row_state(chance[0], places[r])
        _read_row(prior[r if own else rows[r]], state, chance[1], mix, masses)
        _order_labels(masses, state, order, spare, keys, counts)
        at = _choose_cells(masses, order, shapes, norms, odds)
        b = shapes[at, 0]
        _fill_cells(masses, order, b, heap, cells)
        rank = find_rank(words[r, 0], integers[at], np.int64(1))
        cell = 0 if rank < 0 else (cells[codes[r]] + rank) % b
        out[r, 0] = np.uint8(at)
        for byte in range(1, out.shape[1]):
            word = 0
            for k in range(8 * (byte - 1), min(8 * byte, n_classes)):
                word |= (1 if cells[k] == cell else 0) << (k & 7)
            out[r, byte] = np.uint8(word)


@compile_loop(**_JIT)
def show_cells(
    places: Any,
    prior: Any,
    rows: Any,
    chance: Any,
    mix: Any,
    shapes: Any,
    norms: Any,
    odds: Any,
    chosen: Any,
    blocks: Any,
) -> None:  # pragma: no cover - compiled
    """Write the shape of each row, and the cell of each label: what `draw_cells` draws from."""
    n_classes = prior.shape[1]
    masses, keys = np.empty(n_classes, np.float64), np.empty(n_classes, np.int64)
    order, spare = np.empty(n_classes, np.int64), np.empty(n_classes, np.int64)
    cells, counts = np.empty(n_classes, np.int64), np.empty(257, np.int64)
    heap = np.empty(max(n_classes, 2), np.int64)
    own = rows.shape[0] == 0
    for r in range(chosen.shape[0]):
        state = row_state(chance[0], places[r])
        _read_row(prior[r if own else rows[r]], state, chance[1], mix, masses)
        _order_labels(masses, state, order, spare, keys, counts)
        at = _choose_cells(masses, order, shapes, norms, odds)
        _fill_cells(masses, order, shapes[at, 0], heap, cells)
        chosen[r] = at
        for k in range(n_classes):
            blocks[r, k] = cells[k]


@compile_loop(**_JIT)
def mark_arcs(observed: Any, circles: Any, size: Any, out: Any) -> None:  # pragma: no cover - compiled
    """Mark the labels of each row's arc."""
    n_classes = circles.shape[1]
    for r in range(observed.shape[0]):
        for k in range(n_classes):
            out[r, k] = False
        at: Any = np.int64(observed[r])
        for _ in range(size):
            out[r, circles[r, at]] = True
            at = at + 1 if at + 1 < n_classes else 0
