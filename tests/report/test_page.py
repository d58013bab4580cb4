import json
import re
import sys
from html import unescape
from html.parser import HTMLParser

import numpy as np
import pytest

from pages import figures_in, unpacked
from taskmix.errors import UserError
from taskmix.journal import Evaluation, Round, SelectionStep, Shares, Step
from taskmix.report import document, write_comparison_report, write_run_report
from taskmix.report.page import write_report
from taskmix.tables import Column, Table

HOSTILE = '</script><script>alert("1")</script><img src=x onerror=alert(1)>'


def scores(easy=0.6, hard=0.4, **more):
    tasks = {
        name: {"score": score, "metrics": {"accuracy": score}, "loss": 1.0, "examples": 90, **more}
        for name, score in {"easy": easy, "hard": hard}.items()
    }
    score = (easy + hard) / 2
    return json.dumps({"step": 2, "score": score, "tasks": tasks, "forward": 1234, "backward": 987})


class Page(HTMLParser):
    """The tags of a page with their attributes, its texts, and the rows of its tables."""

    def __init__(self, path):
        super().__init__()
        self.tags, self.texts, self.rows = [], [], []
        self.path, self.source = path, path.read_text(encoding="utf-8")
        self.feed(self.source)

    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))
        if tag == "tr":
            self.rows.append([])

    def handle_data(self, data):
        tag = self.tags[-1][0] if self.tags else ""
        if tag in ("td", "th") and data.strip():
            self.rows[-1].append(data)
        if tag not in ("script", "style"):
            self.texts.append(data)

    def has(self, tag):
        return [attrs for name, attrs in self.tags if name == tag]

    @property
    def text(self):
        return " ".join(self.texts)


@pytest.fixture(autouse=True)
def small_plotly(monkeypatch):
    """Five megabytes of script are slow to parse; only the test of the size needs them."""
    document._plotly.cache_clear()
    monkeypatch.setattr("plotly.offline.get_plotlyjs", lambda: "/* plotly.js */")
    yield
    document._plotly.cache_clear()


def test_a_run_report_starts_with_the_final_table(make_run, short):
    folder = make_run(*short, scores=scores(), config="seed: 1\n")
    path = write_run_report(folder)
    page = Page(path)
    assert path == folder / "report.html"
    assert page.rows == [
        ["task", "metric", "loss", "score", "share", "examples seen", "epochs"],
        ["easy", "accuracy", "1.000", "60.0", "75.0%", "30", "0.30"],
        ["hard", "accuracy", "1.000", "40.0", "25.0%", "8", "0.04"],
        ["mean", "50.0"],
    ]
    assert page.source.index("<table>") < page.source.index("<figure>")
    for fact in ("50.0", "fixed draws iid", "4 steps, batches of 10", "1,234 / 987", "4.0 s"):
        assert fact in page.texts
    assert "not finished" not in page.text
    assert "seed: 1" in page.source[page.source.index("<details>") :]
    assert page.has("details") == [{}]


def test_baselines_are_shown_where_they_are_known(make_run, short):
    page = Page(write_run_report(make_run(*short, scores=scores(baseline=0.3))))
    assert page.rows[0][4] == "baseline"
    assert page.rows[1][4] == "30.0"


def test_an_unfinished_run_says_so_and_shows_its_best_so_far(make_run, short):
    page = Page(write_run_report(make_run(*short[:6])))
    assert "This run is not finished: 3 of 4 steps are done" in page.text
    assert page.rows[1][3] == "60.0"


def test_a_run_before_its_first_score_has_a_report(make_run, short):
    page = Page(write_run_report(make_run(*short[:2])))
    assert "it has not been scored yet" in page.text
    assert page.rows[:2] == [
        ["task", "share", "examples seen", "epochs"],
        ["easy", *page.rows[1][1:]],
    ]


def test_a_run_before_its_first_step_has_a_report(make_run):
    page = Page(write_run_report(make_run()))
    assert "0 of 4 steps are done" in page.text
    assert not page.has("figure")


