"""One self-contained HTML page from run folders: it fetches nothing and runs only our scripts."""

import base64
import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from string import Template

from plotly.offline import get_plotlyjs

from lingraft.errors import RunFolderError
from lingraft.report.blocks import Figures, Section, section
from lingraft.report.data import data_of
from lingraft.report.escaping import Html, element, isolated, join, json_for_script
from lingraft.report.evidence import evidence_sections
from lingraft.report.provenance import provenance_sections
from lingraft.report.reading import RunRecord, is_run_folder, read_record
from lingraft.report.rows import language_name
from lingraft.run import write_file
from lingraft.version import __version__

__all__ = ["Content", "compose_page", "content_of", "render_page", "write_data_page", "write_report"]


@dataclass(frozen=True)
class Content:
    """What a page says, without the frame around it.

    Attributes:
        title: of the browser's window.
        header: name and subtitle.
        contents: the list of sections.
        sections: the sections, one after another.
        figures: the charts in them.
    """

    title: str
    header: Html
    contents: Html
    sections: Html
    figures: Figures


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
    write_file(to, _fill(content, plotly="", script=""))
    return to


def render_page(records: Sequence[RunRecord]) -> str:
    """Return the page on runs that have been read."""
    return compose_page(content_of(records))


def content_of(records: Sequence[RunRecord]) -> Content:
    """Return what the page says on runs that have been read."""
    figures = Figures()
    parts = [*evidence_sections(records, figures), *provenance_sections(records, figures)]
    parts = [part for part in parts if part.content]
    sections = join(section(*part) for part in parts)
    return Content(_title(records), _header(records), _contents(parts), sections, figures)


def compose_page(content: Content, *, live: Html | None = None) -> str:
    """Return a page with charts: the frame, our scripts and plotly around sections that were made.

    Args:
        content: what it says.
        live: what a page that keeps itself up to date has on top; such a page may ask the server that it came from,
            and no other. Without it the page asks nobody.
    """
    scripts = {"plotly": get_plotlyjs(), "script": _part("page.js")}
    if live is not None:
        scripts["watch"] = _part("live.js")
    # "</script" inside a script would end it; plotly has none, but a new version might.
    safe = {name: text.replace("\r\n", "\n").replace("</script", "<\\/script") for name, text in scripts.items()}
    return _fill(content, live=live, **safe)


def _fill(content: Content, *, plotly: str, script: str, watch: str = "", live: Html | None = None) -> str:
    return Template(_part("page.html")).substitute(
        policy=_policy(plotly, script, *([watch] if watch else []), connect="'self'" if watch else "'none'"),
        title=element("title", content.title),
        css=_part("page.css"),
        header=content.header,
        contents=content.contents,
        live=live or "",
        sections=content.sections,
        version=element("span", f"lingraft {__version__}"),
        figures=json_for_script(content.figures.specifications),
        plotly=plotly,
        script=script,
        watch=f"<script>{watch}</script>\n" if watch else "",
    )


def _part(name: str) -> str:
    return resources.files("lingraft.report").joinpath(name).read_text(encoding="utf-8")


def _policy(*scripts: str, connect: str) -> str:
    """Allow these scripts by their hash and nothing else: a static file's nonce could be read and copied."""
    hashes = (base64.b64encode(hashlib.sha256(script.encode()).digest()).decode() for script in scripts)
    allowed = " ".join(f"'sha256-{digest}'" for digest in hashes)
    return (
        f"default-src 'none'; script-src {allowed}; style-src 'unsafe-inline'; img-src data:; "
        f"connect-src {connect}; base-uri 'none'; form-action 'none'"
    )


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
