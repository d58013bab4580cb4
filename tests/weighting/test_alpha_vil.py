"""AlphaVIL on a toy whose answers are known: θ is a point, every loss a distance."""

import json
from dataclasses import dataclass, field

import numpy as np
import pytest

from taskmix.weighting import AlphaVIL, ClosedForm, Descent, Sweeps
from taskmix.weighting.base import JointResult, Separated, Slope
from taskmix.weighting.tuners import Lever

TASKS = ["target", "friend", "foe"]


@dataclass
class Toy:
    """Task i pulls θ towards its centre; the target's dev loss is half the squared distance to
    a goal near the target's, along axes of different curvature."""

    centres: np.ndarray
    goal: np.ndarray
    pull: float = 0.3
    theta: np.ndarray = field(default_factory=lambda: np.zeros(4))
    curvature: np.ndarray = field(default_factory=lambda: np.array([1.0, 2.0, 0.5, 1.5]))
    deltas: np.ndarray | None = None
    scales: tuple = ()
    asked: list = field(default_factory=list)

    def separate(self, scales, fraction=1.0, *, fresh=True, scored=False):
        self.scales = scales
        self.deltas = self.pull * (self.centres - self.theta) * np.array(scales)[:, None]
        return Separated(np.linalg.norm(self.deltas, axis=1), np.ones(3), None, dev=100)

    def at(self, coefficients):
        return self.theta + np.array(coefficients) @ self.deltas

    def slope(self, coefficients, batch=None, turn=0):
        self.asked.append((coefficients, batch, turn))
        gap = self.at(coefficients) - self.goal
        return Slope(0.5 * gap @ (self.curvature * gap), self.deltas @ (self.curvature * gap))

    def loss(self, coefficients):
        gap = self.at(coefficients) - self.goal
        return 0.5 * gap @ (self.curvature * gap)

    def mix(self, coefficients):
        self.theta = self.at(coefficients)

    def together(self, weights, fraction=1.0, *, fresh=False):
        joint = np.array(weights) @ (self.centres - self.theta)
        self.candidate = self.theta + self.pull * joint
        return JointResult(np.ones(3), score=0.5, dev_loss=0.25)

    def keep(self):
        self.theta = self.candidate


def toy(foe_sign=-1.0):
    """A target; a friend near it; a foe on the other side."""
    target = np.array([1.0, 0.5, -0.5, 0.2])
    friend = target + np.array([0.1, -0.4, 0.1, 0.3])
    goal = target + np.array([0.2, -0.1, 0.1, 0.1])
    return Toy(np.array([target, friend, foe_sign * target + 0.2]), goal)


def least_squares(world):
    """The coefficients of the deltas that bring θ nearest to the target's centre."""
    root = np.sqrt(world.curvature)
    gap = world.goal - world.theta
    return np.linalg.lstsq((world.deltas * root).T, gap * root, rcond=None)[0]


def mixture(alphas, weights_on):
    """The coefficients that α stands for in the first round, when all weights are 1."""
    values = np.array([alphas[task] for task in TASKS])
    return values if weights_on == "loss" else values / 3


@pytest.mark.parametrize("weights_on", ["loss", "delta"])
def test_closed_form_is_the_least_squares_solution(weights_on):
    world = toy()
    start = Toy(world.centres, world.goal)
    tuner = ClosedForm(reach=np.inf)
    report = AlphaVIL(TASKS, "target", tuner=tuner, weights_on=weights_on).round(world)
    start.deltas = world.deltas
    found = mixture(report.alphas, weights_on)
    np.testing.assert_allclose(found, least_squares(start), rtol=1e-6)
    np.testing.assert_allclose(world.theta, start.at(found), rtol=1e-12)


def closed_form(pull, start):
    """The default's coefficients in a first round, and the least-squares solution."""
    world = toy()
    world.pull = pull
    before = Toy(world.centres, world.goal)
    report = AlphaVIL(TASKS, "target", start=start).round(world)
    before.deltas = world.deltas
    return mixture(report.alphas, "delta"), least_squares(before)


def test_closed_form_is_exact_by_default_where_the_solution_is_within_reach():
    found, solution = closed_form(pull=5.4, start=0.75)
    np.testing.assert_allclose(found, solution, rtol=1e-6)


