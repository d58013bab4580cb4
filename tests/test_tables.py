"""Tables as data: one table, the same texts on the terminal and on the page."""

from io import StringIO

import pytest
from rich.console import Console

from taskmix.cli import terminal
from taskmix.report import document
from taskmix.tables import Column, Table, TableCell, hundredths

TABLE = Table(
    [Column("task"), Column("metric", left=True), Column("score", hundredths), Column("n", ",")],
    [
        ["[b]cola", "matthews", 0.5, 1234],
        ["rte", None, TableCell("60.0 (50.0 to 70.0)", 0.6), 2],
        ["mean", "", 0.55, ""],
    ],
    title="Scores",
    best=frozenset({(1, 2)}),
    totals=1,
    notes=("A note.",),
)
TEXTS = [
    ["[b]cola", "matthews", "50.0", "1,234"],
    ["rte", "–", "60.0 (50.0 to 70.0)", "2"],
    ["mean", "", "55.0", ""],
]


def printed(monkeypatch: pytest.MonkeyPatch, table: Table, **options: object) -> str:
    screen = StringIO()
    console = Console(file=screen, highlight=False, markup=False, **options)  # type: ignore[arg-type]
    monkeypatch.setattr(terminal, "out", console)
    terminal.print_tables([table])
    return screen.getvalue()


def test_values_are_formatted_by_their_column_or_bring_their_text() -> None:
    assert TABLE.texts() == TEXTS


def test_the_terminal_and_the_page_show_the_same_texts(monkeypatch: pytest.MonkeyPatch) -> None:
    shown, page = printed(monkeypatch, TABLE), document.table(TABLE)
    for text in ("Scores", "A note.", *(cell for row in TEXTS for cell in row)):
        assert text in shown
        assert text in page
    assert '<td class="best">60.0 (50.0 to 70.0)</td>' in page
    assert '<th class="left">metric</th>' in page
    assert page.count("<tr class=total>") == 1


def test_a_narrow_terminal_gets_whole_words_and_numbers_and_the_columns_in_parts(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    cell = "70.2 (61.5 to 80.2)"
    names = [f"policy{k}" for k in range(8)]
    wide = Table([Column("task"), *map(Column, names)], [["digits/left", *[cell] * 8]], "Scores")
    for width in (40, 80, 100):
        shown = printed(monkeypatch, wide, width=width, force_terminal=True, color_system=None)
        assert shown.count(cell) == 8
        assert all(name in shown for name in names)
        assert max(map(len, shown.splitlines())) <= width
        assert shown.count("digits/left") == shown.count("Scores") > 1


@pytest.mark.parametrize("width", [80, 90, 99, 100, 101, 105, 120, 200])
@pytest.mark.parametrize("heading", ["constant prediction", "majority-class baseline", "n"])
def test_no_line_is_wider_than_the_terminal(
    heading: str, width: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    contestants = ["random", "task_size", "a policy with a long name"]
    score = "64.9 (59.2 to 69.8)"
    columns = [Column("task"), *map(Column, contestants), Column(heading)]
    table = Table(columns, [["examples backward", score, score, score, "10.5"]])
    shown = printed(monkeypatch, table, width=width, force_terminal=True, color_system=None)
    assert max(map(len, shown.splitlines())) <= width
    assert shown.count(score) == 3


def test_a_pipe_gets_a_wide_table_whole_and_a_narrow_terminal_loses_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    wide = Table([Column("task"), Column("x" * 30), Column("y" * 30)], [["a", "b" * 30, "c" * 30]])
    assert "b" * 30 in printed(monkeypatch, wide, width=40)
    folded = printed(monkeypatch, wide, width=40, force_terminal=True, color_system=None)
    assert folded.count("b") == 30
    assert "…" not in folded


def test_a_narrow_terminal_folds_the_sentences_of_a_first_column(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    words = "mt_uncertainty: glue/mnli is above glue/sst2"
    table = Table([Column("rule", left=True), Column("p")], [[words, "0.012"]])
    shown = printed(monkeypatch, table, width=40, force_terminal=True, color_system=None)
    assert shown.count("0.012") == 1
    assert max(map(len, shown.splitlines())) <= 40


def test_the_first_rows_say_how_many_there_are() -> None:
    assert TABLE.first(3) is TABLE
    first = TABLE.first(1)
    assert (len(first.rows), first.totals) == (1, 0)
    assert first.notes[-1] == "The first 1 of 3 rows; the report has all of them."


def test_a_row_of_another_length_is_refused() -> None:
    with pytest.raises(ValueError, match="zip"):
        Table([Column("task")], [["a", "b"]]).texts()
