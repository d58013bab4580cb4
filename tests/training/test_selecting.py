import json
from dataclasses import replace

import numpy as np
import pytest
import torch

from taskmix import journal
from taskmix.config import RunConfig
from taskmix.errors import UserError
from taskmix.models.build import build
from taskmix.models.frozen import Frozen
from taskmix.rng import seed_for
from taskmix.selection import MTUncertainty, example_scores
from taskmix.tasks.batches import FROZEN_STATES
from taskmix.training.assembly import tokenizer_of
from taskmix.training.checkpoints import Snapshot
from taskmix.training.engine import Engine
from taskmix.training.prepare import prepare, resolve
from taskmix.training.scoring import Scorer
from taskmix.training.selecting import SelectionDriver
from taskmix.training.session import check_scores, config_hash
from taskmix.uncertainty import predictive_samples

WORDS = ["the", "a", "cat", "dog", "sat", "ran", "on", "under", "mat", "tree", "red", "and", "or"]
BATCH = 6


def write(path, rows, label, seed):
    rng = np.random.default_rng(seed)
    lines = ["text,y"]
    for _ in range(rows):
        text = " ".join(rng.choice(WORDS, rng.integers(2, 25)))
        lines.append(f"{text},{label(text)}")
    path.write_text("\n".join(lines) + "\n")


LABELS = {
    "two": ("classify", lambda text: "yes" if "cat" in text else "no"),
    "three": ("classify", lambda text: f"c{text.count('the') % 3}"),
    "number": ("regress", lambda text: len(text.split()) + 0.5),
}


@pytest.fixture(scope="module")
def tasks(tmp_path_factory):
    folder = tmp_path_factory.mktemp("tasks")
    entries = []
    for seed, (name, (kind, label)) in enumerate(LABELS.items()):
        paths = {}
        for split, rows in (("train", 42), ("dev", 12)):
            paths[split] = str(folder / f"{name}-{split}.csv")
            write(folder / f"{name}-{split}.csv", rows, label, seed)
        entries.append({"name": name, "kind": kind, "text": "text", "label": "y", **paths})
    return entries


@pytest.fixture
def make(tasks, tmp_path):
    """A driver, by the selector's options, the model's and the run's."""
    books = []

    def made(model=None, dropout=True, accumulate=1, clip=1.0, **options):
        spec = {"encoder": "small", "width": 16, "attention_heads": 2, "layers": 2}
        config = RunConfig(
            tasks=tasks,
            model=spec | {"vocabulary": 100} | (model or {}),
            budget={"steps": 12, "batch": BATCH, "accumulate": accumulate},
            optimizer={"clip": clip},
            device="cpu",
        )
        found = resolve(config)
        tokenizer = tokenizer_of(found, config, tmp_path)
        prepared = prepare(found, tokenizer, config, tmp_path)
        kinds = {entry.task.name: entry.task.kind for entry in prepared}
        net = build(config.model, kinds, tokenizer, config.seed)
        if not dropout:
            silence(net)
        path = tmp_path / f"journal-{len(books)}.jsonl"
        opening = journal.Opening("test", list(kinds), {}, 1, {}, {})
        books.append(journal.Journal.create(path, opening))
        selector = MTUncertainty(list(kinds), BATCH, **options)
        return SelectionDriver(Engine(config, prepared, net), selector, books[-1])

    yield made
    for book in books:
        book.close()


def silence(model):
    for module in model.modules():
        if isinstance(module, torch.nn.Dropout):
            module.p = 0.0


def by_task(chosen):
    return {task: sorted(items.tolist()) for task, items in chosen.items.items()}


def published(driver):
    """The same choice as it is published: all candidates padded to one length, in one pass."""
    engine = driver.engine
    candidates = {task: engine.loader.next(task) for task in engine.tasks}
    engine.model.eval()
    scores = {}
    for task, batch in candidates.items():
        [part] = batch
        inputs = {
            name: torch.nn.functional.pad(column, (0, 40 - column.shape[1]))
            for name, column in batch.inputs.items()
        }
        kind = engine.tasks[task].kind
        with torch.no_grad():
            logits = engine.model(replace(batch, inputs=inputs))[task]
        error = 2 * float(kind.loss(logits, part.columns)) if kind.name == "regress" else 1.0
        residual = 1 + 0.1 * (error - 1)
        p = kind.distribution(logits, part.columns).double().numpy()
        scores[task] = example_scores(p[None], residual=residual)
    [selection] = driver.decider.choose(scores)
    return {
        task: sorted(candidates[task].parts[0].items[places].tolist())
        for task, places in selection.chosen.items()
        if len(places)
    }


