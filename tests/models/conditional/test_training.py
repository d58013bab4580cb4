"""A small real training: tasks that contradict each other, mixed in one batch."""

import torch

from bursar.models.conditional import PARTS, condition


def train(encoder, forward, steps=150):
    """Two tasks with opposite labels for the same texts, and one shared head.

    Only a function that depends on the task can do both.
    """
    torch.manual_seed(0)
    head = torch.nn.Linear(12, 1)
    parameters = [*encoder.parameters(), *head.parameters()]
    optimizer = torch.optim.Adam([p for p in parameters if p.requires_grad], lr=3e-3)
    for _ in range(steps):
        texts, ids = torch.randint(2, 30, (32, 8)), torch.arange(32) % 2
        answers = ((texts[:, 1] < 16).long() ^ ids).float()
        scores = head(forward(texts, torch.ones_like(texts), ids)[:, 0]).squeeze(1)
        loss = torch.nn.functional.binary_cross_entropy_with_logits(scores, answers)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return ((scores > 0) == answers.bool()).float().mean().item()


def test_it_learns_tasks_that_contradict_each_other_and_the_plain_encoder_does_not(make):
    conditioned = condition(make(), ["is", "is not"], PARTS, freeze=0, rank=4).eval()
    both = train(conditioned, lambda *columns: conditioned(*columns).last_hidden_state)
    plain = make()
    neither = train(plain, lambda texts, mask, _: plain(texts, mask).last_hidden_state)
    # Guessing gets half of 32; 28 right by chance: 1 in 100,000.
    assert both >= 28 / 32
    assert neither < 28 / 32