def test_closed_form_goes_as_far_as_it_may_where_the_solution_is_not():
    found, solution = closed_form(pull=0.3, start=1.0)
    assert np.linalg.norm(3 * solution - 1) > 5
    assert np.linalg.norm(3 * found - 1) == pytest.approx(1)


def test_tuned_alphas_converge_to_the_least_squares_solution():
    world = toy()
    start = Toy(world.centres, world.goal)
    tuner = Descent(steps=20_000, lr=18.0, momentum=0.9)
    report = AlphaVIL(TASKS, "target", tuner=tuner).round(world)
    start.deltas = world.deltas
    np.testing.assert_allclose(mixture(report.alphas, "delta"), least_squares(start), atol=1e-6)


def test_descent_is_sgd_with_momentum_line_for_line():
    world = toy()
    AlphaVIL.paper(TASKS, "target").round(world)
    start = toy()
    start.deltas = world.deltas
    alphas, velocity = [1.0, 1.0, 1.0], [0.0, 0.0, 0.0]
    for _ in range(10):
        point = [
            start.theta[k] + sum(alphas[i] * world.deltas[i][k] for i in range(3)) for k in range(4)
        ]
        for i in range(3):
            slope = sum(
                world.curvature[k] * (point[k] - world.goal[k]) * world.deltas[i][k]
                for k in range(4)
            )
            velocity[i] = 0.5 * velocity[i] + slope
            alphas[i] -= 0.005 * velocity[i]
    np.testing.assert_allclose(world.theta, start.at(alphas), rtol=1e-12)


def test_the_paper_scales_losses_by_shares_and_adds_alpha_less_one_to_the_weights():
    weighting, world = AlphaVIL.paper(TASKS, "target", floor=1e-6), toy()
    first = weighting.round(world)
    assert world.scales == pytest.approx((1 / 3, 1 / 3, 1 / 3))
    expected = [max(1e-6, 1 + first.alphas[task] - 1) for task in TASKS]
    np.testing.assert_allclose(weighting.weights(), expected)
    weighting.round(world)
    assert world.scales == pytest.approx(np.array(expected) / sum(expected))


def foe_weights(weighting, rounds_against, rounds_for):
    """The foe's weight while it is one, and then after it has turned into a friend."""
    against, world = [], toy()
    for _ in range(rounds_against):
        world.theta = np.zeros(4)  # the toy would be solved otherwise, and nothing left to learn
        against.append(weighting.round(world).weights["foe"])
    turned, world = [], toy(foe_sign=1.5)
    for _ in range(rounds_for):
        world.theta = np.zeros(4)
        turned.append(weighting.round(world).weights["foe"])
    return against, turned


def test_an_opposed_task_falls_to_the_floor_and_comes_back_when_it_helps():
    weighting = AlphaVIL(TASKS, "target", tuner=Descent(lr=0.5), floor=1e-3)
    against, turned = foe_weights(weighting, 12, 12)
    assert against[0] < 1
    assert against[-1] == 1e-3
    assert turned[-1] > 0.5


def test_closed_form_lets_it_come_back_too():
    against, turned = foe_weights(AlphaVIL(TASKS, "target", floor=1e-3), 8, 8)
    assert against[-1] == 1e-3
    assert turned[-1] > 0.1


def test_the_papers_clamp_is_absorbing():
    weighting = AlphaVIL.paper(TASKS, "target", tuner=Descent(lr=1.0))
    against, turned = foe_weights(weighting, 30, 30)
    assert against[-1] == 1e-6
    assert turned[-1] < 1e-5


def test_a_higher_floor_cures_the_papers_clamp():
    weighting = AlphaVIL.paper(TASKS, "target", tuner=Descent(lr=1.0), floor=0.05)
    against, turned = foe_weights(weighting, 30, 60)
    assert against[-1] == 0.05
    assert turned[-1] > 0.2


def test_state_goes_through_json_and_the_next_round_is_the_same_bit_for_bit():
    first, world = AlphaVIL(TASKS, "target"), toy()
    first.round(world)
    second = AlphaVIL(TASKS, "target")
    second.load_state_dict(json.loads(json.dumps(first.state_dict())))
    copy = toy()
    copy.theta = world.theta.copy()
    assert first.round(world) == second.round(copy)
    assert first.state_dict() == second.state_dict()
    assert np.array_equal(world.theta, copy.theta)


