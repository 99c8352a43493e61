# All targets. Needs make, Java 17+ and Python 3.11+ (for another one than python3: make PYTHON=python3.12 ...).

PYTHON ?= python3
ARGS ?=
VENV := .venv
RUN := $(VENV)/bin/python
STAMP := $(VENV)/.installed
AXE := $(VENV)/axe/node_modules/axe-core
KAFKA := $(VENV)/kafka-$(shell sed -n 's|.*<version>\(4[^<]*\)</version>.*|\1|p' tests/services/kafka.pom.xml)
CODE := $(wildcard src tests bench examples)

.DEFAULT_GOAL := help
.PHONY: help venv demo test test-quick test-services test-long test-mutants test-all test-timing test-record lint format bench machine \
	test-tools service-tools

help: ## Lists the targets.
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "make %-14s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

venv: $(STAMP) ## Makes .venv with the pinned versions; does nothing while pyproject.toml and constraints.txt stay as they are.

demo: $(STAMP) ## Shows all of it at work: a web site's log, a stream, a dashboard, mails; then the proof (ARGS="--seconds 60").
	@$(RUN) -m penstock.demo $(ARGS)

test: test-tools lint ## Lint, types, and the tests without outside servers; at most 12 minutes on two cores. Run it before each commit.
	@$(RUN) -m tests.run gate $(ARGS)

test-quick: $(STAMP) ## The tests that need only Python; 2 to 3 minutes.
	@$(RUN) -m tests.run quick $(ARGS)

test-services: service-tools ## The tests with Kafka, a Spark cluster, real-time mode and a browser; at most 15 minutes.
	@$(RUN) -m tests.run services $(ARGS)

test-long: service-tools ## Storms: every byte, many kills, many random pipelines, the demo; repeat a run with SEED=number.
	@$(RUN) -m tests.run long $(ARGS)

test-mutants: test-tools ## Plants defects in copies of the product, one by one: a test has to notice each. Part of test-long.
	@$(RUN) -m tests.run long tests/mutants -rP $(ARGS)

test-all: ## All three: test, test-services and test-long.
	@for part in test test-services test-long; do $(MAKE) --no-print-directory $$part || exit 1; done

test-timing: $(STAMP) ## Advisory: the limits on wall and CPU time, which a busy machine can miss.
	@$(RUN) -m tests.run timing $(ARGS)

test-record: test-tools ## Runs the tests of `make test` and records how long each folder takes; for a quiet machine.
	@$(RUN) -m tests.run gate --record-times $(ARGS)

lint: $(STAMP) ## Style, formatting, types, and the time budget of the test folders.
	@$(RUN) -m ruff check $(CODE)
	@$(RUN) -m ruff format --check $(CODE)
	@$(RUN) -m mypy $(CODE)
	@$(RUN) -m tests.folder_times

format: $(STAMP) ## Formats the code and fixes what ruff can fix by itself.
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

# Debian packages are installed for root; anybody else is told what is missing. Tests without their tool are skipped,
# and name it.
install = missing="$(strip $(1))"; \
	if [ -n "$$missing" ] && [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null; then \
		apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq $$missing >/dev/null && missing=; fi; \
	if [ -n "$$missing" ]; then \
		echo "not installed: $$missing (as root: apt install $$missing); tests that need them are skipped"; fi
missing = $(shell PATH="$$PATH:/usr/sbin:/sbin"; command -v $(1) >/dev/null 2>&1 || echo $(2))

# Crash tests need strace and mkfs.ext4, the other half of the view tests a PostgreSQL.
test-tools: $(STAMP)
	@$(call install,$(call missing,strace,strace) $(call missing,mkfs.ext4,e2fsprogs) \
		$(if $(wildcard $(addsuffix /bin/initdb,/usr/lib/postgresql/1[5-9] /usr/lib/postgresql/[2-9][0-9])),,\
		$(call missing,initdb,postgresql)))

# Kafka's jars and Spark's Kafka connector come from Maven Central, the accessibility checker from npm.
service-tools: test-tools
	@$(call install,$(call missing,chromium,chromium) $(call missing,nginx,nginx) $(call missing,caddy,caddy) $(if $(wildcard $(KAFKA)),,$(call missing,mvn,maven)) \
		$(if $(wildcard $(AXE)),,$(call missing,npm,npm)))
	@[ -e $(AXE) ] || { mkdir -p $(VENV)/axe && \
		npm install --silent --no-audit --no-fund --prefix $(VENV)/axe axe-core@4.11.0; } || \
		echo "axe-core could not be installed from npm; the accessibility tests are skipped"
	@[ -d $(KAFKA) ] || { mvn --quiet --batch-mode --file tests/services/kafka.pom.xml dependency:copy-dependencies \
			-DincludeScope=runtime -DoutputDirectory=$(CURDIR)/$(KAFKA).partial >$(VENV)/kafka.log 2>&1 && \
		mv $(KAFKA).partial $(KAFKA); } || \
		echo "Kafka's jars could not be downloaded from Maven Central ($(VENV)/kafka.log); tests that need them are skipped"
	@$(RUN) -m penstock.cli jars --to $(VENV)/spark-kafka >$(VENV)/jars.log 2>&1 || \
		echo "Spark's Kafka connector could not be downloaded ($(VENV)/jars.log); tests that need it are skipped"
