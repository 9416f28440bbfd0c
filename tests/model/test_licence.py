"""Licences are told as the model states them, or not at all."""

from pathlib import Path
from types import SimpleNamespace

import pytest

from lingraft.model import licence
from lingraft.model.locate import BaseLocation

FOLDER = BaseLocation("x", "folder", Path("x"))


@pytest.mark.parametrize(
    ("card", "said"),
    [
        ("---\nlicense: apache-2.0\nlanguage: en\n---\n# A model\n", "apache-2.0"),
        ("---\nlicense: other\nlicense_name: llama3\n---\n", "llama3"),
        ("---\nlicense: other\n---\n", "other"),
        ("---\nlicense: [mit, cc-by-4.0]\n---\n", "mit, cc-by-4.0"),
        ("\ufeff---\r\nlicense: mit\r\n---\r\n", "mit"),
        ("---\nlicense: 7\n---\n", None),
        ("---\nlicense: ' '\n---\n", None),
        ("---\n- a list\n---\n", None),
        ("---\nlicense: {unclosed\n---\n", None),
        ("---\nlicense: !!python/object/apply:os.system [exit]\n---\n", None),
        ("# License: mit\n\n---\nlicense: mit\n---\n", None),
        ("---\nlicense: mit\n", None),
        ("", None),
    ],
)
def test_the_front_matter_of_a_card_is_read(tmp_path: Path, card: str, said: str | None) -> None:
    (tmp_path / "README.md").write_bytes(card.encode())
    assert licence.stated_license(FOLDER, tmp_path) == said


def test_a_folder_without_a_card_states_nothing(tmp_path: Path) -> None:
    assert licence.stated_license(FOLDER, tmp_path) is None


@pytest.mark.parametrize(("fields", "said"), [({"general.license": "apache-2.0"}, "apache-2.0"), ({}, None)])
def test_a_gguf_file_states_it_in_a_field(monkeypatch: pytest.MonkeyPatch, fields: dict, said: str | None) -> None:
    held = {name: SimpleNamespace(contents=lambda value=value: value) for name, value in fields.items()}
    monkeypatch.setattr(licence, "open_gguf", lambda _: SimpleNamespace(fields=held))
    assert licence.stated_license(BaseLocation("x.gguf", "gguf", Path("x.gguf")), Path()) == said
