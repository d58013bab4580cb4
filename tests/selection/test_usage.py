import json

import numpy as np
import pytest

from taskmix.selection import Usage


def test_an_example_counts_once_however_often_it_is_used():
    usage = Usage({"a": 10, "b": 30})
    for _ in range(3):
        usage.add("a", np.array([1, 2, 2]))
    usage.add("b", np.arange(6))
    assert usage.of("a") == 0.2
    assert usage.fraction == 8 / 40


def test_it_goes_on_from_its_state_as_json():
    usage, other = Usage({"a": 10, "b": 3}), Usage({"a": 10, "b": 3})
    usage.add("a", np.array([0, 9]))
    other.add("b", np.array([2]))
    other.load_state_dict(json.loads(json.dumps(usage.state_dict())))
    other.add("a", np.array([9, 5]))
    assert (other.of("a"), other.of("b")) == (0.3, 0.0)


def test_the_state_of_other_data_is_refused():
    with pytest.raises(ValueError, match="state of a: expected 10 examples"):
        Usage({"a": 10}).load_state_dict(Usage({"a": 100}).state_dict())
