"""Plans: the shapes that a head's computation can have at run time. The manifest names one."""

from __future__ import annotations

from ..bundle import Bundle
from ..errors import BundleError
from .adaptive import AdaptivePlan
from .base import Plan, by_chunks
from .cascade import CascadePlan
from .certified import CertifiedPlan
from .full import FullPlan
from .gated import GatedPlan
from .grouped import GroupedPlan
from .preview import PreviewPlan
from .screen import ScreenPlan

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
