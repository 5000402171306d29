"""Channels: how labels were randomized, as public values that learners compute with.

With probability `keep` a label is returned as it is; otherwise it is redrawn from a public distribution `base`. Two
arrays and an index from examples to rows say everything; exact privacy, corrected losses, posteriors and expected
accuracy follow in O(K) per example.

>>> from labeldp.channel import Channel
>>> channel = Channel(keep=0.5, base=[0.25, 0.25, 0.5])
>>> channel.forward([[1.0, 0.0, 0.0]]).tolist()
[[0.625, 0.125, 0.25]]

Kinds with one interface (`FiniteChannel`): `Channel` (a few rows, shared or by group), `CandidateChannel` (a
candidate set per example), `MatrixChannel` (any K x M matrix per group), `NumericChannel` (one whose labels and answers are
numbers), and those whose answers are sets of labels, `ArcChannel`, `BlockChannel` and `SetChannel`. `join_channels` makes one
channel of several groups of examples, `build_channel` makes one from stored arrays, and `Evidence` is what released answers say of
labels, a few rows at a time; `MeanEvidence` and `AnswerLikelihood` are what they say of the mean of ordered labels. `safe_odds` and `odds_to_keep` are for
mechanisms that build their own: keep probabilities that stay within a promised epsilon after rounding.
"""

from labeldp.channel.arcs import ArcChannel, join_answers
from labeldp.channel.blocks import BlockChannel
from labeldp.channel.evidence import Evidence, LazyRows
from labeldp.channel.finite import FiniteChannel, build_channel, join_channels
from labeldp.channel.labels import CandidateChannel, Channel, odds_to_keep, safe_odds
from labeldp.channel.matrix import MatrixChannel
from labeldp.channel.means import (
    AnswerLikelihood,
    CountLaws,
    MeanEvidence,
    MeanLaws,
    MeanTable,
    NormalLaws,
    ShareLaws,
    slopes,
    tilted_laws,
)
from labeldp.channel.numbers import NumericChannel
from labeldp.channel.sets import SetAnswers, SetChannel

__all__ = [
    "AnswerLikelihood",
    "ArcChannel",
    "BlockChannel",
    "CandidateChannel",
    "Channel",
    "CountLaws",
    "Evidence",
    "FiniteChannel",
    "LazyRows",
    "MatrixChannel",
    "MeanEvidence",
    "MeanLaws",
    "MeanTable",
    "NormalLaws",
    "NumericChannel",
    "SetAnswers",
    "SetChannel",
    "ShareLaws",
    "build_channel",
    "join_answers",
    "join_channels",
    "odds_to_keep",
    "safe_odds",
    "slopes",
    "tilted_laws",
]
