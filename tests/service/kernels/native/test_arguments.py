"""Arguments of native functions, and what their results say."""

import numpy as np
import pytest
from shortlist.kernels.native.arguments import check_memory, get_address


def test_a_table_of_another_type_is_refused():
    for wrong in (np.ones(6), np.ones(6, np.float32)[::2]):
        with pytest.raises(TypeError, match="table reach is"):
            get_address(wrong, np.float32, "reach")


def test_work_that_memory_lacked_for_is_one_sentence():
    check_memory(1, "for a search")
    sentence = "there is no memory for a search: send fewer rows at once, or give the process more"
    with pytest.raises(MemoryError, match=f"^{sentence}$"):
        check_memory(0, "for a search")
