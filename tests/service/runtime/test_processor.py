"""The processor's name, beside measured times."""

import platform

import pytest
from shortlist.runtime import processor


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("processor\t: 0\nmodel name\t: AMD EPYC\n\nprocessor\t: 1\nmodel name\t: AMD EPYC\n", "AMD EPYC, 2 cores"),
        ("processor\t: 0\nBogoMIPS\t: 50.00\n", platform.processor()),
        (None, platform.processor()),
    ],
)
def test_the_name_is_what_linux_says_or_else_what_python_does(text, name, tmp_path, monkeypatch):
    path = tmp_path / "cpuinfo"
    if text is not None:
        path.write_text(text)
    monkeypatch.setattr(processor, "CPU_INFO", path)
    assert processor.read_processor_name() == name
