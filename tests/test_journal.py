import json
import logging
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import taskmix
from taskmix.errors import RunInterruptedError, UserError
from taskmix.journal import (
    FORMAT,
    MAX_FULL_TASKS,
    Diagnostics,
    Evaluation,
    Journal,
    Opening,
    Round,
    SelectionStep,
    Shares,
    Step,
    line_of,
    read,
    repair,
    without_times,
)
from taskmix.policies import Outcome


def opening(tasks: list[str]) -> Opening:
    return Opening("demo", tasks, dict.fromkeys(tasks, 10), 1, {"policy": "random"}, {"steps": 9})


def names(count: int) -> list[str]:
    return [f"task-{number}" for number in range(count)]


def drawn(shares: list[float], *, loss: float | None = 0.5) -> Outcome:
    """A draw from these shares, and its outcome."""
    tasks = names(len(shares))
    policy = taskmix.Fixed(dict(zip(tasks, shares, strict=True)))
    return Outcome(policy.ask(np.random.default_rng(1)), loss=loss)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "journal.jsonl"


def shares_in(path: Path) -> list[Shares]:
    return [record for record in read(path) if isinstance(record, Shares)]


def test_every_record_comes_back_as_it_was(path: Path) -> None:
    records = [
        opening(["a", "b"]),
        Shares(1, [0.25, 0.75]),
        Step(1, "b", 0.75, loss=0.7, gain=-0.1, score=0.5, uncertainty={"a": 0.1}, seconds=0.2),
        Step(2, "a", 0.25),
        Diagnostics(2, {"weights": [0.0, 1.0]}),
        SelectionStep(3, {"a": 4, "b": 4}, {"a": 1, "b": 3}, 0.5, {"a": 1.0}),
        Round(4, {"a": 1.0}, {"a": 0.9}, {"a": 0.8}, 0.3),
        Evaluation(4, "dev", 0.6, {"a": 0.6}, {"a": 1.2}, {"a": {"accuracy": 0.6}}, 0.6, 8, 8),
    ]
    with Journal.create(path, records[0]) as journal:
        for record in records[1:]:
            journal.append(record)
    assert list(read(path)) == records


def test_a_draw_is_written_with_its_own_propensity(path: Path) -> None:
    outcome = replace(drawn([0.1, 0.9]), examples=16, tokens=99)
    with Journal.create(path, opening(names(2))) as journal:
        journal.draw(1, outcome)
    _, shares, step = read(path)
    assert shares == Shares(1, [0.1, 0.9])
    assert step == Step(
        1, outcome.draw.task, outcome.draw.probability, 0.5, None, None, None, 16, 99
    )


def test_what_was_appended_can_be_read_while_the_writer_still_has_the_file_open(path: Path) -> None:
    journal = Journal.create(path, opening(names(2)))
    journal.draw(1, drawn([0.5, 0.5]))
    assert [record.kind for record in read(path)] == ["run", "shares", "step"]
    assert journal.position == path.stat().st_size
    journal.close()


def test_what_was_appended_survives_a_killed_process(path: Path) -> None:
    script = f"""
import os, signal
from pathlib import Path
from taskmix.journal import Journal, Opening, Step
journal = Journal.create(Path({str(path)!r}), Opening("demo", ["a"], {{}}, 1, {{}}, {{}}))
for step in range(1, 101):
    journal.append(Step(step, "a", 1.0))
os.kill(os.getpid(), signal.SIGKILL)
"""
    died = subprocess.run([sys.executable, "-c", script], check=False)
    assert died.returncode == -9
    assert [record.step for record in read(path) if isinstance(record, Step)] == [*range(1, 101)]


def torn(path: Path, keep: int) -> None:
    with Journal.create(path, opening(names(2))) as journal:
        journal.draw(1, drawn([0.5, 0.5]))
        whole = journal.position
        journal.draw(2, drawn([0.5, 0.5]))
    os.truncate(path, whole + keep)


@pytest.mark.parametrize("keep", [1, 7, 30])
def test_a_torn_last_line_is_left_out_and_reported(
    path: Path, keep: int, caplog: pytest.LogCaptureFixture
) -> None:
    torn(path, keep)
    with caplog.at_level(logging.WARNING):
        assert [record.kind for record in read(path)] == ["run", "shares", "step"]
    assert "line 4 was torn off" in caplog.text


