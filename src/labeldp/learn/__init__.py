"""Learners: scikit-learn estimators that train on releases, never on raw labels.

>>> from labeldp.learn import LabelPrivateClassifier, SoftmaxRegression
>>> LabelPrivateClassifier(SoftmaxRegression(), epsilon=0.5).epsilon
0.5
"""

from labeldp.learn._classifier import LabelPrivateClassifier
from labeldp.learn._noisy_accuracy import Choice, NoisyAccuracy, choose_by_noisy_accuracy, noisy_accuracy
from labeldp.learn._recipes import Recipe, recipe
from labeldp.learn._saved import load_model, save_model
from labeldp.learn._softmax import SoftmaxRegression
from labeldp.learn._stages import Stage
from labeldp.learn._tables import TableEncoder, table_classifier
from labeldp.learn.convex import LPRRSGD, LPNormalSGD, OutputPerturbation, SimplexERM, SufficientStatistics
from labeldp.learn.pate import PATE, MultiLabelPATE

__all__ = [
    "LPRRSGD",
    "PATE",
    "Choice",
    "LPNormalSGD",
    "LabelPrivateClassifier",
    "MultiLabelPATE",
    "NoisyAccuracy",
    "OutputPerturbation",
    "Recipe",
    "SimplexERM",
    "SoftmaxRegression",
    "Stage",
    "SufficientStatistics",
    "TableEncoder",
    "choose_by_noisy_accuracy",
    "load_model",
    "noisy_accuracy",
    "recipe",
    "save_model",
    "table_classifier",
]
