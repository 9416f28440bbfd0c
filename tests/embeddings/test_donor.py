"""Donors: which matrix is read, what is refused, and which tokens two models share."""

import json

import pytest
import torch
from safetensors.torch import save_file
from tokenizers import Tokenizer, models

from lingraft.embeddings import InitContext, open_donor
from lingraft.embeddings.donor import share_tokens
from lingraft.embeddings.token_text import token_texts
from lingraft.errors import ModelError, RecipeError, VocabularyError
from lingraft.vocabulary import LearnOptions, NewToken, VocabularyExpansion, expand_vocabulary

ROWS = 394


def matrix(seed, rows=ROWS, dim=3, dtype=torch.float32):
    return torch.randn(rows, dim, generator=torch.Generator().manual_seed(seed)).to(dtype)


@pytest.mark.parametrize(
    ("inside", "head"),
    [
        ("model.embed_tokens.weight", "lm_head.weight"),
        ("transformer.wte.weight", "lm_head.weight"),
        ("gpt_neox.embed_in.weight", "embed_out.weight"),
        ("model.language_model.embed_tokens.weight", "lm_head.weight"),
        ("own.words", "lm_head.weight"),
    ],
)
def test_matrices_by_name_and_type(write_donor, tokenizer_text, inside, head):
    wide = torch.zeros(7, 3)
    tensors = {inside: matrix(0, dtype=torch.bfloat16), "model.layers.0.up_proj.weight": wide}
    if inside != "own.words":
        tensors[head] = matrix(1)
    donor = open_donor(write_donor(tokenizer_text, tensors))
    assert torch.equal(donor.matrix("input"), matrix(0, dtype=torch.bfloat16))
    wanted = matrix(1) if head in tensors else matrix(0, dtype=torch.bfloat16)
    assert torch.equal(donor.matrix("output"), wanted)


@pytest.mark.parametrize("config", [{"tie_word_embeddings": True}, {"text_config": {"tie_word_embeddings": True}}])
def test_a_tied_model_gives_its_input_even_where_a_head_is_stored(write_donor, tokenizer_text, config):
    tensors = {"model.embed_tokens.weight": matrix(0), "lm_head.weight": matrix(1)}
    donor = open_donor(write_donor(tokenizer_text, tensors, config))
    assert torch.equal(donor.matrix("output"), matrix(0))


