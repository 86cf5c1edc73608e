from pathlib import Path

from benchmarks.datasets.kinds.base import Place
from benchmarks.datasets.kinds.packages import Packages
from benchmarks.datasets.kinds.recipes import RECIPES, find_python, find_translation


def test_there_are_kinds_that_the_shipped_texts_have_and_kinds_that_they_lack():
    assert len({recipe.name for recipe in RECIPES}) == len(RECIPES) >= 13
    unseen = {recipe.name for recipe in RECIPES if not recipe.in_mixture}
    assert {"javascript", "italian", "korean"} <= unseen
    assert len(unseen) < len(RECIPES)


def test_python_is_the_standard_library_without_its_tests(tmp_path):
    texts = list(find_python(Place(None, Packages(tmp_path))))
    assert len(texts) >= 100
    assert any("class ArgumentParser(" in text for text in texts)


def test_a_translation_is_pages_of_both_guides_in_the_language_alone(tmp_path):
    paragraph = "Und das ist ein Absatz in der Sprache, die hier gesucht wird: die deutsche. "
    for path in (
        "debian-handbook/usr/share/doc/debian-handbook/html/de-DE/a.html",
        "installation-guide-amd64/usr/share/doc/installation-guide-amd64/de/b.html",
        "installation-guide-amd64/usr/share/doc/installation-guide-amd64/en/c.html",
    ):
        (tmp_path / path).parent.mkdir(parents=True)
        english = "<p>" + "And this is a paragraph that nobody has translated yet, as it is new to all of them. " * 20
        (tmp_path / path).write_text(f"<p>{Path(path).name} {paragraph * 20}</p>{english}")
    texts = list(find_translation("de-DE", "de", "de", Place(None, Packages(tmp_path))))
    assert [text[:6] for text in texts] == ["a.html", "b.html"]
    assert all(text.count("deutsche") == 20 and "nobody" not in text for text in texts)
