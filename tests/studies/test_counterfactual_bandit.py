"""The bandit experiment with counterfactual policies, small."""

from bursar.studies.counterfactual_bandit import counterfactual_bandit, fixed_ways, phased_ways


def test_pooled_logs_help_where_the_newest_log_alone_misleads() -> None:
    ways = {**fixed_ways(), **phased_ways([4])}
    results = {
        result.name: result
        for result in counterfactual_bandit(ways, environments=3, seeds=2, steps=500)
    }
    assert results["own"].shares.shape == (3,)
    assert results["own"].median > results["last"].median
    assert results["4 phases"].median > results["last"].median
