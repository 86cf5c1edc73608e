"""What the command line asks of all methods."""

import pytest
from shortlist.errors import BadInput
from shortlist_exporter.methods.registry import METHODS, choose_device


@pytest.mark.parametrize("name", METHODS)
def test_a_device_is_an_option_of_methods_that_train_on_it_and_else_the_cpu(name):
    kind = getattr(METHODS[name], "kind", None)
    assert METHODS[name].trains_on_devices == (kind is not None and "device" in kind.model_fields)
    assert choose_device(name, None) == {}
    if METHODS[name].trains_on_devices:
        assert choose_device(name, "cuda:1") == {"device": "cuda:1"}
    else:
        assert choose_device(name, "cpu") == {}
        with pytest.raises(BadInput, match=f"method {name} is made on the CPU: leave --device cuda:1 out"):
            choose_device(name, "cuda:1")
