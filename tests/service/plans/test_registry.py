"""Plans by the name that a manifest gives them."""

from shortlist.bundle.settings import EXACT_PLANS, SETTINGS
from shortlist.plans.registry import PLANS


def test_every_plan_of_a_manifest_has_settings():
    assert set(PLANS) - set(SETTINGS) == set(EXACT_PLANS), "which have what the manifest's certificate says"
    assert set(SETTINGS) <= set(PLANS)
