"""Which tasks a language is judged by where a recipe names none: ``set:eu``, ``set:ar``, ``set:hi``, ``set:id``, and
``set:en`` for what must not be forgotten.

Names are those of lm-eval 0.4.13. Shots are those of arXiv 2506.00288 and its published scripts where it used the task:
five for the Basque exams, trivia and proficiency and for ArabicMMLU, one for EusReading with its long passages, none
for stories and entailment. Its Indonesian task (IndoMMLU) is not in lm-eval; translated MMLU stands in.
"""

from lingraft.errors import RecipeError, nearest

__all__ = ["SET_PREFIX", "TASK_SETS", "tasks_of_set"]

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
