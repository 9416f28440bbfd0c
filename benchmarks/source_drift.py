"""How much other source text an expansion changes, beyond the text that it was told to protect.

    python benchmarks/source_drift.py TEXT...

TEXT are files of English text (jsonl, txt; .gz, .zst). The demo's tokenizer is expanded on its Basque sample with its
settings; of TEXT, the share of documents and of tokens that are cut differently is printed.
"""

import argparse
from collections.abc import Iterator
from pathlib import Path

from lingraft import load_recipe
from lingraft.corpus import Reading, Rejects, find_files, is_held_out, read_files
from lingraft.corpus.document import Document
from lingraft.model.locate import describe_base, locate_base
from lingraft.recipe import Recipe
from lingraft.vocabulary import LearnOptions, expand_vocabulary

ROOT = Path(__file__).parents[1]


def read(paths: list[str]) -> Iterator[Document]:
    """Yield the documents of text files."""
    yield from read_files(find_files(paths, "TEXT"), Reading(), corpus="TEXT", rejects=Rejects(), where="TEXT")


def training_texts(recipe: Recipe, name: str) -> list[str]:
    """Return the texts of a corpus that are not held out."""
    corpus = recipe.corpora[name]
    documents = read(list(corpus.paths))
    return [d.text for d in documents if not is_held_out(d, corpus.validation, corpus.split_by)]


def main() -> None:
    """Print the drift on each of the texts together."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("text", nargs="+")
    texts = [document.text for document in read(parser.parse_args().text)]
    recipe = load_recipe(ROOT / "recipes" / "demo.yaml")
    old = describe_base(locate_base(recipe.base_model)).tokenizer
    options = LearnOptions(recipe.vocabulary.new_tokens)
    new = expand_vocabulary(old, training_texts(recipe, "eu"), training_texts(recipe, "en"), options).new
    before, after = old.encode_batch(texts), new.encode_batch(texts)
    changed = sum(one != other for one, other in zip(before, after, strict=True))
    tokens, saved = sum(map(len, before)), sum(map(len, before)) - sum(map(len, after))
    print(f"{sum(len(text.encode()) for text in texts) / 1e6:.1f} MB, {tokens:,} tokens in {len(texts):,} documents")
    print(f"{changed:,} documents changed ({changed / len(texts):.2%}); {saved:,} tokens fewer ({saved / tokens:.4%})")


if __name__ == "__main__":
    main()