def test_several_metrics_are_all_given(make_run, short):
    folder = make_run(*short[:2], short[-1])
    assert Page(write_run_report(folder)).rows[2][1] == "f1 10.0, accuracy 30.0"


def verdict(page):
    [sentence] = re.findall(r'<p class="verdict">(.*?)</p>', page.source)
    return unescape(sentence)


def headings(page):
    return re.findall(r"<h2>(.*?)</h2>", page.source)


def test_there_is_a_figure_for_every_kind_of_record(make_run, short):
    page = Page(write_run_report(make_run(*short)))
    assert headings(page) == ["Shares of the draws", "Dev scores", "Convergence", "Training loss"]
    weighed = Round(1, {}, {"easy": 1.0, "hard": 1.0}, {"easy": 1.0, "hard": 1.0}, dev_loss=1.0)
    assert headings(
        Page(write_run_report(make_run(weighed, name="weighed", family="weighting")))
    ) == ["Weights"]
    chosen = SelectionStep(1, {"easy": 1}, {"easy": 1}, used=0.663)
    page = Page(write_run_report(make_run(chosen, name="chosen", family="selection")))
    assert headings(page) == ["Examples chosen"]
    assert "66.3%" in page.texts


def test_nothing_of_a_users_text_is_markup(make_run):
    records = [Shares(1, [1.0]), Step(1, HOSTILE, 1.0, loss=1.0, examples=1)]
    records += [
        Evaluation(1, "dev", 0.5, {HOSTILE: 0.5}, {HOSTILE: 0.5}, {HOSTILE: {HOSTILE: 0.5}})
    ]
    folder = make_run(*records, tasks=[HOSTILE], config=f"name: {HOSTILE}\n")
    page = Page(write_run_report(folder))
    assert not page.has("img")
    assert "alert" not in {attribute for _, attrs in page.tags for attribute in attrs}
    assert page.rows[1][0] == HOSTILE
    scripts = re.findall(r"<script.*?>(.*?)</script>", page.source, re.DOTALL)
    assert not any(script.lstrip().startswith("alert") for script in scripts)
    compared = Page(write_comparison_report({HOSTILE: [folder]}, folder / "out", HOSTILE))
    assert not compared.has("img")
    assert compared.rows[0][1] == compared.rows[1][0] == HOSTILE


def loads(page):
    """Whatever a browser would fetch."""
    return [
        attrs[key]
        for tag, attrs in page.tags
        if tag != "a"
        for key in ("src", "href")
        if key in attrs
    ] + re.findall(r"@import|url\(", page.source)


def test_pages_load_nothing_and_forbid_it(make_run, short):
    folder = make_run(*short, scores=scores())
    for path in (
        write_run_report(folder),
        write_comparison_report({"fixed": [folder]}, folder / "out", "One policy"),
    ):
        page = Page(path)
        assert loads(page) == []
        policy = next(a["content"] for a in page.has("meta") if "http-equiv" in a)
        assert policy.startswith("default-src 'none'")
        assert "http" not in policy


def test_figures_offer_no_button_that_sends_data_away(make_run, short):
    source = Page(write_run_report(make_run(*short))).source
    [buttons] = re.findall(r"BUTTONS = (\[\[.*?\]\]);", source)
    assert buttons == '[["toImage", "zoom2d", "pan2d", "resetScale2d"]]'
    assert source.count("modeBarButtons: BUTTONS") == 1


def test_the_same_run_gives_the_same_page(make_run, short):
    folder = make_run(*short, scores=scores())
    first = write_run_report(folder).read_bytes()
    assert write_run_report(folder).read_bytes() == first


def test_a_report_that_fails_leaves_the_old_one(make_run, short, monkeypatch):
    folder = make_run(*short)
    old = write_run_report(folder).read_bytes()

    def torn(*_):
        raise OSError("no space left on device")

    monkeypatch.setattr("taskmix.files.os.fsync", torn)
    with pytest.raises(OSError, match="no space"):
        write_run_report(folder)
    assert (folder / "report.html").read_bytes() == old


