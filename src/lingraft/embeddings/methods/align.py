"""The mean over the ways in which the old tokenizer cut the new token where it occurs."""

from bisect import bisect_right
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import accumulate

import torch
from jaxtyping import Float
from torch import Tensor

from lingraft.batching import batches_of
from lingraft.embeddings.context import InitContext, Rows, fill_from_pieces, init_method
from lingraft.embeddings.token_text import token_bytes
from lingraft.errors import RecipeError
from lingraft.vocabulary import VocabularyExpansion

__all__ = ["align", "seen_cuts"]

_LINES_AT_ONCE = 1000


@init_method("align", reference="arXiv 2406.11477 (Align), https://github.com/gucci-j/lowres-cve", needs_text=True)
def align(context: InitContext, *, max_characters: int = 20_000_000) -> Rows:
    """Return, for each new token, the mean of the old rows that stood where it stands now, over the target text.

    row(t) = Σ_c n(c) / Σ n · 1/|c| · Σ_{s ∈ c} E[s], where c runs over the *cuts* of t, the runs of old tokens that
    cover the bytes of an occurrence of t, and n(c) counts how often each was seen. Where a vocabulary was only appended
    to by merges, a token has one cut, its pieces, and this is ``subword_mean``. It has more where new tokens outrank
    old ones: by their scores (Unigram), or when one that gave way still occurs. An old token at the border of a cut may
    reach beyond it. Tokens that do not occur get the mean of their pieces.

    The authors' code differs: it takes an old token only if it lies inside the new one or holds it, counts a token once
    a text, and gives tokens that do not occur what following their merges gives.

    Args:
        context: what every method sees; the target text is read.
        max_characters: read no more text than this.

    Raises:
        RecipeError: ``max_characters`` is under 1.
    """
    if max_characters < 1:
        raise RecipeError(f"embeddings.{context.side}.max_characters: at least 1 is needed, not {max_characters}")
    cuts = seen_cuts(context.expansion, _lines(context.texts(), max_characters))
    places = [place for place, token in enumerate(context.expansion.new_tokens) if cuts[token.id]]
    rows = [_mean_of_cuts(context.old, cuts[context.expansion.new_tokens[place].id]) for place in places]
    reasons = dict.fromkeys(context.expansion.new_ids, "it does not occur in the target text that was read")
    found = torch.stack(rows) if rows else context.old.new_zeros(0, context.old.shape[1])
    return fill_from_pieces(context, found, places, reasons)


def _mean_of_cuts(old: Float[Tensor, "old_vocab dim"], cuts: Mapping[tuple[int, ...], int]) -> Float[Tensor, " dim"]:
    weight = {cut: count / sum(cuts.values()) for cut, count in cuts.items()}
    ids = torch.tensor([piece for cut in weight for piece in cut])
    shares = torch.tensor([weight[cut] / len(cut) for cut in weight for _ in cut], dtype=old.dtype)
    return shares @ old[ids]


def _lines(texts: Iterable[str], max_characters: int) -> Iterator[str]:
    """Yield lines, so that a character that the old tokenizer did not know spoils one line and not a document."""
    number = 0
    for text in texts:
        for line in text.splitlines():
            number += len(line)
            if number > max_characters:
                return
            yield line


def seen_cuts(expansion: VocabularyExpansion, lines: Iterable[str]) -> dict[int, Counter[tuple[int, ...]]]:
    """Return id of a new token → the runs of old ids that covered it, and how often each was seen.

    Both tokenizers cut the same bytes, which is how their tokens are laid over each other: to the byte, also within a
    character. A line that holds a token without bytes (an unknown character) in either of them is left out.
    """
    cuts: defaultdict[int, Counter[tuple[int, ...]]] = defaultdict(Counter)
    old_bytes, new_bytes = token_bytes(expansion.old), token_bytes(expansion.new)
    wanted = frozenset(expansion.new_ids)
    for batch in batches_of(lines, _LINES_AT_ONCE):
        pairs = zip(expansion.old.encode_batch(batch), expansion.new.encode_batch(batch), strict=True)
        for old_ids, new_ids in pairs:
            if wanted.isdisjoint(new_ids):
                continue
            old_ends, new_ends = _ends(old_ids, old_bytes), _ends(new_ids, new_bytes)
            if old_ends is None or new_ends is None or old_ends[-1] != new_ends[-1]:
                continue
            for position, token_id in enumerate(new_ids):
                if token_id in wanted:
                    first = bisect_right(old_ends, new_ends[position] - len(new_bytes[token_id]))
                    last = bisect_right(old_ends, new_ends[position] - 1)
                    cuts[token_id][tuple(old_ids[first : last + 1])] += 1
    return cuts


def _ends(ids: Sequence[int], raw: Mapping[int, bytes]) -> list[int] | None:
    """Return where each token ends, in bytes; None if one of them has none."""
    if not all(token_id in raw for token_id in ids):
        return None
    return list(accumulate(len(raw[token_id]) for token_id in ids))
