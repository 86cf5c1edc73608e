"""The real server over a repository, with every head's arithmetic replaced by a constant.

Checks, batching, metrics, admission and deadlines stay on: what is measured is everything but the matrix product.

  python -m benchmarks.http.servers.constant_server REPOSITORY PORT
"""

from __future__ import annotations

import sys
import threading
import time
from pathlib import Path

import numpy as np
from shortlist.core.filters import ClassFilter
from shortlist.core.results import FloatArray, IdArray, PlanResult
from shortlist.errors import NotReady
from shortlist.head import Head
from shortlist.plans.common.normalizer import log_sum_exp
from shortlist.plans.registry import FullPlan
from shortlist.server.app import create_app
from shortlist.server.engine.service import Service
from shortlist.server.settings import load_settings
from shortlist.server.transport.gateway import Gateway
from shortlist.server.transport.listeners import listen
from shortlist.server.transport.process import Server, configure


class ConstantPlan(FullPlan):
    """Answers ids 0..k-1 to everything. A dense plan in all else, for what asks plans about themselves."""

    def __init__(self, classes: int) -> None:
        self.classes = classes
        self.results: dict[tuple[int, int], PlanResult] = {}

    def topk(self, contexts: FloatArray, k: int, class_filter: ClassFilter) -> PlanResult:
        """The same result for every call of a shape, made once."""
        del class_filter
        shape = len(contexts), k
        if shape not in self.results:
            self.results[shape] = make_constant_result(*shape, self.classes)
        return self.results[shape]

    def compute_log_normalizer(self, contexts: FloatArray, ids: IdArray, logits: FloatArray) -> FloatArray:
        del ids, logits
        return make_constant_result(len(contexts), 1, self.classes).log_normalizer


def make_constant_result(rows: int, k: int, classes: int) -> PlanResult:
    """Ids 0..k-1 with falling logits, for every row."""
    logits = np.linspace(0, -9, k, dtype=np.float32)
    return PlanResult(
        np.tile(np.arange(k, dtype=np.int64), (rows, 1)),
        np.tile(logits, (rows, 1)),
        np.full(rows, log_sum_exp(logits.copy()), np.float32),
        np.full(rows, classes, np.int32),
    )


def replace_plan(head: Head) -> None:
    """The head answers with a constant from now on."""
    plan = ConstantPlan(head.manifest.classes)
    head.plan = head.dense = plan


def replace_plans(service: Service) -> None:
    """Wait until every model passed its canary, then replace its arithmetic."""
    while True:
        try:
            service.check_ready()
        except NotReady:
            time.sleep(0.05)
        else:
            break
    for model in service.models:
        replace_plan(model.head)
        service.forget_head(model)  # a request that came before has left a template bound to the former plan


def main(repository: Path, port: int) -> None:
    """Serve as `shortlist serve` does."""
    settings = load_settings(repository=repository, port=port, threads=1, canary_seconds=0, precision_share=0)
    app = create_app(settings)
    service = app.state.service
    threading.Thread(target=replace_plans, args=(service,), daemon=True).start()
    with listen(settings.host, settings.port) as listener:
        gateway = Gateway(app, service)
        Server(configure(gateway, settings, service.admission, gateway.fast_path), service).run([listener])


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]))
