"""Training of a Doubly Sparse Softmax on captured contexts: pruning (Algorithm 1) and mitosis (Algorithm 2).

One expert with every class, the dense softmax, is cloned into 2, 4, ... K experts. A stage between two clonings is
a number of rounds; after each the lasso may grow, and the state is kept. The last rounds run without lasso and with a
falling learning rate, the experts' classes fixed (not in the paper: it takes away the lasso's bias).

With `experts=1` this is a dense softmax retrained in the same way: what DS-Softmax is to be compared with.
"""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from shortlist_models.full import FullSoftmax

from .compaction import allocated_bytes
from .evidence import Evidence, leading
from .growth import Growth
from .mitosis import clone
from .options import CHUNK, Examples, Progress, Trained, TrainOptions, check, quiet
from .softmax import DSOptions, DSSoftmax

SAMPLE = 32_768  # contexts that clonings are measured on
FIRST = 4096  # of those, what the threshold is measured on
WANTING = 150_000  # contexts that tell which classes a clone needs


def train(
    dense: FullSoftmax,
    examples: Examples,
    validation: Examples,
    options: TrainOptions,
    module_options: DSOptions | None = None,
    progress: Progress = quiet,
    checkpoint: Path | None = None,
) -> Trained:
    """Train from a dense softmax; raises ValueError for options or targets that cannot work.

    checkpoint: written after every round; training with the same options goes on from it and ends with the same module.
    """
    check(options, examples)
    run = Run(dense, examples, validation.gold(), options, module_options or DSOptions())
    run.resume(checkpoint)
    while not run.done:
        run.round(progress)
        run.save(checkpoint)
    run.trained.module.eval()
    return run.trained


