# Two images: `exporter` (torch, for `shortlist export` and `capture`) and, by default, `service` (no torch, non-root).
#   docker build -t shortlist . && docker run -p 8000:8000 -v "$PWD/build/repository:/repository:ro" shortlist
#   docker build -t shortlist-exporter --target exporter . && docker run -v "$PWD:/data" shortlist-exporter export ...
FROM python:3.11 AS native
WORKDIR /src
COPY service service
RUN python service/shortlist/kernels/native/build.py

FROM python:3.11-slim AS base
WORKDIR /src
COPY pyproject.toml hatch_build.py constraints.txt README.md LICENSE ./
COPY service service
COPY exporter exporter
COPY models models

FROM base AS exporter
# Where pip finds only a torch with CUDA: --build-arg PIP_EXTRA_INDEX_URL=... names an index that has CPU builds.
ARG PIP_EXTRA_INDEX_URL
RUN pip install --no-cache-dir -c constraints.txt ".[cpu,export,capture]"
USER 10001
WORKDIR /data
ENTRYPOINT ["shortlist"]

FROM base AS service
# Compiled loops; the package is built without a compiler and takes the library as it is.
COPY --from=native /src/service/shortlist/kernels/native/libshortlist_kernels.so service/shortlist/kernels/native/
RUN pip install --no-cache-dir -c constraints.txt ".[cpu,serve]"
USER 10001
WORKDIR /
ENV SHORTLIST_REPOSITORY=/repository SHORTLIST_HOST=0.0.0.0 SHORTLIST_PORT=8000
EXPOSE 8000
# urlopen raises, and python exits with 1, on anything but 2xx.
HEALTHCHECK --interval=10s --timeout=3s --start-period=30s \
  CMD ["python", "-c", "import os, urllib.request as r; r.urlopen(f'http://127.0.0.1:{os.environ[\"SHORTLIST_PORT\"]}/healthz', timeout=2)"]
ENTRYPOINT ["shortlist", "serve"]
