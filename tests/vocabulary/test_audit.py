"""Every gate passes a sound expansion and stops the one damage that it is there for."""

import json
from collections import Counter
from dataclasses import replace

import pytest

from lingraft.errors import GateError, VocabularyError
from lingraft.vocabulary import (
    AuditTexts,
    LearnOptions,
    NewToken,
    TokenizerFile,
    VocabularyExpansion,
    audit_expansion,
    expand_vocabulary,
    keep_vocabulary,
    refuse_failed_gates,
    segmentation_drift,
)
from lingraft.vocabulary import audit as audit_module
from lingraft.vocabulary import growth as growth_module


@pytest.fixture(scope="module")
def texts(basque, english):
    return AuditTexts(target=basque, protected=english[:24], source=english[24:])


@pytest.fixture(scope="module")
def expansion(tokenizer, texts):
    return expand_vocabulary(tokenizer, texts.target, texts.protected, LearnOptions(40, min_count=5))


def tampered(expansion, change):
    """Return the expansion with its new file changed in place by ``change(raw)``."""
    raw = json.loads(expansion.new.text)
    change(raw)
    return replace(expansion, new=TokenizerFile(json.dumps(raw), "tampered"))


def failed(expansion, texts):
    """Return the names of the gates that stop the run."""
    return {gate.name for gate in audit_expansion(expansion, texts) if gate.stops and not gate.passed}


def gate_of(expansion, texts, name):
    """Return the one gate whose name begins so."""
    (gate,) = (gate for gate in audit_expansion(expansion, texts) if gate.name.startswith(name))
    return gate


def test_sound_expansion_passes_every_gate(expansion, texts):
    gates = audit_expansion(expansion, texts)
    assert [gate.name for gate in gates if not gate.passed and gate.stops] == []
    assert [gate.name for gate in gates] == [
        "T8 old ids kept",
        "T8 old merges are a prefix",
        "T4 added tokens kept",
        "sizes agree",
        "T1 new tokens reachable",
        "T5 decomposition exact",
        "T5 simulation exact",
        "T3 lossless",
        "marks kept",
        "T2 protected text unchanged",
        "T2 source drift",
        "T7 new tokens used",
        "T9 fertility fell",
        "encoding still fast",
        "loads fast",
    ]
    assert [gate.name for gate in gates if not gate.stops] == ["T7 new tokens used"]
    refuse_failed_gates(gates)


def test_keeping_the_vocabulary_passes_and_need_not_be_shorter(tokenizer, texts):
    gates = audit_expansion(keep_vocabulary(tokenizer), texts)
    assert all(gate.passed for gate in gates)
    assert not any(gate.name.startswith("T9") for gate in gates)


def test_a_lost_merge_makes_its_token_unreachable(expansion, texts):
    broken = tampered(expansion, lambda raw: raw["model"]["merges"].pop())
    assert "T1 new tokens reachable" in failed(broken, texts)


def test_o08_whole_word_look_up_does_not_hide_a_lost_merge(expansion, texts):
    broken = tampered(expansion, lambda raw: raw["model"]["merges"].pop() and raw["model"].update(ignore_merges=True))
    last = expansion.new_tokens[-1]
    assert broken.new.encode(last.text(broken.new)) == [last.id]
    assert "T1 new tokens reachable" in failed(broken, texts)


def test_o16_moved_old_ids_are_caught(expansion, texts):
    def swap(raw):
        vocabulary = raw["model"]["vocab"]
        vocabulary["x"], vocabulary["y"] = vocabulary["y"], vocabulary["x"]

    broken = tampered(expansion, swap)
    assert "T8 old ids kept" in failed(broken, texts)


def test_o16_a_tokenizer_trained_anew_is_no_expansion(expansion, texts, tokenizer):
    raw = json.loads(tokenizer.text)
    anew = {t: i for i, t in enumerate(reversed(raw["model"]["vocab"]))} | {"<|endoftext|>": 0, "<|im_start|>": 1}
    spare = iter(sorted(set(range(len(anew))) - {0, 1}))
    raw["model"]["vocab"] = {t: i if t.startswith("<|") else next(spare) for t, i in anew.items()}
    broken = VocabularyExpansion("expand", tokenizer, TokenizerFile(json.dumps(raw), "anew"), ())
    assert "T8 old ids kept" in failed(broken, texts)


