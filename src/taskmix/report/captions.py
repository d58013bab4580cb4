"""Headings and captions: one sentence on how to read each figure."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Caption:
    """What stands above a figure."""

    heading: str
    caption: str


DEV_SCORES = Caption(
    "Dev scores",
    "Higher is better; the dashed line marks the model that is kept.",
)
CONVERGENCE = Caption(
    "Convergence",
    "A star marks the lowest dev loss of a task: the closer the stars stand, the better one "
    "model serves all tasks; the strips show what each task got meanwhile.",
)
TRAINING_LOSS = Caption(
    "Training loss",
    "The loss of each task's own batches, smoothed over a twentieth of them; losses of different "
    "tasks are not on one scale.",
)
SCORE_BANDS = Caption(
    "Dev score over the budget",
    "The mean over the tasks: a line is the mean of the seeds, its band reaches from the lowest "
    "seed to the highest.",
)
LOSS_BANDS = Caption(
    "Dev loss over the budget",
    "The mean over the tasks of the objective: a line is the mean of the seeds, its band reaches "
    "from the lowest seed to the highest.",
)
DIFFERENCES = (
    "A dot is the mean difference to the baseline, its line the 95% interval; a filled dot in the "
    "first row is told from zero by the test. Tasks alone are not tested: where nothing differs, "
    "one interval in twenty misses zero."
)
UTILITIES = Caption(
    "Utilities",
    "How probable it is that a round of a task does not lower the primary's dev score, as stage 1 "
    "believes; a bar reaches over 95% of its curve. A task without rounds has learned nothing.",
)
SEARCH_HISTORY = Caption(
    "Search",
    "Each point is a whole training with one mixing ratio; ratios above the dashed line beat the "
    "primary alone, on this one seed.",
)
RATIO_MAP = Caption(
    "Map of ratios",
    "What the Gaussian process expects of each mixture, and how unsure it is; points are the "
    "ratios that were tried, the coloured one is the best.",
)
