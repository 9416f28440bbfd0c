"""The vocabulary step of a recipe: samples, protected text, second tokenizers, several languages, patterns."""

import json

import pytest
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

from lingraft.errors import GateError, RunFolderError, VocabularyError
from lingraft.pipeline.adapt import adapt, expand_tokenizer
from lingraft.pipeline.expanding import second_tokenizer
from lingraft.pipeline.progress import Silent
from lingraft.vocabulary import FertilityCurve

HINDI = [
    "दस्तावेज़ खोलने के लिए फ़ाइल चुनें और फिर खोलें दबाएँ।",
    "कक्ष में संख्या, पाठ या सूत्र हो सकता है और पत्रक उसका मान दिखाता है।",
    "बटन दबाने पर विंडो बंद हो जाती है और सेटिंग सहेजी जाती हैं।",
] * 16


class Notes(Silent):
    """Keeps what it is told."""

    def __init__(self):
        self.notes = []

    def note(self, text):
        self.notes.append(text)


def expansion_of(run):
    return json.loads(run.path("vocabulary", "expansion.json").read_text(encoding="utf-8"))


@pytest.fixture(scope="module")
def hindi(tmp_path_factory):
    path = tmp_path_factory.mktemp("hindi") / "hi.jsonl"
    lines = [json.dumps({"text": f"{text} {n}"}, ensure_ascii=False) for n, text in enumerate(HINDI)]
    path.write_text("\n".join(lines), encoding="utf-8")
    return path


def second_text(texts):
    """Return another byte-level BPE, trained on the target text."""
    made = Tokenizer(models.BPE())
    made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    made.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    made.train_from_iterator(texts, trainers.BpeTrainer(vocab_size=500, initial_alphabet=alphabet, show_progress=False))
    return made.to_str()


def in_hindi(hindi):
    """Return overrides that add a Hindi corpus to the recipe."""
    return (f"corpora.hi={{path: {hindi}, validation: 20%, max_epochs: 500}}",)


def test_record_tells_what_was_seen_cut_and_pinned(make_recipe, tmp_path):
    run = adapt(make_recipe(), tmp_path / "run", until="vocabulary")
    record = expansion_of(run)["record"]
    assert record["share_seen"] == {"eu": 1.0}
    assert record["simulation"]["different"] == 0
    assert (record["pinned_scripts"], record["words"]["cut"]) == ([], 0)
    assert record["normaliser"]["changed"] == 0
    assert run.finished("vocabulary")["record"]["gates"]["T1 new tokens reachable"].startswith("0 of 40")


def test_only_so_much_text_is_learned_on_and_the_share_is_told(make_recipe, tmp_path, corpora_folder):
    lines = (corpora_folder / "eu.jsonl").read_text(encoding="utf-8").splitlines()
    many = [json.dumps({"text": json.loads(lines[n % 48])["text"] + f" ({n})"}) for n in range(2000)]
    (tmp_path / "many.jsonl").write_text("\n".join(many), encoding="utf-8")
    recipe = make_recipe(f"corpora.eu.path={tmp_path / 'many.jsonl'}", "vocabulary.sample_bytes=20000")
    run = adapt(recipe, tmp_path / "run", until="vocabulary")
    record = expansion_of(run)["record"]
    whole = run.finished("corpus-eu")["record"]["train_bytes"]
    assert record["sample_bytes"]["eu"] == pytest.approx(20_000, rel=0.2)
    assert record["share_seen"]["eu"] == pytest.approx(record["sample_bytes"]["eu"] / whole)


def test_hindi_gets_a_pattern_that_keeps_its_marks_and_the_run_says_so(make_recipe, tmp_path, hindi):
    overrides = ("languages.target=hi", "stages.0.mix={hi: 1.0}", "stages.1.mix={hi: 0.5, en: 0.5}", *in_hindi(hindi))
    overrides = (*overrides, "vocabulary.new_tokens=400")
    notes = Notes()
    run = adapt(make_recipe(*overrides), tmp_path / "auto", until="vocabulary", progress=notes)
    stored = expansion_of(run)
    assert stored["record"]["pinned_scripts"] == ["Devanagari"]
    assert stored["record"]["words"]["cut"] > 0 == stored["record"]["pre_tokenizer"]["after"]["cut"]
    assert any("target words at their marks" in note for note in notes.notes)
    kept = adapt(make_recipe(*overrides, "vocabulary.pre_tokenizer=keep"), tmp_path / "kept", until="vocabulary")
    assert "pre_tokenizer" not in expansion_of(kept)["record"]
    last = [expansion_of(r)["curve"]["points"][-1]["tokens"]["hi"] for r in (run, kept)]
    assert last[0] < last[1]
    first = [expansion_of(r)["curve"]["points"][0]["tokens"]["hi"] for r in (run, kept)]
    assert first[0] == first[1]


