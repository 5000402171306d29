"""Learners: scikit-learn estimators that train on releases, never on raw labels.

>>> from labeldp.learn import LabelPrivateClassifier, SoftmaxRegression
>>> LabelPrivateClassifier(SoftmaxRegression(), epsilon=0.5).epsilon
0.5
"""

from labeldp.learn._classifier import LabelPrivateClassifier
from labeldp.learn._softmax import SoftmaxRegression
from labeldp.learn._stages import Stage

__all__ = ["LabelPrivateClassifier", "SoftmaxRegression", "Stage"]