def test_repair_cuts_a_torn_last_line_off_and_leaves_a_whole_file_alone(
    path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    torn(path, 12)
    with caplog.at_level(logging.WARNING):
        assert repair(path) == 12
    assert "torn last line of 12 bytes" in caplog.text
    whole = path.read_bytes()
    assert repair(path) == 0
    assert path.read_bytes() == whole


def test_repair_finds_the_last_line_however_long_the_torn_one_is(path: Path) -> None:
    path.write_bytes(b'{"kind":"other"}\n' + b"x" * 200_000)
    assert repair(path) == 200_000
    assert list(read(path)) == []


def test_repair_empties_a_file_that_is_one_torn_line(path: Path) -> None:
    path.write_bytes(b'{"kind":"ru')
    assert repair(path) == 11
    assert path.read_bytes() == b""


def test_the_distribution_is_written_only_when_it_has_changed(path: Path) -> None:
    with Journal.create(path, opening(names(2))) as journal:
        for step, shares in enumerate([[0.5, 0.5], [0.5, 0.5], [0.4, 0.6], [0.4, 0.6]], 1):
            journal.draw(step, drawn(shares))
    assert shares_in(path) == [Shares(1, [0.5, 0.5]), Shares(3, [0.4, 0.6])]


def test_a_resumed_journal_is_the_uninterrupted_one_byte_for_byte(path: Path) -> None:
    outcomes = [drawn([0.5, 0.5]), drawn([0.5, 0.5]), drawn([0.4, 0.6]), drawn([0.4, 0.6])]
    with Journal.create(path, opening(names(2))) as journal:
        positions = []
        for step, outcome in enumerate(outcomes, 1):
            positions.append(journal.position)
            journal.draw(step, outcome)
    whole = path.read_bytes()
    for done, position in enumerate(positions):
        with Journal.resume(path, position) as journal:
            assert journal.position == position
            for step in range(done, len(outcomes)):
                journal.draw(step + 1, outcomes[step])
        assert path.read_bytes() == whole


def test_a_journal_shorter_than_its_checkpoint_says_is_refused(path: Path) -> None:
    torn(path, 5)
    size = path.stat().st_size
    with pytest.raises(UserError, match=rf"expected at least {size + 1} bytes.*found {size}"):
        Journal.resume(path, size + 1)
    assert path.stat().st_size == size


def changing(count: int, step: int) -> Outcome:
    rng = np.random.default_rng(step)
    return drawn(rng.dirichlet(np.ones(count)).tolist(), loss=float(rng.random()))


def test_beyond_64_tasks_a_changing_distribution_is_thinned_but_propensities_are_not(
    path: Path,
) -> None:
    count, steps = MAX_FULL_TASKS + 16, 50
    outcomes = [changing(count, step) for step in range(1, steps + 1)]
    with Journal.create(path, opening(names(count))) as journal:
        for step, outcome in enumerate(outcomes, 1):
            journal.draw(step, outcome)
    written = [record for record in read(path) if isinstance(record, Step)]
    assert [record.p for record in written] == [o.draw.probability for o in outcomes]
    at = [record.step for record in shares_in(path)]
    assert at == [1, 11, 21, 31, 41]


def test_at_64_tasks_every_change_is_written(path: Path) -> None:
    with Journal.create(path, opening(names(MAX_FULL_TASKS))) as journal:
        for step in range(1, 6):
            journal.draw(step, changing(MAX_FULL_TASKS, step))
    assert [record.step for record in shares_in(path)] == [1, 2, 3, 4, 5]


@pytest.mark.parametrize("count", [8, 1000])
def test_200_000_steps_stay_under_100_megabytes_though_the_distribution_changes_at_each(
    path: Path, count: int
) -> None:
    tasks, steps = names(count), 2000
    tables = np.random.default_rng(3).dirichlet(np.ones(count), size=steps)
    with Journal.create(path, opening(tasks)) as journal:
        first = journal.position
        for step, shares in enumerate(tables, 100_001):
            number = step % count
            draw = taskmix.Draw(tasks[number], number, shares, step)
            loss, gain = float(shares[0]), -float(shares[1])
            outcome = Outcome(draw, loss=loss, gain=gain, examples=16, tokens=1999)
            journal.draw(step, outcome, seconds=0.0123)
        assert (journal.position - first) * 200_000 / steps < 100e6


def test_kinds_and_fields_of_a_later_version_are_passed_over(path: Path) -> None:
    lines = [
        {"kind": "weather", "step": 1, "sky": "blue"},
        {"kind": "step", "step": 1, "task": "a", "p": 1.0, "mood": "good"},
    ]
    first = line_of(OPENING).decode()
    path.write_text(first + "".join(json.dumps(line) + "\n" for line in lines))
    assert list(read(path)) == [OPENING, Step(1, "a", 1.0)]


def test_a_journal_of_a_newer_format_is_refused(path: Path) -> None:
    with Journal.create(path, Opening("x", ["a"], {}, 1, {}, {}, format=FORMAT + 1)):
        pass
    with pytest.raises(UserError, match=rf"line 1.*found format {FORMAT + 1}"):
        list(read(path))


OPENING = Opening("x", ["a"], {}, 1, {}, {})
STEP = '{"kind": "step", "step": 1, "task": "a", "p": 0.5}'


@pytest.mark.parametrize(
    "line",
    [
        *("not json", "[]", "17", '{"step": 1}', '{"kind": "step", "step": 1}', '{"kind": []}'),
        STEP.replace("0.5", "0.0"),
        STEP.replace("0.5", "1.5"),
        STEP.replace("0.5", '"half"'),
        STEP.replace('"a"', '"b"'),
        '{"kind": "shares", "step": 1, "shares": [0.5, 0.5]}',
        '{"kind": "shares", "step": 1, "shares": [0.5]}',
        '{"kind": "selection", "step": 1, "candidates": {"b": 1}, "chosen": {"b": 1}, "used": 0}',
    ],
)
def test_a_line_that_is_no_record_is_an_error_that_names_it(path: Path, line: str) -> None:
    path.write_text(line_of(OPENING).decode() + line + "\n")
    with pytest.raises(UserError, match=r"journal\.jsonl, line 2: expected a record"):
        list(read(path))


def test_a_journal_begins_with_its_run(path: Path) -> None:
    path.write_text(STEP + "\n")
    with pytest.raises(UserError, match=r"line 1: .* found it before the line that opens a run"):
        list(read(path))


def test_a_missing_journal_is_one_sentence(path: Path) -> None:
    with pytest.raises(UserError, match="expected a journal, found no such file"):
        list(read(path))


@pytest.mark.parametrize("loss", [float("nan"), float("inf")])
def test_what_is_no_number_is_not_written(path: Path, loss: float) -> None:
    with Journal.create(path, opening(names(2))) as journal:
        before = journal.position
        with pytest.raises(RunInterruptedError, match="step 1: expected finite numbers"):
            journal.append(Step(1, "a", 0.5, loss=loss))
        assert journal.position == before == path.stat().st_size


def test_a_disk_that_takes_half_a_line_is_an_error(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Full:
        def write(self, lines: bytes) -> int:
            return len(lines) // 2

    with Journal.create(path, opening(names(2))) as journal, monkeypatch.context() as patch:
        before = journal.position
        patch.setattr(journal, "_file", Full())
        with pytest.raises(OSError, match=r"wrote \d+ of \d+ bytes"):
            journal.append(Step(1, "a", 0.5))
        assert journal.position == before


def test_without_times_leaves_out_the_clock_and_nothing_else() -> None:
    record = Step(1, "a", 0.5, loss=0.1, seconds=3.0)
    plain = without_times(record)
    assert "seconds" not in plain
    assert plain == without_times(Step(1, "a", 0.5, loss=0.1, seconds=4.0))
    assert plain != without_times(Step(1, "a", 0.5, loss=0.2, seconds=3.0))


@settings(max_examples=50, derandomize=True, deadline=None)
@given(
    st.lists(st.floats(0.01, 1.0), min_size=2, max_size=6),
    st.lists(st.integers(0, 2), min_size=1, max_size=12),
)
def test_the_distribution_of_any_step_can_be_read_off(
    tmp_path_factory: pytest.TempPathFactory, weights: list[float], turns: list[int]
) -> None:
    path = tmp_path_factory.mktemp("journal") / "journal.jsonl"
    tables = [np.roll(weights, turn) / sum(weights) for turn in turns]
    with Journal.create(path, opening(names(len(weights)))) as journal:
        for step, table in enumerate(tables, 1):
            journal.draw(step, drawn(table.tolist()))
    standing: list[float] = []
    for record in read(path):
        if isinstance(record, Shares):
            standing = record.shares
        elif isinstance(record, Step):
            np.testing.assert_allclose(standing, tables[record.step - 1], rtol=1e-8)
