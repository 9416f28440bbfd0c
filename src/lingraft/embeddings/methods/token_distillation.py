"""Rows that make the base model's hidden states what they were with the pieces."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import islice
from typing import Any

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from lingraft.batching import batches_of
from lingraft.embeddings.context import InitContext, Rows, fill_from_pieces, init_method
from lingraft.errors import ModelError, RecipeError, nearest
from lingraft.polling import poll
from lingraft.vocabulary import VocabularyExpansion

__all__ = ["Snippet", "cut_snippets", "distance", "token_distillation"]

_TEXTS_AT_ONCE = 64
_NO_NEW = -1
_OUTPUTS = ("subword_mean", "cross_entropy")
_NO_SNIPPET = "no snippet of the text holds it"
_NO_STEP = "the steps ended before it had its turn"


@dataclass(frozen=True)
class Snippet:
    """A stretch of target text in which one new token is to be learned.

    Attributes:
        place: of the token among the new tokens.
        ids: as the new tokenizer cuts the stretch.
    """

    place: int
    ids: tuple[int, ...]


@init_method(
    "token_distillation",
    reference="arXiv 2505.20133",
    needs_text=True,
    runs_base=True,
    choices={"output": _OUTPUTS},
)
def token_distillation(
    context: InitContext,
    *,
    steps: int = 0,
    snippets: int = 100,
    length: int = 50,
    batch: int = 16,
    lr: float = 1e-4,
    norm_limit: float = 1.2,
    output: str = "subword_mean",
    max_texts: int = 100_000,
) -> Rows:
    """Return rows that are trained until the base model's last hidden states are what the old pieces made them.

    From the mean of its pieces, the row of each new token t is moved by AdamW (``lr``, no decay) to make
    Σⱼ ‖h(x with t merged)ⱼ − h(x with pieces)ₐ₍ⱼ₎‖² / dim small, in snippets x of the target text that hold t, j being
    the first merged position and all after it, and a(j) the last piece of what stands at j (Token Distillation, arXiv
    2505.20133, sec. 3). Within a snippet only t is merged, other new tokens are spelled by their pieces. Only the new
    rows are parameters: the base model is run, never changed. A token that no snippet holds, or none that had its turn,
    keeps the mean, and is on record as a fallback. ``steps`` of 0 is once over all snippets.

    The paper learns input rows. In a tied model the row is the head's row too, where a longer row takes probability
    from all others; so there a row may grow to ``norm_limit`` times the length that it began with, and is cut back to
    it after each step. That does not make a high ``lr`` safe: the objective does not see the head. (SmolLM2-135M, tied,
    300 Basque tokens, 100 steps of 8: bits per byte of Basque went from 2.894 to 2.882 at 1e-3, to 3.800 at 5e-3.)

    For the output matrix of an untied model ``output`` is ``subword_mean``, or ``cross_entropy``: −log p(next token)
    over old and new rows in the same snippets, with all new tokens merged, read from the hidden
    states of the base model with the pieces; the old rows stand still.

    Raises:
        RecipeError: an option has no meaning.
        ModelError: the base model is not at hand, or looks up its rows in a way that is not supported.
    """
    _refuse_options(steps, snippets, length, batch, lr, norm_limit, output, max_texts)
    start = _means(context, ())
    if context.side == "output" and output == "subword_mean":
        return Rows(start.matrix)
    if context.base_model is None:
        raise ModelError("token_distillation runs the base model, and was given none")
    texts = islice(context.texts(), max_texts)
    found = cut_snippets(context.expansion, texts, snippets, length)
    model = context.base_model()
    batches = [[found[i] for i in chosen] for chosen in _batches(len(found), steps, batch, context.generator)]
    with _standing_still(model):
        # Only a row that is the head's row too takes probability from others by being long.
        limit = norm_limit if context.side == "input" and _is_tied(model) else torch.inf
        rows = _learn(model, context, start.matrix, batches, lr, limit)
    learned = {context.expansion.new_tokens[snippet.place].id for batch in batches for snippet in batch}
    fallbacks = _means(context, found).fallbacks
    return Rows(rows, {token_id: why for token_id, why in fallbacks.items() if token_id not in learned})


def _means(context: InitContext, found: Sequence[Snippet]) -> Rows:
    """Return the mean of its pieces for each new token, and why it would be left at that."""
    tokens = context.expansion.new_tokens
    waiting = {tokens[snippet.place].id: _NO_STEP for snippet in found}
    return fill_from_pieces(context, context.old[:0], (), {t.id: waiting.get(t.id, _NO_SNIPPET) for t in tokens})


def _refuse_options(
    steps: int, snippets: int, length: int, batch: int, lr: float, norm_limit: float, output: str, max_texts: int
) -> None:
    least = {"steps": (steps, 0), "snippets": (snippets, 1), "length": (length, 2), "batch": (batch, 1)}
    for name, (value, minimum) in (least | {"max_texts": (max_texts, 1)}).items():
        if value < minimum:
            raise RecipeError(f"token_distillation: {name} is {value}; it must be at least {minimum}")
    if lr <= 0 or norm_limit < 1:
        raise RecipeError(
            f"token_distillation: lr is {lr} and norm_limit {norm_limit}; lr must be above 0, norm_limit at least 1"
        )
    if output not in _OUTPUTS:
        known = ", ".join(_OUTPUTS)
        raise RecipeError(f"token_distillation: output is {output!r}{nearest(output, _OUTPUTS)} (known: {known})")


# Snippets -------------------------------------------------------------------------------------------------------------


def cut_snippets(expansion: VocabularyExpansion, texts: Iterable[str], most: int, length: int) -> list[Snippet]:
    """Return up to ``most`` snippets for each new token, each at most ``length`` old tokens long.

    Texts are cut one behind the other into stretches, between tokens; a stretch is a snippet of every new token in it
    that has not enough yet. Stretches are shared, so memory grows with the text that is kept.
    """
    places = {token.id: place for place, token in enumerate(expansion.new_tokens)}
    pieces = {token.id: token.pieces for token in expansion.new_tokens}
    lacking = dict.fromkeys(places, most)
    found = []
    for batch in batches_of(texts, _TEXTS_AT_ONCE):
        for ids in expansion.new.encode_batch(batch):
            for stretch in _stretches(ids, pieces, length):
                for token_id in sorted(lacking.keys() & set(stretch)):
                    found.append(Snippet(places[token_id], stretch))
                    lacking[token_id] -= 1
                    if not lacking[token_id]:
                        del lacking[token_id]
        if not lacking:
            break
    return found


def _stretches(ids: Sequence[int], pieces: dict[int, tuple[int, ...]], length: int) -> Iterator[tuple[int, ...]]:
    """Yield the ids in runs that have at most ``length`` pieces; a longer token is left out."""
    run: list[int] = []
    room = length
    for token_id in ids:
        size = len(pieces.get(token_id, (token_id,)))
        if size > room:
            yield tuple(run)
            run, room = [], length
        if size <= room:
            run.append(token_id)
            room -= size
    yield tuple(run)


def _batches(count: int, steps: int, size: int, generator: torch.Generator) -> Iterator[list[int]]:
    """Yield which snippets each step takes: every snippet once, in random order, before any comes again."""
    wanted = steps or -(-count // size)
    queue: list[int] = []
    while wanted and count:
        while len(queue) < min(size, count):
            queue += torch.randperm(count, generator=generator).tolist()
        yield queue[:size]
        queue, wanted = queue[size:], wanted - 1


# The two spellings of a snippet ---------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Spelled:
    """A batch of snippets in pieces and merged, filled up on the right.

    Attributes:
        pieces: old ids.
        merged: old ids, with the first piece standing in where a new token is.
        places: of the new token at each merged position, −1 for none.
        last: for each merged position, where in ``pieces`` its last piece is.
        scored: positions that the objective sees.
    """

    pieces: Int[Tensor, "batch long"]
    merged: Int[Tensor, "batch short"]
    places: Int[Tensor, "batch short"]
    last: Int[Tensor, "batch short"]
    scored: Bool[Tensor, "batch short"]


def _spell(
    snippets: Sequence[Snippet], expansion: VocabularyExpansion, *, merge_all: bool, device: torch.device
) -> _Spelled:
    tokens = {token.id: (place, token.pieces) for place, token in enumerate(expansion.new_tokens)}
    lead = expansion.old.leading_ids()
    columns: list[list[list[int]]] = [[], [], [], [], []]
    for snippet in snippets:
        pieces, merged, places = list(lead), list(lead), [_NO_NEW] * len(lead)
        last = list(range(len(lead)))
        for token_id in snippet.ids:
            place, spelled = tokens.get(token_id, (_NO_NEW, (token_id,)))
            is_merged = merge_all or place == snippet.place
            for unit in [spelled] if is_merged else [(piece,) for piece in spelled]:
                pieces += unit
                merged.append(unit[0])
                places.append(place if is_merged else _NO_NEW)
                last.append(len(pieces) - 1)
        # What stands before the first merged token cannot differ.
        first = next((at for at, place in enumerate(places) if place != _NO_NEW), len(places))
        scored = [int(at >= first) for at in range(len(places))]
        for column, values in zip(columns, (pieces, merged, places, last, scored), strict=True):
            column.append(values)
    filled = [_filled(column, fill, device) for column, fill in zip(columns, (0, 0, _NO_NEW, 0, 0), strict=True)]
    return _Spelled(filled[0], filled[1], filled[2], filled[3], filled[4].bool())


def _filled(rows: Sequence[Sequence[int]], fill: int, device: torch.device) -> Int[Tensor, "batch position"]:
    width = max(len(row) for row in rows)
    return torch.tensor([[*row, *[fill] * (width - len(row))] for row in rows], device=device)


# The base model -------------------------------------------------------------------------------------------------------


@contextmanager
def _standing_still(model: nn.Module) -> Iterator[None]:
    """Take the model out of training and of every gradient inside; leave it as it was."""
    training, wanted = model.training, [parameter.requires_grad for parameter in model.parameters()]
    model.eval().requires_grad_(False)
    try:
        yield
    finally:
        model.train(training)
        for parameter, wants in zip(model.parameters(), wanted, strict=True):
            parameter.requires_grad_(wants)


def _scale_of(embedding: nn.Module) -> float:
    """Return what the model multiplies its rows by when it looks them up (Gemma's √dim, for others 1)."""
    given: Any = embedding
    scale = float(getattr(given, "embed_scale", 1.0))
    some = torch.arange(min(8, len(given.weight)), device=given.weight.device)
    with torch.no_grad():
        looked_up, wanted = given(some).float(), given.weight[some].float() * scale
    if not torch.allclose(looked_up, wanted, rtol=1e-2):
        raise ModelError(f"{type(embedding).__name__} looks up its rows in a way that token_distillation does not know")
    return scale


def _states(model: nn.Module, ids: Int[Tensor, "batch position"]) -> Float[Tensor, "batch position dim"]:
    """Return the states that the head reads. No mask: what fills up stands on the right, where nothing looks."""
    given: Any = model
    states: Tensor = given.base_model(input_ids=ids, use_cache=False).last_hidden_state
    return states.float()


@contextmanager
def _with_rows(model: nn.Module, rows: Float[Tensor, "new dim"], places: Int[Tensor, "batch short"]) -> Iterator[None]:
    """Put new rows where the model has just looked up stand-ins, for the forward passes inside."""
    given: Any = model
    embedding = given.get_input_embeddings()
    scale = _scale_of(embedding)

    def replace(_module: nn.Module, _inputs: Any, output: Tensor) -> Tensor:
        # The look-up of functional.embedding, unlike indexing, adds up its gradient in one order.
        new = nn.functional.embedding(places.clamp_min(0), rows).to(output.dtype) * scale
        return torch.where((places == _NO_NEW)[..., None], output, new)

    hook = embedding.register_forward_hook(replace)
    try:
        yield
    finally:
        hook.remove()


# Learning -------------------------------------------------------------------------------------------------------------


def distance(
    model: nn.Module, expansion: VocabularyExpansion, rows: Float[Tensor, "new dim"], snippets: Sequence[Snippet]
) -> Float[Tensor, ""]:
    """Return the objective: the mean squared difference of last hidden states, from the first merged position on."""
    spelled = _spell(snippets, expansion, merge_all=False, device=_device(model))
    with torch.no_grad():
        wanted = _states(model, spelled.pieces)
    with _with_rows(model, rows, spelled.places):
        got = _states(model, spelled.merged)
    wanted = wanted.gather(1, spelled.last[..., None].expand(-1, -1, wanted.shape[2]))
    return nn.functional.mse_loss(got[spelled.scored], wanted[spelled.scored])


_Loss = Callable[[nn.Module, VocabularyExpansion, Tensor, Sequence[Snippet]], Tensor]


def _learn(
    model: nn.Module,
    context: InitContext,
    start: Float[Tensor, "new dim"],
    batches: Sequence[Sequence[Snippet]],
    lr: float,
    norm_limit: float,
) -> Float[Tensor, "new dim"]:
    """Return the rows after one step of AdamW a batch; a row that is too long is cut back after each step."""
    loss: _Loss = distance if context.side == "input" else _next_token_loss
    rows = nn.Parameter(start.detach().clone().float().to(_device(model)))
    longest = rows.detach().norm(dim=1, keepdim=True) * norm_limit
    optimizer = torch.optim.AdamW([rows], lr=lr, weight_decay=0.0)
    for batch in batches:
        poll()
        optimizer.zero_grad()
        loss(model, context.expansion, rows, batch).backward()  # type: ignore[no-untyped-call]
        optimizer.step()
        with torch.no_grad():
            rows.mul_((longest / rows.norm(dim=1, keepdim=True)).clamp_max(1).nan_to_num(1.0))
    return rows.detach().to(start.device, start.dtype)


def _next_token_loss(
    model: Any, expansion: VocabularyExpansion, rows: Float[Tensor, "new dim"], snippets: Sequence[Snippet]
) -> Float[Tensor, ""]:
    """Return −log p(next token) with all new tokens merged, states being those of the base model with the pieces."""
    spelled = _spell(snippets, expansion, merge_all=True, device=_device(model))
    head = model.get_output_embeddings()
    with torch.no_grad():
        states = model.base_model(input_ids=spelled.pieces, use_cache=False).last_hidden_state
        states = states.gather(1, spelled.last[..., None].expand(-1, -1, states.shape[2]))[:, :-1]
        inside = torch.arange(spelled.merged.shape[1], device=states.device)[None, 1:] < _lengths(spelled)[:, None]
        states = states[inside]
        # A token that gave way has no probability any more: its id is a new token's.
        taken = [token_id for token_id in expansion.new_ids if token_id < expansion.num_old]
        old = head(states)[:, : expansion.num_old].float()
    bias = 0.0 if getattr(head, "bias", None) is None else head.bias.mean()
    logits = torch.cat([old, states.float() @ rows.T + bias], dim=1)
    softcap = getattr(model.config.get_text_config(), "final_logit_softcapping", None)
    logits = logits if softcap is None else softcap * torch.tanh(logits / softcap)
    logits = logits.index_fill(1, torch.tensor(taken, dtype=torch.long, device=logits.device), -torch.inf)
    wanted = torch.where(spelled.places == _NO_NEW, spelled.merged, spelled.places + expansion.num_old)[:, 1:][inside]
    return nn.functional.cross_entropy(logits, wanted)


def _lengths(spelled: _Spelled) -> Int[Tensor, "batch"]:
    """Return how many merged positions of each snippet are no filling; every snippet ends in a scored one."""
    positions = torch.arange(1, spelled.scored.shape[1] + 1, device=spelled.scored.device)
    return (spelled.scored * positions).amax(dim=1)


def _is_tied(model: Any) -> bool:
    head = model.get_output_embeddings()
    return head is not None and head.weight.data_ptr() == model.get_input_embeddings().weight.data_ptr()


def _device(model: Any) -> torch.device:
    device: torch.device = model.get_input_embeddings().weight.device
    return device
