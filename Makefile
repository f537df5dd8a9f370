# All commands of this repository. `make demo` and `make test-fast` need Python, make and git;
# `make test` also needs Go and a C compiler, once, to build a control plane and a container runtime,
# and for the node root and the headers of libseccomp.

PYTHON ?= python3
BIN := .venv/bin
ISOLATED = $(BIN)/python -m tests.testkit.real_node.isolation

.PHONY: demo release-rehearsal site try-page test test-fast test-others test-cluster test-chart
.PHONY: test-policies test-roads test-lifecycle test-commands test-controllers test-node test-node-1.34 test-oldest
.PHONY: oracle-devices oracle-remedies oracle-scheduler control-plane container-runtime node-programs node plane proof check format docs cases bench instruction-counts
.PHONY: fuzz bench-admission bench-end-to-end bench-resilience bench-console bench-commands mutation clean

demo: .venv/.lint
	@$(BIN)/python examples/demo.py

# The tests that need no control plane and are not marked slow, on up to eight cores. Nothing is built:
# without helm and promtool from an earlier `make test`, the tests that need them are skipped.
test-fast: .venv/.dev
	GPUWARD_NO_BUILD=1 $(BIN)/python -m pytest -q -n auto --maxprocesses 8 --dist worksteal \
		-m 'not control_plane and not slow' $(PYTEST)

# All tests but those beside other controllers, in parts. Those at a control plane or on a node wait
# for some of their time, so one part more runs at once than there are cores, the longest first.
JOBS ?= $(shell echo $$(($$(getconf _NPROCESSORS_ONLN) + 1)))
test: .venv/.dev control-plane
	@$(MAKE) --no-print-directory --jobs=$(JOBS) \
		test-others test-roads test-cluster test-lifecycle test-policies test-chart \
		test-node test-commands
	@$(BIN)/python -m coverage report --fail-under 98

# pytest's status 5 says that PYTEST selected no test of this part, which is no failure.
# A test that fails runs once more, and the summary names it (RERUN): docs/testing.md says why.
AT_CONTROL_PLANE = $(BIN)/python -m pytest -q -m 'control_plane and not real_node' \
	--reruns 1 -raR
