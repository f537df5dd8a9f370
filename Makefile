# Everything that is done to this repository. `make demo` and `make test` need Python, make and git.

PYTHON ?= python3
BIN := .venv/bin

.PHONY: demo test test-cluster test-others test-oldest control-plane plane check format docs cases bench bench-admission bench-end-to-end clean

demo: .venv/.lint
	@$(BIN)/python examples/demo.py

# In two processes at once: the tests at a real control plane, and all others.
test: .venv/.dev
	$(BIN)/python -m coverage erase
	@$(MAKE) --no-print-directory --jobs=2 test-cluster test-others
	@$(BIN)/python -m coverage combine -q
	@$(BIN)/python -m coverage report --include 'rules/*' --fail-under 98

# That a choice of tests leaves nothing to one of the two (status 5) is no failure.
test-cluster test-others: .venv/.dev
	@$(BIN)/python -m coverage run --parallel-mode -m pytest -q -m '$(MARKED)' $(PYTEST) || test $$? -eq 5

test-cluster: MARKED = control_plane
test-others: MARKED = not control_plane

# The tests that need a control plane, on the oldest Kubernetes that is supported.
test-oldest: .venv/.dev
	GPUWARD_KUBERNETES=oldest $(BIN)/python -m pytest -m control_plane $(PYTEST)

# Builds the control plane for tests (minutes, once); `make test` does so too if need be.
control-plane: .venv/.dev
	$(BIN)/python tests/controlplane/build.py --print

# Runs it until Ctrl-C, to be used by hand.
plane: .venv/.dev
	@$(BIN)/python tests/controlplane/by_hand.py

check: .venv/.dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports --no-cache
	$(BIN)/python tools/generate.py --check
	$(BIN)/python tools/chart_files.py --check
	$(BIN)/python tools/dashboard --check

format: .venv/.dev
	$(BIN)/ruff check --fix-only .
	$(BIN)/ruff format .

docs: .venv/.dev
	$(BIN)/python tools/generate.py
	$(BIN)/python tools/chart_files.py
	$(BIN)/python tools/dashboard
	$(BIN)/python tests/chart_readme.py

# Writes golden files of cases: those that are missing, or with RULES="RULE RULE/CASE …" these.
cases: .venv/.dev
	$(BIN)/python tools/update_cases.py $(RULES)

bench: .venv/.dev
	$(BIN)/python benchmarks/lint.py
	$(BIN)/python benchmarks/engine.py

# The webhook under load; wants wrk, and two cores to itself for some minutes.
bench-admission: .venv/.dev
	$(BIN)/python benchmarks/admission.py --connections 16

# Pod creations through a real API server, with and without the webhook.
bench-end-to-end: .venv/.dev
	$(BIN)/python benchmarks/end_to_end.py

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

clean:
	rm -rf .venv dist .coverage* .mypy_cache .ruff_cache .pytest_cache .hypothesis
