"""Print what is promised of policies learned from tasks that are alike, by two ways of judging.

python scripts/promises.py [--logs 200]
"""

import argparse

from taskmix.studies.coverage import Promise, promises


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--logs", type=int, default=200)
    logs = parser.parse_args().logs
    print("| tasks | λ | by the log learned from: gain, covered | cross-fitted: gain, covered |")
    print("|---|---|---|---|")
    for tasks in (20, 50):
        for weight in ("auto", 0.25, 0.1, 0.05):
            fitted, crossed = promises(tasks, weight, logs)
            print(f"| {tasks} | {weight} | {shown(fitted)} | {shown(crossed)} |", flush=True)


def shown(promise: Promise) -> str:
    return f"{promise.gain:+.3f}, {promise.covered:.0%}"


if __name__ == "__main__":
    main()
