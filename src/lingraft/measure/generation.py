"""What a model writes on its own: in which language, how repetitively, and with which tokens."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import regex

from lingraft.corpus.characters import script_counts, top_script
from lingraft.corpus.language_id import Guess, parse_label, scripts_of_language

__all__ = [
    "QUESTIONS",
    "Told",
    "beginning",
    "identified_as",
    "is_loop",
    "questions_in",
    "repeated_share",
    "script_of_text",
    "told_of",
]

_BEGINNING = 60
_QUESTION = regex.compile(r"(?<=^|[.!?؟。？\n])\s*([^.!?؟。？\n]{8,120}[?؟？])")
_LOOP_TIMES, _LOOP_TOKENS = 3, 12
# Standards of one tongue, or of two so close that a short text is taken for the other: neither is a wrong language.
_AS_GOOD_AS = {"id": {"ms"}, "ms": {"id"}, "ar": {"arz"}, "hr": {"sr", "bs", "sh"}, "sr": {"hr", "bs", "sh"},
               "bs": {"hr", "sr", "sh"}, "nb": {"no", "nn", "da"}, "no": {"nb", "nn", "da"}, "nn": {"no", "nb"},
               "gl": {"pt"}}  # fmt: skip

QUESTIONS: dict[str, tuple[str, ...]] = {
    "en": (
        "What is the capital of France?",
        "How is bread made?",
        "Why is the sky blue?",
        "Who wrote Don Quixote?",
        "What do bees do?",
        "How many days are there in a week?",
        "What is a computer used for?",
        "Where does rain come from?",
    ),
    "eu": (
        "Zein da Frantziako hiriburua?",
        "Nola egiten da ogia?",
        "Zergatik da urdina zerua?",
        "Nork idatzi zuen Don Kixote?",
        "Zer egiten dute erleek?",
        "Zenbat egun ditu aste batek?",
        "Zertarako erabiltzen da ordenagailua?",
        "Nondik dator euria?",
    ),
    "ar": (
        "ما هي عاصمة فرنسا؟",
        "كيف يُصنع الخبز؟",
        "لماذا السماء زرقاء؟",
        "من كتب دون كيخوتي؟",
        "ماذا يفعل النحل؟",
        "كم يومًا في الأسبوع؟",
        "فيم يُستخدم الحاسوب؟",
        "من أين يأتي المطر؟",
    ),
    "hi": (
        "फ़्रांस की राजधानी क्या है?",
        "रोटी कैसे बनाई जाती है?",
        "आसमान नीला क्यों होता है?",
        "डॉन किहोते किसने लिखा?",
        "मधुमक्खियाँ क्या करती हैं?",
        "एक सप्ताह में कितने दिन होते हैं?",
        "कंप्यूटर किस काम आता है?",
        "बारिश कहाँ से आती है?",
    ),
    "id": (
        "Apa ibu kota Prancis?",
        "Bagaimana roti dibuat?",
        "Mengapa langit berwarna biru?",
        "Siapa yang menulis Don Quixote?",
        "Apa yang dilakukan lebah?",
        "Ada berapa hari dalam seminggu?",
        "Untuk apa komputer digunakan?",
        "Dari mana datangnya hujan?",
    ),
}
"""Language → plain questions, as a user would put them to a model that is no assistant."""


@dataclass(frozen=True)
class Told:
    """What a model wrote: the ids that it made, without the document's end, and their text."""

    ids: tuple[int, ...]
    text: str


def beginning(text: str) -> str:
    """Return the first words of a text: its first line up to some 60 characters, cut at a space where there is one."""
    line = text.strip().split("\n", 1)[0]
    if len(line) <= _BEGINNING:
        return line
    cut = line[:_BEGINNING]
    return cut[: cut.rfind(" ")] if " " in cut[1:] else cut


def questions_in(texts: Iterable[str], count: int) -> list[str]:
    """Return the first ``count`` different questions that stand in some texts: what begins behind an end and has ``?``.

    This is for languages without questions of their own here (:data:`QUESTIONS`).
    """
    found: dict[str, None] = {}
    for text in texts:
        for match in _QUESTION.finditer(text):
            found[match[1].strip()] = None
            if len(found) >= count:
                return list(found)
    return list(found)


def repeated_share(ids: Sequence[int], n: int = 4) -> float:
    """Return the share of n-grams of tokens that have stood before: 1 − distinct / all; 0 where there is none."""
    grams = [tuple(ids[at : at + n]) for at in range(len(ids) - n + 1)]
    return 1 - len(set(grams)) / len(grams) if grams else 0.0


def is_loop(ids: Sequence[int]) -> bool:
    """Return whether a text ends in the same tokens at least three times in a row, over at least 12 tokens."""
    for period in range(1, len(ids) // _LOOP_TIMES + 1):
        length = max(_LOOP_TIMES * period, _LOOP_TOKENS)
        tail = ids[-length:]
        if len(tail) == length and all(tail[n] == tail[n - period] for n in range(period, length)):
            return True
    return False


def script_of_text(text: str, language: str) -> bool:
    """Return whether most letters of a text are of a script that a language is written in; False without letters."""
    script = top_script(script_counts(text))
    return script is not None and script in scripts_of_language(parse_label(language.replace("_", "-").split("-")[0]))


def identified_as(identify: Callable[[str], Guess], text: str, language: str) -> bool:
    """Return whether an identifier calls a text by a language, or by one that it cannot be told from in a few words."""
    if not text.strip():
        return False
    guess, wanted = identify(text), language.replace("_", "-").split("-")[0]
    return guess.is_plausible and guess.label.language in {wanted} | _AS_GOOD_AS.get(wanted, set())


def told_of(told: Sequence[Told], new_ids: Iterable[int]) -> dict[str, float]:
    """Return what can be counted of outputs: means of repetition, shares of loops and of empty ones, new tokens.

    ``new_token_share`` is of all tokens that were made; ``distinct_new_tokens`` is how many different ones those are.
    """
    fresh = frozenset(new_ids)
    every = [i for one in told for i in one.ids]
    made_new = [i for i in every if i in fresh]
    count = max(1, len(told))
    return {
        "repetition": sum(repeated_share(one.ids) for one in told) / count,
        "loops": sum(is_loop(one.ids) for one in told) / count,
        "empty": sum(not one.text.strip() for one in told) / count,
        "new_token_share": len(made_new) / max(1, len(every)),
        "distinct_new_tokens": float(len(set(made_new))),
    }
