"""The learning rate over a run, as a share of its peak.

>>> [round(share_of_peak("linear", at, warm_up=0.1), 2) for at in (0.0, 0.05, 0.1, 0.55, 1.0)]
[0.0, 0.5, 1.0, 0.5, 0.0]
>>> [round(share_of_peak("piecewise", at, warm_up=0.15), 3) for at in (0.15, 0.3, 0.6, 0.95)]
[1.0, 0.1, 0.01, 0.001]
"""

from __future__ import annotations

#: Where the paper's piecewise constant rate falls by ten.
FALLS = (0.3, 0.6, 0.9)


def share_of_peak(schedule: str, done: float, *, warm_up: float) -> float:
    """Return the rate at `done` in [0, 1] of the run: a linear rise in all, then a line to 0, steps by ten, or a constant."""
    if done < warm_up:
        return done / warm_up
    if schedule == "linear":
        return (1 - done) / (1 - warm_up)
    if schedule == "piecewise":
        return float(0.1 ** sum(done >= fall for fall in FALLS))
    return 1.0
