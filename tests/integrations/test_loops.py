"""Loops of one's own: plain PyTorch, and accelerate."""

import json
from typing import Any

import accelerate
import pytest
import torch
import torch.distributed as dist
from accelerate.utils import DistributedDataParallelKwargs
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, TensorDataset

import taskmix
from resuming import Case, TestResuming, Train, Trained, on_ranks  # noqa: F401 (it is collected here)
from taskmix.errors import UserError
from taskmix.mixing import Item, Key, Mixed, Mixer, RandomState, Shard, Tally, collate_by

NAMES = ["a", "b", "c"]


def data() -> dict[str, TensorDataset]:
    generator, made = torch.Generator().manual_seed(0), {}
    for name, size in {"a": 64, "b": 200, "c": 3}.items():
        x = torch.randn(size, 5, generator=generator)
        made[name] = TensorDataset(x, (x @ torch.randn(5, generator=generator) > 0).long())
    return made


class Net(nn.Module):
    """One body, and a head for each task, so that every step leaves some heads out."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(1)
        self.body = nn.Sequential(nn.Linear(5, 8), nn.Tanh(), nn.Dropout(0.1))
        self.heads = nn.ModuleDict({task: nn.Linear(8, 2) for task in NAMES})

    def forward(self, task: str, x: Tensor) -> Tensor:
        found: Tensor = self.heads[task](self.body(x))
        return found


def loss_of(model: nn.Module, batch: dict[str, Any]) -> Tensor:
    x, y = batch["batch"]
    return nn.functional.cross_entropy(model(batch["task"], x), y)


def mixture(case: Case, ranks: int) -> tuple[Mixed, Mixer]:
    mixed, policy = Mixed(data()), case.policy(NAMES)
    batches = ranks * case.accumulate if case.decide == "step" else 1
    mixer = Mixer(policy, mixed.sizes, 8, seed=3, batches=batches, journal=case.journal)
    return mixed, mixer


def again(model: nn.Module, batch: dict[str, Any], state: RandomState) -> Tensor:
    with state.again():
        return loss_of(model, batch)


def torch_loop(case: Case) -> Trained:
    ranks, rank = (dist.get_world_size(), dist.get_rank()) if dist.is_initialized() else (1, 0)
    mixed, mixer = mixture(case, ranks)
    net = Net()
    model = DistributedDataParallel(net, find_unused_parameters=True) if ranks > 1 else net
    optimizer, tally = torch.optim.AdamW(net.parameters(), lr=0.01), Tally(mixer)
    step, file = 0, case.folder / "checkpoint.pt"
    if case.resume:
        saved = torch.load(file)
        net.load_state_dict(saved["net"])
        optimizer.load_state_dict(saved["optimizer"])
        mixer.load_state_dict(json.loads(saved["mixer"]))
        step = saved["step"]
    loader = DataLoader(
        mixed,  # type: ignore[arg-type]
        batch_sampler=Shard(mixer, rank, ranks),
        collate_fn=collate_by(),
        num_workers=case.workers,
        generator=torch.Generator(),
    )
    for place, batch in enumerate(loader, 1):
        torch.manual_seed(1000 * step + 10 * place % (10 * case.accumulate) + rank)
        state = RandomState()
        loss = loss_of(model, batch)
        (loss / case.accumulate).backward()
        tally.add(
            batch["draw"],
            loss,
            len(batch["batch"][0]),
            again=lambda batch=batch, state=state: again(net, batch, state),
        )
        if place % case.accumulate:
            continue
        optimizer.step()
        optimizer.zero_grad()
        tally.settle()
        step += 1
        if step == 3 and not case.resume and rank == 0:
            saved = {"net": net.state_dict(), "optimizer": optimizer.state_dict(), "step": step}
            torch.save(saved | {"mixer": json.dumps(mixer.state_dict())}, file)
        if case.ends(step):
            break
    if ranks > 1:
        dist.barrier()
    return Trained(mixer, net, mixer.shares())


def accelerate_loop(case: Case) -> Trained:
    accelerator = accelerate.Accelerator(
        cpu=True,
        gradient_accumulation_steps=case.accumulate,
        kwargs_handlers=[DistributedDataParallelKwargs(find_unused_parameters=True)],
    )
    mixed, mixer = mixture(case, accelerator.num_processes)
    net, tally = Net(), Tally(mixer)
    torch.manual_seed(7 + accelerator.process_index)
    loader = DataLoader(
        mixed,  # type: ignore[arg-type]
        batch_sampler=mixer,
        collate_fn=collate_by(),
        num_workers=case.workers,
        generator=torch.Generator(),
    )
    optimizer = torch.optim.AdamW(net.parameters(), lr=0.01)
    model, optimizer, loader = accelerator.prepare(net, optimizer, loader)
    accelerator.register_for_checkpointing(mixer)
    step, folder = 0, case.folder / "checkpoint"
    if case.resume:
        accelerator.load_state(str(folder))
        step = 3
    for batch in loader:
        state = RandomState()
        with accelerator.accumulate(model):
            loss = loss_of(model, batch)
            accelerator.backward(loss)
            optimizer.step()
            optimizer.zero_grad()
        tally.add(
            batch["draw"],
            loss,
            len(batch["batch"][0]),
            again=lambda batch=batch, state=state: again(net, batch, state),
        )
        if not accelerator.sync_gradients:
            continue
        tally.settle()
        step += 1
        if step == 3 and not case.resume:
            accelerator.save_state(str(folder))
        if case.ends(step):
            break
    accelerator.wait_for_everyone()
    return Trained(mixer, net, mixer.shares())


@pytest.fixture(params=[torch_loop, accelerate_loop])
def host(request: pytest.FixtureRequest) -> Train:
    loop: Train = request.param
    return loop


def test_the_loader_draws_nothing_where_dropout_does() -> None:
    mixed = Mixed(data())
    mixer = Mixer(taskmix.Random(NAMES), mixed.sizes, 8, seed=1)
    before = torch.get_rng_state()
    iter(
        DataLoader(mixed, batch_sampler=mixer, generator=torch.Generator())  # type: ignore[arg-type]
    )
    assert torch.equal(torch.get_rng_state(), before)


@pytest.mark.parametrize("workers", [0, 1, 2])
def test_draws_with_a_lag_do_not_depend_on_the_number_of_workers(workers: int) -> None:
    def tasks(workers: int) -> list[str]:
        mixed = Mixed(data())
        mixer = Mixer(taskmix.Progress(NAMES), mixed.sizes, 8, seed=3, lag=6)
        loader = DataLoader(
            mixed,  # type: ignore[arg-type]
            batch_sampler=mixer,
            collate_fn=collate_by(),
            num_workers=workers,
            generator=torch.Generator(),
        )
        seen = []
        for batch in loader:
            seen.append(batch["task"])
            mixer.settle(batch["draw"], loss=NAMES.index(batch["task"]) + 1 / len(seen))
            if len(seen) == 40:
                break
        return seen

    assert tasks(workers) == tasks(0)


def test_accelerate_shares_out_batches_of_different_sizes() -> None:
    # A sampler that says a batch_size loses every group that has a batch of another size.
    from accelerate.data_loader import BatchSamplerShard

    def mixer() -> Mixer:
        return Mixer(taskmix.Random(NAMES), Mixed(data()).sizes, 8, seed=1)

    whole, shards = iter(mixer()), [iter(BatchSamplerShard(mixer(), 2, rank)) for rank in (0, 1)]
    sizes = set()
    for _ in range(20):
        pair = [next(shard) for shard in shards]
        assert pair == [next(whole), next(whole)]
        sizes |= set(map(len, pair))
    assert sizes == {3, 8}


def test_accelerate_resumes_by_skipping_blank_batches() -> None:
    """As the Trainer does: what was trained on before is not asked for again."""
    mixed = Mixed(data())

    def loader(mixer: Mixer) -> Any:
        made: Any = DataLoader(
            mixed,  # type: ignore[arg-type]
            batch_sampler=mixer,
            collate_fn=collate_by(),
            generator=torch.Generator(),
        )
        return made

    first = Mixer(taskmix.Random(NAMES), mixed.sizes, 8, seed=1)
    draws = []
    for batch in loader(first):
        draws.append((batch["draw"], batch["task"]))
        first.settle(batch["draw"], loss=1.0)
        if len(draws) == 6:
            break
        if len(draws) == 3:
            state = first.state_dict()
    second = Mixer(taskmix.Random(NAMES), mixed.sizes, 8, seed=1)
    second.load_state_dict(state)
    second.skip(3)
    skipping = iter(accelerate.skip_first_batches(loader(second), 3))
    assert [(b["draw"], b["task"]) for b in (next(skipping) for _ in range(3))] == draws[3:]


def test_heads_that_a_step_does_not_use_need_a_word_to_ddp() -> None:
    def steps(**options: bool) -> None:
        model = DistributedDataParallel(Net(), **options)
        for task in NAMES:
            model(task, torch.ones(2, 5)).sum().backward()

    def work() -> None:
        steps(find_unused_parameters=True)
        for options in ({}, {"static_graph": True}):
            with pytest.raises(RuntimeError):
                steps(**options)

    on_ranks(work)


def test_what_all_ranks_are_told_is_the_mean_over_their_batches() -> None:
    def work() -> None:
        mixer = Mixer(taskmix.Random(["a"]), {"a": 9}, 2, seed=1, batches=2)
        number = next(iter(mixer))[0].draw
        tally = Tally(mixer)
        tally.add(number, 1.0 + 3 * dist.get_rank(), 1 + dist.get_rank())
        (settled,) = tally.settle()
        assert (settled.task, settled.loss, settled.examples) == ("a", 3.0, 3)

    on_ranks(work)


def test_a_weight_of_zero_leaves_a_draw_out() -> None:
    mixer = Mixer(taskmix.Random(["a"]), {"a": 9}, 2, seed=1)
    tally = Tally(mixer)
    tally.add(next(iter(mixer))[0].draw, 0.0, 2, weight=0)
    tally.settle()
    assert not mixer.open
    assert tally.settle() == []


def test_collators_by_task_and_batches_that_say_where_they_are_from() -> None:
    collate = collate_by({"a": lambda items: {"total": sum(items)}, "b": tuple})
    assert collate([Item(3, "a", 1), Item(3, "a", 2)]) == {"total": 3, "draw": 3, "task": "a"}
    assert collate([Item(4, "b", 1)]) == {"batch": (1,), "draw": 4, "task": "b"}
    with pytest.raises(UserError, match=r"^collators: unknown task 'd'"):
        collate([Item(4, "d", 1)])
    with pytest.raises(UserError, match=r"^draw 4: unknown task 'd'"):
        Mixed({"a": [1]})[Key(4, "d", 0)]
    with pytest.raises(UserError, match=r"^datasets, a: expected one with a length and items by"):
        Mixed({"a": iter([1])})


def test_a_loader_without_collate_by_or_with_the_mixer_as_its_sampler_is_said() -> None:
    mixed = Mixed(data())

    def first(**options: Any) -> Any:
        return next(iter(DataLoader(mixed, **options)))  # type: ignore[arg-type]

    def mixer() -> Mixer:
        return Mixer(taskmix.Random(NAMES), mixed.sizes, 8, seed=1)

    with pytest.raises(UserError, match=r"^batch\['draw'\]: .*; give the loader collate_fn=coll"):
        first(batch_sampler=mixer())["draw"]
    with pytest.raises(UserError, match=r"^datasets: expected keys of a Mixer, .* batch_sampler=m"):
        first(sampler=mixer(), collate_fn=collate_by())


def test_items_are_read_at_once_where_that_can_be_done() -> None:
    class Table:
        def __len__(self) -> int:
            return 5

        def __getitem__(self, place: int) -> int:
            raise AssertionError("one by one")

        def __getitems__(self, places: list[int]) -> list[int]:
            return [10 * place for place in places]

    mixed = Mixed({"a": Table()})
    assert mixed.__getitems__([Key(1, "a", 2), Key(1, "a", 3)]) == [
        Item(1, "a", 20),
        Item(1, "a", 30),
    ]
    assert len(mixed) == 5
