"""What conditioning costs a training step, beside the plain encoder's; ratios within one run.

An encoder of MiniLM's size (6 layers, 384 wide) with random weights: the time does not depend on
what they are. A step is forward and backward in training mode, with nothing frozen.
"""

from collections.abc import Callable

import torch
from harness import Result, median_ratio
from transformers import BertConfig, BertModel

from bursar.models.conditional import PARTS, ConditionalEncoder, condition

TASKS = [f"task-{number}" for number in range(8)]
SEQUENCES, TOKENS = 16, 64


def encoder() -> BertModel:
    torch.manual_seed(0)
    config = BertConfig(
        hidden_size=384, num_hidden_layers=6, num_attention_heads=12, intermediate_size=1536
    )
    return BertModel(config, add_pooling_layer=False).train()


def batch(padded: bool) -> dict[str, torch.Tensor]:
    ids = torch.randint(1000, 30000, (SEQUENCES, TOKENS))
    mask = torch.ones_like(ids)
    if padded:
        mask[1::2, TOKENS * 3 // 4 :] = 0
    return {"input_ids": ids, "attention_mask": mask}


def step(model: torch.nn.Module, columns: dict[str, torch.Tensor]) -> Callable[[], None]:
    def work() -> None:
        model.zero_grad(set_to_none=True)
        model(**columns).last_hidden_state.square().mean().backward()

    return work


def for_tasks(columns: dict[str, torch.Tensor], tasks: int) -> dict[str, torch.Tensor]:
    return {**columns, "task_ids": torch.arange(SEQUENCES) % tasks}


def conditioned(parts: tuple[str, ...] = PARTS, **options: object) -> ConditionalEncoder:
    return condition(encoder(), TASKS, parts, freeze=0, **options)


def mixed_batch() -> Result:
    model, columns = conditioned(), batch(padded=True)
    eight, one = for_tasks(columns, 8), for_tasks(columns, 1)
    ratio = median_ratio(step(model, eight), step(model, one), repeats=9)
    name = "conditioned step, a batch of 8 tasks beside one of 1 task"
    return Result(name, ratio, "times", "<= 1.05", ratio <= 1.05)


def beside_plain() -> list[Result]:
    results = []
    for layout in ("base", "large"):
        for padded in (True, False):
            columns = batch(padded)
            model = conditioned(layout=layout)
            slow, fast = step(model, for_tasks(columns, 8)), step(encoder(), columns)
            ratio = median_ratio(slow, fast, repeats=9)
            what = "padded" if padded else "full"
            name = f"conditioned step beside the plain encoder's, {layout} layout, {what} batch"
            goal = "<= 1.25" if layout == "base" else "-"
            results.append(Result(name, ratio, "times", goal, layout == "large" or ratio <= 1.25))
    return results


def each_part() -> list[Result]:
    columns = batch(padded=True)
    results = []
    for part in PARTS:
        slow, fast = step(conditioned((part,)), for_tasks(columns, 8)), step(encoder(), columns)
        ratio = median_ratio(slow, fast, repeats=5)
        results.append(Result(f"the same with {part} alone", ratio, "times", "-", True))
    return results


BENCHMARKS = [mixed_batch, beside_plain, each_part]