@pytest.mark.parametrize("rule", ["code", "paper"])
def test_without_dropout_the_same_examples_are_chosen_as_in_the_published_way(make, rule):
    ours, theirs = make(dropout=False, rule=rule), make(dropout=False, rule=rule)
    [chosen] = ours.select(1)
    assert by_task(chosen) == published(theirs)


def test_the_mean_uncertainty_of_each_task_is_written_down_when_candidates_are_scored(make):
    driver, again = make(every=2), make(every=2)
    for _ in range(3):
        driver.advance()
    scorer = Scorer(again.engine, again.decider)
    expected = {
        task: np.concatenate([scorer.score(again.engine.loader.next(task), 1).scores for _ in "ab"])
        for task in again.engine.tasks
    }
    first, second, third = (
        r for r in journal.read(driver.journal.path) if isinstance(r, journal.SelectionStep)
    )
    assert first.uncertainties == pytest.approx({t: s.mean() for t, s in expected.items()})
    assert second.uncertainties == {}
    assert third.uncertainties.keys() == first.uncertainties.keys()


def test_a_step_trains_on_a_batch_and_writes_it_down(make):
    driver = make()
    for _ in range(4):
        driver.advance()
    records = [r for r in journal.read(driver.journal.path) if isinstance(r, journal.SelectionStep)]
    assert [record.step for record in records] == [1, 2, 3, 4]
    for record in records:
        assert record.candidates == dict.fromkeys(LABELS, BATCH)
        assert sum(record.chosen.values()) == BATCH
        assert set(record.losses) == set(record.chosen)
        assert sum(record.shares().values()) == pytest.approx(1)
    used = [record.used for record in records]
    assert used == sorted(used)
    assert used[-1] <= 4 * BATCH / 126
    shares = driver.diagnostics()
    assert sum(shares["chosen_share"].values()) == pytest.approx(1)
    assert shares["candidate_share"] == pytest.approx(dict.fromkeys(LABELS, 1 / 3))
    assert set(shares["used"]) == set(LABELS)


def test_every_chosen_example_counts_the_same_in_one_pass(make):
    driver = make(dropout=False, clip=0.0)
    engine = driver.engine
    [chosen] = driver.select(1)
    total = 0
    for task, items in chosen.items.items():  # one pass a task, each padded to its own length
        total = total + engine.losses(engine.loader.of({task: items}))[task] * len(items)
    (total / BATCH).backward()
    expected = [p.grad.clone() for p in engine.model.parameters() if p.grad is not None]
    passes = []
    engine.model.encoder.register_forward_hook(lambda *_: passes.append(1))
    driver._waiting = [chosen]
    driver.advance()
    assert len(passes) == 1
    found = [p.grad for p in engine.model.parameters() if p.grad is not None]
    for ours, theirs in zip(found, expected, strict=True):
        torch.testing.assert_close(ours, theirs, atol=1e-6, rtol=1e-4)


def test_passes_are_spent_on_what_needs_them(make):
    certain = make(dropout=False)
    certain.select(1)
    assert certain.engine.spent.forward == 3 * BATCH
    entropy = make(passes=4)
    entropy.select(1)
    assert entropy.engine.spent.forward == (2 + 4) * BATCH
    bald = make(passes=4, score="bald")
    bald.select(1)
    assert bald.engine.spent.forward == 3 * 4 * BATCH
    frozen = make(passes=4, score="bald", model={"freeze": 1})
    frozen.select(1)
    assert frozen.engine.spent.forward == 3 * 5 * BATCH


def test_bald_is_that_of_monte_carlo_dropout_in_what_is_trained(make):
    driver = make(score="bald", passes=5)
    batch = driver.engine.loader.next("three")
    found = driver._scorer.score(batch, step=3)
    kind = driver.engine.tasks["three"].kind
    samples = predictive_samples(
        driver.engine.model,
        lambda x: kind.distribution(driver.engine.model(x)["three"], x.parts[0].columns),
        [batch],
        5,
        seed_for(1, "scoring", 3),
    )
    np.testing.assert_allclose(found.scores, example_scores(samples, "bald"), atol=1e-12)
    assert found.scores.min() > 0


def test_a_regression_takes_part_and_its_error_is_learned(make):
    driver = make(passes=4)
    first = driver._scorer.score(driver.engine.loader.next("number"), 1).scores
    assert np.all(first > 0.5)
    before = driver._scorer.state_dict()["residuals"]["number"]
    for _ in range(12):
        driver.advance()
    assert driver._scorer.state_dict()["residuals"]["number"] != before