def test_o05_reordered_merges_are_caught(expansion, texts):
    def reorder(raw):
        raw["model"]["merges"][0], raw["model"]["merges"][1] = raw["model"]["merges"][1], raw["model"]["merges"][0]

    assert "T8 old merges are a prefix" in failed(tampered(expansion, reorder), texts)


def test_o05_merges_put_in_front_are_caught(expansion, texts):
    def move(raw):
        raw["model"]["merges"].insert(0, raw["model"]["merges"].pop())

    broken = failed(tampered(expansion, move), texts)
    assert "T8 old merges are a prefix" in broken


@pytest.mark.parametrize("damage", [{"special": False}, {"lstrip": True}, {"normalized": True}])
def test_changed_flags_of_added_tokens_are_caught(expansion, texts, damage):
    broken = tampered(expansion, lambda raw: raw["added_tokens"][1].update(damage))
    assert "T4 added tokens kept" in failed(broken, texts)


def test_changed_post_processor_is_caught(expansion, texts):
    byte_level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}
    broken = tampered(expansion, lambda raw: raw.update(post_processor=byte_level))
    assert "T4 added tokens kept" in failed(broken, texts)


def test_control_token_that_plain_text_now_reaches_is_caught(tokenizer, texts):
    """With whole-word look-up a control token spelled like a word, once in the vocabulary, is found in plain text."""
    raw = json.loads(tokenizer.text)
    raw["model"]["ignore_merges"] = True
    pad = raw["added_tokens"][0] | {"id": tokenizer.num_ids, "content": "PAD"}
    base = TokenizerFile(json.dumps(raw | {"added_tokens": [*raw["added_tokens"], pad]}), "x")
    grown = expand_vocabulary(base, texts.target, texts.protected, LearnOptions(9))
    assert (base.encode("PAD") == [tokenizer.num_ids], grown.new.encode("PAD")) == (False, [tokenizer.num_ids])
    gate = gate_of(grown, texts, "T4")
    assert (gate.passed, gate.evidence) == (False, ("'PAD'",))


def test_sizes_that_disagree_are_caught(expansion, texts):
    assert "sizes agree" in failed(replace(expansion, new_tokens=expansion.new_tokens[:-1]), texts)
    shifted = tuple(replace(token, id=token.id + 1) for token in expansion.new_tokens)
    assert "sizes agree" in failed(replace(expansion, new_tokens=shifted), texts)


def test_o77_o11_added_token_route_is_caught(tokenizer):
    raw = json.loads(tokenizer.text)
    flags = raw["added_tokens"][0] | {"id": tokenizer.num_ids, "content": "eta", "special": False}
    outside = TokenizerFile(json.dumps(raw | {"added_tokens": [*raw["added_tokens"], flags]}), "add_tokens")
    token = NewToken(tokenizer.num_ids, "eta", tuple(tokenizer.encode("eta")), 9)
    texts = AuditTexts(["eta eta"], protected=["the metadata"], source=["the metadata"] * 2)
    broken = failed(VocabularyExpansion("expand", tokenizer, outside, (token,)), texts)
    assert {"T2 protected text unchanged", "sizes agree"} <= broken


def test_wrong_decomposition_is_caught(expansion, texts):
    first, *rest = expansion.new_tokens
    wrong = replace(first, pieces=first.pieces[::-1])
    assert failed(replace(expansion, new_tokens=(wrong, *rest)), texts) == {"T5 decomposition exact"}


