"""Plans: the shapes that a head's computation can have at run time. The manifest names one."""

from __future__ import annotations

from collections.abc import Callable

from shortlist.bundle.reader import Bundle
from shortlist.plans.screen.gated import GatedPlan
from shortlist.plans.screen.plan import ScreenPlan

from .adaptive import AdaptivePlan
from .cascade import CascadePlan
from .certified import CertifiedPlan
from .certified_mixture import CertifiedMixture
from .common.base import Plan
from .full import FullPlan
from .grouped.plan import GroupedPlan
from .mixture import MixturePlan, WholePlan
from .preview import PreviewPlan

# bundle, device, threads of each session, and the dense head for rows that the plan is not sure of
PLANS: dict[str, Callable[[Bundle, str, int, Plan | None], Plan]] = {
    "full": FullPlan,
    "preview": PreviewPlan,
    "screen": ScreenPlan,
    "gated": GatedPlan,
    "cascade": CascadePlan,
    "grouped": GroupedPlan,
    "adaptive": AdaptivePlan,
    "mixture": MixturePlan,
    "certified": CertifiedPlan,
}

__all__ = [
    "PLANS",
    "AdaptivePlan",
    "CascadePlan",
    "CertifiedPlan",
    "FullPlan",
    "GatedPlan",
    "GroupedPlan",
    "MixturePlan",
    "Plan",
    "PreviewPlan",
    "ScreenPlan",
    "open_plan",
    "open_proofs",
]


def open_plan(bundle: Bundle, device: str, threads: int, fallback: Plan | None = None) -> Plan:
    """The plan that the bundle's manifest names. fallback: the dense head, for rows that the plan is not sure of."""
    return PLANS[bundle.manifest.plan](bundle, device, threads, fallback)


def open_proofs(bundle: Bundle, device: str, threads: int, exact: Plan) -> CertifiedPlan:
    """The plan that proves the answers of `exact`, the dense head or that of a mixture by all components."""
    kind = CertifiedMixture if isinstance(exact, WholePlan) else CertifiedPlan
    return kind(bundle, device, threads, exact)
