import gzip
import shutil

import pytest

from benchmarks.datasets.kinds.markup import is_in_language, keep_language, read_paragraphs, render_manual_page

GERMAN = "Alle Menschen sind frei und gleich an W\u00fcrde und Rechten geboren, und sie sind mit Vernunft begabt."
ENGLISH = "All human beings are born free and equal in dignity and rights, and they are endowed with reason."
RUSSIAN = "".join(map(chr, range(0x430, 0x450)))  # the alphabet
ANOTHER = "Und das ist der zweite Absatz, der nicht fehlt."


def test_paragraphs_of_a_page_without_code():
    page = "<title>T</title><script>x()</script><h1>A\n <b>b</b></h1><pre>code</pre><p>One<p>two &amp; 3<li>item"
    assert read_paragraphs(page) == ["T", "A b", "One", "two & 3", "item"]


@pytest.mark.parametrize(("text", "language"), [(GERMAN, "de"), (ENGLISH, "en"), (RUSSIAN, "ru")])
def test_the_language_of_a_text(text, language):
    assert [each for each in ("de", "en", "fr", "ru", "ko") if is_in_language(text, each)] == [language]


def test_a_text_of_a_few_letters_has_no_language():
    assert not is_in_language("12 und 13", "de")


def test_paragraphs_that_were_not_translated_are_left_out():
    assert keep_language([GERMAN, ENGLISH, GERMAN, "1.2.3", ANOTHER], "de") == f"{GERMAN}\n\n{ANOTHER}"


@pytest.mark.skipif(shutil.which("man") is None, reason="there is no program `man`")
def test_a_manual_page_as_a_terminal_shows_it(tmp_path):
    page = ".TH NAME 1\n.SH NAME\nname \\- \\fBbold\\fP text\n"
    (tmp_path / "name.1.gz").write_bytes(gzip.compress(page.encode()))
    assert "name - bold text" in render_manual_page(tmp_path / "name.1.gz")
