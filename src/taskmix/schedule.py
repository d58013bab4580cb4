"""The schedule of the learning rate, as a factor on its maximum."""


def rate_factor(step: float, steps: int, warmup: float) -> float:
    """Return a factor that rises to 1 over the warm-up, then falls to 0 after the last step.

    >>> [round(rate_factor(step, 10, 0.2), 3) for step in (1, 2, 3, 10)]
    [0.5, 1.0, 1.0, 0.125]
    """
    rising = int(steps * warmup)
    if step <= rising:
        return step / rising
    return (steps - step + 1) / (steps - rising)
