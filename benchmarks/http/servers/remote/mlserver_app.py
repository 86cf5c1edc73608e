"""MLServer over the dense layer. Runs in MLServer's environment, as the implementation in model-settings.json."""

from __future__ import annotations

from dense_topk import DenseTopK  # type: ignore[import-not-found]
from mlserver import MLModel  # type: ignore[import-not-found]
from mlserver.codecs import NumpyCodec  # type: ignore[import-not-found]
from mlserver.types import InferenceRequest, InferenceResponse  # type: ignore[import-not-found]


class Dense(MLModel):  # type: ignore[misc]
    """`context` -> `ids`, `logprobs`."""

    async def load(self) -> bool:
        """Open the graph."""
        self.topk = DenseTopK()
        return True

    async def predict(self, payload: InferenceRequest) -> InferenceResponse:
        """Rows that came together."""
        ids, logprobs = self.topk(NumpyCodec.decode_input(payload.inputs[0]))
        outputs = [NumpyCodec.encode_output("ids", ids), NumpyCodec.encode_output("logprobs", logprobs)]
        return InferenceResponse(model_name=self.name, outputs=outputs)
