import pytest
from shortlist_exporter.report.page import page


@pytest.mark.parametrize(
    ("text", "label"), [(" the", " the"), ("a\nb", "a\\nb"), ("", "(empty)"), ("é", "é"), ("\u200b", "\\u200b")]
)
def test_words_show_what_does_not_print(text, label):
    assert page.format_word(text) == label


@pytest.mark.parametrize(
    ("value", "label"), [(0, "0 bytes"), (1023, "1,023 bytes"), (1536, "1.5 KiB"), (3 << 40, "3,072.0 GiB")]
)
def test_sizes(value, label):
    assert page.format_bytes(value) == label


@pytest.mark.parametrize(("value", "label"), [(1.0, "1"), (0.99, ".9900"), (0.0, ".0000"), (0.99999, "1.0000")])
def test_shares(value, label):
    assert page.format_share(value) == label


@pytest.mark.parametrize(("value", "label"), [(1 / 16, "1/16"), (1.0, "1"), (1.5, "1.5"), (1 / 4.35, "1/4.35")])
def test_parts_of_dense(value, label):
    assert page.format_fraction(value) == label


def test_labels_are_text_and_never_markup(report_bundle):
    text = (report_bundle / "report" / "index.html").read_text("utf-8")
    assert "&lt;b&gt;word" in text
    assert "<b>word" not in text


def test_the_page_opens_with_name_verdict_and_key_figures(report_bundle):
    text = (report_bundle / "report" / "index.html").read_text("utf-8")
    order = [
        "<h1>lm",
        "<b>Promise kept",
        "P@1</dt>",
        "Against dense</dt>",
        "Classes scored</dt>",
        "Memory</dt>",
        "<h2>",
    ]
    assert [text.index(part) for part in order] == sorted(text.index(part) for part in order)
    assert "prefers-color-scheme: dark" in text