def test_several_languages_grow_and_the_other_text_is_protected(make_recipe, tmp_path, hindi):
    run = adapt(make_recipe("vocabulary.languages=[eu, hi]", *in_hindi(hindi)), tmp_path / "run", until="vocabulary")
    texts = [token["text"] for token in expansion_of(run)["new_tokens"]]
    assert any("\u0900" <= text.strip()[-1] <= "\u097f" for text in texts)
    assert any(text.strip().isascii() for text in texts)
    assert set(expansion_of(run)["record"]["share_seen"]) == {"eu", "hi"}


def test_every_other_corpus_is_protected(make_recipe, tmp_path, corpora_folder):
    """A third language takes part in the veto: text of it keeps its tokens."""
    fr = [json.dumps({"text": f"karpeta zaharra leihoa ireki {n}"}) for n in range(40)]
    (tmp_path / "fr.jsonl").write_text("\n".join(fr), encoding="utf-8")
    alone = adapt(make_recipe(), tmp_path / "alone", until="vocabulary")
    recipe = make_recipe(f"corpora.fr={{path: {tmp_path / 'fr.jsonl'}, validation: 20%}}")
    guarded = adapt(recipe, tmp_path / "guarded", until="vocabulary")
    assert expansion_of(guarded)["record"]["vetoed"] > expansion_of(alone)["record"]["vetoed"]


def test_second_tokenizer_gives_the_candidates(make_recipe, tmp_path, corpora_folder):
    texts = [json.loads(line)["text"] for line in (corpora_folder / "eu.jsonl").read_text("utf-8").splitlines()]
    (tmp_path / "tokenizer.json").write_text(second_text(texts), encoding="utf-8")
    recipe = make_recipe(f"vocabulary.second_tokenizer={tmp_path / 'tokenizer.json'}")
    second = second_tokenizer(recipe)
    run = adapt(recipe, tmp_path / "run", until="vocabulary")
    stored = expansion_of(run)
    known = [token for token in stored["new_tokens"] if second.id_of(token["spelling"]) is not None]
    assert len(known) + stored["record"]["on_the_way"] == stored["num_new"] > 0


def test_vocabulary_alone_needs_no_weights(make_recipe, tmp_path, tied_folder):
    (tmp_path / "bare").mkdir()
    (tmp_path / "bare" / "tokenizer.json").write_bytes((tied_folder / "tokenizer.json").read_bytes())
    run = expand_tokenizer(make_recipe(f"base_model={tmp_path / 'bare'}"), tmp_path / "run")
    whole = adapt(make_recipe(), tmp_path / "whole", until="vocabulary")
    assert (
        run.path("vocabulary", "tokenizer.json").read_text() == whole.path("vocabulary", "tokenizer.json").read_text()
    )
    file = make_recipe(f"base_model={tmp_path / 'bare' / 'tokenizer.json'}")
    again = expand_tokenizer(file, tmp_path / "file")
    assert expansion_of(again)["new_sha256"] == expansion_of(run)["new_sha256"]


def test_auto_stops_by_its_rule_and_says_so(make_recipe, tmp_path, monkeypatch):
    notes = Notes()
    auto = ("vocabulary.new_tokens=auto", "vocabulary.min_saving=0.9")
    with monkeypatch.context() as patch:
        # So little text has no size at which more would not pay; the rule itself is tested where it is.
        patch.setattr(FertilityCurve, "choose", lambda _, min_saving: 64 if min_saving == 0.9 else 0)
        run = adapt(make_recipe(*auto), tmp_path / "run", until="vocabulary", progress=notes)
    stored = expansion_of(run)
    assert 64 == stored["num_new"] < stored["record"]["learned"]
    assert any("a further thousand would save less than 90.0%" in note for note in notes.notes)
    capped = adapt(
        make_recipe(*auto, "vocabulary.max_new_tokens=8"), tmp_path / "cap", until="vocabulary", progress=notes
    )
    assert expansion_of(capped)["num_new"] == 8
    assert any("more would pay, and are not allowed (vocabulary.max_new_tokens)" in note for note in notes.notes)


