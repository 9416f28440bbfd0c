"""Raw text → documents → tokens."""

from lingraft.corpus.bad_values import Reading
from lingraft.corpus.characters import count_words, script_histogram
from lingraft.corpus.cleaning import Cleaning, LanguageCheck, clean
from lingraft.corpus.document import Document, Rejects, RejectSample
from lingraft.corpus.hub import DatasetName, read_dataset
from lingraft.corpus.near_duplicates import NearDuplicates
from lingraft.corpus.overlap import Overlap
from lingraft.corpus.prepare import Preparation, find_place, prepare_corpus, read_prepared, source_fingerprint
from lingraft.corpus.quality import quality_filters
from lingraft.corpus.readers import read_files
from lingraft.corpus.sources import find_files
from lingraft.corpus.split import is_held_out
from lingraft.corpus.store import TokenStore, build_store, open_store, store_name

__all__ = [
    "Cleaning",
    "DatasetName",
    "Document",
    "LanguageCheck",
    "NearDuplicates",
    "Overlap",
    "Preparation",
    "Reading",
    "RejectSample",
    "Rejects",
    "TokenStore",
    "build_store",
    "clean",
    "count_words",
    "find_files",
    "find_place",
    "is_held_out",
    "open_store",
    "prepare_corpus",
    "quality_filters",
    "read_dataset",
    "read_files",
    "read_prepared",
    "script_histogram",
    "source_fingerprint",
    "store_name",
]
