"""Nothing untrusted becomes markup, and nothing hidden stays hidden."""

import json

import pytest

from lingraft.report.escaping import (
    Html,
    chart_text,
    element,
    isolated,
    join,
    json_for_script,
    markdown_text,
    redacted,
    visible,
)


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("plain, ñ, 北京", "plain, ñ, 北京"),
        ("\x1b[31mred", "␛[31mred"),
        ("a\x00b\x07\x7f", "a␀b␇␡"),
        ("\x9b2J\x85", "⟦U+009B⟧2J⟦U+0085⟧"),
        ("safe\u202egnp.exe", "safe⟦U+202E⟧gnp.exe"),
        ("\u2066\u2069\u200e\u200f\u061c", "⟦U+2066⟧⟦U+2069⟧⟦U+200E⟧⟦U+200F⟧⟦U+061C⟧"),
        ("\u2028\u2029\ufeff\u200b", "⟦U+2028⟧⟦U+2029⟧⟦U+FEFF⟧⟦U+200B⟧"),
        ("\ud800", "⟦U+D800⟧"),
        ("مرحبا می\u200cخواهم 👩\u200d👧", "مرحبا می\u200cخواهم 👩\u200d👧"),
        ("line\n\ttab\r", "line\n\ttab␍"),
    ],
)
def test_controls_are_visible_and_letters_are_left_alone(text: str, shown: str) -> None:
    assert visible(text) == shown


def test_newlines_can_be_made_visible_too() -> None:
    assert visible("a\nb", keep="") == "a␊b"


def test_text_is_escaped_and_markup_is_not() -> None:
    assert element("p", "<b>&", element("i", "x")) == "<p>&lt;b&gt;&amp;<i>x</i></p>"
    assert isinstance(join("<", [Html("<br>"), ">"]), Html)
    assert join("<", [Html("<br>"), ">"]) == "&lt;<br>&gt;"


def test_attributes_cannot_be_left() -> None:
    made = element("p", title='" onmouseover="x', aria_label="'<", class_="a", hidden=True, id=None, lang=False)
    assert made == '<p title="&quot; onmouseover=&quot;x" aria-label="&#x27;&lt;" class="a" hidden></p>'


def test_a_string_made_from_markup_is_text_again() -> None:
    assert element("p", Html("<b>") + "<i>") == "<p>&lt;b&gt;&lt;i&gt;</p>"


@pytest.mark.parametrize("bad", [{"onclick": "x"}, {"href": "javascript:alert(1)"}, {"src": "http://x/y.png"}])
def test_handlers_and_strange_links_are_refused(bad: dict[str, str]) -> None:
    with pytest.raises(ValueError, match=r"on the page|fragment"):
        element("a", "x", **bad)


def test_untrusted_text_has_its_own_direction() -> None:
    assert isolated("مرحبا") == '<bdi dir="auto">مرحبا</bdi>'


def test_json_cannot_end_its_script_and_comes_back_equal() -> None:
    value = {"</script><!--": ["&", "\u2028\u2029", "مرحبا", "\ud800"], "n": [1.5, None, True]}
    text = json_for_script(value)
    assert not set("<>&\u2028\u2029") & set(text)
    assert text.isascii()
    assert json.loads(text) == value
    with pytest.raises(ValueError, match="JSON compliant"):
        json_for_script(float("nan"))


def test_chart_labels_show_tags_and_entities_literally() -> None:
    assert chart_text("<a href='x'>&lt;\n") == "&lt;a href='x'&gt;&amp;lt;␊"


def test_markdown_shows_literally_and_stays_in_its_cell() -> None:
    assert markdown_text("a|b\n# c") == r"a\|b \# c"
    assert markdown_text("[x](javascript:1)") == r"\[x\](javascript:1)"
    assert markdown_text("![i](https://e.invalid)") == r"!\[i\](https:&#47;/e.invalid)"
    assert markdown_text("<script>*_`\x1b") == r"&lt;script&gt;\*\_\`␛"


def test_secrets_are_taken_out() -> None:
    shown = redacted(f"https://user:pass@host/x hf_{'a' * 30} sk-{'B' * 20} user@host")
    assert shown == "https://⟦redacted⟧@host/x ⟦redacted⟧ ⟦redacted⟧ user@host"