@pytest.mark.parametrize(
    "decoder", [{"type": "Fuse"}, {"type": "Sequence", "decoders": [{"type": "ByteLevel", "add_prefix_space": False,
     "trim_offsets": True, "use_regex": True}, {"type": "Strip", "content": " ", "start": 1, "stop": 0}]}]
)  # fmt: skip
def test_lossy_decoder_is_caught(expansion, texts, decoder):
    broken = tampered(expansion, lambda raw: raw.update(decoder=decoder))
    gate = gate_of(broken, texts, "T3 lossless")
    assert not gate.passed
    assert 0 < len(gate.evidence) <= 5


def test_lossy_normaliser_is_caught_on_difficult_text_alone(expansion, texts):
    broken = tampered(expansion, lambda raw: raw.update(normalizer={"type": "NFKC"}))
    assert "T3 lossless" in failed(broken, texts)


def test_what_the_old_tokenizer_loses_too_is_no_loss(tokenizer, texts):
    """Qwen normalises to NFC and does not give back decomposed text, before and after."""
    base = TokenizerFile(json.dumps(tokenizer.raw | {"normalizer": {"type": "NFC"}}), "nfc")
    assert base.decode(base.encode("e\u0301")) == "é"
    grown = expand_vocabulary(base, texts.target, texts.protected, LearnOptions(20))
    assert failed(grown, texts) == set()


def test_o13_unknown_ids_that_were_not_there_are_caught(tokenizer, texts):
    """A byte that is no longer a token becomes the unknown id."""
    model = tokenizer.raw["model"] | {"unk_token": "<|endoftext|>"}
    base = TokenizerFile(json.dumps(tokenizer.raw | {"model": model}), "x")
    grown = expand_vocabulary(base, texts.target, texts.protected, LearnOptions(20))
    assert failed(grown, texts) == set()

    def lose(raw):
        raw["model"]["vocab"]["lost byte"] = raw["model"]["vocab"].pop("ñ")

    assert "T3 lossless" in failed(tampered(grown, lose), texts)


def test_o11_merge_that_breaks_source_text_is_caught_with_its_words(expansion, texts):
    before = expansion.old.encode("vex")
    pair = [expansion.old.decode([i]) for i in before[:2]]
    token = NewToken(expansion.new.num_ids, "".join(pair), tuple(before[:2]), 1)
    grown = replace(
        expansion,
        new=expansion.new.extended([token.spelling], [tuple(pair)]),
        new_tokens=(*expansion.new_tokens, token),
    )
    gate = gate_of(grown, replace(texts, protected=["so (vex", "a cell"]), "T2 protected")
    assert gate.passed is False
    assert gate.found == "2 of 8 tokens (25.0000%) in 1 of 2 documents changed"
    assert gate.evidence == (f"made: '{token.spelling}' 1x", f"'so (vex' now holds {[token.spelling]}")


@pytest.mark.parametrize(
    ("changed", "share", "passed"), [(0, 0, True), (1, 0, True), (2, 0.02, True), (3, 0.01, False)]
)
def test_source_drift_may_reach_its_share_of_the_tokens(expansion, texts, changed, share, passed):
    """A document of two old tokens becomes one token; the others have one old token each."""
    fresh = expansion.new_tokens[0]
    cell = next(token for token in (" the", "the", "e") if len(expansion.old.encode(token)) == 1)
    assert len(fresh.pieces) == 2
    source = [fresh.text(expansion.new)] * changed + [cell] * (200 - 2 * changed)
    gate = gate_of(expansion, replace(texts, source=source, max_source_drift=share), "T2 source drift")
    assert gate.found.startswith(f"{2 * changed} of 200 tokens")
    assert gate.passed == passed


@pytest.mark.parametrize(("exact", "passed"), [(True, False), (False, True)])
def test_protection_is_exact_unless_told_otherwise(expansion, texts, exact, passed):
    protected = [expansion.new_tokens[0].text(expansion.new)] + ["e"] * 1998
    given = replace(texts, protected=protected, exact_protection=exact)
    assert gate_of(expansion, given, "T2 protected").passed == passed
    worse = replace(given, protected=protected[:1900])
    assert not gate_of(expansion, worse, "T2 protected").passed


def test_expansion_that_does_not_shorten_is_caught(expansion, texts):
    assert failed(expansion, replace(texts, target=["qwz qwz"])) == {"T9 fertility fell"}


