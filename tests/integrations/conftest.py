"""The tests of all hosts are alone and offline."""

import pytest


@pytest.fixture(autouse=True)
def _alone_and_offline(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
