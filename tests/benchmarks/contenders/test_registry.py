"""Contenders have names of their own, and every method that approximates the given layer takes part."""

from shortlist_exporter.methods.registry import METHODS

from benchmarks.contenders.ours import REVISIONS
from benchmarks.contenders.registry import CONTENDERS, LIBRARY_PEERS, OUR_HEADS, PAPER_PEERS, QUANTISED_PEERS


def test_names_are_unique():
    assert len(CONTENDERS) == 3 + len((*OUR_HEADS, *QUANTISED_PEERS, *LIBRARY_PEERS, *PAPER_PEERS))


def test_every_method_that_approximates_the_given_layer_takes_part():
    methods = {name for name, method in METHODS.items() if method.reference == "dense"}
    assert {kind.method for kind in OUR_HEADS} == set(REVISIONS) == methods
    assert {kind.name for kind in OUR_HEADS} == {f"shortlist {name}" for name in methods}
