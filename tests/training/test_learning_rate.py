"""The default learning rate is that of pretrained encoders, and a run of another says so."""

import logging

import pytest

from taskmix.studies.plan import plan

DIGITS = {"tasks": ["digits/left", "digits/right"], "budget": {"steps": 2}}


def test_a_default_rate_with_random_weights_is_one_sentence(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with caplog.at_level(logging.WARNING):
        plan(DIGITS)
    [sentence] = [record.getMessage() for record in caplog.records]
    assert sentence.startswith("optimizer.lr: 5e-05 is for a pretrained encoder; cnn has random")


def test_a_rate_of_the_users_own_is_taken_without_a_word(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        plan({**DIGITS, "optimizer": {"lr": 3e-3}})
    assert not caplog.records
