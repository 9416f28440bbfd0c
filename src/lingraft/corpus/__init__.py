"""Raw text → documents → tokens."""

from lingraft.corpus.cleaning import clean, count_words, script_histogram
from lingraft.corpus.document import Document, Rejects, RejectSample
from lingraft.corpus.hub import read_hub
from lingraft.corpus.prepare import prepare_corpus, read_prepared, source_fingerprint
from lingraft.corpus.readers import read_files
from lingraft.corpus.sources import find_files
from lingraft.corpus.split import find_leakage, is_held_out
from lingraft.corpus.store import TokenStore, build_store, open_store, store_name

__all__ = [
    "Document",
    "RejectSample",
    "Rejects",
    "TokenStore",
    "build_store",
    "clean",
    "count_words",
    "find_files",
    "find_leakage",
    "is_held_out",
    "open_store",
    "prepare_corpus",
    "read_files",
    "read_hub",
    "read_prepared",
    "script_histogram",
    "source_fingerprint",
    "store_name",
]
