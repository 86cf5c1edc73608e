"""Training of a Doubly Sparse Softmax on captured contexts: pruning (Algorithm 1) and mitosis (Algorithm 2).

One expert with every class, the dense softmax, is cloned into 2, 4, ... K experts. A stage between two clonings is
a number of rounds; after each round the lasso may grow, and a checkpoint is written. The last rounds ("tuning rounds")
run without lasso and with a falling learning rate, the experts' classes fixed (not in the paper: it takes away the
lasso's bias).

With `experts=1` this is a dense softmax retrained in the same way: what DS-Softmax is to be compared with.
"""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path

import torch
from torch import Tensor

from shortlist_models.checkpoint import check_loss, load_checkpoint, name_training, save_checkpoint
from shortlist_models.full import FullSoftmax
from shortlist_models.progress import Progress, quiet

from .checks import check_pruning
from .compaction import count_allocated_bytes
from .evidence import FORWARD_CHUNK_ROWS, Evidence, find_best_classes
from .growth import Growth
from .mitosis import clone
from .options import Examples, TrainingResult, TrainOptions, check_training
from .softmax import DSOptions, DSSoftmax

CLONING_SAMPLE_ROWS = 32_768  # contexts that clonings are measured on
THRESHOLD_ROWS = 4096  # of those, what the pruning threshold is measured on
EVIDENCE_ROWS = 150_000  # contexts that decide which classes a clone keeps


def train(
    dense: FullSoftmax,
    examples: Examples,
    validation: Examples,
    options: TrainOptions,
    module_options: DSOptions | None = None,
    progress: Progress = quiet,
    checkpoint: Path | None = None,
) -> TrainingResult:
    """Train a DSSoftmax from a dense softmax; raises ValueError for options or targets that cannot work.

    validation: examples that only measure accuracy after every round. checkpoint: a file written after every round; a
    training of the same layer, examples and options goes on from it and ends with the same module.
    """
    check_training(options, examples)
    run = Run(dense, examples, validation.with_hard_targets(), options, module_options or DSOptions())
    run.resume(checkpoint)
    while not run.is_complete:
        run.run_round(progress)
        run.save(checkpoint)
    run.result.module.eval()
    return run.result


