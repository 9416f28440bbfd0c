"""The frame of a page: one HTML file that holds its charts, its scripts and its policy, and loads nothing."""

import base64
import hashlib
from dataclasses import dataclass
from importlib import resources
from string import Template

from plotly.offline import get_plotlyjs

from lingraft.report.blocks import Figures
from lingraft.report.escaping import Html, element, json_for_script
from lingraft.version import __version__

__all__ = ["Content", "compose_page", "compose_plain_page"]


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


def compose_plain_page(content: Content) -> str:
    """Return a page without charts and without scripts."""
    return _fill(content, plotly="", script="")


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
