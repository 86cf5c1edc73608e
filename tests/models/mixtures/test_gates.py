"""Gates: the tree of sigmoids against the paper's products, and what may be asked for."""

import pytest
import torch
from shortlist_models.mixtures.gates import check_components, count_gates, mix


def compute_priors(logits, *, tree):
    """The priors [B, K, n] of gate logits [B, G, n]; they sum to 1 over the components."""
    if not tree:
        return logits.softmax(dim=1)
    gates = logits.sigmoid()
    priors = torch.ones_like(gates[:, :1])
    while priors.shape[1] <= gates.shape[1]:
        nodes = priors.shape[1]
        here = gates[:, nodes - 1 : 2 * nodes - 1]
        priors = torch.stack([priors * here, priors * (1 - here)], dim=2).flatten(1, 2)
    return priors


def test_the_priors_of_four_components_are_the_papers():
    logits = torch.randn(6, 3, 5, dtype=torch.float64)
    first, second, third = logits.sigmoid().unbind(1)
    due = [first * second, first * (1 - second), (1 - first) * third, (1 - first) * (1 - third)]
    torch.testing.assert_close(compute_priors(logits, tree=True), torch.stack(due, dim=1))


@pytest.mark.parametrize(("components", "tree"), [(2, True), (4, True), (8, True), (1, False), (3, False)])
def test_mixing_is_the_sum_of_priors_times_values(components, tree):
    gates = count_gates(components, tree=tree)
    values = torch.randn(6, components, 5, dtype=torch.float64)
    for width in (1, 5):
        logits = torch.randn(6, gates, width, dtype=torch.float64)
        priors = compute_priors(logits, tree=tree)
        torch.testing.assert_close(priors.sum(dim=1), torch.ones(6, width, dtype=torch.float64))
        torch.testing.assert_close(mix(values, logits, tree=tree), (priors * values).sum(dim=1))


def test_a_tree_has_a_power_of_two_of_leaves():
    check_components(3, tree=False)
    for components in (1, 3, 6):
        with pytest.raises(ValueError, match=f"components={components} must be a power of two"):
            check_components(components, tree=True)