class Run:
    """The state of one training: the module, its optimizer, and how many stages, rounds and rows are behind it."""

    def __init__(
        self,
        dense: FullSoftmax,
        examples: Examples,
        validation: Examples,
        options: TrainOptions,
        module_options: DSOptions,
    ) -> None:
        self.examples, self.validation, self.options = examples, validation, options
        self.generator = torch.Generator().manual_seed(options.seed)
        self.dense_bytes = 4 * (dense.weight.numel() + len(dense.weight)) * 4  # weights, gradients, two moments
        self.module = DSSoftmax.from_dense(dense, module_options).to(options.device)
        self.result = TrainingResult(self.module)
        self.fingerprint = self.describe_training(dense)
        self.optimizer = self.make_optimizer()
        self.sample = examples.contexts[:CLONING_SAMPLE_ROWS].to(options.device)
        self.stage, self.stage_rounds, self.tuning_rounds_done, self.rows_seen, self.allocated_bytes = 0, 0, 0, 0, 0
        self.epoch_order, self.order_epoch = torch.empty(0, dtype=torch.int64), -1
        self.growth = Growth(options.lasso, options.growth, options.tolerance)
        self.best_classes = torch.empty(0)
        if options.evidence and options.experts > 1:
            self.best_classes = find_best_classes(dense, examples.contexts[:EVIDENCE_ROWS]).to(options.device)
        self.threshold = options.threshold if options.threshold is not None else 1.05 * self.measure_dense_loss()
        self.clone_experts(options.experts if not options.mitosis else min(2, options.experts))

    def make_optimizer(self) -> torch.optim.Adam:
        return torch.optim.Adam(self.module.parameters(), lr=self.options.learning_rate, fused=True)

    @torch.no_grad()
    def measure_dense_loss(self) -> float:
        """The mean task loss of the module before any cloning, on the first rows of the sample, in nats."""
        rows = torch.arange(len(self.sample[:THRESHOLD_ROWS]))
        parts = [self.examples.take_batch(part, self.options.device) for part in torch.split(rows, FORWARD_CHUNK_ROWS)]
        sums = [float(self.module.losses(*part).task) * len(part[0]) for part in parts]
        return sum(sums) / len(rows)

    def clone_experts(self, children: int) -> None:
        """Replace every expert by `children` clones, without the classes that evidence says they do not need."""
        if children < 2:
            return
        choose = None
        if self.options.evidence:
            contexts = self.examples.contexts[:EVIDENCE_ROWS].to(self.options.device)
            targets = (
                self.best_classes[:, 0] if isinstance(self.examples.targets, FullSoftmax) else self.examples.targets
            )
            targets = targets[:EVIDENCE_ROWS].to(self.options.device)
            choose = Evidence(self.module, contexts, self.best_classes, targets, self.clones_fit).choose_rows
        noise, sample = self.options.noise, self.sample
        clone(self.module, sample, self.generator, self.optimizer, children=children, noise=noise, choose=choose)
        self.result.peak_bytes = max(self.result.peak_bytes, count_allocated_bytes(self.module, self.optimizer))

    def clones_fit(self, utilization: Tensor, sizes: Tensor) -> bool:
        """Whether clones of `sizes` [K] stay under the ceiling and, in the last stage, reach the wanted speed-up.

        utilization: [K], the share of contexts that each expert gets.
        """
        under_ceiling = int(sizes.sum()) + self.gate_rows <= self.options.ceiling * self.module.classes
        if not under_ceiling or not self.is_last_stage or self.options.speedup is None:
            return under_ceiling
        cost = float(utilization.double() @ sizes.double()) + len(sizes)
        return self.module.classes / cost >= self.options.speedup

    @property
    def gate_rows(self) -> int:
        """How many softmax rows the gate's weight is as large as."""
        return -(-self.module.gate.numel() // self.module.weight.shape[1])

    @property
    def is_last_stage(self) -> bool:
        """Whether the experts have reached their final number."""
        return self.module.experts >= self.options.experts

    @property
    def is_complete(self) -> bool:
        return self.tuning_rounds_done >= self.options.tuning_rounds and self.is_tuning

    @property
    def is_tuning(self) -> bool:
        """Whether the rounds without lasso have begun."""
        return self.is_last_stage and self.stage_rounds >= self.options.final_rounds

    @property
    def epoch(self) -> float:
        """How many times the training has gone through all contexts, as a fraction."""
        return self.rows_seen / len(self.examples.contexts)

    def run_round(self, progress: Progress) -> None:
        """Run one round of steps and validate it; then grow the lasso, or clone the experts where the stage ends."""
        start, tuning = time.monotonic(), self.is_tuning
        lasso = 0.0 if tuning or self.options.experts == 1 else self.growth.value
        self.module.options = replace(self.module.options, lasso=lasso, expert_lasso=lasso)
        task_loss = self.run_steps(progress, tuning=tuning)
        check_loss(task_loss, self.options.tuning_rate if tuning else self.options.learning_rate)
        self.log_round(task_loss, lasso, time.monotonic() - start)
        if tuning:
            self.tuning_rounds_done += 1
            return
        self.stage_rounds += 1
        record = self.result.history[-1]
        over_ceiling = not self.is_last_stage and self.is_over_ceiling
        enough = self.options.speedup is not None and record["speedup"] >= self.options.speedup
        forced = over_ceiling and self.stage_rounds >= self.options.rounds
        if forced:
            check_pruning([sum(earlier["sizes"]) for earlier in self.result.history[-self.stage_rounds :]])
        self.growth.update(record["top1"], failing=task_loss >= self.threshold, must_stop=forced, enough=enough)
        if not self.is_last_stage and self.stage_rounds >= self.options.rounds and not over_ceiling:
            self.clone_experts(2)
            self.stage, self.stage_rounds = self.stage + 1, 0

    @property
    def is_over_ceiling(self) -> bool:
        """Whether clones of all rows left would be over the ceiling; clones chosen by evidence never are."""
        rows = 2 * (len(self.module.ids) + self.gate_rows)
        return not self.options.evidence and rows > self.options.ceiling * self.module.classes

    def run_steps(self, progress: Progress, *, tuning: bool) -> float:
        """Run the steps of one round, with pruning between them; returns their mean task loss, in nats."""
        total, losses = self.options.round_steps, list[float]()
        prune_steps = min(self.options.prune_steps, total)
        for done in range(total):
            rate_share = 1 - (self.tuning_rounds_done + done / total) / max(1, self.options.tuning_rounds)
            rate = self.options.tuning_rate * rate_share if tuning else self.options.learning_rate
            losses.append(self.run_step(rate))
            may_prune = not tuning and len(losses) % prune_steps == 0
            if may_prune and sum(losses[-prune_steps:]) / prune_steps < self.threshold:
                self.module.prune(self.optimizer)
            progress(self.describe_stage(), done + 1, total)
        return sum(losses) / len(losses)

    def run_step(self, learning_rate: float) -> float:
        """Train on one batch; returns its task loss, in nats."""
        rows = self.take_batch_rows()
        parts = self.module.losses(*self.examples.take_batch(rows, self.options.device))
        module_options = self.module.options
        loss = parts.task + module_options.load * parts.load
        if module_options.lasso:
            loss = loss + module_options.lasso * parts.lasso + module_options.expert_lasso * parts.expert_lasso
        for group in self.optimizer.param_groups:
            group["lr"] = learning_rate
        self.optimizer.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        self.optimizer.step()
        self.allocated_bytes = count_allocated_bytes(self.module, self.optimizer)
        self.result.peak_bytes = max(self.result.peak_bytes, self.allocated_bytes)
        return float(parts.task.detach())

    def take_batch_rows(self) -> Tensor:
        """Row numbers of the next batch in the epoch's random order; an epoch's last batch may be smaller."""
        total = len(self.examples.contexts)
        epoch, start = divmod(self.rows_seen, total)
        if epoch != self.order_epoch:
            shuffle = torch.Generator().manual_seed((self.options.seed * 1_000_003 + epoch) % (1 << 63))
            self.epoch_order, self.order_epoch = torch.randperm(total, generator=shuffle), epoch
        size = self.options.batch if self.is_last_stage else self.options.expert_batch * self.module.experts
        rows = self.epoch_order[start : start + min(size, self.options.batch)]
        self.rows_seen += len(rows)
        return rows

    def describe_stage(self) -> str:
        sizes = self.module.sizes
        return f"DS-{self.module.experts}, epoch {self.epoch:.2f}, classes an expert {min(sizes)} to {max(sizes)}"

    @torch.no_grad()
    def log_round(self, task_loss: float, lasso: float, seconds: float) -> None:
        """Append a record of the round to the history, and a notice for the user where the gate collapsed."""
        module, contexts = self.module, self.validation.contexts
        assert isinstance(self.validation.targets, Tensor)
        parts = [
            module.topk(part.to(self.options.device), 1)[0][:, 0].cpu()
            for part in torch.split(contexts, FORWARD_CHUNK_ROWS)
        ]
        utilization = module.utilization(contexts.to(self.options.device))
        effective = float(torch.special.entr(utilization).sum().exp())
        self.result.history.append(
            {
                "experts": module.experts,
                "epoch": self.epoch,
                "lasso": lasso,
                "task": task_loss,
                "top1": float((torch.cat(parts) == self.validation.targets).float().mean()),
                "sizes": module.sizes,
                "used": utilization.tolist(),
                "effective_experts": effective,
                "speedup": module.speedup(utilization),
                "bytes": self.allocated_bytes,
                "dense_bytes": self.dense_bytes,
                "seconds": seconds,
            }
        )
        if effective < module.experts / 2:
            self.add_notice(
                f"the gate collapsed: at epoch {self.epoch:.2f} its {module.experts} experts "
                f"are used like {effective:.1f}; raise load (now {module.options.load:g}) or noise "
                f"(now {self.options.noise:g}), or lower the learning rate"
            )

    def add_notice(self, sentence: str) -> None:
        """Keep a sentence for the user, unless the same was said already for this number of experts."""
        start = sentence.partition(":")[0]
        earlier = [old for old in self.result.notices if old.startswith(start) and f" {self.module.experts} " in old]
        if not earlier:
            self.result.notices.append(sentence)

    def save(self, path: Path | None) -> None:
        state = {
            "module": self.module.state_dict(),
            "optimizer": self.optimizer.state_dict(),
            "generator": self.generator.get_state(),
            "growth": vars(self.growth),
            "position": [self.stage, self.stage_rounds, self.tuning_rounds_done, self.rows_seen],
            "history": self.result.history,
            "notices": self.result.notices,
            "peak_bytes": self.result.peak_bytes,
        }
        save_checkpoint(path, self.fingerprint, state)

    def resume(self, path: Path | None) -> None:
        """Take up the state at `path`; nothing changes where there is none, or one of other options or sizes."""
        state = load_checkpoint(path, self.fingerprint)
        if state is None:
            return
        self.module = DSSoftmax.from_state(state["module"], self.module.classes, self.module.options)
        self.module.to(self.options.device)
        self.optimizer = self.make_optimizer()
        self.optimizer.load_state_dict(state["optimizer"])
        self.generator.set_state(state["generator"])
        vars(self.growth).update(state["growth"])
        self.stage, self.stage_rounds, self.tuning_rounds_done, self.rows_seen = state["position"]
        self.result = TrainingResult(self.module, state["history"], state["notices"], state["peak_bytes"])

    def describe_training(self, dense: FullSoftmax) -> str:
        """Options, but for the device, and data in one string: a checkpoint of another training has another one."""
        options = replace(self.options, device="cpu"), replace(self.module.options, lasso=0.0, expert_lasso=0.0)
        layer = dense.weight, dense.bias, dense.padding
        data = [part if isinstance(part, Tensor) else None for part in (*self.examples, *self.validation)]
        return name_training(f"{options} {dense.logit_scale} {dense.soft_cap}", *layer, *data)
