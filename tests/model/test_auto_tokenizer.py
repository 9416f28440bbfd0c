"""What AutoTokenizer makes of an expanded folder: our ids, the base's control tokens, the base's chat."""

import json
import shutil

import pytest
from transformers import AutoTokenizer

from lingraft.errors import ModelError
from lingraft.model.auto_tokenizer import choose_tokenizer_class, refuse_changed_template, settle_tokenizer_class
from lingraft.vocabulary import LearnOptions, TokenizerFile, expand_vocabulary, patch_marks

HINDI = ["हिन्दी में क्षत्रिय और श्रीमान् कक्ष में संख्या हो सकती है"] * 12
TEMPLATE = "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"


@pytest.fixture
def qwen(tmp_path):
    """A folder whose class, Qwen2Tokenizer, builds a pattern of its own instead of the file's."""
    from tokenizers import Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers

    pattern = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
    made = Tokenizer(models.BPE())
    made.normalizer = normalizers.NFC()
    split = pre_tokenizers.Split(Regex(pattern), "isolated")
    made.pre_tokenizer = pre_tokenizers.Sequence(
        [split, pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)]
    )
    made.decoder = decoders.ByteLevel()
    specials = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    made.train_from_iterator(
        ["the light in the night"] * 9,
        trainers.BpeTrainer(vocab_size=290, special_tokens=specials, initial_alphabet=alphabet, show_progress=False),
    )
    folder = tmp_path / "qwen"
    folder.mkdir()
    (folder / "tokenizer.json").write_text(made.to_str(), encoding="utf-8")
    settings = {"tokenizer_class": "Qwen2Tokenizer", "eos_token": "<|im_end|>", "chat_template": TEMPLATE}
    (folder / "tokenizer_config.json").write_text(json.dumps(settings), encoding="utf-8")
    return folder


def grown(folder, to):
    """Return the tokenizer of a folder expanded for Hindi, written to another folder with the base's settings."""
    base = patch_marks(TokenizerFile.open(folder), frozenset({"Devanagari"}))
    new = expand_vocabulary(base, HINDI, [], LearnOptions(60, pinned_scripts=frozenset({"Devanagari"}))).new
    shutil.copytree(folder, to)
    (to / "tokenizer.json").write_text(new.text, encoding="utf-8")
    return new


def test_a_class_with_a_pattern_of_its_own_gives_way(qwen, tmp_path):
    new = grown(qwen, tmp_path / "new")
    lost = AutoTokenizer.from_pretrained(tmp_path / "new")(HINDI[0], add_special_tokens=False)["input_ids"]
    assert lost != new.encode(HINDI[0])
    settle_tokenizer_class(tmp_path / "new", new)
    assert (
        json.loads((tmp_path / "new" / "tokenizer_config.json").read_text())["tokenizer_class"]
        == "PreTrainedTokenizerFast"
    )
    found = AutoTokenizer.from_pretrained(tmp_path / "new")(HINDI[0], add_special_tokens=False)["input_ids"]
    assert found == new.encode(HINDI[0])
    refuse_changed_template(qwen, tmp_path / "new")


def test_a_class_that_agrees_stays(qwen, tmp_path):
    before = (qwen / "tokenizer_config.json").read_bytes()
    settle_tokenizer_class(qwen, TokenizerFile.open(qwen))
    assert (qwen / "tokenizer_config.json").read_bytes() == before


def test_t4_moved_control_tokens_and_changed_chats_are_refused(qwen, tmp_path):
    other = shutil.copytree(qwen, tmp_path / "other")
    settings = json.loads((qwen / "tokenizer_config.json").read_text())
    (other / "tokenizer_config.json").write_text(json.dumps(settings | {"chat_template": TEMPLATE + "x"}))
    with pytest.raises(ModelError, match="the chat template is another"):
        refuse_changed_template(qwen, other)
    (other / "tokenizer_config.json").write_text(json.dumps(settings | {"eos_token": "<|endoftext|>"}))
    with pytest.raises(ModelError, match="eos_token_id is 0, it was 2"):
        refuse_changed_template(qwen, other)
    refuse_changed_template(qwen, qwen)


