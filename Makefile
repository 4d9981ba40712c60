# The README's two commands. Each works from a bare clone with Python 3.11 and a compiler.
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin

.PHONY: run test test-all check docs format clean

run: $(VENV)/.run
	$(BIN)/latentgamma validate --out out

# Each of the two processes starts at one half of the tests, so that a kernel is mostly compiled in one.
test: $(VENV)/.installed
	$(BIN)/python -m pytest -n 2 --dist worksteal -m 'not slow'

test-all: $(VENV)/.installed
	$(BIN)/python -m pytest -n 2 --dist worksteal

check: $(VENV)/.installed
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

# Not with --quiet: it hides warnings from --strict.
docs: $(VENV)/.installed
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict
	@echo "the documentation is in out/site/index.html"

format: $(VENV)/.installed
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

# What `make run` needs; everything else is installed for the tests.
$(VENV)/.run: pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --upgrade pip
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable '.[torch,plot]'
	touch $@

$(VENV)/.installed: $(VENV)/.run
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable '.[dev]'
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable '.[realdata]' \
		|| echo "the packages of realdata could not be installed: their tests will be skipped"
	touch $@

clean:
	rm -rf $(VENV) out
