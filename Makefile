# Run `make` alone to see the verbs.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin

.DEFAULT_GOAL := help
.PHONY: help demo setup test test-lowest lock lint kill fuzz soak resets bench-week bench-gateway bench-update bench-precision bench-room bench-carry bench-node bench-rolling bench-paper bench-changes bench-peers bench-tflite arm clean

help:  ## print this list
	@awk -F':.*## ' '/^[a-z-]+:.*## /{printf "  make %-17s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

demo: $(VENV)/.sim  ## a fleet loses every sensor and goes on (BROKER=mqtt://host: on yours)
	$(BIN)/opid-sim run rolling_replacement --live $(if $(BROKER),--broker $(BROKER))

# The demo needs Python and nothing else, so nothing is installed but packages.
$(VENV)/.sim: pyproject.toml
	[ -x $(BIN)/python ] || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -e '.[sim]'
	touch $@

setup: $(VENV)/.installed  ## create .venv and install everything the tests need

$(VENV)/.installed: pyproject.toml constraints/newest.txt edge_opid/native/_compiled.c
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

$(VENV)/lowest/.installed: pyproject.toml constraints/lowest.txt edge_opid/native/_compiled.c
	VERSIONS=lowest PYTHON=$(PYTHON) sh .ci/install $(VENV)/lowest
	touch $@

lock:  ## write constraints/ anew: the newest versions with their hashes, and the lowest
	PYTHON=$(PYTHON) sh .ci/lock $(VENV)/lock

kill: setup  ## 200 kills of a node process during 80,000 readings
	KILLS=200 READINGS=80000 $(BIN)/python -m pytest --timeout 3600 tests/test_node_kill.py

fuzz: setup  ## a million mutated messages to codec and node, a million MQTT packets both ways
	$(BIN)/python -m benchmarks.fuzz.messages --inputs 1000000
	$(BIN)/python -m benchmarks.fuzz.packets --inputs 1000000

soak: setup  ## 10,000 simulated disasters: crashes, torn disks, partitions, a broker that forgets
	OPENBLAS_NUM_THREADS=1 $(BIN)/python -m firmware_sim.chaos.soak --seeds 0:10000

resets: setup  ## 200 nodes on a mosquitto whose connections break, for two minutes
	OPENBLAS_NUM_THREADS=1 $(BIN)/python -m firmware_sim.resets.run --nodes 200 --seconds 120 --seed 0

bench-update: $(VENV)/.bench  ## time of one update, beside its peers and the limit
	$(BIN)/python -m benchmarks.update

bench-precision: setup  ## labels that float32 gets wrong, form by form
	$(BIN)/python -m benchmarks.precision --years

bench-room: $(VENV)/.bench  ## room occupancy: the lifted learner beside an adaptive random forest
	$(BIN)/python -m benchmarks.room_occupancy

$(VENV)/.bench: $(VENV)/.installed
	$(BIN)/python -m pip install --quiet -e '.[bench]'
	touch $@

# OpenMOA needs Java, too; where either is missing the benchmark says so and goes on without.
$(VENV)/.peers: $(VENV)/.bench
	$(BIN)/python -m pip install --quiet 'openmoa>=1.0,<2' || echo "OpenMOA cannot be installed here" >&2
	touch $@

bench-carry: setup  ## how much a learner should inherit when sensors change
	$(BIN)/python -m benchmarks.carry

bench-gateway: setup  ## a thousand nodes through one change, beside bare publishing
	$(BIN)/python -m benchmarks.gateway.wave

bench-node: setup  ## a node through mosquitto: throughput, latency, memory
	$(BIN)/python -m benchmarks.node

bench-week: setup  ## how much faster than real time a fleet of twenty nodes lives (HOURS=168: a week)
	$(BIN)/python -m benchmarks.week $(if $(HOURS),--hours $(HOURS))

bench-rolling: setup  ## how fast a fleet uses its new sensors, over ten seeds of the demo's scenario
	$(BIN)/python -m benchmarks.rolling

bench-paper: $(VENV)/.bench  ## the paper's tables and figures, into benchmarks/results (QUICK=1: a look)
	$(BIN)/python -m benchmarks.paper $(if $(QUICK),--quick)

bench-changes: $(VENV)/.peers  ## many changes of sensors: the node beside its peers (QUICK=1: a look)
	$(BIN)/python -m benchmarks.changes $(if $(QUICK),--quick)

bench-peers: $(VENV)/.peers  ## the peers' part of bench-changes, which is most of its time
	$(BIN)/python -m benchmarks.changes --group peers $(if $(QUICK),--quick)

bench-tflite: setup  ## .tflite files in both runtimes: size, difference, labels, speed, memory
	$(BIN)/python -m benchmarks.tflite.files

arm:  ## the C file cross-compiled for arm64 and armhf, its bits compared under emulation (root)
	sh .ci/arm

clean:  ## remove the environment and everything built
	rm -rf $(VENV) build dist *.egg-info edge_opid/native/*.so .mypy_cache .ruff_cache .pytest_cache .hypothesis