def test_a_long_journal_gives_a_page_of_two_megabytes(make_run, monkeypatch):
    monkeypatch.undo()
    document._plotly.cache_clear()
    tasks = [f"task {k}" for k in range(8)]
    rng = np.random.default_rng(1)
    records = []
    for k in range(1, 20_001):
        shares = rng.dirichlet(np.ones(8)).tolist()
        loss = float(rng.random())
        records += [Shares(k, shares), Step(k, tasks[k % 8], 0.5, loss=loss, examples=8)]
        if k % 1000 == 0:
            scores = dict(zip(tasks, rng.random(8).tolist(), strict=True))
            records.append(Evaluation(k, "dev", 0.5, scores, scores))
    page = write_run_report(make_run(*records, tasks=tasks))
    assert page.stat().st_size < 2_000_000
    assert unpacked(page, "plotly").count("plotly.js v") == 1


def test_a_comparison_starts_with_the_policies_and_marks_the_best(make_run, short):
    runs = {
        "random": [
            make_run(*short, name="r1", scores=scores(0.5, 0.3)),
            make_run(*short, name="r2", seed=2, scores=scores(0.7, 0.3)),
        ],
        "size": [make_run(*short, name="s1", scores=scores(0.9, 0.1), config="seed: 7\n")],
    }
    page = Page(write_comparison_report(runs, runs["size"][0].parent / "out" / "new", "Two"))
    assert page.rows[:8] == [
        ["task", "random", "size"],
        ["easy", "60.0 (50.0 to 70.0)", "90.0"],
        ["hard", "30.0 (30.0 to 30.0)", "10.0"],
        ["mean", "45.0 (40.0 to 50.0)", "50.0"],
        ["seeds", "2", "1"],
        ["examples forward", "1,234", "1,234"],
        ["examples backward", "987", "987"],
        ["time", "4.0 s", "4.0 s"],
    ]
    bold = re.findall(r'<td class="best">(.*?)</td>', page.source)
    assert bold == ["90.0", "30.0 (30.0 to 30.0)", "50.0"]
    assert headings(page) == [
        "Differences to random",
        "Dev score over the budget",
        "Shares over the run",
    ]
    assert verdict(page) == (
        "size is 10.0 points above random with 1 seed, too few for a verdict: run 4 more seeds."
    )
    assert page.rows[8:14] == [
        ["above random", "size"],
        ["easy", "+40.0"],
        ["hard", "-20.0"],
        ["mean", "+10.0"],
        ["p", "–"],
        ["seeds", "1"],
    ]
    assert "no interval and no test" in page.text
    assert page.rows[14:17] == [
        ["task", "random", "size"],
        ["easy", "75.0% (0.30)", "75.0% (0.30)"],
        ["hard", "25.0% (0.04)", "25.0% (0.04)"],
    ]
    links = [attrs["href"] for attrs in page.has("a")]
    assert links == ["./../../r1/", "./../../r2/", "./../../s1/"]
    assert [row[:3] for row in page.rows[18:]] == [
        ["random", "1", "40.0"],
        ["random", "2", "50.0"],
        ["size", "1", "50.0"],
    ]


