"""A run as its averaged weights tell it: the same record, with the averaged rows in the raw ones' place."""

from dataclasses import replace

from lingraft.report.reading import RunRecord
from lingraft.report.rows import Rows

__all__ = ["averaged_record"]

_MARK = "averaged/"


def averaged_record(record: RunRecord) -> RunRecord | None:
    """Return a record whose rows are of averaged weights wherever there are such; None where there are none.

    Rows before training, and what was measured of the raw weights only, stay as they are.
    """
    averaged = {(r.stage, r.tokens, r.name.removeprefix(_MARK)) for r in record.rows if r.name.startswith(_MARK)}
    if not averaged:
        return None
    kept = [row for row in record.rows if (row.stage, row.tokens, row.name) not in averaged]
    rows = Rows(replace(row, name=row.name.removeprefix(_MARK)) for row in kept)
    return replace(record, rows=rows)
