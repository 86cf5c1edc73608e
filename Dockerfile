# Two images: `exporter` (torch, for `shortlist export` and `capture`) and, by default, `service` (no torch, non-root).
#   docker build -t shortlist . && docker run -p 127.0.0.1:8000:8000 -v "$PWD/build/repository:/repository:ro" shortlist
#   docker build -t shortlist-exporter --target exporter . && docker run -v "$PWD:/data" shortlist-exporter export ...
# Whoever reaches the port may ask the service: publish it to other machines with API keys alone (docs/operations.md).

# Tags move, digests do not. `docker buildx imagetools inspect python:3.11-slim` shows a newer one, for --build-arg.
ARG BUILD_IMAGE=python:3.11@sha256:70e8e937c1da72df1688e883a2108b0feff03381187fa78eca6d9b10df411320
ARG BASE_IMAGE=python:3.11-slim@sha256:9c900dea9e8fb7e16277c179b555cc72d29a352dbc33cff48ad5a0412fd5bfc7

# A wheel with the compiled loops inside; compiler and build tools stay behind in this stage.
FROM ${BUILD_IMAGE} AS build
WORKDIR /src
COPY pyproject.toml hatch_build.py README.md LICENSE deploy/requirements/build.txt ./
COPY service service
COPY exporter exporter
COPY models models
RUN pip install --no-cache-dir --require-hashes -r build.txt
RUN pip wheel --no-cache-dir --no-deps --no-build-isolation --wheel-dir dist .

FROM ${BASE_IMAGE} AS exporter
COPY constraints.txt ./
COPY --from=build /src/dist dist
# Where pip finds only a torch with CUDA: --build-arg PIP_EXTRA_INDEX_URL=... names an index that has CPU builds.
ARG PIP_EXTRA_INDEX_URL
RUN pip install --no-cache-dir -c constraints.txt "$(ls dist/*.whl)[cpu,export,capture]"
USER 10001
WORKDIR /data
ENTRYPOINT ["shortlist"]

FROM ${BASE_IMAGE} AS service
COPY deploy/requirements/service.txt ./
COPY --from=build /src/dist dist
# Every package in the version that `make lock` chose, from a file with the hash that it saw then.
RUN pip install --no-cache-dir --require-hashes -r service.txt
RUN pip install --no-cache-dir --no-deps --no-index --find-links dist shortlist
USER 10001
WORKDIR /
ENV SHORTLIST_REPOSITORY=/repository SHORTLIST_HOST=0.0.0.0 SHORTLIST_PORT=8000
EXPOSE 8000
# urlopen raises, and python exits with 1, on anything but 2xx. With a certificate, give a check of your own.
HEALTHCHECK --interval=10s --timeout=3s --start-period=30s \
  CMD ["python", "-c", "import os, urllib.request as r; r.urlopen(f'http://127.0.0.1:{os.environ[\"SHORTLIST_PORT\"]}/healthz', timeout=2)"]
ENTRYPOINT ["shortlist", "serve"]
