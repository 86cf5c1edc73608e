import pytest
from shortlist.errors import BadInput, NotFound
from shortlist_exporter.capture.texts import Text, list_texts, read_documents, read_texts


@pytest.mark.parametrize(
    ("text", "documents"),
    [
        ("no heading\nat all", 1),
        (" = One = \na\n = = Part = = \nb\n = Two = \nc\n", 2),
        ("Title\n\nChapter 1\n\na\n\nChapter II\n\nb\n", 3),
        ("in Chapter 1\nof this\n", 1),
    ],
)
def test_documents(tmp_path, text, documents):
    path = tmp_path / "t.txt"
    path.write_text(text)
    assert len(read_documents(path)) == documents
    assert "".join(read_documents(path)) == text


def test_a_form_feed_begins_a_document_and_is_no_part_of_it(tmp_path):
    path = tmp_path / "t.txt"
    path.write_text("a\n\f\nb\n\f\n\n\f\nc\f\n")
    assert read_documents(path) == ["a\n", "b\n", "c\f\n"]


@pytest.mark.parametrize("content", [b"", b" \n\n"])
def test_a_text_without_words(tmp_path, content):
    (tmp_path / "t.txt").write_bytes(content)
    with pytest.raises(BadInput, match="no text"):
        read_texts([Text(tmp_path / "t.txt")])


def test_a_text_that_is_not_utf8(tmp_path):
    (tmp_path / "t.txt").write_bytes(b"caf\xe9 au lait")
    with pytest.raises(BadInput, match=r"UTF-8.*byte 3"):
        read_texts([Text(tmp_path / "t.txt")])


def test_a_mark_at_the_start_of_a_file_is_no_part_of_its_text(tmp_path):
    (tmp_path / "t.txt").write_bytes("\ufeff\f\nfirst\n\f\na \ufeffb\n".encode())
    assert read_documents(tmp_path / "t.txt") == ["first\n", "a \ufeffb\n"]
    (tmp_path / "empty.txt").write_bytes("\ufeff\n".encode())
    assert read_documents(tmp_path / "empty.txt") == []


def test_a_missing_text(tmp_path):
    with pytest.raises(NotFound, match=r"absent\.txt"):
        list_texts([Text(tmp_path / "absent.txt")])


def test_a_blank_text_among_others_is_no_error(tmp_path):
    (tmp_path / "a.txt").write_text("")
    (tmp_path / "b.txt").write_text("words")
    assert read_texts([Text(tmp_path / "a.txt"), Text(tmp_path / "b.txt")]) == [[], ["words"]]


def test_a_folder_stands_for_its_texts_in_equal_shares(tmp_path):
    for name in ("b.txt", "a.txt", "README.md"):
        (tmp_path / name).write_text("words")
    parts = [Text(tmp_path / "a.txt", 1.0), Text(tmp_path / "b.txt", 1.0)]
    assert list_texts([Text(tmp_path)]) == parts
    assert list_texts([Text(tmp_path, 3.0)]) == [Text(text.path, 3.0) for text in parts]
    assert list_texts([Text(tmp_path), Text(tmp_path / "README.md")]) == [*parts, Text(tmp_path / "README.md", 1.0)]
    assert list_texts([Text(tmp_path / "a.txt")]) == [Text(tmp_path / "a.txt")]


def test_a_folder_without_texts(tmp_path):
    with pytest.raises(NotFound, match=r"holds no \.txt file"):
        list_texts([Text(tmp_path)])