def test_weights_in_several_files(write_donor, tokenizer_text):
    folder = write_donor(tokenizer_text, {"model.embed_tokens.weight": matrix(0)})
    (folder / "model.safetensors").rename(folder / "model-00001-of-00002.safetensors")
    save_file({"lm_head.weight": matrix(1)}, folder / "model-00002-of-00002.safetensors")
    files = {f"model-0000{n}-of-00002.safetensors" for n in (1, 2)}
    names = dict(zip(["model.embed_tokens.weight", "lm_head.weight"], sorted(files), strict=True))
    (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": names}))
    assert torch.equal(open_donor(folder).matrix("output"), matrix(1))
    (folder / "model-00002-of-00002.safetensors").unlink()
    with pytest.raises(ModelError, match=r"names files that are not there: model-00002-of-00002.safetensors"):
        open_donor(folder)


@pytest.mark.parametrize(
    ("tensors", "config", "side", "message"),
    [
        (
            {"a.wte.weight": matrix(0), "b.wte.weight": matrix(0)},
            {},
            "input",
            "more than one tensor could be the input",
        ),
        ({"own.a": matrix(0), "own.b": matrix(1)}, {}, "input", "2 tensors have more than 393 rows"),
        ({"own.a": matrix(0, rows=393)}, {}, "input", "0 tensors have more than 393 rows"),
        ({"wte.weight": matrix(0, rows=393)}, {}, "input", r"wte.weight has shape \(393, 3\).* 394 ids"),
        ({"wte.weight": matrix(0)[0]}, {}, "input", r"has shape \(3,\)"),
        ({"wte.weight": torch.ones(ROWS, 3, dtype=torch.int8)}, {}, "input", "type torch.int8"),
        ({"wte.weight": matrix(0)}, {"tie_word_embeddings": False}, "output", "no tensor is named as one"),
    ],
)
def test_matrices_that_cannot_be_told_are_refused(write_donor, tokenizer_text, tensors, config, side, message):
    donor = open_donor(write_donor(tokenizer_text, tensors, config))
    with pytest.raises(ModelError, match=message):
        donor.matrix(side)


def test_folders_that_are_no_donor_are_refused(write_donor, tokenizer_text, tmp_path):
    with pytest.raises(RecipeError, match=r"embeddings.input.donor: there is no folder 'org/name'.*hf download"):
        open_donor("org/name", "embeddings.input.donor")
    (tmp_path / "empty").mkdir()
    with pytest.raises(VocabularyError, match=r"no tokenizer.json"):
        open_donor(tmp_path / "empty")
    folder = write_donor(tokenizer_text, {"wte.weight": matrix(0)})
    (folder / "model.safetensors").write_bytes(b"\x08")
    with pytest.raises(ModelError, match="not a safetensors file"):
        open_donor(folder)
    (folder / "model.safetensors").unlink()
    with pytest.raises(ModelError, match=r"no model.safetensors .*pickled"):
        open_donor(folder)
    (folder / "config.json").write_text("[]")
    with pytest.raises(ModelError, match="must hold a JSON object, holds list"):
        open_donor(folder)


def test_shared_and_new_tokens_meet_by_text(write_donor, tokenizer):
    """The donor's tokenizer has the base model's tokens and one of the two new ones, at other ids."""
    expansion = expand_vocabulary(tokenizer, ["qzx"] * 12, [], LearnOptions(2))
    smaller = expand_vocabulary(tokenizer, ["qz"] * 12, [], LearnOptions(1))
    number = smaller.new.num_ids
    rows = torch.arange(float(number))[:, None].repeat(1, 2)
    folder = write_donor(smaller.new.text, {"wte.weight": rows})
    old = -torch.arange(float(expansion.num_old))[:, None].repeat(1, 4)
    shared = share_tokens(InitContext(expansion, old, "input", torch.Generator()), open_donor(folder))
    texts = token_texts(tokenizer)
    assert shared.donor_anchors[:, 0].tolist() == [float(i) for i in sorted(texts)]
    assert shared.old_anchors[:, 0].tolist() == [-float(i) for i in sorted(texts)]
    assert shared.places == (0,)
    assert shared.donor_new.tolist() == [[float(smaller.new_ids[0])] * 2]
    assert shared.reasons == {expansion.new_tokens[1].id: "the donor has no such token"}


def test_parts_of_characters_are_not_asked_for(write_donor, tokenizer):
    new = tokenizer.extended(["âĤ"], [("â", "Ĥ")])
    part = NewToken(tokenizer.num_ids, "âĤ", (tokenizer.id_of("â"), tokenizer.id_of("Ĥ")), 5)
    expansion = VocabularyExpansion("expand", tokenizer, new, (part,))
    folder = write_donor(expansion.new.text, {"wte.weight": matrix(0, rows=expansion.new.num_ids)})
    old = matrix(1, rows=expansion.num_old)
    shared = share_tokens(InitContext(expansion, old, "input", torch.Generator()), open_donor(folder))
    assert shared.reasons == {part.id: "it is no whole text, which a donor is asked for"}


def test_tokens_of_other_families_meet_by_text(write_donor, tokenizer):
    """`▁the` of the donor is `Ġthe` here, and its `qz` is the new token; its control token and its byte are nobody's."""
    expansion = expand_vocabulary(tokenizer, ["qz"] * 12, [], LearnOptions(1))
    tokens = ["<s>", "<0x61>", "▁the", "qz", "▁kaixo"]
    raw = json.loads(Tokenizer(models.BPE({t: i for i, t in enumerate(tokens)}, [], byte_fallback=True)).to_str())
    flags = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": True}
    raw["added_tokens"] = [{"id": 0, "content": "<s>", **flags}]
    folder = write_donor(json.dumps(raw), {"wte.weight": torch.arange(5.0)[:, None]})
    old = torch.arange(float(expansion.num_old))[:, None]
    shared = share_tokens(InitContext(expansion, old, "input", torch.Generator()), open_donor(folder))
    assert shared.donor_anchors.tolist() == [[2.0]]
    assert shared.old_anchors.tolist() == [[float(tokenizer.id_of("Ġthe"))]]
    assert shared.donor_new.tolist() == [[3.0]]


@pytest.fixture
def expansion_of_one(tokenizer):
    return expand_vocabulary(tokenizer, ["qz"] * 12, [], LearnOptions(1))


def test_nothing_in_common_is_refused(write_donor, expansion_of_one):
    raw = Tokenizer(models.BPE({"ж": 0}, [], byte_fallback=True)).to_str()
    folder = write_donor(raw, {"wte.weight": torch.ones(1, 2)})
    old = torch.ones(expansion_of_one.num_old, 2)
    with pytest.raises(ModelError, match="its tokenizer shares no token with the base model's"):
        share_tokens(InitContext(expansion_of_one, old, "input", torch.Generator()), open_donor(folder))
