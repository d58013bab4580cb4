"""Beliefs of policies in words."""

from taskmix.journal import Diagnostics, Opening
from taskmix.policies import ADO, POLICIES, Exp3S, Outcome, Policy, Thompson
from taskmix.report import History
from taskmix.report.why import MAX_EVENTS, why
from taskmix.rng import stream


def told(policy: Policy, records: list[Diagnostics], name: str) -> list[str]:
    opening = Opening("run", list(policy.tasks), {}, 1, {"name": name}, {})
    return why(History(opening, diagnostics=records))


def test_a_policy_says_which_task_leads() -> None:
    policy, rng, records = Exp3S(["a", "b"]), stream(2, "draws"), []
    for step in range(1, 400):
        draw = policy.ask(rng)
        favourite = "a" if step < 200 else "b"
        policy.tell(Outcome(draw, loss=1.0, gain=1.0 if draw.task == favourite else -1.0))
        records.append(Diagnostics(step, policy.diagnostics()))
    sentences = told(policy, records, "exp3s")
    assert "b now has the largest log-weight" in sentences[-1]


def test_ado_says_whose_loss_falls_the_fastest() -> None:
    policy, rng, records = ADO(["a", "b"], every=100, ignored=10), stream(3, "draws"), []
    for step in range(1, 801):
        draw = policy.ask(rng)
        falls = 2 + 4 * step**-0.5 if step < 300 else 2.2 + 4 * (step - 299) ** -0.05
        loss = {"a": falls, "b": 3.0 if step < 300 else 3.0 - 0.002 * (step - 300)}[draw.task]
        policy.tell(Outcome(draw, loss=loss, tokens=1024))
        if step % 50 == 0:
            records.append(Diagnostics(step, policy.diagnostics()))
    sentences = told(policy, records, "ado")
    assert any("b now has the loss that falls the fastest (" in each for each in sentences)


def test_every_belief_that_is_named_is_recorded() -> None:
    for policy in (cls for cls in POLICIES if cls.beliefs):
        made = policy(["a", "b"], "a") if policy is Thompson else policy(["a", "b"])  # type: ignore[call-arg]
        assert made.beliefs.keys() <= made.diagnostics().keys(), policy


def test_nonsense_in_a_journal_and_policies_of_others_stay_without_words() -> None:
    nonsense: list[object] = [None, 3, {"a": "x"}, {"a": None}, []]
    records = [
        Diagnostics(k, {"weights": value, "kept": value}) for k, value in enumerate(nonsense)
    ]
    assert told(Exp3S(["a"]), records, "exp3s") == []
    assert told(Exp3S(["a"]), records, "mine:Mine") == []


def test_many_changes_are_cut_to_the_last() -> None:
    records = [Diagnostics(k, {"weights": {"a": k % 2, "b": 0.5}}) for k in range(200)]
    sentences = told(Exp3S(["a", "b"]), records, "exp3s")
    assert len(sentences) == MAX_EVENTS + 1
    assert sentences[0] == f"The last {MAX_EVENTS} of 199 changes:"


def test_every_policy_that_records_beliefs_has_words_for_them() -> None:
    for policy in POLICIES:
        recorded = policy.diagnostics is not Policy.diagnostics
        explained = policy.explain.__func__ is not Policy.explain.__func__  # type: ignore[attr-defined]
        assert policy.beliefs or explained or not recorded, policy.name
