"""Everything measured that no other section shows: nothing that was measured is left out silently."""

import re
from collections.abc import Sequence
from dataclasses import replace

from lingraft.report.escaping import Html, element, join
from lingraft.report.measured import measured_table
from lingraft.report.reading import RunRecord
from lingraft.report.rows import Rows

__all__ = ["leftovers_of"]

_SHOWN = re.compile(
    "bits_per_byte(/.*)?|nats_per_token|token_perplexity|probe/[^/]+/.+|task/.*|label_perplexity/.*|shift/mean_l2|"
    "shift/mean_relative_l2|shift/[^/]+/(relative_l2|cosine|row_cosine|row_cosine_low)|shift/layer/[^/]+/[^/]+/relative_l2|"
    "drift/.*|generation/.*|alarm/.*|fertility|tokens_per_byte|tokens_per_character|segmentation_drift.*|new_token_mass|"
    "new_token_nats|norm/[^/]+/(old|script|new)|averaged/(bits_per_byte|probe/random_copy/accuracy|"
    "probe/random_copy/nll_drop|probe/copain/(exact_match|validity|element_picker)|shift/mean_l2)"
)


def leftovers_of(records: Sequence[RunRecord]) -> Html:
    """Return a table of what has no place elsewhere; nothing where there is no such thing."""
    rest = [replace(r, rows=Rows(row for row in r.rows if not _SHOWN.fullmatch(row.name))) for r in records]
    found = measured_table(rest, ".*", "Measurements by their names, as they were written", quiet=True)
    return (
        join(element("p", "What was measured besides, under the names it was written with."), found) if found else found
    )
