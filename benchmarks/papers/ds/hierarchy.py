"""The synthetic hierarchy of the Doubly Sparse paper: experts have to find super classes that no target names.

Data as in the authors' synthetic.py: in 100 dimensions, centres of super classes have variance 100, those of classes
10 around theirs, items 1 around theirs. A hidden layer and the experts are trained from scratch, together, in the loop
below: `DSSoftmax` is any `nn.Module` to it. Items are drawn anew for every batch, where the authors have 100 a class.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

import torch
from shortlist_models.checkpoint import load_checkpoint, save_checkpoint
from shortlist_models.ds.gate import separate_directions
from shortlist_models.ds.mitosis import clone
from shortlist_models.ds.softmax import DSOptions, DSSoftmax
from shortlist_models.progress import Progress
from torch import Tensor, nn

HIERARCHY_DIM = 100
INPUT_KEEP_SHARE = 0.8  # of the inputs, by dropout
PRUNING_STEPS = 25  # steps
SAMPLE_ITEMS = 4000
GATE_NOISE = 10.0  # of clones' gates, as of those at the start: less, and a super class may stay in two of them
TEST_ITEMS_SEED = 2**40  # training takes the numbers of its steps


@dataclass(frozen=True)
class Setting:
    """A hierarchy of `supers` super classes of `supers` classes, and how its experts are trained.

    experts: how many come of one at each stage, at most: (10, 10) is 10, then 100. steps: of each stage, of `batch`
    items; of 10,000 classes each should have some often, or it is pruned before it is learnt. threshold: task loss,
    nats, under which rows smaller than `gamma` are pruned: needed ones come to some .05 here, others to .0003 in time.
    balanced: steps of each stage with load balance, without which most experts stay empty, but which later cuts a super
    class in two where one expert has nine and another eleven; None: all. settling: steps of each stage before any row
    is pruned: while a super class is on its way from one expert to another, rows that it will need look useless.
    Coefficients are the authors' (command.sh), where not one of Figure A.1's. decay: of Adam's second moments; with the
    usual .999, copies that nobody needs shrink 10 times slower.
    """

    supers: int = 10
    experts: tuple[int, ...] = (10,)
    steps: tuple[int, ...] = (900,)
    lasso: float = 0.005
    expert_lasso: float = 0.005
    load: float = 10.0
    gamma: float = 0.01
    threshold: float = 0.1
    balanced: int | None = None
    settling: int = 0
    batch: int = 500
    learning_rate: float = 3e-3
    decay: float = 0.98
    scale: float = 1.0
    seed: int = 0

    @property
    def classes(self) -> int:
        """V, the number of classes: each of the super classes has as many as there are super classes."""
        return self.supers**2


SMALL_HIERARCHY = Setting()
LARGE_HIERARCHY = Setting(
    supers=100, experts=(10, 12), steps=(450, 900), lasso=0.002, expert_lasso=0.002, gamma=0.001, threshold=2.5,
    balanced=200, settling=300, batch=2000, decay=0.95, scale=0.3,
)  # fmt: skip


class Hierarchy:
    """The centres, [supers, supers, DIM], and items around them."""

    def __init__(self, setting: Setting) -> None:
        self.supers = setting.supers
        generator = torch.Generator().manual_seed(setting.seed)
        centres = 100**0.5 * torch.randn((self.supers, 1, HIERARCHY_DIM), generator=generator)
        self.centres = centres + 10**0.5 * torch.randn((self.supers, self.supers, HIERARCHY_DIM), generator=generator)

    def items(self, count: int, seed: int) -> tuple[Tensor, Tensor]:
        """Inputs [count, DIM] and their classes [count]; class c is of super class c // supers."""
        generator = torch.Generator().manual_seed(seed)
        classes = torch.randint(self.supers**2, (count,), generator=generator)
        return self.centres.view(-1, HIERARCHY_DIM)[classes] + torch.randn(
            (count, HIERARCHY_DIM), generator=generator
        ), classes


class Network(nn.Module):
    """A hidden layer, and experts over it that each have every class at the start."""

    def __init__(self, setting: Setting) -> None:
        super().__init__()
        self.hidden = nn.Linear(HIERARCHY_DIM, HIERARCHY_DIM)
        nn.init.xavier_uniform_(self.hidden.weight)  # as TensorFlow does
        count, classes = setting.experts[0], setting.classes
        bound = (6 / HIERARCHY_DIM) ** 0.5  # He's, as the authors' code has it
        weight = torch.empty(count * classes, HIERARCHY_DIM).uniform_(-setting.scale * bound, setting.scale * bound)
        gate = torch.empty(count, HIERARCHY_DIM).uniform_(-bound, bound)
        options = DSOptions(setting.lasso, setting.expert_lasso, setting.load, setting.gamma)
        self.head = DSSoftmax(
            weight, torch.zeros(count * classes), gate, [torch.arange(classes)] * count, classes, options
        )

    def contexts(self, inputs: Tensor) -> Tensor:
        """[b, DIM] -> [b, DIM], not negative."""
        return torch.relu(self.hidden(nn.functional.dropout(inputs, 1 - INPUT_KEEP_SHARE, self.training)))


@dataclass(frozen=True)
class ExpertFigures:
    """The experts that a training ended with.

    members: [experts, supers], how many classes of a super class an expert has. routing_counts: the same of test items.
    sets: each expert's classes. steps: in all. accuracy, speedup: on test items, SAMPLE of them.
    """

    members: Tensor
    routing_counts: Tensor
    sets: list[Tensor]
    steps: int
    accuracy: float
    speedup: float

    @property
    def homes(self) -> Tensor:
        """[supers]: in how many experts each super class has classes."""
        return (self.members > 0).sum(dim=0)

    @property
    def rows(self) -> int:
        """How many rows all experts have together."""
        return int(self.members.sum())

    def settled_supers(self) -> Tensor:
        """[supers] bool: has all its classes in one expert, none in others, and its test items go there."""
        whole = self.members.max(dim=0).values == self.members.shape[1]
        together = (self.routing_counts > 0).sum(dim=0) <= 1
        there = self.members.argmax(dim=0) == self.routing_counts.argmax(dim=0)
        return whole & (self.homes == 1) & together & (there | (self.routing_counts.sum(dim=0) == 0))