@pytest.mark.parametrize(
    ("before", "after", "passed"),
    [(0.1, 0.119, True), (0.1, 0.121, False), (0.001, 0.019, True), (0.001, 0.021, False)],
)
def test_o09_slow_encoding_is_caught(expansion, texts, monkeypatch, before, after, passed):
    def timed(action, given):
        return before if getattr(action, "__self__", None) is expansion.old else after

    monkeypatch.setattr(audit_module, "_timed", timed)
    assert gate_of(expansion, texts, "encoding still fast").passed == passed


def test_o09_one_slow_round_is_the_machine_and_not_the_tokenizer(expansion, texts, monkeypatch):
    rounds = iter([0.1, 0.9, 0.1, 0.9, 0.1, 0.1, 0.0])
    monkeypatch.setattr(audit_module, "_timed", lambda action, given: next(rounds))
    assert gate_of(expansion, texts, "encoding still fast").found == "1.00 times"


@pytest.mark.parametrize(("seconds", "passed"), [(19.0, True), (21.0, False)])
def test_o02_slow_loading_is_caught(expansion, texts, monkeypatch, seconds, passed):
    monkeypatch.setattr(audit_module, "_timed", lambda action, given: seconds)
    gate = gate_of(expansion, texts, "loads fast")
    assert (gate.passed, gate.stops) == (passed, True)


def test_failed_gates_are_told_with_their_evidence(expansion, texts):
    gates = audit_expansion(tampered(expansion, lambda raw: raw["model"]["merges"].pop()), texts)
    with pytest.raises(GateError) as caught:
        refuse_failed_gates(gates)
    first, *lines = str(caught.value).splitlines()
    last = expansion.new_tokens[-1].text(expansion.new)
    assert first == "the expanded tokenizer failed its checks; nothing was trained on it:"
    assert (
        f"  T1 new tokens reachable: expected every new token is built from its own spelling, found 1 of 40 unreachable {last!r}"
        in lines
    )
    assert isinstance(caught.value, VocabularyError)


def test_gates_can_be_written_as_json(expansion, texts):
    gate = audit_expansion(expansion, texts)[0]
    assert json.loads(json.dumps(gate.as_dict()))["name"] == "T8 old ids kept"


def test_drift_counts_documents_and_shows_five(expansion):
    fresh = expansion.new_tokens[0].text(expansion.new)
    drift = segmentation_drift(expansion.old, expansion.new, [fresh] * 300 + ["cell"] * 300)
    assert (drift.changed_documents, drift.documents, len(drift.examples)) == (300, 600, 5)
    assert (drift.changed_tokens, drift.tokens) == (600, 600 + 300 * len(expansion.old.encode("cell")))
    assert (drift.document_share, drift.token_share) == (0.5, 600 / drift.tokens)
    assert drift.joined == ((fresh, 300),)


def test_random_strings_are_always_the_same_and_hold_no_surrogates():
    strings = audit_module.random_strings(50)
    assert strings == audit_module.random_strings(50) != audit_module.random_strings(50, seed=1)
    assert all(len(s) == 24 and s.encode() for s in strings)


def test_unused_tokens_are_a_warning_and_no_stop(expansion, texts):
    """Five per cent may be unused: of 40 tokens two; a third is one too many, and the run goes on."""
    uses = expansion.new.encode_batch(texts.target)
    unused = [token for token in expansion.new_tokens if not any(token.id in ids for ids in uses)]
    gate = gate_of(expansion, replace(texts, learning=texts.target), "T7")
    assert gate.found == f"{len(unused)} of 40 unused on the text they were learned from"
    assert (gate.passed, gate.stops) == (len(unused) <= 2, False)
    nowhere = gate_of(expansion, replace(texts, learning=["the cell"]), "T7")
    assert nowhere.found.startswith("40 of 40 unused")
    refuse_failed_gates([nowhere])
    bare = [token.text(expansion.new) for token in expansion.new_tokens]
    assert [gate_of(expansion, replace(texts, learning=bare[n:]), "T7").passed for n in (0, 2, 3)] == [
        True,
        True,
        False,
    ]


