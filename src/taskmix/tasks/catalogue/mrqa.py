"""The six training sets of MRQA 2019 (Fisch et al.), in its jsonl or in SQuAD's JSON."""

from collections.abc import Iterator

from taskmix.tasks.catalogue.entry import FilesEntry, Layout
from taskmix.tasks.kinds import Span
from taskmix.tasks.metrics import EXACT_MATCH, TOKEN_F1
from taskmix.tasks.readers import Mrqa, Reader, Squad
from taskmix.tasks.shapes import Questions


def _layout(train: str, dev: str, reader: Reader, *folders: str) -> Layout:
    return Layout({"train": train, "dev": dev}, reader, Questions(), folders)


def _layouts(name: str, files: tuple[str, ...]) -> Iterator[Layout]:
    for file in files:
        yield _layout(f"train/{file}.jsonl", f"dev/{file}.jsonl", Mrqa(), "mrqa", ".")
    folders = (f"mrqa/{name}", name)
    yield _layout("train.jsonl", "dev.jsonl", Mrqa(), *folders)
    yield _layout("train.json", "dev.json", Squad(), *folders)
    yield _layout("train-v1.1.json", "dev-v1.1.json", Squad(), *folders)


def _entry(name: str, *files: str) -> FilesEntry:
    layouts = tuple(_layouts(name, files))
    return FilesEntry(f"mrqa/{name}", Span(), (EXACT_MATCH, TOKEN_F1), layouts)


MRQA = (
    _entry("squad", "SQuAD"),
    _entry("newsqa", "NewsQA"),
    _entry("triviaqa", "TriviaQA-web", "TriviaQA"),
    _entry("searchqa", "SearchQA"),
    _entry("hotpotqa", "HotpotQA"),
    _entry("naturalquestions", "NaturalQuestionsShort", "NaturalQuestions"),
)
