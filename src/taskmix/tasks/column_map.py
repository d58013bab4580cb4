"""Which column of a user's own table is which."""

from dataclasses import dataclass


@dataclass(frozen=True)
class ColumnMap:
    """Which column of a table is which.

    Args:
        text: column of the text; of the list of words (tag); of the question (span).
        label: column of the class, number, classes (multilabel), tags (tag), answers (span) or
            position of the right choice (choose).
        pair: column of the second text; of the context (span).
        choices: columns of the choices, or the one that holds a list of them (choose).
        separator: what stands between the classes of a text that holds several (multilabel); None
            finds it in the file.
        id: column by which predictions name the row.
        prompt: column of what is given (generate); empty where `text` is learned as a whole.
        answer: column of what is to be said after the prompt (generate).
    """

    text: str = ""
    label: str = ""
    pair: str | None = None
    choices: tuple[str, ...] = ()
    separator: str | None = None
    id: str | None = None
    prompt: str = ""
    answer: str = ""