def test_unused_is_counted_on_the_learning_text_and_not_on_the_held_out(expansion, texts):
    everything = [token.text(expansion.new) for token in expansion.new_tokens]
    assert gate_of(expansion, replace(texts, target=["qz"], learning=everything), "T7").found.startswith("0 of 40")


@pytest.mark.parametrize(("different", "passed"), [(0, True), (1, False)])
def test_learner_that_saw_other_words_is_caught(expansion, texts, different, passed):
    record = dict(expansion.record) | {"simulation": {"compared": 9, "different": different}}
    gate = gate_of(replace(expansion, record=record), texts, "T5 simulation")
    assert (gate.passed, gate.stops, gate.found) == (passed, True, f"{different} of 9 words differ")


def test_simulation_is_measured_on_the_file_itself(bases, basque_lines, monkeypatch):
    """A merge that the learner made and the file lacks shows in the words that were compared."""
    whole = growth_module._assembled

    def without_the_last(start, merges, style):
        made = whole(start, merges, style)
        model = made.raw["model"] | {"merges": made.raw["model"]["merges"][:-1]}
        return TokenizerFile(json.dumps(made.raw | {"model": model}), "broken")

    monkeypatch.setattr(growth_module, "_assembled", without_the_last)
    grown = expand_vocabulary(bases["pair"], basque_lines[:200], [], LearnOptions(1, min_count=5))
    assert 0 < grown.record["simulation"]["different"] < grown.record["simulation"]["compared"]
    assert "T5 simulation exact" in failed(grown, AuditTexts(basque_lines[:50], [], []))


def test_o06_normaliser_that_deletes_the_vowels_of_hindi_stops_the_run(bases):
    """कु loses its dependent vowel; Basque, which is written without marks, may use the same base."""
    stripping = {"type": "Sequence", "normalizers": [{"type": "NFD"}, {"type": "StripAccents"}]}
    base = TokenizerFile(json.dumps(bases["pair"].raw | {"normalizer": stripping}), "x")
    kept = keep_vocabulary(base)
    gate = gate_of(kept, AuditTexts(["कुछ हिन्दी शब्द"], [], []), "marks kept")
    assert (gate.passed, gate.stops) == (False, True)
    assert gate.evidence[0].startswith("U+09")
    with pytest.raises(GateError, match="marks kept: expected the normaliser deletes no mark"):
        refuse_failed_gates([gate])
    assert gate_of(kept, AuditTexts(["Dokumentu bat irekitzeko"], [], []), "marks kept").passed
    sound = keep_vocabulary(bases["pair"])
    assert gate_of(sound, AuditTexts(["कुछ हिन्दी शब्द"], [], []), "marks kept").passed


def reached_in_text_only(tokenizer, spelling, text):
    """Return an expansion by a token whose parts meet in a text, and not in its own spelling."""
    pieces = tuple(tokenizer.encode_by_merges(spelling))
    token = NewToken(tokenizer.num_ids, spelling, pieces, 1)
    grown = tokenizer.extended([spelling], [tuple(text)])
    return VocabularyExpansion("expand", tokenizer, grown, (token,))


@pytest.mark.parametrize("inside", ["a{}", "{}a", " {}"])
def test_o03_token_that_only_a_text_reaches_is_not_called_dead(tokenizer, texts, monkeypatch, inside):
    """It is not built from its bare spelling, but comes out within a word or behind a space."""
    grown = reached_in_text_only(tokenizer, "qz", ("q", "z"))
    real, own = TokenizerFile.encode_batch, grown.new_ids[0]

    def only_inside(self, given):
        ids = real(self, given)
        return [
            [i for i in found if i != own or text == inside.format("qz")]
            for text, found in zip(given, ids, strict=True)
        ]

    monkeypatch.setattr(TokenizerFile, "encode_all_by_merges", lambda self, spellings: [[0] for _ in spellings])
    monkeypatch.setattr(TokenizerFile, "encode_batch", only_inside)
    gate = audit_module._new_tokens_reachable(grown, Counter())
    assert (gate.passed, gate.found) == (True, "0 of 1 unreachable; 1 only within text")


