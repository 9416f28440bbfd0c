"""What the model does when it is used: downstream tasks, what it writes, and the alarms that training raised."""

import re
from collections.abc import Sequence

from lingraft.measurement import Measurement
from lingraft.quantities import format_tokens
from lingraft.report.blocks import Figures, table
from lingraft.report.charts import over_runs, stage_marks
from lingraft.report.drawing import Chart, line_chart
from lingraft.report.escaping import Html, element, isolated, join
from lingraft.report.lenient import shown
from lingraft.report.measured import measured_table
from lingraft.report.metrics import metric_of
from lingraft.report.reading import RunRecord
from lingraft.report.rows import UNTRAINED, language_name, names_of

__all__ = ["alarm_name", "alarms_in", "checks_of", "tasks_of"]

_TASK_SCORES = ("acc", "acc_norm", "acc_bytes", "exact_match", "accuracy", "f1")
_ALARMS_SHOWN = 50
_ABOUT_WRITING = (
    "The model was given beginnings of held-out documents to go on with, and plain questions in the target language. "
    "A base model often answers in the language that it knows best; an adapted one should not."
)
_MOMENTS = 3


def tasks_of(records: Sequence[RunRecord], figures: Figures) -> Html:
    """Return downstream tasks and the perplexity of their labels; nothing where neither was measured."""
    tasks = measured_table(records, "task/.*", "Downstream tasks", quiet=True)
    labels = measured_table(records, "label_perplexity/.*", "Perplexity of labels under their prompts", quiet=True)
    if not tasks and not labels:
        return Html("")
    charts = _charts(records, "task/.*", _TASK_SCORES) + _charts(records, "label_perplexity/.*", ("gold",))
    about = (
        "Scores of tasks have the names that the evaluation gives them: acc is the share of items whose right answer "
        "is the most probable, acc_norm the same with the log-probability divided by characters, acc_bytes by bytes. "
        "The perplexity of labels is an early sign of forgetting (arXiv 2506.00288): it moves before the score does."
    )
    return join(element("p", about), figures.grid(charts), tasks, labels)


def checks_of(records: Sequence[RunRecord], figures: Figures) -> Html:
    """Return what the model writes, and the alarms; nothing where neither was watched."""
    wrote = measured_table(records, "generation/.*", "What the model writes on its own", quiet=True)
    alarms = [each for record in records if (each := _alarms(record, len(records) > 1))]
    if not (wrote or alarms):
        return Html("")
    charts = _charts(records, "generation/.*", ("target_share", "in_target", "repetition"))
    silent = "" if alarms else element("p", "No alarm was raised in training.")
    about = element("p", _ABOUT_WRITING) if wrote else ""
    return join(alarms, silent, about, figures.grid(charts), wrote)


def _charts(records: Sequence[RunRecord], pattern: str, scores: Sequence[str]) -> list[Chart]:
    """Return a chart for each thing that has one of the scores, by the first it has; none of fewer than 3 moments."""
    keys = dict.fromkeys(key for record in records for key in names_of(record.rows) if re.fullmatch(pattern, key[0]))
    ranked = [key for score in scores for key in keys if key[0].rpartition("/")[2] == score]
    chosen = {(name.rpartition("/")[0], language): (name, language) for name, language in reversed(ranked)}
    charts = []
    for name, language in reversed(chosen.values()):
        metric, series = metric_of(name), over_runs(records, name, language)
        if metric is None or max(len(s.points) for s in series) < _MOMENTS:
            continue
        of = f", {language_name(language)}" if language else ""
        title = shown(metric.words(name), 80) + of
        better = f"{metric.better.capitalize()} is better." if metric.better else ""
        charts.append(line_chart(title, better, "", series, stage_marks(records), metric.unit))
    return charts


def alarms_in(record: RunRecord) -> list[Measurement]:
    """Return the alarms that were raised in training, in the order in which they were: rows ``alarm/…`` not 0."""
    rows = (row for row in record.rows if re.fullmatch("alarm/.+", row.name) and row.stage not in UNTRAINED)
    return [row for row in rows if row.value]


def alarm_name(row: Measurement) -> str:
    """Return what an alarm is about, in words."""
    kind = row.name.partition("/")[2]
    return _ALARMS.get(kind, shown(kind.replace("_", " "), 60))


_ALARMS = {
    "forgetting/icl": "forgetting: in-context learning fell by this share",
    "forgetting/source": "forgetting: source text costs this much more",
    "forgetting/shift": "forgetting: weights moved this far",
    "forgetting/accepted": "the alarms of this moment were accepted",
    "loss": "the loss leapt",
    "norm": "the gradient's norm leapt",
}


def _alarms(record: RunRecord, is_one_of_many: bool) -> Html:
    found = alarms_in(record)
    if not found:
        return Html("")
    rows = [
        (alarm_name(row), isolated(shown(row.stage, 60)), format_tokens(row.tokens), f"{row.value:g}")
        for row in found[:_ALARMS_SHOWN]
    ]
    title = "Alarms raised in training" + (f": {shown(record.name, 60)}" if is_one_of_many else "")
    more = f"; the first {_ALARMS_SHOWN} of {len(found):,}" if len(found) > _ALARMS_SHOWN else ""
    return table(title + more, ("alarm", "stage", "after tokens", "value"), rows)
