"""The ranks of a distributed run, or the one process of any other."""

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
from taskmix.errors import RunInterruptedError, TaskmixError, UserError
from taskmix.tasks.batches import Cut
from taskmix.training.launch import Launch, launched, rendezvous_store

T = TypeVar("T")

BUCKET_BYTES = 8 << 20  # gradients sent at a time: some are on their way while others are packed
# For a rank that reads data or writes a checkpoint; a dead one is noticed by its connection.
TIMEOUT = timedelta(hours=24)


class Ranks:
    """The one process of a run, and the interface of several ranks."""

    # Every rank asks the decider from the same random stream, passes its `cut` of each batch
    # through its copy of the model, and tells the decider what all ranks measured. So all of them
    # take the same decisions without communication.
    rank = 0
    count = 1
    shards = False  # ranks that shard the encoder must all pass equally many pieces

    @property
    def cut(self) -> Cut:
        return Cut(self.rank, self.count)

    @property
    def writes(self) -> bool:
        """Whether this rank writes files and shows progress."""
        return self.rank == 0

    @property
    def name(self) -> tuple[str | int, ...]:
        """The suffix to the names of random streams that differ by rank, such as dropout's."""
        return ("rank", self.rank) if self.rank else ()

    def check(self, model: nn.Module) -> None:
        """Raise if these ranks cannot train a model."""

    def prepared(self, model: nn.Module, device: torch.device) -> nn.Module:
        """Return the model, or this rank's shard of it, on the device."""
        return model.to(device)

    def total(self, tensor: Tensor) -> Tensor:
        """Return the sum of the ranks' tensors."""
        return tensor

    def add_gradients(self, parameters: Iterable[Tensor]) -> None:
        """Sum the gradients over the ranks; a parameter that no rank has used keeps none."""

    def clip(self, parameters: Iterable[Tensor], longest: float) -> Tensor:
        """Clip the gradient of all parameters and return its norm before clipping."""
        return torch.nn.utils.clip_grad_norm_(parameters, longest)

    def whole(self, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Return named tensors, each put together from the ranks' shards."""
        return dict(tensors)

    def parts(self, tensors: Mapping[str, Tensor], model: nn.Module) -> dict[str, Tensor]:
        """Return this rank's shards of tensors named by parameters, or by `parameter:field`."""
        return dict(tensors)

    def gathered(self, value: T) -> list[T]:
        """Return the values of all ranks, in the order of the ranks."""
        return [value]

    def in_batch_order(self, results: Sequence[T | None]) -> list[T]:
        """Return the results, but None, of batches that ranks took in turns, in batch order."""
        turns = zip_longest(*self.gathered(list(results)))
        return [result for result in chain.from_iterable(turns) if result is not None]

    def together(self, work: Callable[[], T]) -> T:
        """Do work on every rank; if it fails on any rank, raise on all of them."""
        return work()

    def in_turn(self, work: Callable[[], T]) -> T:
        """Do work on one rank of each machine first: it fills the cache that others read."""
        return work()

    def agreed(self, work: Callable[[], T]) -> T:
        """Do work on the first rank; return its result, or raise its error, on all ranks."""
        return work()

    def send(self, tensors: Sequence[Tensor]) -> None:
        """Copy the values of these tensors from the first rank to all others."""

    def stop(self, signal: int | None) -> int | None:
        """Return the signal to stop, if any rank got one."""
        return signal

    def check_same(self, contents: Callable[[], Mapping[str, str]]) -> None:
        """Raise unless `contents` returns the same texts, by description, on all ranks."""


ALONE = Ranks()


class Group(Ranks):
    """The ranks of torch.distributed's default group."""

    # Gradients are summed after the backward pass, not by `DistributedDataParallel`, whose hooks
    # expect that all ranks use the same parameters, in one backward pass a step. Here a rank may
    # have no item of a task whose head another rank uses, a batch may pass in pieces, and a
    # weighting measures other gradients. DDP also takes the mean over ranks, which is not the mean
    # over examples where parts differ in size. The price is that nothing is sent during the
    # backward pass.

    def __init__(self, local: int = 0) -> None:
        self.rank = dist.get_rank()
        self.count = dist.get_world_size()
        self._local = local

    def total(self, tensor: Tensor) -> Tensor:
        total = tensor.detach().clone()
        with self._talking():
            dist.all_reduce(total)
        return total

    def add_gradients(self, parameters: Iterable[Tensor]) -> None:
        listed = list(parameters)
        used = torch.tensor([p.grad is not None for p in listed], dtype=torch.uint8)
        with self._talking():
            dist.all_reduce(used, dist.ReduceOp.MAX)
            used_anywhere = [p for p, flag in zip(listed, used.tolist(), strict=True) if flag]
            for bucket in [_Bucket(bucket) for bucket in _buckets(used_anywhere)]:
                bucket.receive()

    def gathered(self, value: T) -> list[T]:
        values: list[Any] = [None] * self.count
        with self._talking():
            dist.all_gather_object(values, value)
        return values

    def together(self, work: Callable[[], T]) -> T:
        result, error = _tried(work)
        errors = self.gathered(_encode_error(error))
        if error is not None:
            raise error
        for rank, encoded in enumerate(errors):
            if encoded is not None:
                raise _decode_error(encoded, rank)
        return result  # type: ignore[return-value]  # there is one where there is no error

    def in_turn(self, work: Callable[[], T]) -> T:
        is_first = self._local == 0
        first = self.together(lambda: work() if is_first else None)
        second = self.together(lambda: None if is_first else work())
        return first if is_first else second  # type: ignore[return-value]

    def agreed(self, work: Callable[[], T]) -> T:
        result, error = _tried(work) if self.writes else (None, None)
        shared: list[Any] = [(result, _encode_error(error))]
        with self._talking():
            dist.broadcast_object_list(shared)
        if error is not None:
            raise error
        result, encoded = shared[0]
        if encoded is not None:
            raise _decode_error(encoded, 0)
        return result  # type: ignore[no-any-return]

    def send(self, tensors: Sequence[Tensor]) -> None:
        with self._talking(), torch.no_grad():
            for tensor in tensors:
                dist.broadcast(tensor, 0)

    def stop(self, signal: int | None) -> int | None:
        highest = torch.tensor(signal or 0)
        with self._talking():
            dist.all_reduce(highest, dist.ReduceOp.MAX)
        return int(highest) or None

    def check_same(self, contents: Callable[[], Mapping[str, str]]) -> None:
        first, *others = self.gathered(dict(contents()))
        for rank, other in enumerate(others, 1):
            for description, content in first.items():
                if other.get(description) != content:
                    raise RunInterruptedError(
                        f"{description} is not the same on rank {rank} as on rank 0; all ranks "
                        "must have the same run file, data, code and library versions, and a "
                        "decider must depend on nothing but its random stream and its outcomes"
                    )

    @contextmanager
    def _talking(self) -> Iterator[None]:
        """Turn the failure of another rank into one sentence."""
        try:
            yield
        except RuntimeError as error:
            why = str(error).splitlines()[0]
            raise RunInterruptedError(
                f"rank {self.rank} of {self.count}: talking to the other ranks failed ({why})"
            ) from error


class _Bucket:
    """Gradients of parameters of one type, packed into one tensor and on their way."""

    def __init__(self, parameters: Sequence[Tensor]) -> None:
        self._parameters = parameters
        gradients = [torch.zeros_like(p) if p.grad is None else p.grad for p in parameters]
        self._packed = torch.cat([gradient.reshape(-1) for gradient in gradients])
        self._work: Any = dist.all_reduce(self._packed, async_op=True)

    def receive(self) -> None:
        """Wait for the sums, and make them the gradients without another copy."""
        self._work.wait()
        parts = self._packed.split([parameter.numel() for parameter in self._parameters])
        for parameter, part in zip(self._parameters, parts, strict=True):
            parameter.grad = part.view_as(parameter)


def _buckets(parameters: Iterable[Tensor]) -> list[list[Tensor]]:
    """Divide parameters, in order, into lists of one type with about `BUCKET_BYTES` each."""
    buckets: list[list[Tensor]] = []
    room = 0
    for parameter in parameters:
        size = parameter.numel() * parameter.element_size()
        if size > room or buckets[-1][0].dtype != parameter.dtype:
            buckets.append([])
            room = BUCKET_BYTES
        buckets[-1].append(parameter)
        room -= size
    return buckets


def _tried(work: Callable[[], T]) -> tuple[T | None, Exception | None]:
    try:
        return work(), None
    except Exception as error:  # whatever it is, the other ranks must not wait for this one
        return None, error


_EncodedError = tuple[bool, str]  # whether it is a UserError, and its sentence


def _encode_error(error: Exception | None) -> _EncodedError | None:
    if error is None:
        return None
    text = str(error) if isinstance(error, TaskmixError) else f"{type(error).__name__}: {error}"
    return isinstance(error, UserError), text


def _decode_error(encoded: _EncodedError, rank: int) -> TaskmixError:
    is_user_error, text = encoded
    return UserError(text) if is_user_error else RunInterruptedError(f"rank {rank}: {text}")


def running_statistics(model: nn.Module) -> list[Tensor]:
    """Return the statistics of batch normalisation; as in torch's DDP, the first rank's count."""
    norms = (module for module in model.modules() if isinstance(module, _NormBase))
    return [buffer for norm in norms for buffer in norm.buffers()]


@contextmanager
def joined(config: RunConfig) -> Iterator[Ranks]:
    """Join the ranks that a launcher started, or the process group that a script has made."""
    launch = launched()
    if not (dist.is_available() and (dist.is_initialized() or launch.count > 1)):
        yield ALONE
        return
    _check(config, launch)
    if not dist.is_initialized():
        _join(config, launch)
    ranks = Group(launch.local)
    if config.ranks.shard:
        from taskmix.training.sharding import ShardedGroup  # loads much that others do not need

        ranks = ShardedGroup(launch.local)
    with _quiet(not ranks.writes):
        yield ranks


def _check(config: RunConfig, launch: Launch) -> None:
    """Raise if this many ranks cannot train as a configuration says."""
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
    options: dict[str, Any] = {}
    if (store := rendezvous_store(launch, TIMEOUT)) is not None:
        options = {"store": store, "rank": launch.rank, "world_size": launch.count}
    dist.init_process_group(backend, timeout=TIMEOUT, **options)
    # A process can join only once: another run in it finds the group.
    atexit.register(_leave)


def _leave() -> None:
    if dist.is_initialized():
        dist.destroy_process_group()


@contextmanager
def _quiet(enabled: bool) -> Iterator[None]:
    """Leave warnings, which all ranks would give, to the first rank."""
    log = logging.getLogger("taskmix")
    before = log.level
    if enabled:
        log.setLevel(logging.ERROR)
    try:
        yield
    finally:
        log.setLevel(before)
