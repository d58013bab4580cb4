"""Write three tables of a support desk, of very different size: python support_desk.py FOLDER.

Sentences are put together from parts at random, so they are easy to read and free to share. One
label in ten is wrong, as in tables that people filled in.
"""

import csv
import random
import sys
from pathlib import Path

THINGS = {
    "billing": ["the invoice", "my refund", "the monthly fee", "a double charge"],
    "delivery": ["the parcel", "the courier", "my order", "the tracking number"],
    "account": ["my password", "the login page", "the confirmation mail", "two-factor sign-in"],
    "product": ["the battery", "the display", "the left hinge", "the charging cable"],
}
PRAISE = ["works well again", "was sorted out quickly", "is better than I hoped", "is just fine"]
BLAME = ["is still missing", "fails every time", "is worse than before", "never works"]
HURRY = {1: "no hurry", 2: "some time this week", 3: "soon please", 4: "today", 5: "right now"}


def sentence(rng: random.Random, team: str, happy: bool, urgency: int) -> str:
    parts = [
        rng.choice(["Hello,", "Hi there,", "Once more:", ""]),
        rng.choice(THINGS[team]),
        rng.choice(PRAISE if happy else BLAME),
        rng.choice([f"({HURRY[urgency]})", HURRY[urgency], "- thanks", ""]),
    ]
    return " ".join(part for part in parts if part)


def table(path: Path, rows: int, label: str, seed: int) -> None:
    rng = random.Random(seed)
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(["text", label])
        for _ in range(rows):
            team, happy = rng.choice(list(THINGS)), rng.random() < 0.5
            urgency = rng.randint(1, 5)
            labels = {
                "label": "good" if happy else "bad",
                "category": team,
                "score": urgency + round(rng.gauss(0, 0.3), 1),
            }
            wrong = {
                "label": rng.choice(["good", "bad"]),
                "category": rng.choice(list(THINGS)),
                "score": rng.randint(1, 5),
            }
            value = (wrong if rng.random() < 0.1 else labels)[label]
            writer.writerow([sentence(rng, team, happy, urgency), value])


def main() -> None:
    folder = Path(sys.argv[1])
    folder.mkdir(parents=True, exist_ok=True)
    table(folder / "mood.csv", 4000, "label", 1)
    table(folder / "teams.csv", 1000, "category", 2)
    table(folder / "urgency.csv", 400, "score", 3)


if __name__ == "__main__":
    main()