class Run:
    """The state of one training."""

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
        self.trained = Trained(self.module)
        self.optimizer = self.adam()
        self.sample = examples.contexts[:SAMPLE].to(options.device)
        self.stage, self.stage_rounds, self.tuned, self.seen, self.bytes = 0, 0, 0, 0, 0
        self.order, self.ordered = torch.empty(0, dtype=torch.int64), -1
        self.growth = Growth(options.lasso, options.growth, options.tolerance)
        self.wanted = torch.empty(0)
        if options.evidence and options.experts > 1:
            self.wanted = leading(dense, examples.contexts[:WANTING]).to(options.device)
        self.threshold = options.threshold if options.threshold is not None else 1.05 * self.first_loss()
        self.multiply(options.experts if not options.mitosis else min(2, options.experts))

    def adam(self) -> torch.optim.Adam:
        """Over the module as it is."""
        return torch.optim.Adam(self.module.parameters(), lr=self.options.learning_rate, fused=True)

    @torch.no_grad()
    def first_loss(self) -> float:
        """The dense softmax's task loss on the sample."""
        rows = torch.arange(len(self.sample[:FIRST]))
        parts = [self.examples.batch(part, self.options.device) for part in torch.split(rows, CHUNK)]
        sums = [float(self.module.losses(*part).task) * len(part[0]) for part in parts]
        return sum(sums) / len(rows)

    def multiply(self, children: int) -> None:
        """Make `children` of every expert."""
        if children < 2:
            return
        choose = None
        if self.options.evidence:
            contexts = self.examples.contexts[:WANTING].to(self.options.device)
            targets = self.wanted[:, 0] if isinstance(self.examples.targets, FullSoftmax) else self.examples.targets
            own = targets[:WANTING].to(self.options.device)
            choose = Evidence(self.module, contexts, self.wanted, own, self.fits).choose
        noise, sample = self.options.noise, self.sample
        clone(self.module, sample, self.generator, self.optimizer, children=children, noise=noise, choose=choose)
        self.trained.peak_bytes = max(self.trained.peak_bytes, allocated_bytes(self.module, self.optimizer))

    def fits(self, used: Tensor, sizes: Tensor) -> bool:
        """Whether clones of these sizes [K] are under the ceiling and, at last, as fast as was asked for."""
        small = int(sizes.sum()) + self.gate_rows <= self.options.ceiling * self.module.classes
        if not small or not self.last or self.options.speedup is None:
            return small
        cost = float(used.double() @ sizes.double()) + len(sizes)
        return self.module.classes / cost >= self.options.speedup

    @property
    def gate_rows(self) -> int:
        """The gate's weight, in rows of a softmax."""
        return -(-self.module.gate.numel() // self.module.weight.shape[1])

    @property
    def last(self) -> bool:
        """Whether no cloning is to come."""
        return self.module.experts >= self.options.experts

    @property
    def done(self) -> bool:
        """Whether every round was run."""
        return self.tuned >= self.options.tuning_rounds and self.tuning

    @property
    def tuning(self) -> bool:
        """Whether the rounds without lasso have come."""
        return self.last and self.stage_rounds >= self.options.final_rounds

    @property
    def epoch(self) -> float:
        """How often the contexts were seen."""
        return self.seen / len(self.examples.contexts)

    def round(self, progress: Progress) -> None:
        """Some steps, then what their validation says: grow the lasso, clone, write it down."""
        began, tuning = time.monotonic(), self.tuning
        coefficient = 0.0 if tuning or self.options.experts == 1 else self.growth.value
        self.module.options = replace(self.module.options, lasso=coefficient, expert_lasso=coefficient)
        task = self.run_steps(progress, tuning=tuning)
        self.write_down(task, coefficient, time.monotonic() - began)
        if tuning:
            self.tuned += 1
            return
        self.stage_rounds += 1
        record = self.trained.history[-1]
        crowded = not self.last and self.crowded
        enough = self.options.speedup is not None and record["speedup"] >= self.options.speedup
        late = crowded and self.stage_rounds >= self.options.rounds
        self.growth.update(record["top1"], failing=task >= self.threshold, forced=late, enough=enough)
        if not self.last and self.stage_rounds >= self.options.rounds and not crowded:
            self.multiply(2)
            self.stage, self.stage_rounds = self.stage + 1, 0

    @property
    def crowded(self) -> bool:
        """Whether clones of what is left would be over the ceiling; those made by evidence never are."""
        rows = 2 * (len(self.module.ids) + self.gate_rows)
        return not self.options.evidence and rows > self.options.ceiling * self.module.classes

    def run_steps(self, progress: Progress, *, tuning: bool) -> float:
        """One round; returns the mean task loss, in nats."""
        total, losses = self.options.round_steps, list[float]()
        for done in range(total):
            left = 1 - (self.tuned + done / total) / max(1, self.options.tuning_rounds)
            losses.append(self.step(self.options.tuning_rate * left if tuning else self.options.learning_rate))
            if not tuning and len(losses) % self.options.prune_steps == 0:
                recent = losses[-self.options.prune_steps :]
                if sum(recent) / len(recent) < self.threshold:
                    self.module.prune(self.optimizer)
            progress(self.described(), done + 1, total)
        return sum(losses) / len(losses)

    def step(self, learning_rate: float) -> float:
        """One batch; returns its task loss."""
        rows = self.next_rows()
        parts = self.module.losses(*self.examples.batch(rows, self.options.device))
        chosen = self.module.options
        loss = parts.task + chosen.load * parts.load
        if chosen.lasso:
            loss = loss + chosen.lasso * parts.lasso + chosen.expert_lasso * parts.expert_lasso
        for group in self.optimizer.param_groups:
            group["lr"] = learning_rate
        self.optimizer.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        self.optimizer.step()
        self.bytes = allocated_bytes(self.module, self.optimizer)
        self.trained.peak_bytes = max(self.trained.peak_bytes, self.bytes)
        return float(parts.task.detach())

    def next_rows(self) -> Tensor:
        """The next batch of the epoch's random order; its last one may be smaller."""
        total = len(self.examples.contexts)
        epoch, start = divmod(self.seen, total)
        if epoch != self.ordered:
            shuffle = torch.Generator().manual_seed(self.options.seed * 1_000_003 + epoch)
            self.order, self.ordered = torch.randperm(total, generator=shuffle), epoch
        size = self.options.batch if self.last else self.options.expert_batch * self.module.experts
        rows = self.order[start : start + min(size, self.options.batch)]
        self.seen += len(rows)
        return rows

    def described(self) -> str:
        """What the progress bar says."""
        sizes = self.module.sizes
        return f"DS-{self.module.experts}, epoch {self.epoch:.2f}, classes an expert {min(sizes)} to {max(sizes)}"

    @torch.no_grad()
    def write_down(self, task: float, coefficient: float, seconds: float) -> None:
        """A record of the round just run, and a notice where the gate collapsed."""
        module, contexts = self.module, self.validation.contexts
        assert isinstance(self.validation.targets, Tensor)
        parts = [module.topk(part.to(self.options.device), 1)[0][:, 0].cpu() for part in torch.split(contexts, CHUNK)]
        used = module.utilization(contexts.to(self.options.device))
        effective = float(torch.special.entr(used).sum().exp())
        self.trained.history.append(
            {
                "experts": module.experts,
                "epoch": self.epoch,
                "lasso": coefficient,
                "task": task,
                "top1": float((torch.cat(parts) == self.validation.targets).float().mean()),
                "sizes": module.sizes,
                "used": used.tolist(),
                "effective_experts": effective,
                "speedup": module.speedup(used),
                "bytes": self.bytes,
                "dense_bytes": self.dense_bytes,
                "seconds": seconds,
            }
        )
        if effective < module.experts / 2:
            self.notice(
                f"the gate collapsed: at epoch {self.epoch:.2f} its {module.experts} experts "
                f"are used like {effective:.1f}; raise load (now {module.options.load:g}) or noise "
                f"(now {self.options.noise:g}), or lower the learning rate"
            )

    def notice(self, sentence: str) -> None:
        """One for each number of experts is enough."""
        start = sentence.partition(":")[0]
        same = [old for old in self.trained.notices if old.startswith(start) and f" {self.module.experts} " in old]
        if not same:
            self.trained.notices.append(sentence)

    def save(self, path: Path | None) -> None:
        """Leave the state at `path`, whole or not at all."""
        if path is None:
            return
        state = {
            "options": self.fingerprint(),
            "module": self.module.state_dict(),
            "optimizer": self.optimizer.state_dict(),
            "generator": self.generator.get_state(),
            "growth": vars(self.growth),
            "position": [self.stage, self.stage_rounds, self.tuned, self.seen],
            "history": self.trained.history,
            "notices": self.trained.notices,
            "peak_bytes": self.trained.peak_bytes,
        }
        partial = path.with_name(path.name + ".partial")
        torch.save(state, partial)
        partial.replace(path)

    def resume(self, path: Path | None) -> None:
        """Go on from the state at `path`, where there is one of these options."""
        if path is None or not path.is_file():
            return
        state: dict[str, Any] = torch.load(path, weights_only=True)
        if state["options"] != self.fingerprint():
            return
        self.module = DSSoftmax.from_state(state["module"], self.module.classes, self.module.options)
        self.module.to(self.options.device)
        self.optimizer = self.adam()
        self.optimizer.load_state_dict(state["optimizer"])
        self.generator.set_state(state["generator"])
        vars(self.growth).update(state["growth"])
        self.stage, self.stage_rounds, self.tuned, self.seen = state["position"]
        self.trained = Trained(self.module, state["history"], state["notices"], state["peak_bytes"])

    def fingerprint(self) -> str:
        """What a checkpoint must agree with."""
        fixed = replace(self.module.options, lasso=0.0, expert_lasso=0.0)
        rows, dim = self.examples.contexts.shape
        return f"{self.options} {fixed} {rows} x {dim}, {self.module.classes} classes"