def test_differences_are_paired_by_seed_and_those_that_are_told_from_zero_stand_out(
    make_run, short
):
    found = {
        "base": {1: (0.5, 0.3), 2: (0.7, 0.3), 3: (0.6, 0.2)},
        "good": {2: (0.81, 0.4), 3: (0.7, 0.3), 1: (0.6, 0.4)},
    }
    runs = {
        name: [
            make_run(*short, name=f"{name}{seed}", seed=seed, scores=scores(*pair))
            for seed, pair in seeds.items()
        ]
        for name, seeds in found.items()
    }
    out = runs["base"][0].parent / "out"
    page = Page(write_comparison_report(runs, out, "Pairs"))
    assert page.rows[8] == ["above base", "good"]
    assert page.rows[11:14] == [
        ["mean", "+10.2 (+9.4 to +10.9)"],
        ["p", "<0.001"],
        ["seeds", "3"],
    ]
    assert '<td class="best">&lt;0.001</td>' in page.source
    assert "p is of a paired t-test." in page.text
    turned = Page(write_comparison_report(runs, out, "Turned", "good"))
    assert turned.rows[11][1] == "-10.2 (-10.9 to -9.4)"
    assert headings(turned)[0] == "Differences to good"
    with pytest.raises(UserError, match="baseline: unknown contestant 'bad'"):
        write_comparison_report(runs, out, "None", "bad")


def test_contestants_are_judged_by_the_objective_where_the_run_file_names_one(make_run, short):
    config = "objective: {tasks: [hard], measure: loss}\n"
    runs = {
        name: [
            make_run(
                *short,
                name=f"{name}{seed}",
                seed=seed,
                config=config,
                scores=scores().replace('"step"', f'"objective": {value}, "step"'),
            )
            for seed, value in enumerate(values)
        ]
        for name, values in {"a": (-0.5, -0.75, -0.625), "b": (-0.25, -0.75, -0.5)}.items()
    }
    page = Page(write_comparison_report(runs, runs["a"][0].parent / "out", "Losses"))
    assert [row[0] for row in page.rows[:4]] == ["task", "easy", "hard", "objective, loss"]
    assert page.rows[3][1] == "0.625 (0.500 to 0.750)"
    assert page.rows[8] == ["below a", "b"]
    assert page.rows[11][0] == "objective, loss"
    assert page.rows[11][1].startswith("+0.125 (")
    titles = [figure["layout"]["xaxis"]["title"]["text"] for figure in figures_in(page.path)]
    assert "nats below a" in titles
    assert "0.125 nats below a" not in verdict(page)
    assert verdict(page).startswith("No difference to a beyond noise")
    assert headings(page)[1] == "Dev loss over the budget"


def test_an_objective_that_is_none_is_one_sentence(make_run, short):
    runs = {"a": [make_run(*short, scores=scores(), config="objective: {tasks: 3}\n")]}
    with pytest.raises(UserError, match=r"run.yaml: objective: tasks: .*, found 3"):
        write_comparison_report(runs, runs["a"][0], "Nonsense")


def test_a_run_that_counts_compute_says_so(tmp_path, make_run):
    folder = make_run()
    path = folder / "journal.jsonl"
    path.write_text(path.read_text().replace('"count":"steps"', '"count":"compute"'))
    page = Page(write_run_report(folder))
    assert "the compute of 4 steps, batches of 10" in page.texts
    assert "0 steps are done" in page.text


def test_a_comparison_describes_all_tasks_together(make_run, short):
    runs = {
        "random": [
            make_run(*short, name=f"r{seed}", seed=seed, scores=scores(0.5, 0.3)) for seed in (1, 2)
        ],
        "size": [
            make_run(*short, name=f"s{seed}", seed=seed, scores=scores(0.9, 0.3)) for seed in (1, 2)
        ],
    }
    page = Page(write_comparison_report(runs, runs["size"][0].parent / "out", "Two"))
    assert ["random", "–"] in page.rows
    assert ["size", "75% (75% to 75%)"] in page.rows  # always above on one task, a tie on the other
    assert "interquartile mean" not in page.text  # there are two tasks


def test_a_comparison_says_when_runs_are_not_finished(make_run, short):
    runs = {"a": [make_run(*short, name="a", scores=scores())], "b": [make_run(name="b")]}
    page = Page(write_comparison_report(runs, runs["a"][0], "Half"))
    assert "1 of 2 runs are finished" in page.text
    assert page.rows[0] == ["task", "a"]


