"""How much memory the size of the data costs: python scripts/memory.py [--rows 5000000]

Trains the same small model for the same few steps twice, each in a process of its own: on a task
of a thousand rows, and on a task of millions, generated beside it. Prints the peak of each while
reading and encoding, and while training from the cache.
"""

import argparse
import json
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

WORDS = ["the", "red", "old", "small", "cat", "dog", "house", "river", "runs", "sleeps", "far"]


def generate(path: Path, rows: int) -> None:
    """A CSV file of so many rows."""
    from taskmix.rng import stream

    rng = stream(1, "memory")
    with path.open("w") as file:
        file.write("text,label\n")
        for start in range(0, rows, 100_000):
            count = min(100_000, rows - start)
            words = rng.integers(len(WORDS), size=(count, 6))
            for row in words.tolist():
                file.write(" ".join(WORDS[word] for word in row) + f",{row[0] % 2}\n")


def train(folder: Path, rows: int, out: str) -> None:
    """A few steps on a task of so many rows; prints the peak memory of this process."""
    from taskmix.config import RunConfig
    from taskmix.training.run import run

    files = {"train": str(folder / f"{rows}.csv"), "dev": str(folder / "1000.csv")}
    task = {"name": "big", **files, "text": "text", "label": "label", "labels": ["0", "1"]}
    config = RunConfig(
        tasks=[task],
        model={"encoder": "minilm", "layers": 3},
        budget={"steps": 20, "batch": 16},
        evaluate={"every": 20, "examples": 64},
    )
    began = time.perf_counter()
    run(config, folder / out, cache=folder / "cache")
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(json.dumps({"peak": peak, "seconds": time.perf_counter() - began}))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, default=5_000_000)
    parser.add_argument("--train", nargs=3, metavar=("FOLDER", "ROWS", "OUT"))
    given = parser.parse_args()
    if given.train:
        folder, rows, out = given.train
        train(Path(folder), int(rows), out)
        return
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for rows in (1000, given.rows):
            generate(folder / f"{rows}.csv", rows)
        peaks = {}
        for rows, out in ((1000, "s1"), (1000, "s2"), (given.rows, "b1"), (given.rows, "b2")):
            told = subprocess.run(
                [sys.executable, __file__, "--train", name, str(rows), out],
                check=True,
                capture_output=True,
                text=True,
            )
            peaks[out] = json.loads(told.stdout.splitlines()[-1])
        for what, small, big in (("encoding", "s1", "b1"), ("from the cache", "s2", "b2")):
            more = peaks[big]["peak"] - peaks[small]["peak"]
            print(
                f"{what}: {peaks[small]['peak']:.0f} MB with 1,000 rows, "
                f"{peaks[big]['peak']:.0f} MB with {given.rows:,}: {more:.0f} MB more, "
                f"{peaks[big]['seconds']:.0f} s"
            )


if __name__ == "__main__":
    main()
