"""Run folders in; one HTML page or a model card out. It needs no torch."""

from lingraft.report.card import model_card
from lingraft.report.page import write_data_page, write_report
from lingraft.report.summary import summarise

__all__ = ["model_card", "summarise", "write_data_page", "write_report"]
