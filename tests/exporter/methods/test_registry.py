"""What the command line asks of all methods."""

import re

import pytest
from shortlist.errors import BadInput
from shortlist_exporter.methods.registry import METHODS, choose_device, refuse_training_options


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


@pytest.mark.parametrize(
    ("name", "option"), [("ds", "experts"), ("adaptive", "epochs"), ("dsoftmax", "batch"), ("mixtape", "learning_rate")]
)
def test_options_of_a_training_are_refused_where_a_head_is_given(name, option):
    refuse_training_options(name, [])
    sentence = f"option {option} is of a training, and the head of --head is trained: leave {option} out"
    with pytest.raises(BadInput, match=re.escape(sentence)):
        refuse_training_options(name, [option])


def test_other_options_are_not():
    refuse_training_options("ds", ["int8", "speedup"])
    refuse_training_options("adaptive", ["order"])
    refuse_training_options("grouped", ["promise"])  # which takes no --head, as is said elsewhere
