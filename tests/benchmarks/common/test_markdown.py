from benchmarks.common.markdown import wrap_prose

PAGE = """# A heading that is longer than the width

One two three four
five six.
- an item of some words
  and more
- another

| a table | that is longer than the width |
|---|---|

```
code that is longer than the width
```
"""


def test_prose_is_wrapped_and_all_else_stays():
    page = wrap_prose(PAGE, 16)
    for line in ("# A heading that is longer than the width\n", "| a table | that", "code that is longer than the"):
        assert line in page
    assert "One two three\nfour five six.\n- an item of\n  some words and\n  more\n- another\n" in page


def test_a_wrapped_page_stays_as_it_is():
    page = wrap_prose(PAGE, 16)
    assert wrap_prose(page, 16) == page
