"""FOCUS against its authors' package, deepfocus 1.0.1, the vectors of tokens being given.

The package is run as a whole; only the training of fastText is replaced by the vectors that both sides get. What differs,
and is kept out of the comparison by what the vectors hold:

- *Old rows.* The package looks up old tokens by what they decode to without white space, so all single bytes of a
  character count as one token, and so do space, tab and line break; it mixes from the first one's row, and copies that to
  all of them. Ours goes by id. Here only tokens that are clean text and more than white space get vectors.
- *Draws.* Tokens without a vector are drawn one by one there, and σ divides by n − 1 there, by n here.
- *Which tokens are mixed.* With ``extend_tokenizer`` the package takes those that a second tokenizer of the target
  language has; ours takes all that occur in the target text.
"""

import numpy as np
import pytest
import torch

from lingraft.embeddings import InitContext, Vectors
from lingraft.embeddings.methods.focus import rows_from_vectors, sparsemax
from lingraft.embeddings.token_text import token_texts
from lingraft.vocabulary import LearnOptions, expand_vocabulary

pytestmark = [pytest.mark.peers, pytest.mark.filterwarnings("ignore")]

BASQUE = [
    "Dokumentu bat irekitzeko, hautatu Fitxategia eta ondoren Ireki.",
    "Gelaxka batek zenbaki bat eduki dezake.",
] * 12


def test_sparsemax_is_entmax():
    entmax = pytest.importorskip("entmax")
    scores = torch.randn(64, 300, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    torch.testing.assert_close(sparsemax(scores), entmax.sparsemax(scores, dim=1), rtol=0, atol=1e-12)


def test_rows_are_the_package_s(tokenizer, monkeypatch):
    package = pytest.importorskip("deepfocus.focus")
    from tokenizers import Tokenizer
    from transformers import PreTrainedTokenizerFast

    expansion = expand_vocabulary(tokenizer, BASQUE, [], LearnOptions(30, min_count=5))
    generator = torch.Generator().manual_seed(0)
    clean = {token_id for token_id, text in token_texts(expansion.new).items() if text.strip()}
    words = [word for word, token_id in expansion.new.vocabulary.items() if token_id in clean]
    matrix = torch.randn(len(words), 12, generator=generator)
    old = torch.randn(expansion.num_old, 16, generator=generator)

    given = dict(zip(words, matrix.numpy().astype(np.float32), strict=True))
    monkeypatch.setattr(package, "load_target_token_embedding", lambda **_: given)
    source, target = (
        PreTrainedTokenizerFast(tokenizer_object=Tokenizer.from_str(file.text))
        for file in (expansion.old, expansion.new)
    )
    theirs = package.FOCUS(target, source, old, fasttext_model_path="given", verbosity="silent")

    context = InitContext(expansion, old, "input", torch.Generator())
    ours = rows_from_vectors(context, Vectors({word: row for row, word in enumerate(words)}, matrix))
    new_ids = [token.id for token in expansion.new_tokens]
    assert not ours.fallbacks
    torch.testing.assert_close(ours.matrix, theirs[new_ids], rtol=0, atol=1e-5)
    moved = (theirs[: expansion.num_old] != old).any(dim=1).sum().item()
    assert moved > 0
