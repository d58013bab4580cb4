"""Numbers as a person reads them."""

#: Stands for a number that nobody wrote down.
UNKNOWN = "–"


def hundredths(score: float | None) -> str:
    """Return a score as tables give it.

    >>> hundredths(0.6625), hundredths(None)
    ('66.2', '–')
    """
    return UNKNOWN if score is None else f"{100 * score:.1f}"


def duration(seconds: float) -> str:
    """Hours, minutes and seconds, the larger two.

    >>> duration(3.21), duration(75), duration(7384)
    ('3.2 s', '1 min 15 s', '2 h 3 min')
    """
    if seconds < 60:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    hours, left = divmod(minutes, 60)
    return f"{hours} h {left} min" if hours else f"{minutes} min {rest} s"