def test_o06_normaliser_that_deletes_marks_is_refused(make_recipe, tmp_path, hindi, tied_folder):
    import shutil

    base = shutil.copytree(tied_folder, tmp_path / "base")
    raw = json.loads((base / "tokenizer.json").read_text(encoding="utf-8"))
    raw["normalizer"] = {"type": "Sequence", "normalizers": [{"type": "NFD"}, {"type": "StripAccents"}]}
    (base / "tokenizer.json").write_text(json.dumps(raw), encoding="utf-8")
    overrides = ("languages.target=hi", "stages.0.mix={hi: 1.0}", "stages.1.mix={hi: 0.5, en: 0.5}", *in_hindi(hindi))
    with pytest.raises((GateError, VocabularyError), match="marks kept"):
        adapt(make_recipe(*overrides, f"base_model={base}"), tmp_path / "run", until="vocabulary")


def test_another_second_tokenizer_is_refused_once_a_run_has_begun(make_recipe, tmp_path, corpora_folder):
    texts = [json.loads(line)["text"] for line in (corpora_folder / "eu.jsonl").read_text("utf-8").splitlines()]
    second = tmp_path / "tokenizer.json"
    second.write_text(second_text(texts), encoding="utf-8")
    recipe = make_recipe(f"vocabulary.second_tokenizer={second}")
    run = adapt(recipe, tmp_path / "run", until="vocabulary")
    made = run.path("vocabulary", "tokenizer.json").read_bytes()
    second.write_text(second_text(texts[:2]), encoding="utf-8")
    with pytest.raises(RunFolderError, match=r"the tokenizer of vocabulary\.second_tokenizer has changed"):
        adapt(recipe, tmp_path / "run", until="vocabulary")
    assert run.path("vocabulary", "tokenizer.json").read_bytes() == made


def test_a_small_corpus_of_the_target_script_is_protected_too(make_recipe, tmp_path, hindi):
    """Of all protected letters it is under a twentieth; its script is the target's, so nothing is pinned, and
    where characters are bytes nothing can grow without touching it."""
    small = [json.dumps({"text": f"यह एक छोटा पाठ है {n}"}, ensure_ascii=False) for n in range(12)]
    (tmp_path / "mr.jsonl").write_text("\n".join(small), encoding="utf-8")
    overrides = ("languages.target=hi", "stages.0.mix={hi: 1.0}", "stages.1.mix={hi: 0.5, en: 0.5}", *in_hindi(hindi))
    other = f"corpora.mr={{path: {tmp_path / 'mr.jsonl'}, validation: 40%}}"
    with pytest.raises(VocabularyError, match=r"^vocabulary\.new_tokens: .*; [1-9]\d* were vetoed by protected text"):
        adapt(make_recipe(*overrides, other), tmp_path / "run", until="vocabulary")
    both = make_recipe(*overrides, other, "vocabulary.languages=[hi, mr]")
    grown = adapt(both, tmp_path / "both", until="vocabulary")
    assert expansion_of(grown)["record"]["pinned_scripts"] == ["Devanagari"]


def test_few_long_documents_are_sampled_in_parts(make_recipe, tmp_path, corpora_folder):
    lines = (corpora_folder / "en.jsonl").read_text(encoding="utf-8").splitlines()
    text = " ".join(json.loads(line)["text"] for line in lines)
    many = [json.dumps({"text": "The same header. " * 30 + f"{text} {n}. " * 6}) for n in range(16)]
    (tmp_path / "long.jsonl").write_text("\n".join(many), encoding="utf-8")
    recipe = make_recipe(
        f"corpora.en.path={tmp_path / 'long.jsonl'}", "corpora.en.validation=30%", "vocabulary.sample_bytes=40000"
    )
    run = adapt(recipe, tmp_path / "run", until="vocabulary")
    record = expansion_of(run)["record"]
    whole = run.finished("corpus-en")["record"]["train_bytes"]
    assert 0.2 < record["share_protected"] * whole / 40_000 < 1.5