def test_a_tokenizer_that_no_class_reads_rightly_is_refused(qwen, tmp_path):
    new = grown(qwen, tmp_path / "new")
    shutil.copyfile(qwen / "tokenizer.json", tmp_path / "new" / "tokenizer.json")
    with pytest.raises(ModelError, match=r"AutoTokenizer gives other ids than tokenizer\.json"):
        settle_tokenizer_class(tmp_path / "new", new)


def test_a_template_that_refuses_the_conversation_is_no_reason_to_stop(qwen):
    settings = json.loads((qwen / "tokenizer_config.json").read_text())
    strict = "{{ raise_exception('system first') }}"
    (qwen / "tokenizer_config.json").write_text(json.dumps(settings | {"chat_template": strict}))
    refuse_changed_template(qwen, qwen)


def test_new_tokens_in_the_words_of_a_conversation_are_no_change_of_it(qwen, tmp_path):
    base = TokenizerFile.open(qwen)
    new = expand_vocabulary(base, ["Paris Paris capital of France"] * 20, [], LearnOptions(20)).new
    shutil.copytree(qwen, tmp_path / "new")
    (tmp_path / "new" / "tokenizer.json").write_text(new.text, encoding="utf-8")
    assert new.encode("Paris") != base.encode("Paris")
    refuse_changed_template(qwen, tmp_path / "new")


def named_class(folder):
    return json.loads((folder / "tokenizer_config.json").read_text(encoding="utf-8")).get("tokenizer_class")


def name_class(folder, name):
    path = folder / "tokenizer_config.json"
    path.write_text(json.dumps(json.loads(path.read_text(encoding="utf-8")) | {"tokenizer_class": name}))


def test_a_class_that_only_version_5_knows_gives_way_to_one_that_all_know(qwen):
    name_class(qwen, "TokenizersBackend")
    tokenizer = TokenizerFile.open(qwen)
    assert choose_tokenizer_class(qwen, tokenizer, "keep") == named_class(qwen) == "TokenizersBackend"
    before = AutoTokenizer.from_pretrained(qwen)
    assert choose_tokenizer_class(qwen, tokenizer) == named_class(qwen) == "PreTrainedTokenizerFast"
    after = AutoTokenizer.from_pretrained(qwen)
    talk = [{"role": "user", "content": "the night"}]
    assert after.apply_chat_template(talk, tokenize=False) == before.apply_chat_template(talk, tokenize=False)
    assert (after.eos_token_id, after("the night")["input_ids"]) == (
        before.eos_token_id,
        before("the night")["input_ids"],
    )


def test_a_class_of_its_own_is_left_alone_unless_another_is_asked_for(qwen):
    tokenizer = TokenizerFile.open(qwen)
    assert choose_tokenizer_class(qwen, tokenizer) == "Qwen2Tokenizer"
    assert choose_tokenizer_class(qwen, tokenizer, "PreTrainedTokenizerFast") == "PreTrainedTokenizerFast"
    assert named_class(qwen) == "PreTrainedTokenizerFast"


def test_a_class_that_gives_other_tokens_is_not_named(qwen, tmp_path):
    name_class(qwen, "TokenizersBackend")
    other = grown(qwen, tmp_path / "other")
    text = (qwen / "tokenizer_config.json").read_text()
    with pytest.raises(ModelError, match="gives other tokens"):
        choose_tokenizer_class(qwen, other, "PreTrainedTokenizerFast")
    assert (qwen / "tokenizer_config.json").read_text() == text
    assert choose_tokenizer_class(qwen, other) == "TokenizersBackend"


def test_a_folder_without_settings_names_no_class(qwen):
    tokenizer = TokenizerFile.open(qwen)
    (qwen / "tokenizer_config.json").unlink()
    assert choose_tokenizer_class(qwen, tokenizer) is None
