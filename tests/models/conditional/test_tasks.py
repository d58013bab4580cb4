"""Tasks that come later."""

import pytest
import torch

from taskmix.errors import UserError
from taskmix.models.conditional import condition

IDS = torch.tensor([0, 1, 1, 0, 1])


@pytest.fixture
def conditioned(make, shaken):
    conditioned = condition(make(), ["old", "older"], rank=3, blocks=4).eval()
    shaken(conditioned)
    return conditioned


def output(conditioned, batch, ids):
    with torch.no_grad():
        return conditioned(**batch, task_ids=ids).last_hidden_state


@pytest.mark.parametrize("row", ["old", None, torch.ones(12)], ids=["copied", "random", "given"])
def test_old_tasks_keep_every_bit(conditioned, batch, row):
    before = output(conditioned, batch(), IDS)
    rows = [conditioned.task_embeddings.row(task) for task in conditioned.tasks]
    new = conditioned.add_task("new", row)
    assert conditioned.tasks == ("old", "older", "new")
    assert torch.equal(output(conditioned, batch(), IDS), before)
    now = [conditioned.task_embeddings.row(task) for task in conditioned.tasks]
    assert all(a is b for a, b in zip([*rows, new], now, strict=True))


def test_a_row_is_its_own_task_s_whatever_the_order_of_the_names(make):
    conditioned = condition(make(), ["b", "c", "a"], rank=2)
    table = conditioned.task_embeddings(torch.arange(3))
    for number, task in enumerate(conditioned.tasks):
        assert torch.equal(table[number], conditioned.task_embeddings.row(task))


def test_a_copied_task_starts_as_its_source_and_a_random_one_does_not(conditioned, batch):
    conditioned.add_task("copy", "older")
    conditioned.add_task("given", conditioned.task_embeddings.row("older").detach())
    conditioned.add_task("random")
    older, copied, given, random = (
        output(conditioned, batch(), conditioned.ids([task] * 5))
        for task in ("older", "copy", "given", "random")
    )
    assert torch.equal(copied, older)
    assert torch.equal(given, older)
    assert not torch.allclose(random, older, atol=0.01)


def test_rows_start_with_the_standard_deviation_of_the_spec(make):
    one, small = (condition(make(), ["a"], rank=2, embedding_start=start) for start in (1.0, 0.02))
    torch.testing.assert_close(small.task_embeddings.row("a"), 0.02 * one.task_embeddings.row("a"))
    torch.testing.assert_close(small.add_task("b"), 0.02 * one.add_task("b"))


def test_a_random_row_depends_on_the_name_and_the_seed(make):
    one, two = (condition(make(), ["a", "b"], rank=2, seed=5) for _ in range(2))
    late = condition(make(), ["a"], rank=2, seed=5)
    assert torch.equal(late.add_task("b", seed=5), one.task_embeddings.row("b"))
    assert not torch.equal(two.add_task("c"), two.add_task("d"))


def test_training_a_new_row_alone_leaves_the_rest_and_learns(conditioned, batch):
    before = {name: t.clone() for name, t in conditioned.state_dict().items()}
    old = output(conditioned, batch(), IDS)
    conditioned.requires_grad_(False)
    row = conditioned.add_task("new", "old").requires_grad_(True)
    optimizer = torch.optim.AdamW(
        [p for p in conditioned.parameters() if p.requires_grad], lr=0.05, weight_decay=0.1
    )
    wanted, ids = torch.randn(5, 9, 12), torch.full((5,), 2)
    losses = []
    for _ in range(10):
        optimizer.zero_grad()
        loss = ((conditioned(**batch(), task_ids=ids).last_hidden_state - wanted) ** 2).mean()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    assert losses[-1] < losses[0]
    assert row.grad.abs().max() > 0
    after = conditioned.state_dict()
    assert all(torch.equal(after[name], tensor) for name, tensor in before.items())
    assert torch.equal(output(conditioned, batch(), IDS), old)


def test_a_name_is_used_once(conditioned):
    with pytest.raises(UserError, match="task 'old': expected a new name"):
        conditioned.add_task("old")


def test_a_row_has_the_encoders_width(conditioned):
    with pytest.raises(UserError, match=r"expected a row of shape \(12,\), found \(3,\)"):
        conditioned.add_task("new", torch.zeros(3))


def test_the_source_has_to_be_known(conditioned):
    with pytest.raises(UserError, match="unknown task 'odl'; did you mean 'old'"):
        conditioned.add_task("new", "odl")
