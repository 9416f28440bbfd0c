"""Scripts: which writing system a letter belongs to. The one list of them for cleaning, vocabulary and embeddings."""

from functools import lru_cache

import regex

__all__ = ["SCRIPTS", "WIDESPREAD_SCRIPTS", "script_of"]

_WIDESPREAD = (
    "Latin Arabic Devanagari Cyrillic Greek Han Hangul Hiragana Katakana Hebrew Bengali Tamil Telugu Kannada Malayalam "
    "Gujarati Gurmukhi Oriya Sinhala Thai Lao Khmer Myanmar Tibetan Georgian Armenian Ethiopic Mongolian Thaana Syriac "
    "Nko Cherokee Canadian_Aboriginal Tifinagh Javanese Balinese Sundanese Bopomofo Yi Ol_Chiki Meetei_Mayek Vai Adlam"
)
# The rest of Unicode 16, of which the oldest allowed version of `regex` knows every name.
_RARE = (
    "Ahom Anatolian_Hieroglyphs Avestan Bamum Bassa_Vah Batak Bhaiksuki Brahmi Braille Buginese Buhid Carian "
    "Caucasian_Albanian Chakma Cham Chorasmian Coptic Cuneiform Cypriot Cypro_Minoan Deseret Dives_Akuru Dogra "
    "Duployan Egyptian_Hieroglyphs Elbasan Elymaic Garay Glagolitic Gothic Grantha Gunjala_Gondi Gurung_Khema "
    "Hanifi_Rohingya Hanunoo Hatran Imperial_Aramaic Inscriptional_Pahlavi Inscriptional_Parthian Kaithi Kawi "
    "Kayah_Li Kharoshthi Khitan_Small_Script Khojki Khudawadi Kirat_Rai Lepcha Limbu Linear_A Linear_B Lisu Lycian "
    "Lydian Mahajani Makasar Mandaic Manichaean Marchen Masaram_Gondi Medefaidrin Mende_Kikakui Meroitic_Cursive "
    "Meroitic_Hieroglyphs Miao Modi Mro Multani Nabataean Nag_Mundari Nandinagari New_Tai_Lue Newa Nushu "
    "Nyiakeng_Puachue_Hmong Ogham Ol_Onal Old_Hungarian Old_Italic Old_North_Arabian Old_Permic Old_Persian "
    "Old_Sogdian Old_South_Arabian Old_Turkic Old_Uyghur Osage Osmanya Pahawh_Hmong Palmyrene Pau_Cin_Hau Phags_Pa "
    "Phoenician Psalter_Pahlavi Rejang Runic Samaritan Saurashtra Sharada Shavian Siddham SignWriting Sogdian "
    "Sora_Sompeng Soyombo Sunuwar Syloti_Nagri Tagalog Tagbanwa Tai_Le Tai_Tham Tai_Viet Takri Tangsa Tangut "
    "Tirhuta Todhri Toto Tulu_Tigalari Ugaritic Vithkuqi Wancho Warang_Citi Yezidi Zanabazar_Square"
)

SCRIPTS = (*_WIDESPREAD.split(), *_RARE.split())
"""All of them, the widespread ones first."""

WIDESPREAD_SCRIPTS = frozenset(_WIDESPREAD.split())
"""Scripts that texts of today are likely to hold, whatever their language."""

_COMMON = regex.compile(r"[\p{Script=Common}\p{Script=Inherited}]")
_SCRIPT = regex.compile("|".join(rf"(?P<{name}>\p{{Script={name}}})" for name in SCRIPTS))


@lru_cache(maxsize=2**16)
def script_of(character: str) -> str | None:
    """Return the Unicode script of a letter or mark, None for what belongs to no one script (space, digit, stop).

    The name is Unicode's, as in ``Devanagari`` or ``Ol_Chiki``; a character that Unicode 16 gives to no script
    (unassigned, for private use) is ``Other``. https://www.unicode.org/reports/tr24/
    """
    if _COMMON.match(character):
        return None
    found = _SCRIPT.match(character)
    return str(found.lastgroup) if found else "Other"
