"""Two stages at scale: a model of the labels that were drawn first is the prior of the others, in one release, without a shuffle.

Ghazi et al. 2021, Algorithm 3 (LP-MST): the rows are split without looking at labels, the first part is released by
randomized response, a model learns from it, and the second part is released by RRWithPrior on the model's predictions.

Guarantee. Each label is drawn once, by a channel that is epsilon-DP and depends on features and on the released labels of
*other* rows alone. Replacing one label of the first stage changes the law of that one output by at most e^epsilon, and what
follows is computed from it; one of the second stage changes its own output alone. Hence epsilon in all.

>>> from labeldp._random import NoiseKey
>>> salt = stage_salt(NoiseKey.from_seed(1))
>>> stages = stage_of(salt, 0, 8, first_share=0.5)
>>> bool((stage_of(salt, 3, 5, first_share=0.5) == stages[3:]).all())
True

Design notes. The stage of a row is a keyed hash of its position: any worker computes it by itself. The salt is derived from
the key one way, and tells nothing of it; stages are released anyway. Labels of the first stage are drawn once for training
and again for the release, under the same noise: the same labels. The learner goes over the table on the coordinating
machine, batch after batch: `partial_fit` has an order.
"""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from labeldp._random import NoiseKey
from labeldp.engines._beliefs import CHUNK_ROWS, Answer, Belief, Response, one_thread
from labeldp.engines._carry import Engine
from labeldp.engines._prefetch import prefetched
from labeldp.engines._rows import Rows, numeric_columns
from labeldp.engines._standard import Standardised
from labeldp.errors import Described, invalid
from labeldp.mechanisms import Mechanism
from labeldp.priors import model_probabilities
from labeldp.release._stream import draw_part

#: Share of the first stage (Ghazi et al. 2021, supplement E, between epsilon 1 and 8: 0.8 to 0.6).
FIRST_SHARE = 0.7


def stage_salt(key: NoiseKey) -> bytes:
    """Return the salt of a release's stages."""
    return key.child("stages").reveal()


def stage_of(salt: bytes, start: int, count: int, *, first_share: float) -> npt.NDArray[np.uint8]:
    """Return the stage, 0 or 1, of rows `start` .. by a keyed hash of their positions: AES in counter mode."""
    words = NoiseKey(salt, seeded=True).words(start=start, count=count)[:, 0]
    stages: npt.NDArray[np.uint8] = (words >= np.uint64(int(first_share * 2.0**64))).astype(np.uint8)
    return stages


class Staged(Belief):
    """What a learner makes of the labels of the first stage; nothing, for those."""

    chunk = CHUNK_ROWS

    def __init__(self, learner: Any, *, apart: Sequence[str]) -> None:
        if not (hasattr(learner, "partial_fit") and hasattr(learner, "predict_proba")):
            fix = "For example SGDClassifier(loss='log_loss'), or GaussianNB()."
            got = type(learner).__name__
            raise invalid("privatize_table", "learner", "have `partial_fit` and `predict_proba`", got=got, fix=fix)
        self._learner = learner
        self._apart = tuple(apart)
        self.description = f" in two stages, the second on a {type(learner).__name__}'s predictions"

    def prepare(self, rows: Rows, engine: Engine) -> None:
        """Choose the columns, and learn their scale."""
        self.columns = tuple(numeric_columns(rows.source, but=self._apart))
        if not self.columns:
            raise invalid("privatize_table", "learner", "have numeric columns", got=Described("none"))
        self._features = Standardised(self.columns)
        self._features.fit(rows, engine)

    def respond(self, rows: Rows, mechanism: Mechanism, *, spent: float, key: NoiseKey) -> Response:
        """Train on the first stage as it is released, and answer the second by what was learned."""
        salt, features, classes = stage_salt(key), self._features, rows.classes
        model = self._trained(rows, mechanism, key, salt)
        flat = 1.0 / len(classes)

        def answer(batch: Any, start: int) -> Answer:
            prior = np.full((batch.num_rows, len(classes)), flat)
            later = stage_of(salt, start, batch.num_rows, first_share=FIRST_SHARE) == 1
            starts = range(0, batch.num_rows, CHUNK_ROWS)
            with one_thread():
                chunks = [features.of(batch.slice(at, CHUNK_ROWS)) for at in starts]
                predicted = np.concatenate([model_probabilities(model, chunk, classes) for chunk in chunks])
            prior[later] = predicted[later]
            channel = mechanism.channel(prior, n_classes=len(classes))
            return Answer(channel, float(np.sum(channel.expected_accuracy(prior))))

        def stage(start: int, count: int) -> npt.NDArray[np.uint8]:
            return stage_of(salt, start, count, first_share=FIRST_SHARE)

        one = mechanism.channel(np.full((1, len(classes)), flat))
        return Response(answer=answer, shared=one.take(slice(0, 0)), stage=stage)

    def _trained(self, rows: Rows, mechanism: Mechanism, key: NoiseKey, salt: bytes) -> Any:
        """Fit a copy of the learner on the released labels of the first stage, chunk after chunk."""
        model, labels = copy.deepcopy(self._learner), np.asarray(rows.classes)
        start = rows.first
        batches = rows.batches(columns=[rows.label, *self.columns], size=CHUNK_ROWS)
        for batch in prefetched(batches, depth=2):
            first = stage_of(salt, start, batch.num_rows, first_share=FIRST_SHARE) == 0
            flat = np.full((batch.num_rows, len(labels)), 1.0 / len(labels))
            channel = mechanism.channel(flat, n_classes=len(labels))
            codes = draw_part(rows.labels(batch), channel, promise=mechanism.guarantee, key=key, start=start)
            if first.any():
                with one_thread():
                    model.partial_fit(self._features.of(batch)[first], labels[codes[first]], classes=labels)
            start += batch.num_rows
        return model
