"""Several ranks that train one model together, or one process that is alone."""

import atexit
import logging
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import timedelta
from itertools import chain, zip_longest
from typing import Any, TypeVar

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _NormBase

from taskmix.config import RunConfig
from taskmix.errors import TaskmixError, RunInterruptedError, UserError
from taskmix.tasks.batches import Cut
from taskmix.training.launch import Launch, launched
from taskmix.training.meeting import meeting_store

T = TypeVar("T")

BUCKET = 8 << 20
"""Bytes of gradients that are sent at a time: some are on their way while others are packed."""
PATIENCE = timedelta(hours=24)
"""How long ranks wait for one that reads data or writes a checkpoint. A rank that died is noticed
by its connection, or by torchrun, long before."""


class Ranks:
    """One process that trains alone: there is nobody to talk to.

    The engine and the drivers call these methods wherever several ranks have to agree, and know
    nothing else of them. Every rank asks the decider from the same random stream, passes its `cut`
    of each batch through its own copy of the model, and tells the decider what all ranks measured.
    So all of them take the same decisions without talking about them.
    """

    rank = 0
    count = 1
    shards = False
    """Whether each rank has only a part of the encoder, and all must pass equally many pieces."""

    @property
    def cut(self) -> Cut:
        """Which part of every batch this rank takes."""
        return Cut(self.rank, self.count)

    @property
    def writes(self) -> bool:
        """Whether this rank writes files and shows progress: the first one alone does."""
        return self.rank == 0

    @property
    def name(self) -> tuple[str | int, ...]:
        """What is added to the name of a random stream that differs by rank: that of dropout."""
        return ("rank", self.rank) if self.rank else ()

    def check(self, model: nn.Module) -> None:
        """Raise one sentence if these ranks cannot train a model."""

    def prepared(self, model: nn.Module, device: torch.device) -> nn.Module:
        """Return the model on the device, or a part of it if ranks divide it among them."""
        return model.to(device)

    def total(self, tensor: Tensor) -> Tensor:
        """Return the sum of the ranks' tensors."""
        return tensor

    def add_gradients(self, parameters: Iterable[Tensor]) -> None:
        """Replace each gradient by the sum of the ranks' gradients.

        A parameter that no rank has used keeps no gradient.
        """

    def clip(self, parameters: Iterable[Tensor], longest: float) -> Tensor:
        """Return the length of the gradient of all parameters, and shorten it if it is longer."""
        return torch.nn.utils.clip_grad_norm_(parameters, longest)

    def whole(self, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Return named tensors, put together from the ranks' parts if they have only parts."""
        return dict(tensors)

    def parts(self, tensors: Mapping[str, Tensor], model: nn.Module) -> dict[str, Tensor]:
        """Return this rank's parts of whole tensors that are named after the model's parameters.

        The state of an optimiser has a colon behind the parameter's name.
        """
        return dict(tensors)

    def gathered(self, value: T) -> list[T]:
        """Return the ranks' values, in the order of the ranks."""
        return [value]

    def in_batch_order(self, results: Sequence[T | None]) -> list[T]:
        """Return results of batches that ranks took in turns, in the order of the batches.

        Args:
            results: of this rank's batches; None for one that was passed along.
        """
        turns = zip_longest(*self.gathered(list(results)))
        return [result for result in chain.from_iterable(turns) if result is not None]

    def together(self, work: Callable[[], T]) -> T:
        """Do something on every rank; if it fails on any rank, raise on all of them."""
        return work()

    def in_turn(self, work: Callable[[], T]) -> T:
        """Do something on one rank of each machine first: it fills the cache that others read."""
        return work()

    def agreed(self, work: Callable[[], T]) -> T:
        """Do something on the first rank, and return on all what came of it, also an error."""
        return work()

    def send(self, tensors: Sequence[Tensor]) -> None:
        """Give these tensors the values that they have on the first rank."""

    def stop(self, signal: int | None) -> int | None:
        """Return the signal that asks to stop, if any rank got one."""
        return signal

    def check_same(self, what: Callable[[], Mapping[str, str]]) -> None:
        """Raise one sentence if what has to be the same on all ranks is not.

        Args:
            what: returns, by the words that the sentence has for it, the content.
        """


ALONE = Ranks()
"""The one process that most runs have."""


class Group(Ranks):
    """The ranks of torch.distributed's default group.

    Gradients are summed by our own all-reduce behind the backward pass, not by a
    `DistributedDataParallel` around the model. Its hooks expect that all ranks use the same
    parameters, in one backward pass a step. Here a rank may have no item of a task whose head
    another rank uses, a batch may pass in pieces, and a weighting measures gradients of its own. It
    also takes the mean over ranks, which is not the mean over examples where parts differ in size.
    A loss that is weighted by its share of the whole batch's examples, and a plain sum, know none
    of these cases, and what is clipped is the gradient that one process would have had. The price
    is that nothing is sent during the backward pass.

    Args:
        local: the number of this rank on its machine.
    """

    def __init__(self, local: int = 0) -> None:
        self.rank = dist.get_rank()
        self.count = dist.get_world_size()
        self._local = local

    def total(self, tensor: Tensor) -> Tensor:
        """Return the sum of the ranks' tensors; all ranks get the same bits."""
        total = tensor.detach().clone()
        with self._talking():
            dist.all_reduce(total)
        return total

    def add_gradients(self, parameters: Iterable[Tensor]) -> None:
        """Replace each gradient by the sum of the ranks' gradients."""
        every = list(parameters)
        used = torch.tensor([parameter.grad is not None for parameter in every], dtype=torch.uint8)
        with self._talking():
            dist.all_reduce(used, dist.ReduceOp.MAX)
            anywhere = used.tolist()
            chosen = [each for each, some in zip(every, anywhere, strict=True) if some]
            for sent in [_Bucket(bucket) for bucket in _buckets(chosen)]:
                sent.receive()

    def gathered(self, value: T) -> list[T]:
        """Return the ranks' values, in the order of the ranks."""
        values: list[Any] = [None] * self.count
        with self._talking():
            dist.all_gather_object(values, value)
        return values

    def together(self, work: Callable[[], T]) -> T:
        """Do something on every rank; if it fails on any rank, raise on all of them."""
        result, error = _tried(work)
        errors = self.gathered(_told(error))
        if error is not None:
            raise error
        for rank, told in enumerate(errors):
            if told is not None:
                raise _understood(told, rank)
        return result  # type: ignore[return-value]  # there is one where there is no error

    def in_turn(self, work: Callable[[], T]) -> T:
        """Do something on one rank of each machine first: it fills the cache that others read."""
        first = self._local == 0
        early = self.together(lambda: work() if first else None)
        late = self.together(lambda: None if first else work())
        return early if first else late  # type: ignore[return-value]

    def agreed(self, work: Callable[[], T]) -> T:
        """Do something on the first rank, and return on all what came of it, also an error."""
        result, error = _tried(work) if self.writes else (None, None)
        shared: list[Any] = [(result, _told(error))]
        with self._talking():
            dist.broadcast_object_list(shared)
        if error is not None:
            raise error
        result, told = shared[0]
        if told is not None:
            raise _understood(told, 0)
        return result  # type: ignore[no-any-return]

    def send(self, tensors: Sequence[Tensor]) -> None:
        """Give these tensors the values that they have on the first rank."""
        with self._talking(), torch.no_grad():
            for tensor in tensors:
                dist.broadcast(tensor, 0)

    def stop(self, signal: int | None) -> int | None:
        """Return the signal that asks to stop, if any rank got one."""
        asked = torch.tensor(signal or 0)
        with self._talking():
            dist.all_reduce(asked, dist.ReduceOp.MAX)
        return int(asked) or None

    def check_same(self, what: Callable[[], Mapping[str, str]]) -> None:
        """Raise one sentence if what has to be the same on all ranks is not."""
        first, *others = self.gathered(dict(what()))
        for rank, found in enumerate(others, 1):
            for words, content in first.items():
                if found.get(words) != content:
                    raise RunInterruptedError(
                        f"{words} is not the same on rank {rank} as on rank 0; all ranks must have "
                        "the same run file, data, code and library versions, and a decider must "
                        "depend on nothing but its random stream and what it is told"
                    )

    @contextmanager
    def _talking(self) -> Iterator[None]:
        """Say in one sentence that another rank is gone."""
        try:
            yield
        except RuntimeError as error:
            why = str(error).splitlines()[0]
            raise RunInterruptedError(
                f"rank {self.rank} of {self.count}: talking to the other ranks failed ({why})"
            ) from error


class _Bucket:
    """Gradients of some parameters, packed into one tensor and on their way.

    Args:
        parameters: of one type, on one device.
    """

    def __init__(self, parameters: Sequence[Tensor]) -> None:
        self._parameters = parameters
        self._packed = torch.cat([_gradient(each).reshape(-1) for each in parameters])
        self._work: Any = dist.all_reduce(self._packed, async_op=True)

    def receive(self) -> None:
        """Wait for the sums, and make them the gradients, without another copy."""
        self._work.wait()
        parts = self._packed.split([each.numel() for each in self._parameters])
        for parameter, part in zip(self._parameters, parts, strict=True):
            parameter.grad = part.view_as(parameter)


def _gradient(parameter: Tensor) -> Tensor:
    return torch.zeros_like(parameter) if parameter.grad is None else parameter.grad


def _buckets(parameters: Iterable[Tensor]) -> list[list[Tensor]]:
    """Cut parameters, in order, into lists of one type and of about as many bytes as a bucket."""
    buckets: list[list[Tensor]] = []
    room = 0
    for parameter in parameters:
        size = parameter.numel() * parameter.element_size()
        if size > room or buckets[-1][0].dtype != parameter.dtype:
            buckets.append([])
            room = BUCKET
        buckets[-1].append(parameter)
        room -= size
    return buckets


def _tried(work: Callable[[], T]) -> tuple[T | None, Exception | None]:
    try:
        return work(), None
    except Exception as error:  # whatever it is, the other ranks must not wait for this one
        return None, error


_Told = tuple[bool, str]
"""Whether an error is the user's mistake, and its sentence."""


def _told(error: Exception | None) -> _Told | None:
    if error is None:
        return None
    text = str(error) if isinstance(error, TaskmixError) else f"{type(error).__name__}: {error}"
    return isinstance(error, UserError), text


def _understood(told: _Told, rank: int) -> TaskmixError:
    mistake, text = told
    return UserError(text) if mistake else RunInterruptedError(f"rank {rank}: {text}")


def running_statistics(model: nn.Module) -> list[Tensor]:
    """Return the statistics of batch normalisation, which each rank has from its own examples.

    As with `DistributedDataParallel`, those of the first rank are the ones that count.
    """
    norms = (module for module in model.modules() if isinstance(module, _NormBase))
    return [buffer for norm in norms for buffer in norm.buffers()]


@contextmanager
def joined(config: RunConfig) -> Iterator[Ranks]:
    """Join the ranks that a launcher started with this one; alone if there are none.

    A script that has a process group of torch's already keeps it.

    Args:
        config: of the run.
    """
    launch = launched()
    if not (dist.is_available() and (dist.is_initialized() or launch.count > 1)):
        yield ALONE
        return
    _check(config, launch)
    if not dist.is_initialized():
        _join(config, launch)
    ranks = _group(config, launch)
    with _quiet(not ranks.writes):
        yield ranks


def _group(config: RunConfig, launch: Launch) -> Ranks:
    if not config.ranks.shard:
        return Group(launch.local)
    from taskmix.training.sharding import ShardedGroup  # loads much that others do not need

    return ShardedGroup(launch.local)


def _check(config: RunConfig, launch: Launch) -> None:
    """Raise one sentence if so many ranks cannot train as a configuration says."""
    count = dist.get_world_size() if dist.is_initialized() else launch.count
    if config.budget.batch < count:
        raise UserError(
            f"budget.batch: expected at least one example for each of the {count} ranks, "
            f"found {config.budget.batch}"
        )
    if config.ranks.shard and config.family.key == "weighting":
        raise UserError(
            "ranks.shard: expected a policy or a selection, found a weighting, which mixes whole "
            "copies of the model"
        )
    if dist.is_initialized() and dist.get_backend() == "nccl":
        raise UserError(
            "ranks: expected a process group with the backend cpu:gloo,cuda:nccl, found one with "
            "nccl alone"
        )
    if config.device not in ("auto", "cpu", "cuda"):
        raise UserError(
            f"device: expected auto, cpu or cuda with {count} ranks, found {config.device!r}"
        )


def _join(config: RunConfig, launch: Launch) -> None:
    if config.device != "cpu" and torch.cuda.is_available():
        if launch.local >= torch.cuda.device_count():
            raise UserError(
                f"ranks: expected at most one for each of the {torch.cuda.device_count()} GPUs of "
                f"this machine, found number {launch.local + 1}"
            )
        torch.cuda.set_device(launch.local)
        backend = "cpu:gloo,cuda:nccl"
    else:
        backend = "gloo"
    if (store := meeting_store(launch, PATIENCE)) is None:
        dist.init_process_group(backend, timeout=PATIENCE)
    else:
        dist.init_process_group(
            backend, timeout=PATIENCE, store=store, rank=launch.rank, world_size=launch.count
        )
    # A process can join only once: another run in it finds the group.
    atexit.register(_leave)


def _leave() -> None:
    if dist.is_initialized():
        dist.destroy_process_group()


@contextmanager
def _quiet(wanted: bool) -> Iterator[None]:
    """Leave warnings, which all ranks would give, to the first rank."""
    log = logging.getLogger("taskmix")
    before = log.level
    if wanted:
        log.setLevel(logging.ERROR)
    try:
        yield
    finally:
        log.setLevel(before)
