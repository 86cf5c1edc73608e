"""A small language model with heads of several kinds, and playgrounds of them."""

import pytest


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
