"""What the server keeps for one model: its codec, its batcher, its admission, its recorder."""

from __future__ import annotations

from concurrent.futures import Executor
from dataclasses import replace
from functools import partial

from shortlist.bundle.names import require_names
from shortlist.core.queries import Query
from shortlist.core.results import ReadTexts, read_labels, require_labels
from shortlist.core.units import SECONDS_PER_MICROSECOND
from shortlist.server.codecs.named_lists import ListRegistry
from shortlist.server.codecs.shared_memory import SharedMemory
from shortlist.server.codecs.v2_request import InferCodec
from shortlist.server.metrics.prometheus import Metrics
from shortlist.server.metrics.recorder import Recorder
from shortlist.server.models import Model
from shortlist.server.precision.model_precision import ModelPrecision
from shortlist.server.scheduling.admission import Admission
from shortlist.server.scheduling.batcher import Batcher
from shortlist.server.scheduling.slices import Task
from shortlist.server.scheduling.tasks import SizeLimits, make_task
from shortlist.server.settings import Settings
from shortlist.wire.open_inference import NAMES


class ServedModel:
    """A model of the repository while it is served; it may be loaded again meanwhile."""

    def __init__(
        self,
        model: Model,
        settings: Settings,
        pool: Executor,
        server_admission: Admission,
        metrics: Metrics,
        shared_memory: SharedMemory | None,
        named_lists: ListRegistry,
        precision: ModelPrecision | None,
    ) -> None:
        """precision: what rows are offered to that may be asked again; None where none are."""
        self.precision = precision
        self.offer_rows = ignore_rows if precision is None else precision.sampler.offer
        self.model, self.shared_memory, self.named_lists = model, shared_memory, named_lists
        self.recorder = Recorder(model, metrics)
        self.admission = Admission(settings.queue_rows, settings.queue_bytes, server_admission)
        self.size_limits = SizeLimits(settings.max_rows, settings.answer_limit)
        self.batcher = Batcher(
            pool,
            settings.batch_rows,
            settings.batch_delay_us * SECONDS_PER_MICROSECOND,
            settings.inline_us * SECONDS_PER_MICROSECOND,
            self.admission,
            self.recorder.note_batch,
        )
        self.latest_codec: InferCodec | None = None

    @property
    def codec(self) -> InferCodec:
        """The codec for the head that is in use now; raises NotReady."""
        head = self.model.head
        codec = self.latest_codec
        if codec is None or codec.manifest is not head.manifest:  # the model was loaded again
            codec = self.latest_codec = InferCodec(
                head.manifest, self.model.labels, self.shared_memory, self.named_lists, head.names
            )
            if self.model.head_in_use is not head:  # it was unloaded meanwhile: threads ask too
                self.latest_codec = None
        return codec

    def require_texts(self, name: str) -> ReadTexts:
        """What reads the `labels` or `names` of ids; raises BadInput where the head has none."""
        if name == NAMES:
            return require_names(self.model.head.names, self.model.name).read
        return partial(read_labels, require_labels(self.model.labels, self.model.name))

    def make_task(self, query: Query) -> Task:
        """The task of computing `query` with the head that is in use now; raises NotReady, BadInput, TooLarge."""
        if self.precision is not None and self.precision.gives_exact:
            query = replace(query, exact=True)
        return make_task(self.model.head, query, self.size_limits)

    def forget_templates(self) -> None:
        """Decode requests anew: they are computed otherwise from now on."""
        self.latest_codec = None

    def forget_head(self) -> None:
        """Let go of what belongs to a head that is no longer in use."""
        self.forget_templates()
        self.batcher.forget_speed()
        if self.precision is not None:
            self.precision.forget_head()

    @property
    def template_count(self) -> int:
        """Entries of the codec's cache."""
        return 0 if self.latest_codec is None else len(self.latest_codec.templates)


def ignore_rows(task: Task, result: object) -> None:
    """Do nothing with the rows of an answered request: none are asked again."""
