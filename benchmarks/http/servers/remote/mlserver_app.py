"""MLServer over the dense layer. Runs in MLServer's environment, as the implementation in model-settings.json."""

from __future__ import annotations

from dense_topk import DenseTopK  # type: ignore[import-not-found]
from mlserver import MLModel  # type: ignore[import-not-found]
from mlserver.codecs import NumpyCodec  # type: ignore[import-not-found]
from mlserver.types import InferenceRequest, InferenceResponse  # type: ignore[import-not-found]


class Dense(MLModel):  # type: ignore[misc]
    """The dense layer as a model of MLServer: input `context`, outputs `ids` and `logprobs`."""

    async def load(self) -> bool:
        self.topk = DenseTopK()
        return True

    async def predict(self, payload: InferenceRequest) -> InferenceResponse:
        """Compute the rows that MLServer gathered into one batch."""
        ids, logprobs = self.topk(NumpyCodec.decode_input(payload.inputs[0]))
        outputs = [NumpyCodec.encode_output("ids", ids), NumpyCodec.encode_output("logprobs", logprobs)]
        return InferenceResponse(model_name=self.name, outputs=outputs)
