"""The report: one HTML file with tables, plots and drawings that refers to nothing outside."""

from unisono.arguments import guard
from unisono.report.page import Drawing, Training, write_report

__all__ = ["Drawing", "Training", "write_report"]

guard(globals())
