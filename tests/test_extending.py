"""How many files a new policy, signal, kind, weighting or command touches, tests and docs apart.

Each is added as a public name of its package, a policy also as `taskmix.NAME`.
"""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import taskmix

SOURCE = Path(taskmix.__file__).parent


class Tree:
    """A copy of the package that counts the files that a change of it touches."""

    def __init__(self, folder: Path) -> None:
        self.root = folder / "taskmix"
        shutil.copytree(SOURCE, self.root, ignore=shutil.ignore_patterns("__pycache__"))
        self.folder = folder
        self.touched: set[str] = set()

    def add(self, name: str, text: str) -> None:
        assert not (self.root / name).exists()
        (self.root / name).write_text(text)
        self.touched.add(name)

    def insert(self, name: str, before: str, text: str) -> None:
        path = self.root / name
        assert path.read_text().count(before) == 1, f"{name}: {before}"
        path.write_text(path.read_text().replace(before, text + before))
        self.touched.add(name)

    def append(self, name: str, text: str) -> None:
        path = self.root / name
        path.write_text(path.read_text() + text)
        self.touched.add(name)

    def call(self, *words: str | Path) -> str:
        """Run the command line."""
        return self.python("-m", "taskmix", *words)

    def python(self, *words: str | Path) -> str:
        environment = {
            **os.environ,
            "PYTHONPATH": f"{self.folder}{os.pathsep}{self.folder / 'own'}",
        }
        done = subprocess.run(
            [sys.executable, *map(str, words)],
            env=environment,
            cwd=self.folder,
            capture_output=True,
            text=True,
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    def run(self, text: str) -> list[dict[str, object]]:
        """Run a run file; return the journal."""
        (self.folder / "run.yaml").write_text(text)
        self.call("run", "run.yaml", "--out", "run", "--quiet")
        lines = (self.folder / "run" / "journal.jsonl").read_text().splitlines()
        return [json.loads(line) for line in lines]


@pytest.fixture
def tree(tmp_path: Path) -> Tree:
    return Tree(tmp_path)


RUN = """
tasks: [digits/left, digits/right]
budget: {steps: 4, batch: 8}
evaluate: {examples: 20}
"""
ALTERNATE = '''
import numpy as np

from taskmix.policies.base import Policy


class Alternate(Policy):
    """Draws the tasks in turn."""

    name = "alternate"

    def probabilities(self):
        return np.eye(len(self.tasks))[self.draws % len(self.tasks)]

    def tell(self, outcome):
        pass
'''


def test_a_policy_is_one_file_and_its_import(tree: Tree) -> None:
    tree.add("policies/alternate.py", ALTERNATE)
    package = "policies/__init__.py"
    tree.insert(package, "from taskmix.policies.annealed", f"{IMPORT}\n")
    tree.insert(package, "    Random,\n    Aimed", "    Alternate,\n")
    for names in (package, "__init__.py"):
        tree.insert(names, '    "Annealed",', '    "Alternate",\n')
    tree.insert("__init__.py", "        Annealed,", "        Alternate,\n")
    journal = tree.run(RUN + "policy: alternate\n")
    drawn = [record["task"] for record in journal if record["kind"] == "step"]
    assert drawn == ["digits/left", "digits/right"] * 2
    tree.python("-c", "from taskmix import Alternate")
    assert len(tree.touched) <= 3


IMPORT = "from taskmix.policies.alternate import Alternate"


def test_a_signal_is_a_class_a_field_and_a_meter(tree: Tree) -> None:
    tree.append(
        "policies/signals.py",
        "\n\n@dataclass(frozen=True)\n"
        'class Width(Signal):\n    """The items of the batch: free."""\n',
    )
    tree.insert("policies/signals.py", "    def measured(self)", "    width: int | None = None\n\n")
    tree.insert("policies/__init__.py", "    Uncertainty,\n)", "    Width,\n")
    tree.insert("policies/__init__.py", '    "Utility",\n', '    "Width",\n')
    tree.insert(
        "training/meters.py",
        "METERS: Mapping",
        "from taskmix.policies import Width\n\n\n"
        "class WidthMeter(Meter):\n"
        "    def after(self, signal, step):\n"
        '        return {"width": step.batch.examples}\n\n\n',
    )
    tree.insert("training/meters.py", "    Gain: GainMeter", "    Width: WidthMeter,\n")
    assert len(tree.touched) <= 3
    own = ALTERNATE.replace(
        'name = "alternate"',
        'from taskmix.policies import Width\n    name = "wide"\n    needs = frozenset({Width()})',
    )
    (tree.folder / "own").mkdir()
    (tree.folder / "own" / "wide.py").write_text(own)
    journal = tree.run(RUN + "policy: wide:Alternate\n")
    assert [record["width"] for record in journal if record["kind"] == "step"] == [8] * 4


def test_a_kind_is_one_file_and_its_import(tree: Tree) -> None:
    tree.add(
        "tasks/kinds/smooth.py",
        "from taskmix.tasks.kinds.classify import Classify\n\n\n"
        'class Smooth(Classify):\n    """Classification with smoothed labels."""\n\n'
        '    name = "smooth"\n\n'
        "    def loss(self, logits, batch):\n"
        "        import torch\n\n"
        '        return torch.nn.functional.cross_entropy(logits, batch["labels"], '
        "label_smoothing=0.1)\n",
    )
    package = "tasks/kinds/__init__.py"
    tree.insert(
        package, "from taskmix.tasks.kinds.span", "from taskmix.tasks.kinds.smooth import Smooth\n"
    )
    tree.insert(package, "Classify, MultiLabel, Regress,", "Smooth, ")
    tree.insert(package, '    "Span",', '    "Smooth",\n')
    rows = "".join(f"{text},{label}\n" for text, label in [("good", 1), ("bad", 0)] * 8)
    (tree.folder / "mood.csv").write_text("text,y\n" + rows)
    entry = "{name: mood, kind: smooth, train: mood.csv, dev: mood.csv, text: text, label: y}"
    settings = "model: {encoder: small}\nbudget: {steps: 2, batch: 4}\npolicy: random\n"
    journal = tree.run(f"tasks: [{entry}]\n{settings}")
    assert any(record["kind"] == "evaluation" for record in journal)
    assert len(tree.touched) <= 3


def test_a_weighting_is_one_file_and_its_import(tree: Tree) -> None:
    tree.add(
        "weighting/halved.py",
        "import numpy as np\n\n"
        "from taskmix.weighting.fixed import Joint\n\n\n"
        'class Halved(Joint):\n    """Gives the target half of the weight."""\n\n'
        '    name = "halved"\n\n'
        "    def weights(self):\n"
        "        others = 0.5 / max(1, len(self.tasks) - 1)\n"
        "        return np.array([0.5 if t == self.target else others for t in self.tasks])\n",
    )
    package = "weighting/__init__.py"
    tree.insert(
        package, "from taskmix.weighting.tuners", "from taskmix.weighting.halved import Halved\n"
    )
    tree.insert(package, "AlphaVIL, DIW, DIWEveryTry, Joint, Single)", "Halved, ")
    tree.insert(package, '    "Joint",', '    "Halved",\n')
    weighting = "{name: halved, target: digits/left, fraction: 0.02}"
    journal = tree.run(RUN.replace("steps: 4", "rounds: 2, steps: 2") + f"weighting: {weighting}\n")
    assert [record["kind"] for record in journal].count("round") == 2
    assert len(tree.touched) <= 3


def test_a_command_is_one_function(tree: Tree) -> None:
    tree.append(
        "cli/running.py",
        '\n\n@command("taskmix greet")\n'
        'def greet() -> None:\n    """Print a greeting."""\n    out.print("hello")\n',
    )
    assert tree.call("greet") == "hello\n"
    assert len(tree.touched) <= 2
