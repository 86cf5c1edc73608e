import gzip

from benchmarks.datasets.kinds.files import (
    CPLUSPLUS,
    SMALLEST_BYTES,
    is_shell_script,
    list_files,
    read_descriptions,
    read_files,
)

CONTENT = "a line of text\n" * SMALLEST_BYTES


def test_files_of_a_document_s_size_and_no_links(tmp_path):
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub" / "a.py").write_text(CONTENT)
    (tmp_path / "b.py").write_text("too short")
    (tmp_path / "c.txt").write_text(CONTENT)
    (tmp_path / "d.py").symlink_to(tmp_path / "sub" / "a.py")
    assert list_files([tmp_path, tmp_path / "absent"], "*.py") == [tmp_path / "sub" / "a.py"]


def test_texts_are_utf8_and_unpacked(tmp_path):
    (tmp_path / "a").write_bytes(b"one\r\ntwo")
    (tmp_path / "b.gz").write_bytes(gzip.compress("drei \u00df".encode()))
    (tmp_path / "c").write_bytes(b"caf\xe9")
    (tmp_path / "d.gz").write_bytes(b"not packed")
    assert list(read_files(sorted(tmp_path.iterdir()))) == ["one\ntwo", "drei \u00df"]


def test_the_first_line_of_a_shell_script(tmp_path):
    for line, expected in {
        "#!/bin/sh -e": True,
        "#! /bin/bash": True,
        "#!/usr/bin/env bash": True,
        "#!/usr/bin/python3": False,
        "#!/bin/shred": False,
    }.items():
        (tmp_path / "script").write_text(line + "\n")
        assert is_shell_script(tmp_path / "script") is expected


def test_c_plus_plus_is_no_c():
    assert CPLUSPLUS.search("//===--- a.h ---*- C++ -*-===//\n")
    assert CPLUSPLUS.search("int a;\nnamespace b {\n")
    assert not CPLUSPLUS.search("struct a { int class_number; };\n/* using it is free */\n")


def test_installed_packages_describe_themselves():
    texts = list(read_descriptions())
    assert len(texts) >= 20
    assert all(isinstance(text, str) for text in texts)
