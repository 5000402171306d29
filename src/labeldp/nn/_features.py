"""Features from a network that the user brings: any torch module, such as a pretrained encoder, as a transformer.

>>> import numpy as np, torch
>>> images = np.zeros((3, 1, 4, 4), np.float32)
>>> ModuleFeatures(torch.nn.Flatten()).fit_transform(images).shape
(3, 16)

Design notes. The module is only evaluated: what it was trained on, and under which promise, is for whoever brings it to
know. Standardisation belongs in front of it (`torch.nn.Sequential`); bytes come as floats 0..255.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from sklearn.base import BaseEstimator, ClassNamePrefixFeaturesOutMixin, TransformerMixin
from sklearn.utils.validation import check_is_fitted
from torch import nn
from torch.utils.data import Dataset

from labeldp._validate import check_integer
from labeldp.errors import Described, invalid
from labeldp.nn._inputs import ArrayInputs, DatasetInputs, Inputs, Scale
from labeldp.nn._modules import checked_device, tried


class ModuleFeatures(ClassNamePrefixFeaturesOutMixin, TransformerMixin, BaseEstimator):  # type: ignore[misc]  # untyped
    """What a module returns for each example, flat.

    Parameters
    ----------
    module : torch.nn.Module
        Used as it is, in evaluation mode; it is not trained and not copied.
    batch_size : int
        Examples that it sees together.
    device : str
        Where it runs.
    """

    def __init__(self, module: Any, *, batch_size: int = 256, device: str = "cpu") -> None:
        self.module = module
        self.batch_size = batch_size
        self.device = device

    def fit(self, X: Any, y: Any = None) -> ModuleFeatures:
        """Find out how many features come out; nothing is learned and `y` is not looked at."""
        inputs = self._inputs(X)
        self.sample_shape_ = inputs.sample_shape
        self._n_features_out = self._features(inputs, torch.arange(1)).shape[1]
        return self

    def transform(self, X: Any) -> npt.NDArray[np.float32]:
        """Return features, float32 (n, width)."""
        check_is_fitted(self, "sample_shape_")
        inputs = self._inputs(X)
        if inputs.sample_shape != self.sample_shape_:
            got = Described(f"examples of shape {inputs.sample_shape}")
            raise invalid("ModuleFeatures", "X", f"have examples of shape {self.sample_shape_}, as in fit", got=got)
        together = check_integer("ModuleFeatures", "batch_size", self.batch_size, least=1)
        return np.concatenate([self._features(inputs, r) for r in torch.split(torch.arange(len(inputs)), together)])

    def _inputs(self, X: Any) -> Inputs:
        if not isinstance(self.module, nn.Module):
            raise invalid("ModuleFeatures", "module", "be a torch module", got=type(self.module).__name__)
        device = str(checked_device(self.device))
        if isinstance(X, Dataset):
            return DatasetInputs(items=X, device=device)
        array = np.asarray(X)
        if array.dtype.kind not in "fiu" or array.ndim < 2 or not len(array):
            got = Described(f"an array of shape {array.shape} and type {array.dtype}")
            raise invalid("ModuleFeatures", "X", "be numbers, one example after the other", got=got)
        array = array if array.dtype == np.uint8 else array.astype(np.float32)
        if array.ndim == 3:  # one channel: three axes would mean views
            array = array[:, None]
        return ArrayInputs.of(array, scale=Scale.none(), device=device)

    def _features(self, inputs: Inputs, rows: torch.Tensor) -> npt.NDArray[np.float32]:
        module = self.module.to(checked_device(self.device))
        answer = tried(module, inputs.batch(rows))
        features: npt.NDArray[np.float32] = answer.flatten(1).float().cpu().numpy()
        return features
