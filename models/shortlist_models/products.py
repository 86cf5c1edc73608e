"""Products with all rows of a layer that need no gradient, by numpy's BLAS."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor


def multiply_rows(contexts: Tensor, rows: Tensor) -> Tensor:
    """`contexts` [n, d] times each of `rows` [m, d]: [n, m]. Equals `contexts @ rows.T` but for the order of its sums.

    Numpy's BLAS takes half as long as torch's on AMD processors (64 contexts, 262,144 rows of 640: .24 s, .56 s), where
    nothing else runs in parallel right before or after. It is torch's where a gradient is asked for, on other devices,
    and of numbers that numpy has no type for.
    """
    is_plain = all(part.device.type == "cpu" and part.dtype == torch.float32 for part in (contexts, rows))
    if not is_plain or (torch.is_grad_enabled() and (contexts.requires_grad or rows.requires_grad)):
        return contexts @ rows.T
    with np.errstate(all="ignore"):  # what overflows is infinite, as in torch
        return torch.from_numpy(contexts.detach().numpy() @ rows.detach().numpy().T)
