"""Figures and the HTML report. Importing the room loads neither torch nor plotly."""

from taskmix.report.history import History, read_history
from taskmix.report.page import write_comparison_report, write_run_report

__all__ = ["History", "read_history", "write_comparison_report", "write_run_report"]
