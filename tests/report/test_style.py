import itertools
import sys

import numpy as np
import pytest

from taskmix.errors import UserError
from taskmix.report.style import PALETTE, looks, plotly, safe

# Machado, Oliveira and Fernandes (2009): linear RGB as seen without one sort of cones.
SEEN = {
    "all cones": np.eye(3),
    "protanopia": np.array(
        [
            [0.152286, 1.052583, -0.204868],
            [0.114503, 0.786281, 0.099216],
            [-0.003882, -0.048116, 1.051998],
        ]
    ),
    "deuteranopia": np.array(
        [
            [0.367322, 0.860646, -0.227968],
            [0.280085, 0.672501, 0.047413],
            [-0.011820, 0.042940, 0.968881],
        ]
    ),
    "tritanopia": np.array(
        [
            [1.255528, -0.076749, -0.178779],
            [-0.078411, 0.930809, 0.147602],
            [0.004733, 0.691367, 0.303900],
        ]
    ),
}
XYZ = np.array(
    [
        [0.4124564, 0.3575761, 0.1804375],
        [0.2126729, 0.7151522, 0.0721750],
        [0.0193339, 0.1191920, 0.9503041],
    ]
)


def lab(colour, sight):
    rgb = np.array([int(colour[k : k + 2], 16) / 255 for k in (1, 3, 5)])
    linear = np.where(rgb <= 0.04045, rgb / 12.92, ((rgb + 0.055) / 1.055) ** 2.4)
    x, y, z = np.cbrt(XYZ @ np.clip(sight @ linear, 0, 1) / (XYZ @ np.ones(3)))
    return np.array([116 * y - 16, 500 * (x - y), 200 * (y - z)])


@pytest.mark.parametrize("sight", SEEN)
def test_colours_are_told_apart_by_every_reader(sight):
    for one, other in itertools.combinations(PALETTE, 2):
        distance = np.linalg.norm(lab(one, SEEN[sight]) - lab(other, SEEN[sight]))
        assert distance > 10, (one, other)  # about 2 is just noticeable


def test_every_name_has_a_look_of_its_own_up_to_four_times_the_palette():
    names = [f"task {k}" for k in range(4 * len(PALETTE))]
    assert len(set(looks(names).values())) == len(names)
    assert len(looks([*names, "one more"])) == len(names) + 1


def test_a_name_is_no_markup_to_plotly():
    assert safe('<a href="x">') == '&lt;a href="x"&gt;'


def test_without_plotly_one_sentence_says_how_to_get_it(monkeypatch):
    monkeypatch.setitem(sys.modules, "plotly", None)
    with pytest.raises(UserError, match=r"pip install 'taskmix\[report\]'") as error:
        plotly()
    assert "\n" not in str(error.value)
