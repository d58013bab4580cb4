"""Worth keeps a task's share until the task itself has clearly slowed."""

import math
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from taskmix import Aimed, Outcome, Random, Worth
from taskmix.bandit import CONTENDERS, Environment, compare, simulate
from taskmix.policies import RunInfo, Skill
from taskmix.rng import stream

TASKS = list("abcd")


def kinked(values):
    """Fit a line with each kink; return the best's slope behind it, its error, noise and end."""
    places, found = np.arange(len(values)), []
    for kink in range(2, len(values) - 2):
        columns = np.stack([np.ones(len(values)), places, np.maximum(places - kink, 0)], axis=1)
        solved = np.linalg.pinv(columns)
        left = values - columns @ (solved @ values)
        slope = solved[1] + solved[2]
        noise = math.sqrt(left @ left / (len(values) - 4))
        end = (columns @ (solved @ values))[-1]
        found.append((noise, slope @ values, noise * np.linalg.norm(slope), end))
    noise, slope, error, end = min(found)
    return slope, error, noise, end


class Transcription:
    """The docstring's rule, with all lines fitted anew at every draw."""

    def __init__(self, aimed, watch, learned, sizes, targets):
        self.aimed, self.watch, self.learned = aimed, watch, learned
        self.sizes, self.targets = sizes, targets
        self.seen = [[] for _ in aimed]
        self.skills = [[] for _ in aimed]  # after how many draws, and what was found

    def tell(self, k, loss, skill):
        if skill is not None:
            self.skills[k].append((len(self.seen[k]), skill))
        self.seen[k].append(math.exp(-max(loss, 0)))

    def let_go(self, k):
        return self.learned == 0 or any(skill >= self.learned for _, skill in self.skills[k])

    def due(self, k):
        if self.let_go(k) or self.rising(k) >= 0.9 or self.level(k) < self.learned:
            return False
        return not self.skills[k] or len(self.seen[k]) >= 1.5 * self.skills[k][-1][0]

    def means(self, k):
        values, width = np.array(self.seen[k]), 1
        while len(values) // width >= 48:
            width *= 2
        return values[: len(values) // width * width].reshape(-1, width).mean(axis=1)

    def level(self, k):
        return kinked(self.means(k))[3]

    def usual(self, k):
        """The slope of the whole run, and whether it is more than noise."""
        values = self.means(k)
        places = np.arange(len(values))
        slope, noise = np.polyfit(places, values, 1)[0], kinked(values)[2]
        return slope, slope > 3 * noise / math.sqrt(((places - places.mean()) ** 2).sum())

    def rising(self, k):
        if len(self.means(k)) < 12 or not self.usual(k)[1]:
            return 1.0
        slope, error, *_ = kinked(self.means(k))
        return min(1.0, (max(0.0, slope) + 3 * error) / self.usual(k)[0]) ** 2

    def waiting(self, k):
        return len(self.means(k)) >= 12 and not self.usual(k)[1]

    def probabilities(self):
        every = range(len(self.aimed))
        worth = self.aimed * [self.rising(k) if self.let_go(k) else 1.0 for k in every]
        for scored in (True, False):
            alike = [k for k in every if self.waiting(k) and (k in self.targets) == scored]
            together = sum(worth[k] for k in alike)
            parts = [self.aimed[k] * math.sqrt(self.sizes[k]) for k in alike]
            for k, part in zip(alike, parts, strict=True):
                worth[k] = together * part / sum(parts)
        if worth.sum() == 0:
            return self.aimed
        return self.watch * self.aimed + (1 - self.watch) * worth / worth.sum()


@pytest.mark.parametrize("learned", [0.0, 0.25, 0.4])
@pytest.mark.parametrize("noise", [0.0, 0.05, 0.5, 2.0])
def test_a_history_of_some_hundred_steps_is_the_rule(noise, learned):
    sizes = [1, 7, 2, 5]
    epochs = {task: 0.1 / size for task, size in zip(TASKS, sizes, strict=True)}
    policy = Worth(TASKS, ["a", "b"], rest=0.4, epochs=epochs, watch=0.1, learned=learned)
    aimed = Aimed(TASKS, ["a", "b"], rest=0.4).probabilities()
    rule = Transcription(aimed, 0.1, learned, sizes, targets=(0, 1))
    rng = stream(1, "history")
    for step in range(200):
        draw = policy.ask(rng)
        loss = 0.8 + 2 * math.exp(-step / (20 * (1 + draw.index))) + noise * rng.normal()
        assert bool(policy.due(draw)) == rule.due(draw.index)
        skill = float(rng.random()) if policy.due(draw) else None
        policy.tell(Outcome(draw, loss=loss, skill=skill))
        rule.tell(draw.index, loss, skill)
        assert policy.probabilities() == pytest.approx(rule.probabilities(), abs=1e-6)


@settings(derandomize=True, deadline=None, max_examples=25)
@given(st.lists(st.floats(0.1, 4), min_size=24, max_size=24), st.floats(0, 4))
def test_it_does_not_matter_where_the_losses_of_a_task_are(losses, more):
    one, other = Worth(["a", "b"], learned=0), Worth(["a", "b"], learned=0)
    for step, loss in enumerate(losses):
        one.tell(Outcome(one.replay(step % 2), loss=loss))
        other.tell(Outcome(other.replay(step % 2), loss=loss + more * (step % 2)))
    assert one.probabilities() == pytest.approx(other.probabilities(), abs=1e-6)


def test_a_part_of_the_draws_keeps_to_what_counts():
    policy, rng = Worth(TASKS, ["a"], rest=0.3, watch=0.2), stream(1, "watch")
    least = 0.2 * Aimed(TASKS, ["a"], rest=0.3).probabilities()
    for _ in range(200):
        assert (policy.probabilities() >= least - 1e-12).all()
        policy.tell(Outcome(policy.ask(rng), loss=float(rng.exponential())))


def spent(policy, likelihood, steps, seed=1, skill=1.0):
    """Play a policy whose tasks have this likelihood after so many draws; return its draws."""
    rng = stream(seed, "draws")
    for _ in range(steps):
        draw = policy.ask(rng)
        value = likelihood(draw.task, int(policy.drawn[draw.index]))
        loss = -math.log(value) + 0.05 * rng.normal()
        policy.tell(Outcome(draw, loss=loss, skill=skill if policy.due(draw) else None))
    return dict(zip(policy.tasks, policy.drawn.tolist(), strict=True))


def soon_and_late(task, drawn):
    return 0.1 + (0.01 * min(drawn, 30) if task == "soon" else 0.001 * drawn)


def test_a_task_that_converges_gives_way():
    assert spent(Worth(["soon", "late"]), soon_and_late, 400)["soon"] < 120


def test_a_plateau_before_the_score_has_risen_is_not_the_end():
    """The losses of a tagger stop before it tags a name."""
    kept = spent(Worth(["soon", "late"]), soon_and_late, 400, skill=0.02)
    assert kept["soon"] == spent(Random(["soon", "late"]), soon_and_late, 400)["soon"]
    alone = spent(Worth(["soon", "late"], learned=0), soon_and_late, 400)
    assert alone["soon"] < 120


def test_where_nobody_measures_a_skill_no_task_is_let_go():
    kept = spent(Worth(["soon", "late"]), soon_and_late, 400, skill=None)
    assert kept["soon"] == spent(Random(["soon", "late"]), soon_and_late, 400)["soon"]


def test_a_skill_is_measured_of_what_would_be_let_go_and_ever_more_rarely():
    policy, measured = Worth(["soon", "late"]), []
    for step in range(1600):
        draw = policy.replay(step % 2)
        value = 0.1 + 0.001 * (4 * min(step // 2, 120) if draw.task == "soon" else step // 2)
        due = policy.due(draw)
        measured += [(draw.task, step // 2)] if due else []
        policy.tell(Outcome(draw, loss=-math.log(value), skill=0.1 if due else None))
    tasks, places = zip(*measured, strict=True)
    assert set(tasks) == {"soon"}
    assert places[0] > 120
    assert all(b >= 1.5 * a for a, b in pairwise(places))
    assert len(places) > 2
    policy.tell(Outcome(policy.replay(0), loss=-math.log(0.58), skill=0.3))
    assert policy.probabilities()[0] < 0.1
    assert not any(policy.due(policy.replay(0)) for _ in range(2000))


def test_a_task_with_unlikely_answers_is_not_measured():
    """The domains of a language model: a token has a hundred likely successors."""
    policy = Worth(["soon", "late"])
    for step in range(400):
        draw = policy.replay(step % 2)
        assert not policy.due(draw)
        policy.tell(Outcome(draw, loss=4 - math.log(soon_and_late(draw.task, step // 2))))
    assert policy.diagnostics()["rising"]["soon"] < 0.5


def test_nothing_is_measured_by_losses_alone():
    assert Worth(TASKS, learned=0).needs == frozenset()
    assert Worth(TASKS, examples=7).needs == {Skill(7)}


def test_a_task_that_begins_late_keeps_its_share():
    def likelihood(task, drawn):
        return 0.3 + (0.003 * max(0, drawn - 60) if task == "late" else 0.002 * drawn)

    assert spent(Worth(["late", "soon"]), likelihood, 180)["late"] > 70


def test_what_has_not_begun_is_drawn_by_the_root_of_its_size():
    def likelihood(task, drawn):
        return 0.5 + (0.003 * drawn if task == "rising" else 0.0)

    epochs = {"small": 0.9, "large": 0.1, "rising": 0.1}
    policy = Worth([*epochs], epochs=epochs)
    spent(policy, likelihood, 150)
    third = (1 - 0.05) / 3
    expected = [third / 2 + 0.05 / 3, 3 * third / 2 + 0.05 / 3, 1 / 3]
    assert policy.probabilities() == pytest.approx(expected)


def test_what_is_seen_again_is_not_drawn_by_its_size():
    epochs = {"small": 4.0, "large": 0.1}
    policy = Worth([*epochs], epochs=epochs, repeats=None, steps=60)
    for step in range(40):
        policy.tell(Outcome(policy.replay(step % 2), loss=1 + 0.1 * (step % 3)))
        size_counts = 12 <= policy.drawn[0] < 15 and policy.drawn[1] >= 12
        assert (policy.probabilities()[0] < 0.5) == size_counts


def test_what_counts_gives_nothing_to_the_rest_by_its_size():
    epochs = {"target": 0.9, "rest": 0.001}
    policy = Worth([*epochs], ["target"], epochs=epochs)
    spent(policy, lambda *_: 0.5, 600)
    assert min(policy.drawn) > 12
    assert policy.probabilities() == pytest.approx([0.95, 0.05])


def test_a_task_that_begins_has_its_share_again():
    def likelihood(task, drawn):
        return 0.2 + (0.005 * max(0, drawn - 40) if task == "small" else 0.0)

    policy = Worth(["small", "large"], epochs={"small": 0.9, "large": 0.1})
    spent(policy, likelihood, 100)
    assert policy.probabilities()[0] < 0.3
    spent(policy, likelihood, 400, seed=2)
    assert policy.probabilities()[0] == pytest.approx(0.5)


def test_noise_alone_leaves_the_shares_as_they_are():
    """In none of 20 seeds was a mean share off by 0.001.

    Three of them are tried again, so that only a change of the rule can raise an alarm.
    """
    for seed in (101, 102, 103):
        policy, rng, shares = Worth(TASKS), stream(seed, "noise"), []
        for _ in range(3000):
            draw = policy.ask(rng)
            shares.append(draw.probabilities)
            policy.tell(Outcome(draw, loss=max(0.0, 0.7 + 0.2 * rng.normal())))
        assert np.mean(shares, axis=0) == pytest.approx(0.25, abs=0.001)


def test_a_curve_that_flattens_as_real_ones_do_keeps_its_share():
    """By a power law the likelihood of a task rises ever more slowly, and still rises."""

    def likelihood(task, drawn):
        return 0.2 + (0.04 * drawn**0.5 if task == "power" else 0.002 * drawn)

    assert spent(Worth(["power", "line"]), likelihood, 300)["power"] > 120


def test_what_is_seen_again_is_not_judged_by_its_loss():
    def play(steps):
        epochs = {"a": 5.0, "b": 5.0}
        policy = Worth(["a", "b"], epochs=epochs, repeats=None, steps=steps, learned=0)
        for step in range(60):
            loss = 2 - 0.1 * min(step // 2, 10) if step % 2 else 2 - 0.01 * step
            policy.tell(Outcome(policy.replay(step % 2), loss=loss))
        return policy.probabilities()

    assert play(1000)[1] < 0.2  # 200 draws are an epoch
    assert play(100).tolist() == [0.5, 0.5]  # 20 are


@pytest.mark.parametrize("drawn", range(58, 64))
def test_the_end_of_the_first_epoch_is_the_same_after_a_resume(drawn):
    """By then two draws make a point of the line, and the epoch ends between two points."""

    def made():
        return Worth(["a", "b"], epochs={"a": 2.0, "b": 2.0}, repeats=None, steps=122, learned=0)

    policy, again = made(), made()
    for step in range(drawn):
        policy.tell(Outcome(policy.replay(0), loss=2 - 0.1 * min(step, 20)))
    again.load_state_dict(policy.state_dict())
    assert again.probabilities().tolist() == policy.probabilities().tolist()
    assert (policy.probabilities()[0] < 0.5) == (drawn < 61)


def test_it_takes_what_counts_and_what_is_new_from_the_run():
    info = RunInfo({"cb": 160, "mnli": 160_000}, steps=400, batch=16, objective=("cb",))
    shares = Aimed.for_run(info).probabilities().tolist()
    assert Worth.for_run(info).probabilities() == pytest.approx(shares)
    assert Worth.for_run(info, targets=["mnli"]).probabilities()[1] > 0.9


@pytest.mark.parametrize(("noise", "least"), [(0.0, 0.04), (0.1, 0.02), (0.4, 0.003)])
def test_in_the_bandit_it_is_above_random(noise, least):
    """What is asked is at least three standard errors below what is seen: false alarms < 0.2%."""
    found = compare({"worth": CONTENDERS["worth"]}, environments=16, seeds=4, seed=50, noise=noise)
    assert (found.medians("worth") - found.medians("random")).mean() > least


def test_without_noise_it_passes_the_oracle():
    closed = []
    for place in range(4):
        environment = Environment.random(8, 1000, stream(0, "environment", place))

        def final(policy, environment=environment, place=place):
            return simulate(policy, environment, 1000, stream(0, "draws", place)).final

        chance, oracle = final(Random(environment.tasks)), final(environment.oracle_policy())
        closed.append((final(Worth(environment.tasks)) - chance) / (oracle - chance))
    assert np.median(closed) > 1


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"watch": 0}, "watch: expected a number above 0 and up to 1, found 0"),
        ({"steps": 0}, "steps: expected at least 1, found 0"),
        ({"rest": 1}, "rest: expected a number from 0 up to 1, found 1"),
        ({"epochs": {"b": 1}}, "epochs, b: expected a number from 0"),
        ({"learned": 1.5}, "learned: expected a number from 0 to 1, found 1.5"),
        ({"examples": 0}, "examples: expected at least 1, found 0"),
    ],
)
def test_a_mistake_is_named(options, said):
    with pytest.raises(ValueError, match=said):
        Worth(["a"], **options)
