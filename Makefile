# `make demo` and `make test` from a fresh clone, on Debian 12 or Ubuntu 24.04, with nothing else to set up.
VENV   := .venv
BIN    := $(VENV)/bin
# On a bare machine, ROS 2 comes from PyPI wheels; a sourced /opt/ros must not be mixed with them.
RUN    := env -u PYTHONPATH -u AMENT_PREFIX_PATH -u LD_LIBRARY_PATH -u ROS_DISTRO ROS_AUTOMATIC_DISCOVERY_RANGE=LOCALHOST OMP_NUM_THREADS=1
PYTHON ?= $(firstword $(foreach p,python3.12 python3.11 python3.13 python3,$(shell $(p) -c 'import sys; sys.version_info >= (3, 11) and print(sys.executable)' 2>/dev/null)))
ARGS   ?=
JOBS   ?= 2

.PHONY: help demo test lint clean
help:
	@echo "make demo [ARGS=\"--episodes 5\"]   run the closed loop on a simulated cell, print the figures"
	@echo "make test                          lint, types and tests"
	@echo "make clean                         remove .venv and outputs"

$(VENV)/ready: setup.py setup.cfg pyproject.toml Makefile
	@test -n "$(PYTHON)" || { echo "error: no Python 3.11 or newer found; try: apt-get install python3 python3-venv"; exit 1; }
	@test "$$(uname -m)" = x86_64 || { echo "error: the ROS 2 wheels are x86-64 only; on this machine build with colcon (README, \"On a robot cell\")"; exit 1; }
	@$(PYTHON) -c 'import venv, ensurepip' 2>/dev/null || { echo "error: Python's venv module is missing; try: apt-get install python3-venv"; exit 1; }
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(RUN) $(BIN)/python -m pip install --quiet --disable-pip-version-check -e '.[ros,qnn,openvino,sim,test]'
	@touch $@

demo: $(VENV)/ready
	$(RUN) $(BIN)/sdnpu demo $(ARGS)

test: $(VENV)/ready lint
	$(RUN) ROS_PYTHON_CHECK_FIELDS=1 $(BIN)/python -m pytest -n $(JOBS) -q -m "not cell" $(ARGS)
	$(RUN) ROS_PYTHON_CHECK_FIELDS=1 $(BIN)/python -m pytest -q -m cell $(ARGS)

lint: $(VENV)/ready
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

clean:
	rm -rf $(VENV) build install log out
