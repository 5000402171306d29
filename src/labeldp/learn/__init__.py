"""Learners: scikit-learn estimators that train on releases, never on raw labels.

>>> from labeldp.learn import LabelPrivateClassifier, SoftmaxRegression
>>> LabelPrivateClassifier(SoftmaxRegression(), epsilon=0.5).epsilon
0.5

| chapter | what it is |
|---|---|
| `classifier` | `LabelPrivateClassifier`: any classifier around labels released in stages |
| `recipe` | what "auto" stands for: stages and prior, by epsilon, rows, classes and whom the user trusts |
| `bags` | a curator's noisy counts of clusters as evidence in training |
| `regressor` | `LabelPrivateRegressor`: any regressor, on numbers released without bias |
| `number_stages` | the loop over stages for numbers: beliefs, weights, evidence |
| `stages` | the loop over stages for classes, the same for the owner of labels and for a receiver of a release |
| `pools`, `readers` | where answers say little: pooled in neighbourhoods, or read by a quick estimator before a long fit |
| `corrections` | how training accounts for the noise |
| `crossfit` | true probabilities from any classifier: cross-fit, calibrate by the likelihood, refit |
| `softmax` | `SoftmaxRegression`, which takes labels, soft targets or likelihoods |
| `boosters` | trees of LightGBM, XGBoost and CatBoost as texts that can be saved |
| `rehearsal` | what a fit would refuse, refused before anything is charged |
| `checkpoint` | what a run that may be killed writes down |
| `saved` | `save_model` and `load_model` |
| `evaluation` | `evaluate`: a whole report on labels that are public, protected (for a price) or released (free) |
| `score_counts` | one noisy histogram of scores by labels, behind a report on protected labels |
| `metrics`, `evaluated` | metrics as functions of sums over labels, and the report `Evaluation` |
| `number_scores` | the report on numbers, `NumberEvaluation`: estimates through the channel, or one charged measurement |
| `scoring` | accuracy alone on protected labels: for a price, or free from released ones |
| `search` | `PrivateSearchCV`: hyper-parameters chosen under a guarantee of the whole search |
| `tables` | raw tables as features, in memory or in batches |
| `convex`, `pate`, `ratings` | learners with mechanisms of their own |
"""

from labeldp.learn.boosters import BoosterClassifier
from labeldp.learn.checkpoint import Checkpoint
from labeldp.learn.classifier import LabelPrivateClassifier
from labeldp.learn.convex import (
    LPRRSGD,
    GaussianNoise,
    LaplaceNoise,
    LPNormalSGD,
    OutputPerturbation,
    PrivateGLM,
    SimplexERM,
    SufficientStatistics,
)
from labeldp.learn.evaluated import Evaluation, Metric
from labeldp.learn.evaluation import evaluate
from labeldp.learn.named import table_classifier, table_regressor
from labeldp.learn.number_scores import NumberEvaluation
from labeldp.learn.number_stages import NumberStage
from labeldp.learn.pate import PATE, MultiLabelPATE
from labeldp.learn.recipe import Recipe, recipe
from labeldp.learn.regressor import LabelPrivateRegressor
from labeldp.learn.saved import load_model, save_model
from labeldp.learn.scoring import Choice, NoisyAccuracy, choose_by_noisy_accuracy, noisy_accuracy, score_privately
from labeldp.learn.search import PrivateSearchCV
from labeldp.learn.softmax import SoftmaxRegression
from labeldp.learn.stages import Stage
from labeldp.learn.tables import TableEncoder, TableRows
from labeldp.release.scores import public_labels

__all__ = [
    "LPRRSGD",
    "PATE",
    "BoosterClassifier",
    "Checkpoint",
    "Choice",
    "Evaluation",
    "GaussianNoise",
    "LPNormalSGD",
    "LabelPrivateClassifier",
    "LabelPrivateRegressor",
    "LaplaceNoise",
    "Metric",
    "MultiLabelPATE",
    "NoisyAccuracy",
    "NumberEvaluation",
    "NumberStage",
    "OutputPerturbation",
    "PrivateGLM",
    "PrivateSearchCV",
    "Recipe",
    "SimplexERM",
    "SoftmaxRegression",
    "Stage",
    "SufficientStatistics",
    "TableEncoder",
    "TableRows",
    "choose_by_noisy_accuracy",
    "evaluate",
    "load_model",
    "noisy_accuracy",
    "public_labels",
    "recipe",
    "save_model",
    "score_privately",
    "table_classifier",
    "table_regressor",
]