def test_a_round_that_was_broken_off_leaves_the_state_alone():
    weighting = AlphaVIL(TASKS, "target")
    before = weighting.state_dict()
    world = toy()
    world.mix = None
    with pytest.raises(TypeError, match="not callable"):
        weighting.round(world)
    assert weighting.state_dict() == before


def test_state_of_other_tasks_is_refused():
    state = AlphaVIL(["a", "b"], "a").state_dict()
    with pytest.raises(ValueError, match="state: expected"):
        AlphaVIL(["a", "b"], "b").load_state_dict(state)


def test_the_joint_step_starts_at_the_mixture_with_the_new_weights():
    plain, joint = toy(), toy()
    AlphaVIL(TASKS, "target").round(plain)
    weighting = AlphaVIL(TASKS, "target", joint=True)
    report = weighting.round(joint)
    shares = weighting.weights() / weighting.weights().sum()
    expected = plain.theta + 0.3 * shares @ (plain.centres - plain.theta)
    np.testing.assert_allclose(joint.theta, expected)
    assert report.dev_loss == 0.25


def test_tuning_starts_where_it_is_told():
    world = toy()
    AlphaVIL(TASKS, "target", weights_on="loss", start=0.5, tuner=Descent(steps=1)).round(world)
    assert world.asked[0][0] == (0.5, 0.5, 0.5)


def test_dev_batches_take_their_turns():
    world = toy()
    AlphaVIL(TASKS, "target", tuner=Descent(steps=3, batch=40)).round(world)
    assert [place for _, *place in world.asked] == [[40, 0], [40, 1], [40, 2]]
    world = toy()
    AlphaVIL(TASKS, "target", tuner=Sweeps(steps=2, batch=40)).round(world)
    assert [place for _, *place in world.asked] == [[40, turn] for turn in range(6)]


def test_closed_form_leaves_a_task_that_does_nothing_alone():
    world = toy()
    world.centres[2] = world.theta
    report = AlphaVIL(TASKS, "target").round(world)
    assert report.alphas["foe"] == pytest.approx(1)


def test_closed_form_never_raises_the_loss_and_goes_downhill_from_a_saddle():
    def loss(a):
        return float(np.cos(a[0]) + 0.5 * (a[1] - 1) ** 2 + 0.1 * a[1] ** 4)

    def gradient(a):
        return np.array([-np.sin(a[0]), a[1] - 1 + 0.4 * a[1] ** 3])

    start = np.array([0.3, 2.0])
    worker = Terrain(loss, gradient)
    alphas = ClosedForm(steps=10).tune(worker, Lever(start, np.ones(2)), np.ones(2), 10)
    final = start + alphas - 1
    assert loss(final) < loss(start)
    assert loss(final) <= min(worker.losses) + 1e-12
    np.testing.assert_allclose(gradient(final), 0, atol=1e-4)


class Terrain:
    """A worker on any smooth loss of the coefficients."""

    def __init__(self, loss, gradient):
        self._loss, self._gradient, self.losses = loss, gradient, []

    def slope(self, coefficients, batch=None, turn=0):
        return Slope(self._loss(coefficients), self._gradient(coefficients))

    def loss(self, coefficients):
        self.losses.append(self._loss(coefficients))
        return self.losses[-1]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"target": "other"}, "target: expected one of target, friend, foe, found 'other'"),
        ({"weights_on": "gradient"}, "weights_on: expected 'loss' or 'delta', found 'gradient'"),
        ({"floor": 0.0}, "floor: expected a number above 0, found 0.0"),
        (
            {"tuner": "newton"},
            "tuner: expected one of closed_form, descent, sweeps, found 'newton'",
        ),
        ({"fraction": 0.0}, "fraction: expected a number above 0, at most 1, found 0.0"),
    ],
)
def test_mistakes_are_named(arguments, message):
    with pytest.raises(ValueError, match=message):
        AlphaVIL(TASKS, **{"target": "target", **arguments})


def test_a_run_files_words_name_the_tuner():
    assert AlphaVIL(TASKS, "target").tuner == ClosedForm()
    assert AlphaVIL(TASKS, "target", tuner="sweeps").tuner == Sweeps()
    words = {"name": "descent", "lr": 0.001}
    assert AlphaVIL(TASKS, "target", tuner=words).tuner == Descent(lr=0.001)
