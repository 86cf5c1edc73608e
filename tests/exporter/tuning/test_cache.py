from shortlist_exporter.tuning import cache
from shortlist_exporter.tuning.cache import Cache


def test_what_was_kept_is_found_under_its_key_alone(tmp_path):
    cache = Cache(tmp_path)
    cache.keep_value(cache.key("svd", 6), [1, 2])
    assert Cache(tmp_path).value(cache.key("svd", 6)) == [1, 2]
    assert cache.value(cache.key("svd", 7)) is None


def test_nothing_of_another_bundle_format_is_taken(tmp_path, monkeypatch):
    before = Cache(tmp_path).key("svd", 6)
    monkeypatch.setattr(cache, "FORMAT_VERSION", cache.FORMAT_VERSION + 1)
    assert Cache(tmp_path).key("svd", 6) != before
