"""Every kind of text, and where its documents are found."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path

from . import corpora
from .base import Place, Recipe
from .files import CPLUSPLUS, INSTALLED, STANDARD_LIBRARY, list_files, list_shell_scripts, read_descriptions, read_files
from .markup import is_in_language, keep_language, read_paragraphs, render_manual_pages

LEAST_CHARACTERS = 600  # of a page in another language
LEFT_OUT = frozenset(("site-packages", "test", "tests", "idle_test", "lib2to3", "encodings"))
MANUAL_PAGES = 80  # that are rendered
HANDBOOK = "usr/share/doc/debian-handbook/html"
GUIDE = "usr/share/doc/installation-guide-amd64"

Find = Callable[[Place], Iterable[str]]


def find_python(_: Place) -> Iterable[str]:
    """Modules of the standard library."""
    paths = list_files([STANDARD_LIBRARY], "*.py")
    return read_files(path for path in paths if not LEFT_OUT.intersection(path.parts))


def find_c(_: Place) -> Iterable[str]:
    """Headers of the system, and sources that Python packages hold."""
    texts = read_files([*list_files([Path("/usr/include")], "*.h"), *list_files([INSTALLED], "*.c")])
    return (text for text in texts if not CPLUSPLUS.search(text))


def find_javascript(_: Place) -> Iterable[str]:
    """Modules of installed JavaScript packages."""
    folders = [Path("/usr/lib/node_modules"), Path("/usr/share/nodejs"), Path("/usr/share/javascript")]
    return read_files(path for path in list_files(folders, "*.js") if not path.name.endswith(".min.js"))


def find_perl(_: Place) -> Iterable[str]:
    """Modules of Perl."""
    return read_files(list_files([Path("/usr/share/perl"), Path("/usr/share/perl5")], "*.pm"))


def find_shell(_: Place) -> Iterable[str]:
    """Scripts of the system."""
    return read_files(list_shell_scripts())


def find_markdown(_: Place) -> Iterable[str]:
    """What installed packages say about themselves, and their documents."""
    yield from read_descriptions()
    yield from read_files(list_files([INSTALLED, Path("/usr/lib/node_modules")], "*.md"))


def find_html(_: Place) -> Iterable[str]:
    """Sources of HTML pages."""
    return read_files(list_files([Path("/usr/share/doc")], "*.html"))


def find_licences(_: Place) -> Iterable[str]:
    """Licences of the system and of installed packages, and Debian's files on copyright."""
    yield from read_files(list_files([Path("/usr/share/common-licenses")], "*"))
    yield from read_files(list_files([Path("/usr/share/doc")], "copyright"))
    yield from read_files(list_files([INSTALLED], "LICEN[SC]E*"))


def list_manual_pages(place: Place, package: str) -> list[Path]:
    """Manual pages of a Debian package, every n-th of them."""
    paths = [path for path in list_files([place.packages.unpack_debian(package)], "*.gz") if "/man/" in str(path)]
    return paths[:: max(1, len(paths) // MANUAL_PAGES)]


def find_manual_pages(place: Place) -> Iterable[str]:
    """English manual pages, rendered."""
    return render_manual_pages(list_manual_pages(place, "manpages-dev"))


def find_roff(place: Place) -> Iterable[str]:
    """The sources of English manual pages."""
    return read_files(list_manual_pages(place, "manpages"))


def find_polish_manual_pages(place: Place) -> Iterable[str]:
    """Polish manual pages, rendered."""
    pages = render_manual_pages(list_manual_pages(place, "manpages-pl"))
    return (page for page in pages if is_in_language(page, "pl"))


def find_translation(handbook: str, guide: str, language: str, place: Place) -> Iterable[str]:
    """Pages of Debian's handbook in a language, then of its guide to installation."""
    folders = []
    if handbook:
        folders.append(place.packages.unpack_debian("debian-handbook") / HANDBOOK / handbook)
    folders.append(place.packages.unpack_debian("installation-guide-amd64") / GUIDE / guide)
    for page in read_files(list_files(folders, "*.html")):
        text = keep_language(read_paragraphs(page), language)
        if len(text) >= LEAST_CHARACTERS:
            yield text


RECIPES = (
    Recipe("wikitext", corpora.find_wikitext),
    Recipe("news", corpora.find_news),
    Recipe("sentences", corpora.find_english_sentences),
    Recipe("dialogue", corpora.find_dialogue, in_mixture=True),
    Recipe("python", find_python, in_mixture=True),
    Recipe("c", find_c, in_mixture=True),
    Recipe("javascript", find_javascript),
    Recipe("perl", find_perl),
    Recipe("shell", find_shell),
    Recipe("markdown", find_markdown, in_mixture=True),
    Recipe("html", find_html),
    Recipe("roff", find_roff),
    Recipe("manual pages", find_manual_pages, in_mixture=True),
    Recipe("licences", find_licences),
    Recipe("german", partial(find_translation, "de-DE", "de", "de"), in_mixture=True),
    Recipe("french", partial(find_translation, "fr-FR", "fr", "fr"), in_mixture=True),
    Recipe("spanish", partial(find_translation, "es-ES", "es", "es"), in_mixture=True),
    Recipe("russian", partial(find_translation, "ru-RU", "ru", "ru"), in_mixture=True),
    Recipe("japanese", partial(find_translation, "ja-JP", "ja", "ja"), in_mixture=True),
    Recipe("chinese", partial(find_translation, "", "zh_CN", "zh"), in_mixture=True),
    Recipe("italian", partial(find_translation, "it-IT", "it", "it")),
    Recipe("korean", partial(find_translation, "ko-KR", "ko", "ko")),
    Recipe("greek", partial(find_translation, "el-GR", "el", "el")),
    Recipe("polish manual pages", find_polish_manual_pages),
    Recipe("japanese sentences", corpora.find_japanese_sentences),
)
