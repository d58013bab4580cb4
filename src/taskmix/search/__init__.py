"""The search for mixing ratios; every trial is a complete run."""

from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from taskmix.errors import UserError
from taskmix.search.ratios import RatioSpace, reduced

if TYPE_CHECKING:
    from taskmix.search.sampler import GPHedgeSampler

__all__ = ["GPHedgeSampler", "RatioSpace", "reduced"]


def check_installed() -> None:
    if any(find_spec(library) is None for library in ("optuna", "botorch")):
        raise UserError("a search needs optuna and botorch; pip install 'taskmix[search]'")


def __getattr__(name: str) -> Any:
    """Import the sampler, and with it Optuna, when it is first used."""
    if name != "GPHedgeSampler":
        raise AttributeError(f"module 'taskmix.search' has no attribute {name!r}")
    check_installed()
    from taskmix.search.sampler import GPHedgeSampler

    return GPHedgeSampler
