"""The changes of a model's parameters by training each task alone."""

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor, nn

from taskmix.weighting.base import Floats


class Deltas:
    """The deltas δᵢ of several tasks from one base θ; mixes them to θ + Σ cᵢ δᵢ.

    >>> model = nn.Linear(1, 1, bias=False)
    >>> _ = nn.init.zeros_(model.weight)
    >>> deltas = Deltas(model, tasks=2, target=0)
    >>> for task, moved in enumerate([1.0, -0.5]):
    ...     _ = nn.init.constant_(model.weight, moved)
    ...     print(deltas.collect(task))
    1.0
    0.5
    >>> deltas.mix([1.0, 0.5])
    >>> model.weight.item()
    0.75
    >>> model(torch.ones(1, 1)).sum().backward()
    >>> deltas.slope().tolist()
    [1.0, -0.5]
    """

    # As ∂L/∂cᵢ = ⟨∇L, δᵢ⟩, one backward pass gives the gradient in all coefficients. Buffers (the
    # statistics of batch normalisation) are not mixed: a mixture has those after training the
    # target. So the gradient is exact, and no variance becomes negative.

    def __init__(self, model: nn.Module, tasks: int, target: int) -> None:
        # The trainable parameters must share dtype and device.
        self._parameters = [p for p in model.parameters() if p.requires_grad]
        self._buffers = list(model.buffers())
        self._target = target
        ends = np.cumsum([p.numel() for p in self._parameters]).tolist()
        self._columns = [slice(a, b) for a, b in zip([0, *ends], ends, strict=False)]
        like = self._parameters[0]
        self._base = torch.empty(ends[-1], dtype=like.dtype, device=like.device)
        self._stack = torch.empty(tasks, ends[-1], dtype=like.dtype, device=like.device)
        self.rebase()

    @torch.no_grad()
    def rebase(self) -> None:
        """Make the present model the base."""
        for parameter, columns in zip(self._parameters, self._columns, strict=True):
            self._base[columns] = parameter.reshape(-1)
        self._before = [b.clone() for b in self._buffers]
        self._after = self._before

    @torch.no_grad()
    def collect(self, task: int) -> float:
        """Store the change of the model as the delta of this task, and return its norm."""
        row = self._stack[task]
        for parameter, columns in zip(self._parameters, self._columns, strict=True):
            torch.sub(parameter.reshape(-1), self._base[columns], out=row[columns])
        if task == self._target:
            self._after = [b.clone() for b in self._buffers]
        return float(torch.linalg.vector_norm(row))

    @torch.no_grad()
    def restore(self) -> None:
        """Set the model to the base."""
        for parameter, columns in zip(self._parameters, self._columns, strict=True):
            parameter.copy_(self._base[columns].view_as(parameter))
        self._fill(self._before)

    @torch.no_grad()
    def mix(self, coefficients: Sequence[float] | Floats) -> None:
        """Set the model to θ + Σ cᵢ δᵢ."""
        c = torch.tensor(coefficients, dtype=self._base.dtype, device=self._base.device)
        for parameter, columns in zip(self._parameters, self._columns, strict=True):
            base, stack = self._base[columns], self._stack[:, columns]
            if parameter.is_contiguous():
                torch.addmv(base, stack.T, c, out=parameter.view(-1))
            else:
                parameter.copy_(torch.addmv(base, stack.T, c).view(parameter.shape))
        self._fill(self._after)

    @torch.no_grad()
    def slope(self) -> Floats:
        """Return ⟨gradient, δᵢ⟩ for each task after a backward pass, shape `(tasks,)`."""
        total: Tensor = self._stack.new_zeros(len(self._stack))
        for parameter, columns in zip(self._parameters, self._columns, strict=True):
            if parameter.grad is not None:
                total.addmv_(self._stack[:, columns], parameter.grad.reshape(-1))
        return total.double().cpu().numpy()

    def _fill(self, values: list[Tensor]) -> None:
        for buffer, value in zip(self._buffers, values, strict=True):
            buffer.copy_(value)
