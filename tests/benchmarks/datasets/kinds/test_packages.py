import sys
import zipfile

import pytest
from shortlist.errors import NotFound

from benchmarks.datasets.kinds.packages import Packages, run_command


def test_a_package_that_is_there_is_not_downloaded(tmp_path):
    (tmp_path / "name").mkdir()
    assert Packages(tmp_path).unpack_debian("name") == Packages(tmp_path).unpack_python("name") == tmp_path / "name"


def test_a_wheel_is_unpacked(tmp_path, monkeypatch):
    files = {
        "tiny_texts/a.txt": "words",
        "tiny_texts-1.dist-info/METADATA": "Metadata-Version: 2.1\nName: tiny-texts\nVersion: 1\n",
        "tiny_texts-1.dist-info/WHEEL": "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
        "tiny_texts-1.dist-info/RECORD": "",
    }
    with zipfile.ZipFile(tmp_path / "tiny_texts-1-py3-none-any.whl", "w") as wheel:
        for name, content in files.items():
            wheel.writestr(name, content)
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path))
    folder = Packages(tmp_path / "packages").unpack_python("tiny-texts")
    assert (folder / "tiny_texts" / "a.txt").read_text() == "words"


def test_a_package_that_cannot_be_had_is_a_sentence(tmp_path, monkeypatch):
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    with pytest.raises(NotFound, match=r"pip download .* absent-texts` failed \(ERROR: No matching distribution"):
        Packages(tmp_path).unpack_python("absent-texts")
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(NotFound, match="`apt-get` cannot be run here"):
        Packages(tmp_path).unpack_debian("absent-texts")
    assert not (tmp_path / "absent-texts").exists()


def test_the_last_line_of_a_command_that_fails(tmp_path):
    command = [sys.executable, "-c", "import sys; sys.exit('first\\nlast')"]
    with pytest.raises(NotFound, match=r"failed \(last\)"):
        run_command(command, tmp_path)