# What makes pytest leave out all folders of tests/ but one, and all files of that but some.
only = $(addprefix --ignore=,$(filter-out tests/$(1)/,$(wildcard tests/*/)) $(filter-out $(2),$($(1))))

# The policies that API servers evaluate have control planes of their own; the rest shares one.
cluster = $(wildcard tests/cluster/test_*.py)
POLICIES = $(wildcard tests/cluster/test_in_process*.py) tests/cluster/test_static_manifests.py

test-policies: .venv/.dev
	@$(AT_CONTROL_PLANE) $(call only,cluster,$(POLICIES)) $(PYTEST) || test $$? -eq 5

test-cluster: .venv/.dev
	@$(AT_CONTROL_PLANE) $(call only,cluster,$(filter-out $(POLICIES),$(cluster))) $(PYTEST) \
		|| test $$? -eq 5

# The chart: the tools that release it, what happens to a release, and the rest.
chart = $(wildcard tests/chart/test_*.py)
ROADS = $(addprefix tests/chart/test_lifecycle_,argo_cd.py flux.py gitops.py roads.py)
LIFECYCLE = $(filter-out $(ROADS),$(wildcard tests/chart/test_lifecycle*.py))

test-roads: .venv/.dev
	@$(AT_CONTROL_PLANE) $(call only,chart,$(ROADS)) $(PYTEST) || test $$? -eq 5

test-lifecycle: .venv/.dev
	@$(AT_CONTROL_PLANE) $(call only,chart,$(LIFECYCLE)) $(PYTEST) || test $$? -eq 5

test-chart: .venv/.dev
	@$(AT_CONTROL_PLANE) $(call only,chart,$(filter-out $(ROADS) $(LIFECYCLE),$(chart))) $(PYTEST) \
		|| test $$? -eq 5

# The commands, and what else uses a control plane.
test-commands: .venv/.dev
	@$(AT_CONTROL_PLANE) --ignore=tests/cluster --ignore=tests/chart --ignore=tests/controllers \
		$(PYTEST) || test $$? -eq 5

# With the coverage of the rules, which these tests alone must reach.
test-others: .venv/.dev
	@$(BIN)/python -m coverage run -m pytest -q -m 'not control_plane and not real_node' $(PYTEST) \
		|| test $$? -eq 5

# On a real node, in namespaces of its own; skipped with a line that says why, if that cannot be.
test-node: .venv/.dev
	@$(BIN)/python -m tests.testkit.real_node.run_tests $(PYTEST)

# Those of claims for devices, with the first Kubernetes in which claims are stable.
test-node-1.34: .venv/.dev
	GPUWARD_KUBERNETES=1.34 $(BIN)/python -m tests.testkit.real_node.run_tests \
	    tests/real_node/test_claims.py $(PYTEST)

# The tests that need a control plane, on the oldest Kubernetes that is tested.
test-oldest: .venv/.dev
	GPUWARD_KUBERNETES=oldest $(BIN)/python -m pytest -m 'control_plane and not real_node' \
		--ignore=tests/controllers $(PYTEST)

# Beside the real Kueue, JobSet, LeaderWorkerSet, KubeRay, Trainer, KServe, Kyverno and Gatekeeper, which
# are built once. All of them run on the same cores, so that tests may wait for long.
test-controllers: .venv/.dev control-plane
	@GPUWARD_PATIENCE="$${GPUWARD_PATIENCE:-3}" $(BIN)/python -m pytest -q tests/controllers $(PYTEST)

# Builds the control plane for tests, once; a later call returns immediately.
control-plane: .venv/.dev
	@$(BIN)/python -m tests.testkit.control_plane.build

# Compares `gpuward why` with kube-scheduler's own filters, about random clusters: some minutes.
oracle-scheduler: .venv/.dev
	@$(BIN)/python -m tests.testkit.scheduling $(if $(CASES),--cases $(CASES)) $(if $(SEED),--seed $(SEED))

# Applies what `gpuward why` says would change its answer, and asks these filters again.
oracle-remedies: .venv/.dev
	@$(BIN)/python -m tests.testkit.scheduling --remedies $(if $(CASES),--cases $(CASES)) $(if $(SEED),--seed $(SEED))

# Compares what `gpuward why` says of claims with kube-scheduler's device allocators: some minutes.
oracle-devices: .venv/.dev
	@$(BIN)/python -m tests.testkit.device_allocation $(if $(CASES),--cases $(CASES)) \
	    $(if $(SEED),--seed $(SEED)) $(if $(RELEASE),--release $(RELEASE))

# Builds runc and NVIDIA's container toolkits for tests, once; a later call returns immediately.
container-runtime: .venv/.dev
	@$(BIN)/python -m tests.testkit.container_runtime.programs

# Builds the kubelet, containerd and what else a node needs; a later call returns immediately.
node-programs: .venv/.dev
	@$(BIN)/python -m tests.testkit.real_node.programs

# Runs a control plane with a real node, and a shell to use it, as root: docs/tour.md.
node: .venv/.dev control-plane node-programs
	@$(ISOLATED) $(BIN)/python -m tests.testkit.real_node.by_hand

# Starts containers and pods by them, as root, and writes what they get into docs/proof.md. Then it
# enumerates the pods of the model, and fails if one of them gets a device in silence.
proof: .venv/.dev container-runtime control-plane node-programs
	@$(BIN)/python -m tests.testkit.container_runtime.executed
	@GPUWARD_WRITE_PROOF=1 $(ISOLATED) $(BIN)/python -m pytest -q tests/real_node/test_bypasses.py
	@$(BIN)/python -m tools.doc_pages
	@$(BIN)/python -m tests.testkit.proof.theorem --features $(or $(FEATURES),2)

# Runs a control plane, and the pods of the chart on it, until Ctrl-C: docs/tour.md.
plane: .venv/.dev
	@$(BIN)/python -m tests.testkit.chart.by_hand

check: .venv/.dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports --no-cache
	$(BIN)/rumdl check .
	$(BIN)/python -m tools.catalog_and_profiles --check
	$(BIN)/python -m tools.doc_pages --check
	$(BIN)/python -m tools.chart_files --check
	$(BIN)/python -m tools.pictures --check

format: .venv/.dev
	$(BIN)/ruff check --fix-only .
	$(BIN)/ruff format .
	$(BIN)/rumdl check --fix .

docs: .venv/.dev
	$(BIN)/python -m tools.catalog_and_profiles
	$(BIN)/python -m tools.doc_pages
	$(BIN)/python -m tools.chart_files
	$(BIN)/python -m tools.pictures

# Writes golden files of cases: those that are missing, or with RULES="RULE RULE/CASE …" these.
cases: .venv/.dev
	@$(BIN)/python -m tools.catalog_and_profiles
	$(BIN)/python -m tools.update_cases $(RULES)

# Writes the instructions of fixed workloads, above which no change may go unseen.
instruction-counts: .venv/.dev
	PYTHONHASHSEED=0 $(BIN)/python -m tests.testkit.instruction_counts --write

bench: .venv/.dev
	$(BIN)/python -m benchmarks.lint
	$(BIN)/python -m benchmarks.engine

# The webhook under load; wants wrk, and two cores to itself for some minutes.
bench-admission: .venv/.dev
	$(BIN)/python -m benchmarks.admission

# How long users wait who create pods, with and without the webhook, and with Kyverno and Gatekeeper;
# wants all cores to itself for a quarter of an hour. BENCH="--only gpuward --seconds 1" is shorter.
bench-end-to-end: .venv/.dev
	@$(BIN)/python -m benchmarks.admission creations $(BENCH)

# What failures cost in pods refused or not evaluated; wants root and the control plane of the tests.
bench-resilience: .venv/.dev
	$(BIN)/python -m benchmarks.admission failures

# The console with 5,000 nodes; wants Chromium, and two cores to itself for a minute.
bench-console: .venv/.dev
	$(BIN)/python -m benchmarks.console

# Commands that read a cluster with 5,000 nodes; wants a core to itself for some minutes.
bench-commands: .venv/.dev
	$(BIN)/python -m benchmarks.cluster_commands

# The linter alone: what a user gets.
.venv/.lint: requirements/lint.txt
	test -x $(BIN)/python || $(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes -r $<
	@touch $@

# With it what the checks and tests need, and the command `gpuward` itself.
.venv/.dev: requirements/dev.txt pyproject.toml
	test -x $(BIN)/python || $(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes -r $<
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation -e .
	@touch $@

# Releases what is committed on servers of this machine, and uses it as a new user: docs/releasing.md.
release-rehearsal: .venv/.rehearsal .venv/.site control-plane
	@$(BIN)/python -m pytest -q tests/rehearsal $(PYTEST)

# With it what only the rehearsal needs.
.venv/.rehearsal: requirements/rehearsal.txt .venv/.dev
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes -r $<
	@touch $@

# The documentation as a site, in build/site; a broken link or anchor is an error.
site: .venv/.site
	NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --quiet --strict

# The page on which the linter runs in a browser's tab, with Pyodide from npm; `make site` takes it in.
try-page: .venv/.dev
	$(BIN)/python -m tools.browser_engine build/try

.venv/.site: requirements/site.txt .venv/.dev
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes -r $<
	@touch $@

# Puts faults into a copy of the code, and lists those that no test notices: docs/testing.md.
mutation: .venv/.dev
	$(BIN)/python -m tools.mutation $(MUTATION)

# Lets chance write inputs for each target of tests/fuzzing, or for some: docs/fuzzing.md.
SECONDS ?= 60
TARGETS ?= $(notdir $(wildcard tests/fuzzing/corpus/*))
fuzz: .venv/.fuzz
	@for target in $(TARGETS); do \
		mkdir -p build/fuzzing/$$target; \
		$(BIN)/python -m tests.fuzzing.run $$target -max_total_time=$(SECONDS) -max_len=4096 \
			-print_final_stats=1 -artifact_prefix=build/fuzzing/$$target- \
			build/fuzzing/$$target tests/fuzzing/corpus/$$target || exit; \
	done

# With it atheris, which has wheels for Linux on x86-64.
.venv/.fuzz: requirements/fuzz.txt .venv/.dev
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes \
		--only-binary :all: -r $<
	@touch $@

clean:
	rm -rf .venv build dist .coverage* .mypy_cache .ruff_cache .pytest_cache .hypothesis
