# All chores. Needs Python 3.11+ (another one than python3: make PYTHON=python3.12 ...), Java 17+ and make.

PYTHON ?= python3
ARGS ?=
VENV := .venv
RUN := $(VENV)/bin/python
STAMP := $(VENV)/.installed
KAFKA := $(VENV)/kafka-$(shell sed -n 's|.*<version>\(4[^<]*\)</version>.*|\1|p' tests/services/kafka.pom.xml)
CODE := $(wildcard src tests bench examples)

.DEFAULT_GOAL := help
.PHONY: help venv demo test test-quick lint format bench machine test-tools

help: ## Lists all chores.
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "make %-12s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

venv: $(STAMP) ## Makes .venv with the pinned versions; does nothing while pyproject.toml and constraints.txt stay as they are.

demo: $(STAMP) ## Shows all of it at work: a web site's log, a stream, a dashboard, mails; then the proof (ARGS="--seconds 60").
	@$(RUN) -m penstock.demo $(ARGS)

test: lint test-tools test-quick ## Everything: lint, then all tests (quick, spark, services, long); about 40 minutes on two cores.
	@$(RUN) -m pytest -m "not quick" -n 2 --dist loadfile $(ARGS)

test-quick: $(STAMP) ## The tests that need nothing but Python; 2 to 3 minutes, to be run often.
	@$(RUN) -m pytest -m quick -n 2 $(ARGS)

lint: $(STAMP) ## Style, formatting and types: ruff and mypy --strict.
	@$(RUN) -m ruff check $(CODE)
	@$(RUN) -m ruff format --check $(CODE)
	@$(RUN) -m mypy $(CODE)

format: $(STAMP) ## Formats the code and mends what ruff can mend by itself.
	@$(RUN) -m ruff check --fix-only $(CODE)
	@$(RUN) -m ruff format $(CODE)

bench: $(STAMP) ## Measures the log and prints a table and one JSON object, as python -m bench.log does.
	@$(RUN) -m bench.log --json $(ARGS)

$(STAMP): pyproject.toml constraints.txt | machine
	@test -x $(RUN) || $(PYTHON) -m venv $(VENV) || { \
		rm -rf $(VENV); echo "$(PYTHON) cannot make a virtual environment (Debian and Ubuntu: apt install python3-venv)." >&2; exit 1; }
	$(RUN) -m pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable '.[dev]'
	@touch $@

# What must be there before anything is installed; one sentence where it is not.
machine:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null || { \
		echo "Penstock needs Python 3.11 or newer, and $(PYTHON) is $$(command -v $(PYTHON) >/dev/null && $(PYTHON) --version 2>&1 || echo missing): install one, or name it: make PYTHON=python3.12 ..." >&2; exit 1; }
	@PYTHONPATH=src $(PYTHON) -m penstock.java

# Some tests of crashes need strace and mkfs.ext4, some a PostgreSQL or a Kafka, those of the dashboard a browser; without
# them they are skipped, and say so.
# The checker of accessibility comes from npm, where that is there; Kafka's jars and Spark's Kafka connector come from
# Maven Central.
test-tools:
	@if command -v npm >/dev/null && [ -d $(VENV) ] && [ ! -e $(VENV)/axe/node_modules/axe-core ]; then \
		mkdir -p $(VENV)/axe && npm install --silent --no-audit --no-fund --prefix $(VENV)/axe axe-core@4.11.0 || true; fi
	@missing=; PATH="$$PATH:/usr/sbin:/sbin"; \
	command -v strace >/dev/null || missing="$$missing strace"; \
	command -v mkfs.ext4 >/dev/null || missing="$$missing e2fsprogs"; \
	ls /usr/lib/postgresql/*/bin/initdb >/dev/null 2>&1 || command -v initdb >/dev/null || missing="$$missing postgresql"; \
	command -v chromium >/dev/null || missing="$$missing chromium"; \
	[ -d $(KAFKA) ] || command -v mvn >/dev/null || missing="$$missing maven"; \
	if [ -n "$$missing" ] && [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null; then \
		apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq $$missing >/dev/null && missing=; fi; \
	if [ -n "$$missing" ]; then echo "not installed:$$missing; the tests that need them are skipped"; fi
	@if command -v mvn >/dev/null && [ -d $(VENV) ] && [ ! -d $(KAFKA) ]; then \
		mvn --quiet --batch-mode --file tests/services/kafka.pom.xml dependency:copy-dependencies -DincludeScope=runtime \
			-DoutputDirectory=$(CURDIR)/$(KAFKA).partial >$(VENV)/kafka.log 2>&1 && mv $(KAFKA).partial $(KAFKA) || \
		echo "Kafka's jars could not be got from Maven Central ($(VENV)/kafka.log); the tests that need them are skipped"; fi
	@if [ -x $(RUN) ]; then $(RUN) -m penstock.cli jars --to $(VENV)/spark-kafka >$(VENV)/jars.log 2>&1 || \
		echo "Spark's Kafka connector could not be got from Maven Central ($(VENV)/jars.log); the tests that need it are skipped"; fi
