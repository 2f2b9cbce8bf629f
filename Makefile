# Everything a person does with this repository. `make demo` and `make test` need only Python 3.11
# or later and make; they set up the rest.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin

.PHONY: help demo console picture test coverage ground survive faults faults-long lint format docs docs-check bench lock dist repository clean

help: ## Show this list
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 14

demo: $(VENV)/run.stamp ## Show the bridge at work on a simulated VM
	@$(BIN)/seb demo

console: $(VENV)/console.stamp ## Show a simulated fleet on the console's page
	@$(BIN)/seb console demo

# Whose snippets are run, or say why not.
PAGES = README.md CONTRIBUTING.md RELEASING.md SECURITY.md docs/*.md deploy/recipes/*.md deploy/recipes/*/*.md examples/*/*.md

# Most tests wait for something most of their time: more of them than there are cores.
test: $(VENV)/dev.stamp mosquitto ## Run the tests, with a real MQTT broker
	$(BIN)/pytest -n 4

coverage: $(VENV)/dev.stamp mosquitto ## Run the tests of bridge, sinks and wire, and see that they reach enough of the code
	$(BIN)/pytest -q -n 3 --cov --cov-report term:skip-covered tests/bridge tests/sinks tests/wire

# The tests outside of tests/ground are those that run the snippets of a page, by the page's word.
ground: $(VENV)/dev.stamp helm ground-tools survive-etcd deploy-tools $(if $(SEB_DIST),,dist/SHA256SUMS) ## Run it on Windows (Wine), systemd, containers, Kubernetes, and every snippet; needs root on Debian 12, Go, 15 GB, and two hours
	@$(BIN)/pytest -q $$(grep -ohE 'run by tests/[a-z_/0-9]+\.py' $(PAGES) | sed 's/run by //' | grep -v ^tests/ground | sort -u); pages=$$?; \
	  $(BIN)/pytest -q -m ground tests/ground && exit $$pages

# Services wait most of their time: the recipes' tests run three at a time, the scenes two at a time.
survive: $(VENV)/dev.stamp postgresql survive-tools ## Show on real services what users notice of an event (docs/survival.md); REPEAT=3 for each scene three times
	@recipes() { PYTEST_XDIST_WORKER=$$1 $(BIN)/pytest -q -m survive -o faulthandler_timeout=0 tests/survive -k "$$2"; }; \
	  scenes() { PYTEST_XDIST_WORKER=$$1 $(BIN)/python -m tests.survive $$2; }; code=0; \
	  recipes gw9 'rabbitmq or pacemaker' & one=$$!; recipes gw8 'patroni or etcd' & two=$$!; \
	  recipes gw0 'not rabbitmq and not pacemaker and not patroni and not etcd' || code=$$?; \
	  wait $$one || code=$$?; wait $$two || code=$$?; \
	  scenes gw9 '--service etcd --service patroni --service rabbitmq --service haproxy' & one=$$!; \
	  scenes gw0 '--service redis --service slurm --service pacemaker' || code=$$?; \
	  wait $$one || code=$$?; \
	  awk '/^## Run it/ {exit} /^## / {on = 1} on && /^[#|]/' docs/survival.md; exit $$code

# Its tests take minutes. A dump of the threads of a test that goes on can end its process
# (Python 3.11): the models' own time limit is enough.
faults: $(VENV)/dev.stamp mosquitto strace postgresql ## Break everything that can break, for ten minutes
	$(BIN)/pytest -n 3 --hypothesis-profile=default -o faulthandler_timeout=0 -m 'not slow' tests/faults tests/console/turns/test_turns_model.py

faults-long: $(VENV)/dev.stamp mosquitto strace postgresql ## The same at length: 500 kills, long soaks
	$(BIN)/pytest -n 2 --hypothesis-profile=default -o faulthandler_timeout=0 tests/faults tests/console/turns/test_turns_model.py -m 'slow or faults or not slow'

lint: $(VENV)/dev.stamp page-tools ## Check style, types, layers, pages and generated documentation
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/mypy --platform win32 --cache-dir .mypy_cache/win32
	MYPYPATH=tests $(BIN)/mypy --cache-dir .mypy_cache/tests -p support
	MYPYPATH=tests $(BIN)/mypy --cache-dir .mypy_cache/tests --exclude '^tests/support/' -p tests
	$(BIN)/lint-imports
	$(IF_BIOME) check --error-on-warnings .
	$(BIN)/python docs/generate.py --check

format: $(VENV)/dev.stamp page-tools ## Put the code into its form
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .
	$(IF_BIOME) check --write .

picture: $(VENV)/dev.stamp ## Take the README's picture of the console again
	$(BIN)/python docs/picture.py

docs: $(VENV)/dev.stamp ## Write the generated parts of the documentation
	$(BIN)/python docs/generate.py

bench: $(VENV)/dev.stamp mosquitto ## Measure latency, idle cost and start-up
	$(BIN)/python -m tests.benchmarks

lock: $(VENV)/dev.stamp ## Pin every dependency again, with hashes
	$(BIN)/uv pip compile --universal --python-version 3.11 --generate-hashes --no-header --no-strip-extras --quiet \
	  --upgrade pyproject.toml -o requirements.lock
	$(BIN)/uv pip compile --universal --python-version 3.11 --generate-hashes --no-header --no-strip-extras --quiet \
	  --upgrade --group build -o requirements-build.lock
	$(BIN)/uv pip compile --universal --python-version 3.11 --generate-hashes --no-header --no-strip-extras --quiet \
	  --upgrade --group deploy -o requirements-deploy.lock
	$(BIN)/uv pip compile --universal --python-version 3.11 --generate-hashes --no-header --no-strip-extras --quiet \
	  --upgrade --group survive -o requirements-survive.lock
	$(BIN)/uv pip compile --universal --python-version 3.11 --generate-hashes --no-header --no-strip-extras --quiet \
	  --upgrade pyproject.toml --group dev --extra azure-identity --extra console --extra kubernetes -o requirements-dev.lock
	$(BIN)/uv pip compile --universal --python-version 3.11 --generate-hashes --no-header --no-strip-extras --quiet \
	  --upgrade -c requirements.lock pyproject.toml --extra azure-identity -o requirements-azure-identity.lock
	$(BIN)/uv pip compile --universal --python-version 3.11 --generate-hashes --no-header --no-strip-extras --quiet \
	  --upgrade -c requirements.lock pyproject.toml --extra azure-identity --extra kubernetes -o requirements-kubernetes.lock
	$(BIN)/uv pip compile --universal --python-version 3.11 --generate-hashes --no-header --no-strip-extras --quiet \
	  --upgrade -c requirements.lock pyproject.toml --extra console -o requirements-console.lock
	$(BIN)/uv pip compile --universal --python-version 3.11 --generate-hashes --no-header --no-strip-extras --quiet \
	  --upgrade -c requirements-dev.lock pyproject.toml --all-extras -o requirements-all.lock

dist: $(VENV)/dev.stamp ## Make everything that users install, in dist/: the same bytes each time
	@SOURCE_DATE_EPOCH=$${SOURCE_DATE_EPOCH:-$$(git log -1 --format=%ct 2>/dev/null || date -r CHANGELOG.md +%s)} \
	  $(BIN)/python -m release $(addprefix --without ,$(WITHOUT))

# For the tests that install it: made once, and again when a source of it has changed. SHA256SUMS is
# what `make dist` writes last. SEB_DIST=FOLDER has the tests take packages from elsewhere.
DIST_SOURCES := $(shell find bridge console sinks wire release helm examples -type f -not -path '*/__pycache__/*' 2>/dev/null) \
  pyproject.toml $(wildcard requirements*.lock)
dist/SHA256SUMS: $(DIST_SOURCES) | $(VENV)/dev.stamp
	@$(MAKE) --no-print-directory dist-tools
	@$(MAKE) --no-print-directory dist WITHOUT=images || { rm -f $@; exit 1; }

repository: $(VENV)/dev.stamp ## Lay out an apt and a yum repository of dist/, in repository/
	@$(BIN)/python -m release.repository

# What `make dist` and `make repository` call, besides Go (https://go.dev/dl): on Debian 12.
DIST_PACKAGES := mvn:maven dpkg-source:dpkg-dev patch:patch perl:perl tclsh:tcl cc:gcc autoconf:autoconf automake:automake \
  libtoolize:libtool podman:podman rpm:rpm gpg:gnupg apt-ftparchive:apt-utils createrepo_c:createrepo-c wixl:wixl
.PHONY: dist-tools
dist-tools:
	@for pair in $(DIST_PACKAGES); do command -v $${pair%%:*} >/dev/null || missing="$$missing $${pair##*:}"; done; \
	  [ -z "$$missing" ] || $(MAKE) --no-print-directory system-package PACKAGE="$$missing"

clean: ## Remove the environment and everything generated on the way
	rm -rf $(VENV) build dist repository .pytest_cache .mypy_cache .ruff_cache .hypothesis .import_linter_cache

$(VENV)/made.stamp:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo "Python 3.11 or later is needed; set PYTHON=... to name one" >&2; exit 1; }
	@rm -rf $(VENV)
	@$(PYTHON) -m venv $(VENV) || { $(MAKE) --no-print-directory python-venv && $(PYTHON) -m venv $(VENV); }
	@touch $@

# The build backend is pinned too: pip fetches none of its own with --no-build-isolation.
$(VENV)/run.stamp: $(VENV)/made.stamp requirements.lock requirements-build.lock pyproject.toml
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements.lock
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements-build.lock
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation -e .
	@touch $@

$(VENV)/console.stamp: $(VENV)/run.stamp requirements-console.lock
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements-console.lock
	@touch $@

$(VENV)/dev.stamp: $(VENV)/run.stamp requirements-dev.lock
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements-dev.lock
	@touch $@

# What some tests need and are skipped without, each with the reason; CI installs all of it.
.PHONY: tools helm
tools: mosquitto strace postgresql helm deploy-tools oidc-provider ## Install what some tests are skipped without: browser, PostgreSQL, Prometheus, helm
	@for pair in chromium-headless-shell:chromium-headless-shell mosquitto_sub:mosquitto-clients promtool:prometheus systemd-analyze:systemd tinyproxy:tinyproxy; do \
	  command -v $${pair%%:*} >/dev/null || \
	    $(MAKE) --no-print-directory system-package PACKAGE=$${pair##*:} || exit 1; done

# What looks at the files in deploy/ and release/: linters in an environment of their own, and the
# schema of cloud-init, unpacked without being installed (it would start at the next boot).
DEPLOY_TOOLS := build/deploy-tools
.PHONY: deploy-tools
deploy-tools: $(DEPLOY_TOOLS)/made.stamp
$(DEPLOY_TOOLS)/made.stamp: $(VENV)/made.stamp requirements-deploy.lock
	@rm -rf $(DEPLOY_TOOLS) && $(PYTHON) -m venv $(DEPLOY_TOOLS)
	@$(DEPLOY_TOOLS)/bin/python -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements-deploy.lock
	@cd $(DEPLOY_TOOLS) && { apt-get download -qq cloud-init 2>/dev/null && dpkg -x cloud-init_*.deb cloud-init; } || \
	  echo "no cloud-init package here: its schema is not checked"
	@touch $@

# A real OpenID provider for the tests of the console's login; without npm they are skipped.
OIDC_PROVIDER := build/oidc-provider
.PHONY: oidc-provider
oidc-provider: $(OIDC_PROVIDER)/made.stamp
$(OIDC_PROVIDER)/made.stamp: tests/support/oidc/package.json tests/support/oidc/package-lock.json
	@mkdir -p $(OIDC_PROVIDER) && cp $^ $(OIDC_PROVIDER)/
	@if command -v npm >/dev/null; then cd $(OIDC_PROVIDER) && npm ci --silent --no-audit --no-fund --ignore-scripts; \
	  else echo "no npm here: the login is not tested with a real OpenID provider"; fi
	@touch $@

# What checks the scripts and styles of the pages; without npm they are not checked.
PAGE_TOOLS := build/page-tools
BIOME := $(PAGE_TOOLS)/node_modules/.bin/biome
IF_BIOME = @[ ! -x $(BIOME) ] || $(BIOME)
.PHONY: page-tools
page-tools:
	@if ! command -v npm >/dev/null; then echo "no npm here: scripts and styles of the pages are not checked"; \
	  else $(MAKE) --no-print-directory $(PAGE_TOOLS)/made.stamp; fi
$(PAGE_TOOLS)/made.stamp: tests/support/page-tools/package.json tests/support/page-tools/package-lock.json
	@mkdir -p $(PAGE_TOOLS) && cp $^ $(PAGE_TOOLS)/
	@cd $(PAGE_TOOLS) && npm ci --silent --no-audit --no-fund --ignore-scripts
	@touch $@

HELM_VERSION := v3.22.0
helm:
	@PATH="$$PATH:$$(go env GOPATH 2>/dev/null)/bin"; command -v helm >/dev/null || \
	  { command -v go >/dev/null && go install helm.sh/helm/v3/cmd/helm@$(HELM_VERSION); } || \
	  { echo "install helm 3, or Go for this to build it" >&2; exit 1; }

# What `make ground` needs. A ground that cannot be had is skipped, and says why.
GROUND_PACKAGES := wine wine64 gcc-mingw-w64-x86-64 maven mmdebstrap systemd-container \
  podman buildah crun netavark catatonit mosquitto mosquitto-clients etcd-server gnupg apt-utils createrepo-c
.PHONY: ground-tools
ground-tools:
	@command -v apt-get >/dev/null && [ "$$(id -u)" = 0 ] || exit 0; \
	  for each in wine x86_64-w64-mingw32-gcc mvn mmdebstrap systemd-nspawn podman mosquitto_sub etcd createrepo_c apt-ftparchive; do \
	    PATH="$$PATH:/usr/sbin" command -v $$each >/dev/null || \
	      { $(MAKE) --no-print-directory system-package PACKAGE="$(GROUND_PACKAGES)" || break; }; done

# The clients of the services that `make survive` runs, in an environment of their own.
SURVIVE_CLIENTS := build/survive
$(SURVIVE_CLIENTS)/made.stamp: $(VENV)/made.stamp requirements-survive.lock
	@rm -rf $(SURVIVE_CLIENTS) && $(PYTHON) -m venv $(SURVIVE_CLIENTS)
	@$(SURVIVE_CLIENTS)/bin/python -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements-survive.lock
	@touch $@

# The services that `make survive` runs, by a program of each. Debian would start them at once.
SURVIVE_PACKAGES := etcd:etcd-server etcdctl:etcd-client patroni:patroni curl:curl jq:jq redis-server:redis-server redis-sentinel:redis-sentinel haproxy:haproxy rabbitmqctl:rabbitmq-server slurmctld:slurmctld slurmd:slurmd srun:slurm-client munged:munge pacemakerd:pacemaker crm_mon:pacemaker-cli-utils corosync:corosync ocf-tester:resource-agents
.PHONY: survive-etcd survive-tools
survive-etcd: $(SURVIVE_CLIENTS)/made.stamp
	@PATH="$$PATH:/usr/sbin"; command -v etcdctl >/dev/null || $(MAKE) --no-print-directory system-package PACKAGE="etcd-server etcd-client"

survive-tools: $(SURVIVE_CLIENTS)/made.stamp
	@PATH="$$PATH:/usr/sbin:/sbin"; for pair in $(SURVIVE_PACKAGES); do command -v $${pair%%:*} >/dev/null || missing="$$missing $${pair##*:}"; done; \
	  [ -z "$$missing" ] || RUNLEVEL=1 $(MAKE) --no-print-directory system-package PACKAGE="$$missing"

# The packages of the system that are needed and may be missing. Without apt: a word on what to do.
.PHONY: mosquitto strace postgresql python-venv
mosquitto:
	@PATH="$$PATH:/usr/sbin:/usr/local/sbin:/opt/homebrew/sbin"; command -v mosquitto >/dev/null || \
	  $(MAKE) --no-print-directory system-package PACKAGE=mosquitto

strace:
	@[ "$$(uname)" != Linux ] || command -v strace >/dev/null || \
	  $(MAKE) --no-print-directory system-package PACKAGE=strace

# Debian puts its programs where users do not look.
postgresql:
	@[ "$$(uname)" != Linux ] || command -v initdb >/dev/null || ls /usr/lib/postgresql/*/bin/initdb >/dev/null 2>&1 || \
	  $(MAKE) --no-print-directory system-package PACKAGE=postgresql

python-venv:
	@$(MAKE) --no-print-directory system-package PACKAGE=python3-venv

.PHONY: system-package
system-package:
	@command -v apt-get >/dev/null || { echo "install $(PACKAGE) with your system's package manager, then run make again" >&2; exit 1; }
	@SUDO=; [ "$$(id -u)" = 0 ] || SUDO=sudo; \
	  $$SUDO apt-get update -qq -o DPkg::Lock::Timeout=300 && DEBIAN_FRONTEND=noninteractive $$SUDO apt-get install -o DPkg::Lock::Timeout=300 -y -qq --no-install-recommends $(PACKAGE) >/dev/null
