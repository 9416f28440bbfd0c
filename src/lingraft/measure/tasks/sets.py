"""Which tasks a language is judged by where a recipe names none: ``set:eu``, ``set:ar``, ``set:hi``, ``set:id``, and
``set:en`` for what must not be forgotten.

Names are those of lm-eval 0.4.13. Shots are those of arXiv 2506.00288 and its published scripts where it used the task:
five for the Basque exams, trivia and proficiency and for ArabicMMLU, one for EusReading with its long passages, none
for stories and entailment. Its Indonesian task (IndoMMLU) is not in lm-eval; translated MMLU stands in.
"""

from lingraft.errors import RecipeError, nearest

__all__ = ["SET_PREFIX", "TASKS_TOLD", "TASK_SETS", "tasks_of_set"]

SET_PREFIX = "set:"

TASK_SETS: dict[str, tuple[tuple[str, int], ...]] = {
    "eu": (
        ("eus_trivia", 5),
        ("eus_proficiency", 5),
        ("eus_exams_eu", 5),
        ("eus_reading", 1),
        ("belebele_eus_Latn", 5),
        ("xstorycloze_eu", 0),
        ("xnli_eu", 0),
    ),
    "ar": (("arabicmmlu", 5), ("belebele_arb_Arab", 5), ("xstorycloze_ar", 0), ("xnli_ar", 0)),
    "hi": (("m_mmlu_hi", 5), ("belebele_hin_Deva", 5), ("xstorycloze_hi", 0), ("xnli_hi", 0)),
    "id": (("m_mmlu_id", 5), ("belebele_ind_Latn", 5), ("xstorycloze_id", 0), ("xcopa_id", 0)),
    "en": (("mmlu", 5), ("hellaswag", 0), ("arc_easy", 0), ("piqa", 0), ("winogrande", 0), ("lambada_openai", 0)),
}
"""Language → ``(task, shots)``."""

_BELEBELE = ("a question on a passage, four answers", "facebook/belebele")
_STORY = ("which of two sentences ends a story", "juletxara/xstory_cloze")
_ENTAILMENT = ("whether a sentence follows from, is open after, or contradicts another", "facebook/xnli")
_TRANSLATED_MMLU = ("school and university questions translated from English, four answers", "alexandrainst/m_mmlu")

TASKS_TOLD: dict[str, tuple[str, str]] = {
    "eus_trivia": ("trivia written in Basque, two to four answers", "HiTZ/EusTrivia"),
    "eus_proficiency": ("items of examinations of Basque as a language, four answers", "HiTZ/EusProficiency"),
    "eus_exams_eu": ("examinations for public posts in Basque, four answers", "HiTZ/EusExams"),
    "eus_reading": ("a question on a long Basque passage, four answers", "HiTZ/EusReading"),
    "belebele_eus_Latn": _BELEBELE,
    "xstorycloze_eu": _STORY,
    "xnli_eu": (_ENTAILMENT[0], "HiTZ/xnli-eu"),
    "arabicmmlu": ("school and university questions written in Arabic", "MBZUAI/ArabicMMLU"),
    "belebele_arb_Arab": _BELEBELE,
    "xstorycloze_ar": _STORY,
    "xnli_ar": _ENTAILMENT,
    "m_mmlu_hi": _TRANSLATED_MMLU,
    "belebele_hin_Deva": _BELEBELE,
    "xstorycloze_hi": _STORY,
    "xnli_hi": _ENTAILMENT,
    "m_mmlu_id": _TRANSLATED_MMLU,
    "belebele_ind_Latn": _BELEBELE,
    "xstorycloze_id": _STORY,
    "xcopa_id": ("which of two sentences is the cause or the effect of another", "cambridgeltl/xcopa"),
    "mmlu": ("school and university questions, four answers", "cais/mmlu"),
    "hellaswag": ("which of four endings continues an everyday scene", "Rowan/hellaswag"),
    "arc_easy": ("easy questions of school science, answers as text", "allenai/ai2_arc"),
    "piqa": ("which of two ways reaches an everyday aim", "baber/piqa"),
    "winogrande": ("which of two names a gap in a sentence stands for", "allenai/winogrande"),
    "lambada_openai": ("the last word of a passage, exactly", "EleutherAI/lambada_openai"),
}
"""Task → what it asks, and the data set of the Hugging Face hub that its items come from."""


def tasks_of_set(name: str, where: str) -> tuple[tuple[str, int], ...]:
    """Return the tasks with their shots of ``set:LANGUAGE``.

    Raises:
        RecipeError: there is no set for the language.
    """
    language = name.removeprefix(SET_PREFIX)
    if language not in TASK_SETS:
        known = ", ".join(SET_PREFIX + code for code in TASK_SETS)
        raise RecipeError(f"{where}: no set of tasks is named {name!r}{nearest(language, TASK_SETS)} (sets: {known})")
    return TASK_SETS[language]
