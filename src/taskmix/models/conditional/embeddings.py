"""One learned vector a task."""

from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.nn import functional

from taskmix.errors import UserError, unknown
from taskmix.models.multitask import key
from taskmix.rng import seed_for


class TaskEmbeddings(nn.Module):
    """The table z of task embeddings; every row is a parameter of its own, named by its task.

    So a new row trains while the old ones stay as they are, to the last bit, and a row is found
    again among saved weights when the tasks have changed. A row's first values
    are N(0, 1), and depend on the seed and the task's name alone. (The paper's code has N(0, 0.02)
    and one shared d x d matrix behind it; here every generator reads the row itself.)

    Args:
        tasks: the names of the tasks, in the order of their ids.
        width: how long a row is.
        seed: of the first values.

    >>> table = TaskEmbeddings(["cola", "rte"], width=4)
    >>> table(torch.tensor([1, 1, 0])).shape
    torch.Size([3, 4])
    """

    def __init__(self, tasks: Sequence[str], width: int, seed: int = 0) -> None:
        super().__init__()
        if not tasks or len(set(tasks)) < len(tasks):
            raise UserError(f"tasks: expected at least one name, each once, found {list(tasks)}")
        self.width = width
        self.tasks = tuple(tasks)
        rows = {row_name(task): random_row(task, width, seed) for task in tasks}
        self.rows = nn.ParameterDict(rows)

    def forward(self, task_ids: Tensor) -> Tensor:
        """Return the rows of the tasks, shape `(sequences, width)`.

        Args:
            task_ids: shape `(sequences,)`, integers.
        """
        self.check(task_ids)
        return functional.embedding(task_ids, self.table())

    def table(self) -> Tensor:
        """Return the rows in the order of the tasks, shape `(tasks, width)`."""
        # The dictionary's own order is another one: torch sorts the names.
        return torch.stack([self.rows[row_name(task)] for task in self.tasks])

    def check(self, task_ids: Tensor) -> None:
        """Raise if they are not one id of the table a sequence."""
        if task_ids.ndim != 1 or task_ids.is_floating_point():
            raise UserError(
                "task_ids: expected one integer a sequence, "
                f"found {task_ids.dtype} of shape {tuple(task_ids.shape)}"
            )
        if not task_ids.numel():
            return
        low, high = (int(end) for end in torch.aminmax(task_ids))
        if low < 0 or high >= len(self.tasks):
            raise UserError(
                f"task_ids: expected ids from 0 to {len(self.tasks) - 1}, "
                f"found {low if low < 0 else high}"
            )

    def index(self, task: str) -> int:
        """Return a task's id."""
        if task not in self.tasks:
            raise unknown("task", task, self.tasks)
        return self.tasks.index(task)

    def row(self, task: str) -> nn.Parameter:
        """Return a task's row, the parameter itself."""
        self.index(task)
        found: nn.Parameter = self.rows[row_name(task)]
        return found

    def append(self, task: str, row: Tensor) -> None:
        """Add a task behind the others; their rows stay the parameters that they are.

        Args:
            task: its name.
            row: its first values, shape `(width,)`.
        """
        if task in self.tasks:
            raise UserError(f"task {task!r}: expected a new name, found it among the tasks")
        if row.shape != (self.width,):
            raise UserError(
                f"task {task!r}: expected a row of shape ({self.width},), found {tuple(row.shape)}"
            )
        like = self.row(self.tasks[0])
        new = nn.Parameter(row.detach().to(like.device, like.dtype, copy=True))
        self.rows[row_name(task)] = new
        self.tasks = (*self.tasks, task)


def row_name(task: str) -> str:
    """Return what a task's row is called; a plain name might be one of torch's own, as `copy` is.

    >>> row_name("copy")
    'z_copy'
    """
    return f"z_{key(task)}"


def random_row(task: str, width: int, seed: int) -> nn.Parameter:
    """Return a task's first row: N(0, 1), from the seed and the name."""
    generator = torch.Generator().manual_seed(seed_for(seed, "conditional", "task", task))
    return nn.Parameter(torch.randn(width, generator=generator, device="cpu"))