def test_a_run_for_a_loss_says_its_loss_and_shows_no_scores(make_run, short):
    config = "objective: {tasks: [hard], measure: loss}\n"
    folder = make_run(
        *short, config=config, scores=scores().replace('"step"', '"objective": -0.75, "step"')
    )
    page = Page(write_run_report(folder))
    assert "reached a dev loss of 0.750 on hard" in verdict(page)
    assert "Dev scores" not in headings(page)
    assert "mean score" not in page.texts
    assert page.rows[-1][:2] == ["objective, loss", "0.750"]


def test_a_run_of_another_training_loop_is_not_called_unfinished(make_run, short):
    """Its journal does not say how long it is to be."""
    folder = make_run(*short[:2])
    path = folder / "journal.jsonl"
    path.write_text(path.read_text().replace('"steps":4,"rounds":4,', ""))
    page = Page(write_run_report(folder))
    assert (
        verdict(page)
        == "fixed draws iid made 1 draw (easy 100%, hard 0%); the journal has no scores."
    )
    folder = make_run(*short, name="scored")
    path = folder / "journal.jsonl"
    path.write_text(path.read_text().replace('"steps":4,"rounds":4,', ""))
    assert "not finished" not in verdict(Page(write_run_report(folder)))


def test_draws_with_rewards_have_a_figure_of_them(make_run):
    steps = [Step(k, "easy", 0.5, reward=k / 4, examples=8) for k in range(1, 5)]
    page = Page(write_run_report(make_run(Shares(1, [0.5, 0.5]), *steps)))
    assert headings(page)[-1] == "Reward"
    assert "loss" not in page.rows[0]


def rollouts(rewards):
    """Twenty draws by turns, of which the last ones have these rewards and mutes."""
    early, late = [("easy", 0.1), ("hard", 0.1)] * 9, list(rewards.items())
    return [
        Shares(1, [0.5, 0.5]),
        *(
            Step(n, task, 0.5, examples=40, reward=reward, mute=0.25, advantage=0.5)
            for n, (task, reward) in enumerate(early + late, 1)
        ),
    ]


def test_a_run_of_another_loop_is_finished_when_its_budget_is_spent(make_run, short):
    steps = [record for record in short if not isinstance(record, Evaluation)]
    assert "not finished" not in verdict(Page(write_run_report(make_run(*steps))))
    page = Page(write_run_report(make_run(*steps[:-1], name="cut")))
    assert "not finished: 3 of 4 steps are done" in verdict(page)


def hosted(folder):
    path = folder / "journal.jsonl"
    path.write_text(path.read_text().replace('"steps":4,"rounds":4,', ""))
    return folder


def test_a_run_of_reinforcement_learning_shows_rewards_and_counts_epochs_by_prompts(make_run):
    """Four completions of each of the ten prompts of a draw: ten draws are 100 prompts."""
    page = Page(write_run_report(hosted(make_run(*rollouts({"easy": 0.9, "hard": 0.3})))))
    assert {"Reward", "Mute", "Advantage"} <= set(headings(page))
    assert page.rows == [
        ["environment", "reward", "mute", "share", "completions", "epochs"],
        ["easy", "0.900", "25.0%", "50.0%", "400", "1.00"],
        ["hard", "0.300", "25.0%", "50.0%", "400", "0.50"],
    ]


def test_runs_of_reinforcement_learning_are_compared_by_their_rewards(make_run):
    rewards = {
        "a": [{"easy": 0.9, "hard": 0.3}, {"easy": 0.7, "hard": 0.1}],
        "b": [{"easy": 0.6, "hard": 0.2}],
    }
    runs = {
        name: [
            hosted(make_run(*rollouts(of_run), name=f"{name}{seed}", seed=seed))
            for seed, of_run in enumerate(seeds, 1)
        ]
        for name, seeds in rewards.items()
    }
    page = Page(write_comparison_report(runs, runs["a"][0], "Rewards"))
    assert verdict(page) == (
        "No verdict: the journals have no scores, only rewards of training prompts."
    )
    assert page.rows[:4] == [
        ["environment", "a (seeds: 2)", "b (seeds: 1)"],
        ["easy", "0.800", "0.600"],
        ["hard", "0.200", "0.200"],
        ["mean over environments", "0.500", "0.400"],
    ]


