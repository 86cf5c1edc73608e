"""Plans: the shapes that a head's computation can have at run time. The manifest names one."""

from __future__ import annotations

from shortlist.bundle.reader import Bundle
from shortlist.errors import BundleError
from shortlist.plans.common.base import Plan, by_chunks
from shortlist.plans.screen.gated import GatedPlan
from shortlist.plans.screen.plan import ScreenPlan

from .adaptive import AdaptivePlan
from .cascade import CascadePlan
from .certified import CertifiedPlan
from .full import FullPlan
from .grouped import GroupedPlan
from .preview import PreviewPlan

PLANS: dict[str, type[Plan]] = {
    "full": FullPlan,
    "preview": PreviewPlan,
    "screen": ScreenPlan,
    "cascade": CascadePlan,
    "grouped": GroupedPlan,
    "adaptive": AdaptivePlan,
}

__all__ = [
    "PLANS",
    "AdaptivePlan",
    "CascadePlan",
    "CertifiedPlan",
    "FullPlan",
    "GroupedPlan",
    "Plan",
    "PreviewPlan",
    "ScreenPlan",
    "by_chunks",
    "open_plan",
]


def open_plan(bundle: Bundle, device: str, threads: int) -> Plan:
    """The plan that the bundle's manifest names; raises BundleError when this runtime does not know it."""
    name = bundle.manifest.plan
    if name not in PLANS:
        raise BundleError(f"{bundle.folder} needs plan '{name}', known here: {', '.join(PLANS)}; upgrade shortlist")
    gated = name == "screen" and bundle.has_graph("gate")
    return (GatedPlan if gated else PLANS[name])(bundle, device, threads)
