# Every command works on a fresh checkout: the virtual environment is made on first use.
PYTHON ?= python3
BIN := .venv/bin
# The tests start hundreds of processes, none of which should compile the sources anew.
unexport PYTHONDONTWRITEBYTECODE

# What `make bench-compare` compares with: a name given to --save, or a file.
BASELINE ?= benchmarks/baseline.json

.PHONY: demo test test-all check lint types bench bench-compare bench-baseline compare clean

demo: .venv/core
	@$(BIN)/velocirl demo

# Types and imports are checked beside the tests and told of after them; whichever fails, this fails and says so.
test: lint
	@told=$$(mktemp); $(MAKE) --no-print-directory types > $$told 2>&1 & checking=$$!; \
	$(BIN)/pytest -n 2 --dist loadfile --no-loadscope-reorder -m "not slow"; tests=$$?; \
	wait $$checking; types=$$?; cat $$told; rm $$told; \
	[ $$tests -eq 0 ] || echo "pytest failed, see above"; \
	[ $$types -eq 0 ] || echo "types or imports failed, see above"; \
	[ $$tests -eq 0 ] && [ $$types -eq 0 ]

test-all: check .venv/clients
	$(BIN)/pytest

check: lint types

lint: .venv/test
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: .venv/test
	$(BIN)/basedpyright
	$(BIN)/lint-imports

bench: .venv/peers
	$(BIN)/velocirl bench --peers --markdown BENCHMARKS.md --speeds README.md --html bench-report.html \
		--json bench-report.json

bench-compare: .venv/peers
	$(BIN)/velocirl bench --peers --compare $(BASELINE) --fail-on-regression \
		--json bench-report.json --html bench-report.html

bench-baseline: .venv/peers
	$(BIN)/velocirl bench --peers --save benchmarks/baseline.json

compare: .venv/peers
	$(BIN)/python tools/compare_algorithms.py run comparison.jsonl
	$(BIN)/python tools/compare_algorithms.py write comparison.jsonl BENCHMARKS.md
	$(BIN)/python tools/compare_untuned.py run benchmarks/untuned.jsonl
	$(BIN)/python tools/compare_untuned.py write benchmarks/untuned.jsonl BENCHMARKS.md
	$(BIN)/python tools/compare_generic.py run benchmarks/generic.jsonl
	$(BIN)/python tools/compare_generic.py write benchmarks/generic.jsonl BENCHMARKS.md
	$(BIN)/python tools/compare_offline.py run benchmarks/offline.jsonl
	$(BIN)/python tools/compare_offline.py write benchmarks/offline.jsonl BENCHMARKS.md

clean:
	rm -rf .venv .pytest_cache .ruff_cache .hypothesis

.venv/bin/pip:
	$(PYTHON) -m venv .venv

# Each stamp file says which set of packages is installed; the constraints pin them all. Bytecode is made when something
# is imported: pip would make it of all 16,000 files, six times as many as the tests import, on one core.
.venv/core .venv/test .venv/peers .venv/clients: .venv/bin/pip pyproject.toml constraints.txt
	$(BIN)/pip install --quiet --disable-pip-version-check --no-compile -c constraints.txt -e ".$(if $(filter-out core,$(@F)),[$(@F)])"
	@touch $@
