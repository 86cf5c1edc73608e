# Two images: `exporter` (torch, for `shortlist export` and `capture`) and, by default, `service` (no torch, non-root).
FROM python:3.11-slim AS base
WORKDIR /src
COPY pyproject.toml constraints.txt README.md LICENSE CHANGELOG.md ./
COPY service service
COPY exporter exporter
COPY models models

FROM base AS exporter
RUN pip install --no-cache-dir -c constraints.txt ".[cpu,export,capture]"
USER 10001
WORKDIR /data
ENTRYPOINT ["shortlist"]

FROM base AS service
RUN pip install --no-cache-dir -c constraints.txt ".[cpu,serve]"
USER 10001
WORKDIR /
ENV SHORTLIST_REPOSITORY=/repository SHORTLIST_HOST=0.0.0.0 SHORTLIST_PORT=8000
EXPOSE 8000
HEALTHCHECK --interval=10s --timeout=2s --start-period=30s \
  CMD ["python", "-c", "import urllib.request as r; r.urlopen('http://127.0.0.1:8000/healthz', timeout=2)"]
ENTRYPOINT ["shortlist", "serve"]
