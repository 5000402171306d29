"""The explorer: one page on this machine where privacy can be dragged, and what it does to labels is seen at once.

>>> from labeldp.report.explorer import Settings, explored
>>> facts = explored(Settings(epsilon=1.0, n_classes=4))
>>> [one["name"] for one in facts["mechanisms"]]
['RR', 'RRTop-k', 'RRWithPrior', 'ClusterRR']

Design notes. Every number is computed here, by the mechanisms themselves; the script in the page draws them and knows
no formula. The server listens on loopback, answers no other host's name, and holds no data: there is nothing to steal.
"""

from labeldp.report.explorer._facts import Settings, explored
from labeldp.report.explorer._server import Explorer, serve

__all__ = ["Explorer", "Settings", "explored", "serve"]
