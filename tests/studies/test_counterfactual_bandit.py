"""Counterfactual policies on the bandit."""

import numpy as np

from taskmix.bandit import CONTENDERS, compare
from taskmix.studies.counterfactual_bandit import counterfactual_curves


def test_the_counterfactual_policy_plays_in_the_bandits_of_the_others() -> None:
    sizes = {"arms": 4, "steps": 300, "environments": 2, "seeds": 3, "seed": 5}
    curves = counterfactual_curves(**sizes)
    assert curves.shape == (2, 3, 300)
    chance = compare({"random": CONTENDERS["random"]}, **sizes).medians("random")
    assert np.median(curves[:, :, -1], axis=1).mean() > chance.mean()