@pytest.mark.parametrize("freeze", [1, 2])
def test_training_from_kept_states_is_training_from_the_start(make, freeze):
    kept, computed = (make(model={"freeze": freeze}, passes=2) for _ in range(2))
    [chosen] = kept.select(1)
    [again] = computed.select(1)
    assert FROZEN_STATES in kept.engine.loader.of(chosen.items, chosen.states).inputs
    runs = []
    for driver, step in ((kept, chosen), (computed, replace(again, states=None))):
        driver._waiting = [step]
        driver.advance()
        grads = [p.grad for p in driver.engine.model.parameters() if p.grad is not None]
        [record] = [r for r in journal.read(driver.journal.path) if r.kind == "selection"]
        runs.append((record.losses, grads))
    assert runs[0][0] == pytest.approx(runs[1][0], rel=1e-5)
    for ours, theirs in zip(runs[0][1], runs[1][1], strict=True):
        torch.testing.assert_close(ours, theirs, atol=1e-6, rtol=1e-3)


def test_frozen_layers_are_not_run_again(make):
    driver = make(model={"freeze": 1}, passes=3)
    calls = []
    layer = driver.engine.model.encoder.model.encoder.layer[0]
    layer.attention.register_forward_hook(lambda *_: calls.append(1))
    driver.advance()
    assert len(calls) == 3  # once for each task's candidates


def test_a_batch_in_parts_runs_frozen_layers_again_and_still(make):
    driver = make(model={"freeze": 1}, accumulate=2, passes=2)
    driver.advance()
    assert driver.step == 1


def test_a_pool_for_several_steps_is_scored_once(make):
    driver = make(every=3, dropout=False)
    for _ in range(3):
        driver.advance()
    assert driver.engine.spent.forward == 3 * 3 * BATCH + 3 * BATCH
    records = [r for r in journal.read(driver.journal.path) if isinstance(r, journal.SelectionStep)]
    assert [sum(record.candidates.values()) for record in records] == [54, 0, 0]


@pytest.mark.parametrize(
    ("options", "model"),
    [({}, {}), ({"every": 3}, {"freeze": 1}), ({"score": "bald", "passes": 3, "every": 2}, {})],
)
def test_it_resumes_bit_for_bit(make, options, model):
    whole, first, second = (make(model=model, **options) for _ in range(3))
    with torch.random.fork_rng():
        for _ in range(7):
            whole.advance()
        for _ in range(4):
            first.advance()
        second.engine.model.load_state_dict(first.engine.model.state_dict())
        second.load_tensors(first.tensors())
        second.load_state_dict(json.loads(json.dumps(first.state_dict())))
        for _ in range(3):
            second.advance()
    for ours, theirs in zip(
        second.engine.model.parameters(), whole.engine.model.parameters(), strict=True
    ):
        assert torch.equal(ours, theirs)
    assert second.state_dict() == whole.state_dict()


def test_only_what_lies_below_everything_trained_is_frozen(make):
    encoder = make(model={"freeze": 1}).engine.model.encoder
    assert len(Frozen(encoder)) == 1
    encoder.model.embeddings.requires_grad_()
    assert len(Frozen(encoder)) == 0
    assert len(Frozen(make().engine.model.encoder)) == 0
    assert len(Frozen(torch.nn.Linear(2, 2))) == 0


def test_layers_are_themselves_again_also_after_an_exception(make):
    encoder = make(model={"freeze": 1}).engine.model.encoder
    frozen = Frozen(encoder)
    layer = encoder.model.encoder.layer[0]
    with pytest.raises(KeyboardInterrupt), frozen.given(torch.zeros(1)), frozen.recording():
        raise KeyboardInterrupt
    assert "forward" not in vars(layer)
    assert not layer._forward_hooks


@pytest.mark.parametrize("kinds", [{"classify"}, {"classify", "regress"}])
def test_only_a_run_of_version_0_1_with_a_regression_is_refused(kinds, tmp_path):
    config = RunConfig(tasks=["digits/left"], selection="mt_uncertainty")
    check_scores(tmp_path, config, Snapshot(1, {}, {}, {"config": config_hash(config)}), kinds)
    old = Snapshot(1, {}, {}, {"config": "of 0.1"})
    if "regress" not in kinds:
        check_scores(tmp_path, config, old, kinds)
        return
    with pytest.raises(UserError, match=r"begun by taskmix 0\.1, with other scores"):
        check_scores(tmp_path, config, old, kinds)