def test_o03_token_that_the_learning_text_uses_is_not_called_dead(tokenizer, monkeypatch):
    grown = reached_in_text_only(tokenizer, "qz", ("q", "z"))
    monkeypatch.setattr(TokenizerFile, "encode_all_by_merges", lambda self, spellings: [[0] for _ in spellings])
    monkeypatch.setattr(TokenizerFile, "encode_batch", lambda self, texts: [[0] for _ in texts])
    assert audit_module._new_tokens_reachable(grown, Counter({grown.new_ids[0]: 1})).passed
    gate = audit_module._new_tokens_reachable(grown, Counter())
    assert (gate.passed, gate.found, gate.evidence) == (False, "1 of 1 unreachable", ("'qz'",))


def test_o03_token_in_the_vocabulary_alone_is_dead(tokenizer, texts):
    """The list of the case's other side: there is no way at all to it."""
    token = NewToken(tokenizer.num_ids, "qzw", tuple(tokenizer.encode("qzw")), 1)
    dead = VocabularyExpansion("expand", tokenizer, tokenizer.extended(["qzw"], []), (token,))
    gate = gate_of(dead, texts, "T1")
    assert (gate.passed, gate.found, gate.evidence) == (False, "1 of 1 unreachable", ("'qzw'",))


def test_source_that_holds_the_target_s_own_script_is_no_drift(bases, english_lines):
    """Mixed text is meant to change, so it is left out, and the rest is held to its share."""
    hindi = ["हिन्दी के शब्द"] * 9
    options = LearnOptions(30, min_count=5, pinned_scripts=frozenset({"Devanagari"}))
    grown = expand_vocabulary(bases["concat"], hindi, english_lines[:50], options)
    mixed = AuditTexts(hindi, ["so हिन्दी", "a cell"], ["so हिन्दी", "so के", "a cell"])
    assert not gate_of(grown, mixed, "T2 protected").passed
    assert not gate_of(grown, mixed, "T2 source").passed
    unmixed = replace(mixed, pinned_scripts=options.pinned_scripts)
    assert gate_of(grown, unmixed, "T2 protected").found.endswith("in 0 of 1 documents changed")
    assert gate_of(grown, unmixed, "T2 source").passed


def test_drift_is_counted_in_tokens_that_are_gone_and_says_what_was_made(expansion):
    """Three documents: unchanged, one join of two tokens, and two such joins."""
    fresh = expansion.new_tokens[0]
    text = fresh.text(expansion.new)
    assert len(fresh.pieces) == 2
    drift = segmentation_drift(expansion.old, expansion.new, ["e", text, f"{text}\n{text}"])
    assert (drift.documents, drift.changed_documents, drift.tokens, drift.changed_tokens) == (3, 2, 1 + 2 + 5, 2 + 4)
    assert drift.joined == ((text, 3),)
    assert str(drift) == "6 of 8 tokens (75.0000%) in 2 of 3 documents changed"
    nothing = segmentation_drift(expansion.old, expansion.new, [])
    assert (nothing.token_share, nothing.document_share, nothing.evidence()) == (0, 0, ())


@pytest.mark.parametrize("damage", ["lose", "add"])
def test_replacement_must_fill_exactly_what_gave_way(bases, basque_lines, english_lines, damage):
    options = LearnOptions(20, min_count=5, replace=True)
    grown = expand_vocabulary(bases["concat"], basque_lines[:200], english_lines[:200], options)
    texts = AuditTexts(basque_lines[:50], [], [])
    assert gate_of(grown, texts, "sizes agree").passed
    if damage == "lose":
        broken = replace(grown, removed=grown.removed[1:])
    else:
        other = replace(grown.removed[0], id=5, spelling="'")
        broken = replace(grown, removed=(other, *grown.removed))
    assert "sizes agree" in failed(broken, texts)
