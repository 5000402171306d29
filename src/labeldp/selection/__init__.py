"""Private selection on counts by users: the leading items, how many there are, and baselines to compare with.

>>> from labeldp.selection import stable_top_k
>>> votes = [412, 398, 7, 5, 2]
>>> stable_top_k(votes, epsilon=1.0, delta=1e-6, neighbours="replace", rng=0).items.tolist()
[0, 1]

| call | answers | guarantee |
|---|---|---|
| `stable_top_k` | the leading set, its size chosen (Algorithm 2) or fixed (3) | approximate zCDP |
| `large_gap`, `noisy_max` | a rank, or one item | bounded range, pure, or RDP |
| `propose_test_release` | the k leading items or nothing | approximate zCDP, or (epsilon, delta) |
| `top_k_exponential` | k items in order | bounded range, k rounds |
| `limited_domain`, `top_stable` | at most k items, candidates unknown | approximate RDP, or (epsilon, delta) |

Noise from budget: `stable_plan`, `exponential_scale`. The gap that a budget can release: `releasable_gap`. Budget from noise: `StablePlan.guarantee`,
`exponential_guarantee`, `limited_domain_guarantee`. Counts from users and items: `Histogram.from_pairs`.

References: Zhu & Wang, "Adaptive Private-K-Selection with Adaptive K and Application to Multi-label PATE" (2022), whose
constants are for users added or removed; here `neighbours` is always said, and "replace" has its own.
"""

from labeldp.selection.base import Selection
from labeldp.selection.exponential import (
    exponential_guarantee,
    exponential_scale,
    limited_domain,
    limited_domain_guarantee,
    top_k_exponential,
)
from labeldp.selection.histogram import Histogram
from labeldp.selection.maximum import large_gap, noisy_max
from labeldp.selection.stable import (
    StablePlan,
    propose_test_release,
    releasable_gap,
    stable_plan,
    stable_top_k,
    top_stable,
)

__all__ = [
    "Histogram",
    "Selection",
    "StablePlan",
    "exponential_guarantee",
    "exponential_scale",
    "large_gap",
    "limited_domain",
    "limited_domain_guarantee",
    "noisy_max",
    "propose_test_release",
    "releasable_gap",
    "stable_plan",
    "stable_top_k",
    "top_k_exponential",
    "top_stable",
]
