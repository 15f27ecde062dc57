"""docs/sql.md says of every form what the `.test` files show."""

from __future__ import annotations

import re

from tests.sql.forms_page import BEGIN, END, PAGE, with_forms, written
from tests.sql.script_runner import FOLDER, read


def test_the_page_is_what_the_tests_show() -> None:
    page = PAGE.read_text()
    assert page.count(BEGIN) == page.count(END) == 1
    assert page == with_forms(page), "run: python -m tests.sql.forms_page"


def test_every_form_is_shown_and_every_refusal_says_what_to_do() -> None:
    forms = [(path.name, form, block) for path in FOLDER.glob("*.test") for block in read(path) for form in block.forms]
    assert len(forms) > 50
    for name, form, block in forms:
        word = re.match(r"\w+", form)
        if word is not None and not form[0].isupper():
            assert any(word[0] in text for text in block.statements), f"{name}: nothing shows {form!r}"
        if block.header[:2] == ("lake", "fail"):
            assert block.expected, f"{name}: what does the refusal of {form!r} say?"
    assert len({form for _, form, _ in forms}) == len(forms), "each form is listed once"
    assert "refused: “" in written()
