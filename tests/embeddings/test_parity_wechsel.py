"""WECHSEL against its authors' package, wechsel 0.0.4, both reading the same vectors, counts and dictionary.

Both run from vectors to rows. The package takes gensim models, whose counts are set to what ours assumes of a file in
text form (1 / rank). What differs:

- *Old rows.* The package makes every row anew; only new tokens are compared.
- *Draws.* The package draws from numpy's generator with the seed 1234, ours from the generator that it is given.
- *Old tokens in no word.* There they have a vector of zeros, cosine 0 and may be among the ten nearest where fewer than
  ten are at an acute angle; here they are left out. Every letter is in some word here.
- *Vectors with n-grams* (fastText's .bin files) are a case of its own there; ours reads text form only.
- *Equal cosines* at the tenth place may be cut either way; words are drawn so that no two tokens share all of theirs.
"""

import random

import numpy as np
import pytest
import torch

from lingraft.embeddings import InitContext, wechsel
from lingraft.vocabulary import LearnOptions, expand_vocabulary

pytestmark = [pytest.mark.peers, pytest.mark.filterwarnings("ignore")]

LETTERS = "abcdefghijklmnopqrstuvwxyz"


def drawn_words(count, seed):
    """Words in which some pairs of letters are common, so that tokens of two letters occur in many."""
    draw = random.Random(seed)
    parts = [*LETTERS, "th", "in", "on", "ka", "rr", "tz", "eta"]
    return sorted({"".join(draw.choices(parts, k=draw.randint(2, 6))) for _ in range(count)})


def gensim_model(words, matrix):
    gensim = pytest.importorskip("gensim.models")
    model = gensim.Word2Vec(vector_size=matrix.shape[1], min_count=1)
    model.build_vocab_from_freq({word: len(words) - rank for rank, word in enumerate(words)})
    assert model.wv.index_to_key == words
    model.wv.vectors[:] = matrix.numpy()
    model.wv.expandos["count"] = 1 / np.arange(1, len(words) + 1)
    return model


def write(path, words, matrix):
    lines = [" ".join([word, *(f"{x:.9g}" for x in row)]) for word, row in zip(words, matrix.tolist(), strict=True)]
    path.write_text("\n".join([f"{len(words)} {matrix.shape[1]}", *lines]) + "\n", encoding="utf-8")
    return str(path)


def test_rows_are_the_package_s(tokenizer, tmp_path):
    package = pytest.importorskip("wechsel")
    from tokenizers import Tokenizer
    from transformers import PreTrainedTokenizerFast

    generator = torch.Generator().manual_seed(0)
    english, basque = drawn_words(600, 1), drawn_words(500, 2)
    source, target = (torch.randn(len(words), 8, generator=generator) for words in (english, basque))
    pairs = "".join(f"{one}\t{other}\n" for one, other in zip(english[::5], basque, strict=False))
    (tmp_path / "pairs.txt").write_text(pairs, encoding="utf-8")
    expansion = expand_vocabulary(tokenizer, [" ".join(basque)], [], LearnOptions(30, min_count=5))
    old = torch.randn(expansion.num_old, 16, generator=generator)

    aligned = package.WECHSEL(
        gensim_model(english, source), gensim_model(basque, target), bilingual_dictionary=str(tmp_path / "pairs.txt")
    )
    tokenizers = [
        PreTrainedTokenizerFast(tokenizer_object=Tokenizer.from_str(file.text))
        for file in (expansion.old, expansion.new)
    ]
    theirs, info = aligned.apply(*tokenizers, old.numpy(), use_subword_info=False)

    context = InitContext(expansion, old, "input", torch.Generator())
    ours = wechsel(
        context,
        source_vectors=write(tmp_path / "en.vec", english, source),
        target_vectors=write(tmp_path / "eu.vec", basque, target),
        dictionary=str(tmp_path / "pairs.txt"),
    )
    found = [place for place, token in enumerate(expansion.new_tokens) if token.id not in ours.fallbacks]
    spelling = {token.id: token.spelling for token in expansion.new_tokens}
    assert {spelling[token_id] for token_id in ours.fallbacks} == set(info.not_found) & set(spelling.values())
    assert len(found) >= 20
    wanted = torch.from_numpy(theirs)[[expansion.new_tokens[place].id for place in found]]
    torch.testing.assert_close(ours.matrix[found], wanted, rtol=0, atol=1e-5)