def test_a_report_takes_the_journal_for_its_folder(make_run, short):
    folder = make_run(*short)
    assert write_report(folder / "journal.jsonl") == folder / "report.html"


def test_the_verdict_of_a_run_names_tasks_that_are_not_above_their_baseline(make_run, short):
    page = Page(write_run_report(make_run(*short, scores=scores(baseline=0.5))))
    assert "Not above the baseline of a constant prediction: hard." in verdict(page)
    page = Page(write_run_report(make_run(*short, name="good", scores=scores(baseline=0.1))))
    assert "Every task is above the baseline of a constant prediction." in verdict(page)


def test_from_five_tasks_on_the_scores_are_described(make_run):
    tasks = [f"task {k}" for k in range(5)]
    runs = {
        name: [
            make_run(
                name=f"{name}{seed}",
                seed=seed,
                tasks=tasks,
                scores=json.dumps(
                    {
                        "step": 1,
                        "score": 0.5,
                        "tasks": {
                            task: {
                                "score": above + 0.1 * k,
                                "metrics": {},
                                "loss": 1.0,
                                "examples": 9,
                            }
                            for k, task in enumerate(tasks)
                        },
                        "forward": 1,
                        "backward": 1,
                    }
                ),
            )
            for seed in (1, 2)
        ]
        for name, above in (("a", 0.1), ("b", 0.2))
    }
    page = Page(write_comparison_report(runs, runs["a"][0].parent, "Five"))
    described = [row for row in page.rows if row[0] in ("a", "b") and len(row) == 3]
    assert described[0][1:] == ["–", "30.0 (30.0 to 30.0)"]
    assert described[1][1:] == ["100% (100% to 100%)", "40.0 (40.0 to 40.0)"]


def test_a_comparison_needs_runs_of_the_same_tasks(make_run, short):
    runs = {"a": [make_run(*short, name="a")], "b": [make_run(name="b", tasks=["other"])]}
    with pytest.raises(UserError, match=r"b: expected the tasks .*found \['other'\]"):
        write_comparison_report(runs, runs["a"][0], "Apples and pears")
    with pytest.raises(UserError, match="expected run folders"):
        write_comparison_report({"a": []}, runs["a"][0], "Nothing")


def test_without_plotly_a_report_is_one_sentence(make_run, short, monkeypatch):
    folder = make_run(*short)
    monkeypatch.setitem(sys.modules, "plotly", None)
    with pytest.raises(UserError, match="expected plotly"):
        write_run_report(folder)
    assert not (folder / "report.html").exists()


def test_a_folder_without_a_journal_is_one_sentence(tmp_path):
    with pytest.raises(UserError, match="expected a journal, found no such file"):
        write_run_report(tmp_path)


def test_the_room_loads_neither_torch_nor_plotly():
    import subprocess

    code = "import sys, taskmix.report; print({'torch', 'plotly'} & set(sys.modules))"
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout.strip() == "set()"


def test_tables_escape_their_head():
    assert "&lt;i&gt;" in document.table(Table([Column("<i>")], []))


def test_a_page_of_somebody_else_is_left_alone(make_run, short, tmp_path):
    folder = make_run(*short, scores=scores())
    write_run_report(folder)
    write_run_report(folder)  # a page of ours is written again
    for place, write in (
        (folder, lambda: write_run_report(folder)),
        (tmp_path, lambda: write_comparison_report({"a": [folder]}, tmp_path, "a")),
    ):
        (place / "report.html").write_text("<html>mine</html>")
        with pytest.raises(UserError, match=r"report.html: taskmix has not written this file"):
            write()
        assert (place / "report.html").read_text() == "<html>mine</html>"
