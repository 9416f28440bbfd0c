"""One self-contained HTML page from run folders: it fetches nothing and runs only our scripts."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from lingraft.errors import RunFolderError
from lingraft.report.blocks import Figures, Section, section
from lingraft.report.comparison import comparison_of
from lingraft.report.data import data_of
from lingraft.report.escaping import Html, element, isolated, join
from lingraft.report.evidence import evidence_sections
from lingraft.report.frame import Content, compose_page, compose_plain_page
from lingraft.report.provenance import provenance_sections
from lingraft.report.reading import RunRecord, distinct_names, is_run_folder, read_record
from lingraft.report.rows import language_name
from lingraft.run import write_file

__all__ = ["content_of", "render_page", "write_data_page", "write_report"]


def write_report(run_folders: Sequence[Path], to: Path) -> Path:
    """Write one HTML page on one run, or on several side by side, and return its path.

    The page holds everything it needs (plotly included, about 5 MB), loads nothing from anywhere, and says
    what is missing where a run was stopped half-way. It appears whole or not at all.

    Args:
        run_folders: run folders; the first is what others are compared with.
        to: the HTML file.

    Raises:
        RunFolderError: no folder was given, or one of them is neither a finished nor a begun run.
    """
    if not run_folders:
        raise RunFolderError("a report needs at least one run folder")
    for folder in run_folders:
        if not is_run_folder(folder):
            raise RunFolderError(f"{folder} is not a run folder: it has neither recipe.yaml nor measurements.jsonl")
    write_file(to, render_page([read_record(folder) for folder in run_folders]))
    return to


def write_data_page(run_folder: Path, to: Path) -> Path:
    """Write one HTML page on the corpora of a run alone, and return its path; it needs no charts and no scripts."""
    record = read_record(run_folder)
    header = join(element("h1", isolated(record.name)), element("p", "Data report", class_="subtitle"))
    contents = element("ul", element("li", element("a", "Data", href="#data")))
    sections = section("data", "Data", data_of(record))
    content = Content(f"lingraft data: {record.name}", header, contents, sections, Figures())
    write_file(to, compose_plain_page(content))
    return to


def render_page(records: Sequence[RunRecord]) -> str:
    """Return the page on runs that have been read."""
    return compose_page(content_of(records))


def content_of(records: Sequence[RunRecord]) -> Content:
    """Return what the page says on runs that have been read; several are called by their folders."""
    figures = Figures()
    records = _named_apart(records)
    parts = [*_compared(records, figures), *evidence_sections(records, figures), *provenance_sections(records, figures)]
    parts = [part for part in parts if part.content]
    sections = join(section(*part) for part in parts)
    return Content(_title(records), _header(records), _contents(parts), sections, figures)


def _named_apart(records: Sequence[RunRecord]) -> Sequence[RunRecord]:
    folders = [record.folder for record in records if record.folder]
    if len(records) == 1 or len(folders) < len(records):
        return records
    return [replace(record, name=name) for record, name in zip(records, distinct_names(folders), strict=True)]


def _compared(records: Sequence[RunRecord], figures: Figures) -> list[Section]:
    """Return what `lingraft compare` says of several runs, or in words why it can say nothing."""
    folders = [record.folder for record in records if record.folder]
    return comparison_of(folders, figures) if len(folders) > 1 else []


def _title(records: Sequence[RunRecord]) -> str:
    return "lingraft report: " + ", ".join(record.name for record in records)


def _header(records: Sequence[RunRecord]) -> Html:
    names = join(*(join(", " if i else "", isolated(record.name)) for i, record in enumerate(records)))
    return join(element("h1", names), *(_subtitle(record, len(records) > 1) for record in records))


def _subtitle(record: RunRecord, is_one_of_many: bool) -> Html:
    if record.recipe is None:
        return Html("")
    languages, base = record.recipe.languages, record.recipe.base_model.rstrip("/").rsplit("/", 1)[-1]
    name = join(isolated(record.name), ": ") if is_one_of_many else ""
    way = f", from {language_name(languages.source)} to {language_name(languages.target)}"
    return element("p", name, isolated(base, "b"), way, class_="subtitle")


def _contents(parts: Sequence[Section]) -> Html:
    return element("ul", (element("li", element("a", part.title, href=f"#{part.identifier}")) for part in parts))
