"""A small language model with heads of several kinds, and playgrounds of them."""

import pytest

from tests.exporter.playground.pages import REFUSED, TEXT, choose_head, words_by_server, words_of
from tests.support.servers.browser import open_browser, open_page, wait_until


@pytest.fixture(scope="session")
def model_folder(tmp_path_factory):
    """A Hugging Face folder of a model with more words than a head looks at."""
    from tests.exporter.capture.tiny import save_model, save_tokenizer
    from tests.exporter.playground.site import CLASSES

    folder = tmp_path_factory.mktemp("playground") / "model"
    save_model(folder, vocab_size=CLASSES, tie_word_embeddings=False)
    save_tokenizer(folder, count=CLASSES)
    return folder


@pytest.fixture(scope="session")
def language_model(model_folder):
    from shortlist_exporter.capture.language_model import load_model

    return load_model(model_folder)


@pytest.fixture(scope="session")
def body(language_model):
    from shortlist_exporter.playground.body import Body

    return Body(language_model)


@pytest.fixture(scope="session")
def repository(tmp_path_factory, language_model):
    """Heads `lm` and `hostile` of the model, and `large`, which no model goes before."""
    from tests.exporter.playground.site import make_repository

    root = tmp_path_factory.mktemp("playground") / "repo"
    make_repository(root, language_model)
    return root


@pytest.fixture(scope="session")
def head(repository):
    """The head `lm`, opened."""
    import shortlist

    return shortlist.load(repository / "lm" / "1", threads=1)


@pytest.fixture(scope="session")
def site(repository, body):
    """All of it, in this process."""
    from tests.exporter.playground.site import Site

    site = Site(repository, body)
    yield site
    site.close()


@pytest.fixture(scope="session")
def playground(repository, model_folder):
    """The same as a process of its own."""
    from tests.exporter.playground.site import RunningPlayground

    with RunningPlayground(repository, "--model", model_folder) as running:
        yield running


@pytest.fixture(scope="module")
def browser():
    with open_browser() as browser:
        yield browser


@pytest.fixture
def opened(browser, playground):
    """Opens the page, which has answered its first question; holds all pages to no log, dialog or other address.

    A browser itself logs what the server refuses, of which those pages have some that ask for it.
    """
    pages = []

    def open_one(*, head="lm", text=TEXT, refusals=False, **options):
        page, logs, urls = open_page(browser, playground.url, **options)
        page.on("dialog", lambda dialog: (logs.append(f"dialog {dialog.message}"), dialog.dismiss()))
        pages.append((page, logs, urls, refusals))
        page.locator("#sides table").first.wait_for()
        choose_head(page, head)
        if text is not None:
            page.fill("#text", text)
            wait_until(lambda: words_of(page) == words_by_server(playground, model=head, text=text))
        return page

    yield open_one
    for page, logs, urls, refusals in pages:
        page.unroute_all(behavior="wait")  # a request that a test still holds would fail in the next one
        assert [line for line in logs if not (refusals and REFUSED in line)] == []
        assert all(url.startswith(playground.url) for url in urls)
        assert page.evaluate("document.documentElement.scrollWidth <= window.innerWidth")
        page.context.close()