def train_hierarchy(setting: Setting, checkpoint: Path, report: Progress) -> ExpertFigures:
    """Train, or go on from `checkpoint`, and look at the experts."""
    torch.manual_seed(setting.seed)
    hierarchy, network = Hierarchy(setting), Network(setting)
    optimizer = make_optimizer(network, setting)
    total = sum(setting.steps)
    first_step = load_training(checkpoint, setting, network, optimizer)
    clones = {sum(setting.steps[:stage]): children for stage, children in enumerate(setting.experts) if stage}
    losses: list[float] = []
    for step in range(first_step, total):
        if step in clones:
            clone_experts(network, optimizer, hierarchy, clones[step], setting.seed + step)
        torch.manual_seed(setting.seed + step)  # of the dropout: a resumed training has the same
        of_stage = step - max(start for start in (0, *clones) if start <= step)
        even = setting.balanced is None or of_stage < setting.balanced
        network.head.options = replace(network.head.options, load=setting.load if even else 0.0)
        losses.append(take_step(network, optimizer, *hierarchy.items(setting.batch, step)))
        if (step + 1) % PRUNING_STEPS == 0:
            if of_stage >= setting.settling and sum(losses) / len(losses) < setting.threshold:
                network.head.prune(optimizer)
            report(describe_progress(network, losses), step + 1, total)
            losses = []
            save_training(checkpoint, setting, network, optimizer, step + 1)
    return examine_experts(network.eval(), hierarchy, total)


def make_optimizer(network: Network, setting: Setting) -> torch.optim.Optimizer:
    """Adam with the setting's decay of second moments."""
    return torch.optim.Adam(network.parameters(), setting.learning_rate, betas=(0.9, setting.decay), fused=True)


def take_step(network: Network, optimizer: torch.optim.Optimizer, inputs: Tensor, classes: Tensor) -> float:
    """One batch; returns its task loss."""
    parts, options = network.head.losses(network.contexts(inputs), classes), network.head.options
    loss = parts.task + options.load * parts.load
    loss = loss + options.lasso * parts.lasso + options.expert_lasso * parts.expert_lasso
    optimizer.zero_grad()
    loss.backward()  # type: ignore[no-untyped-call]
    optimizer.step()
    return parts.task.item()


def describe_progress(network: Network, losses: list[float]) -> str:
    """What the progress bar says."""
    mean = sum(losses) / len(losses)
    return f"{network.head.experts} experts, {len(network.head.ids):,} rows, task loss {mean:.2f}"


def clone_experts(
    network: Network, optimizer: torch.optim.Optimizer, hierarchy: Hierarchy, children: int, seed: int
) -> None:
    """Mitosis: at most `children` of every expert, one for each cluster of its items."""
    with torch.no_grad():
        contexts = network.eval().contexts(hierarchy.items(SAMPLE_ITEMS, TEST_ITEMS_SEED + 1)[0])
    network.train()
    generator = torch.Generator().manual_seed(seed)
    clone(
        network.head,
        contexts,
        generator,
        optimizer,
        children=children,
        noise=GATE_NOISE,
        directions=separate_directions,
    )


@torch.no_grad()
def examine_experts(network: Network, hierarchy: Hierarchy, steps: int) -> ExpertFigures:
    """Where classes and test items are."""
    head, supers = network.head, hierarchy.supers
    members = torch.stack([torch.bincount(ids // supers, minlength=supers) for ids in head.sets])
    inputs, classes = hierarchy.items(SAMPLE_ITEMS, TEST_ITEMS_SEED)
    contexts = network.contexts(inputs)
    routing_counts = torch.zeros_like(members)
    experts = head.gates(contexts).argmax(dim=1)
    routing_counts.index_put_((experts, classes // supers), torch.ones_like(classes), accumulate=True)
    accuracy = float((head.topk(contexts, 1)[0][:, 0] == classes).float().mean())
    return ExpertFigures(members, routing_counts, head.sets, steps, accuracy, head.speedup(head.utilization(contexts)))


def save_training(
    path: Path, setting: Setting, network: Network, optimizer: torch.optim.Optimizer, steps_done: int
) -> None:
    """Leave everything at `path`, whole or not at all."""
    state = {"network": network.state_dict(), "optimizer": optimizer.state_dict(), "done": steps_done}
    save_checkpoint(path, repr(setting), state)


def load_training(path: Path, setting: Setting, network: Network, optimizer: torch.optim.Optimizer) -> int:
    """Fill both from the state at `path` if it is of the same setting; returns the steps done."""
    state = load_checkpoint(path, repr(setting))
    if state is None:
        return 0
    head = {name.removeprefix("head."): value for name, value in state["network"].items() if name.startswith("head.")}
    network.hidden.load_state_dict(
        {name.removeprefix("hidden."): value for name, value in state["network"].items() if name.startswith("hidden.")}
    )
    module = DSSoftmax.from_state(head, setting.classes, network.head.options)
    for name in ("weight", "bias", "gate"):  # the optimiser's own parameters, which have other sizes now
        getattr(network.head, name).data = getattr(module, name).data
    network.head.ids, network.head.offsets = module.ids, module.offsets
    optimizer.load_state_dict(state["optimizer"])
    return int(state["done"])
