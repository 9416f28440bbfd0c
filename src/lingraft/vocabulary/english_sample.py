"""A fixed sample of English: whatever else is protected, these texts must keep their tokens.

Public domain: A. Lincoln, address at Gettysburg (1863); J. Austen, Pride and Prejudice (1813); L. Carroll, Alice's
Adventures in Wonderland (1865); H. Melville, Moby-Dick (1851); the Declaration of Independence (1776). The rest, mail,
tables and code, was written for this purpose.
"""

__all__ = ["ENGLISH_SAMPLE"]

ENGLISH_SAMPLE = (
    "Four score and seven years ago our fathers brought forth on this continent, a new nation, conceived in "
    "Liberty, and dedicated to the proposition that all men are created equal. Now we are engaged in a great "
    "civil war, testing whether that nation, or any nation so conceived and so dedicated, can long endure. We "
    "are met on a great battle-field of that war. We have come to dedicate a portion of that field, as a final "
    "resting place for those who here gave their lives that that nation might live. It is altogether fitting "
    "and proper that we should do this.",
    "It is a truth universally acknowledged, that a single man in possession of a good fortune, must be in "
    "want of a wife. However little known the feelings or views of such a man may be on his first entering a "
    "neighbourhood, this truth is so well fixed in the minds of the surrounding families, that he is "
    "considered as the rightful property of some one or other of their daughters.",
    "Alice was beginning to get very tired of sitting by her sister on the bank, and of having nothing to do: "
    "once or twice she had peeped into the book her sister was reading, but it had no pictures or "
    "conversations in it, “and what is the use of a book,” thought Alice “without pictures or conversations?”",
    "Call me Ishmael. Some years ago—never mind how long precisely—having little or no money in my purse, and "
    "nothing particular to interest me on shore, I thought I would sail about a little and see the watery part "
    "of the world.",
    "We hold these truths to be self-evident, that all men are created equal, that they are endowed by their "
    "Creator with certain unalienable Rights, that among these are Life, Liberty and the pursuit of Happiness.",
    "Dear Ms. O'Neil,\n\nthank you for your mail of 12 March. We've checked invoice no. 2024-0317 (EUR "
    "1,249.50): it wasn't paid twice, and the refund of $35.99 isn't due before the 30th. Please don't "
    "hesitate to call +1 (555) 010-4477 between 9:00 and 17:30.\n\nKind regards,\nJ. McArthur\n",
    "The light in the night is bright, and the metadata of the file is involved. To open a document, choose "
    "File and then Open; the dialog shows the folders. A cell can hold a number, a text or a formula. If the "
    "button is pressed the window closes and the settings are kept; otherwise nothing happens, whatever was "
    "typed before.",
    "Protein synthesis takes place in ribosomes; photosynthesis, in chloroplasts. The derivative of x^2 is 2x, "
    "and the integral of 1/x is ln|x| + C. Water boils at 100 °C (212 °F) at sea level, lower at high altitude.",
    "Q: Which of these is a prime number?\nA. 21\nB. 51\nC. 97\nD. 119\nAnswer: C\n\nQ: Paris is to France as "
    "Rome is to ...\nA. Spain\nB. Italy\nC. Greece\nD. Portugal\nAnswer: B\n",
    "| name | age | city |\n| --- | ---: | --- |\n| Ann | 31 | Boston |\n| Bob | 47 | Leeds |\n\n* first item\n"
    "* second item\n  1. nested\n  2. nested again\n\n> “To be, or not to be”\n\n"
    "https://example.org/a?b=c&d=e#f someone@example.org\n",
    "import json\n\n\ndef read_rows(path: str, *, strict: bool = True) -> list[dict]:\n    rows = []\n    with "
    'open(path, encoding="utf-8") as file:\n        for number, line in enumerate(file, '
    "start=1):\n            try:\n                rows.append(json.loads(line))\n            except ValueError "
    'as error:\n                if strict:\n                    raise ValueError(f"{path}:{number}: '
    '{error}") from error\n    return rows\n',
    "SELECT c.name, COUNT(*) AS orders FROM customers c LEFT JOIN orders o ON o.customer_id = c.id WHERE "
    "o.total >= 99.95 GROUP BY c.name HAVING COUNT(*) > 3 ORDER BY orders DESC LIMIT 10;\n",
    "for (int i = 0; i < n; ++i) {\n\tif (a[i] != b[i]) { return -1; }  // first difference\n}\nreturn 0;\n",
)
