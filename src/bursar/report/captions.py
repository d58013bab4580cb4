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
FINAL_SCORES = Caption(
    "Final scores",
    "A bar is the mean of the seeds, its whisker reaches from the lowest seed to the highest; "
    "where whiskers overlap much, the difference may be chance.",
)
