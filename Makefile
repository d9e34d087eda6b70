# make demo   trains, averages, translates, scores and exports the built-in problem, from a fresh clone
# make test   runs ruff, mypy and all tests, from a fresh clone
# make test-pythons tests the wheel with each Python that setup.py allows and this machine has
# make format formats the code with ruff
# make docs   builds the documentation site: open site/index.html
# make lock   renews the exact versions in requirements/lock.txt, which all of these install
# PYTHON=PATH names the interpreter. By default it is that of .venv, or the first of python3.13, 3.12, 3.11 and python3
# that fits.

PYTHONS := $(or $(PYTHON),.venv/bin/python python3.13 python3.12 python3.11 python3)
BIN := .venv/bin
PIP := $(BIN)/pip --disable-pip-version-check install --quiet --constraint requirements/lock.txt
INSTALLED := .venv/installed
INCOMPLETE := .venv/incomplete
JAX := .venv/jax
DEMO := demo

.PHONY: demo test test-pythons check format docs lock clean

# .venv/incomplete exists while packages are installed. If it is left by an interrupted run, the packages are removed,
# because pip takes some that are half there as installed.
$(INSTALLED): setup.py pyproject.toml requirements/lock.txt
	@if [ -e $(INCOMPLETE) ]; then rm -rf .venv/bin .venv/lib; fi
	@for python in $(PYTHONS); do \
		$$python -c "import ensurepip, sys; sys.exit(not (3, 11) <= sys.version_info < (3, 14))" 2>/dev/null && \
			mkdir -p .venv && touch $(INCOMPLETE) && exec $$python -m venv .venv; \
	done; echo "No Python 3.11-3.13 with venv; apt install python3-venv, or make PYTHON=PATH" >&2; exit 2
	@echo "Installing t2t_repro and TensorFlow into .venv: 2.4 GB, some minutes"
	$(PIP) --editable .
	mv $(INCOMPLETE) $@

# The packages of an extra, e.g. .venv/with-test those of "test".
.venv/with-%: $(INSTALLED)
	mv $(INSTALLED) $(INCOMPLETE)
	$(PIP) --editable ".[$*]"
	mv $(INCOMPLETE) $(INSTALLED)
	touch $@

# The packages of the extra "jax", only for tests/system/test_jax.py. In .venv itself, every process that imports
# TensorFlow would also import JAX.
$(JAX)/installed: $(INSTALLED)
	$(PIP) --no-compile --upgrade --target $(JAX) jax optax
	touch $@

demo: $(INSTALLED)
	rm -rf $(DEMO)
	$(BIN)/t2t-datagen --problem=numbers_ende --data_dir=$(DEMO)/data
	$(BIN)/t2t-trainer --problem=numbers_ende --hparams_set=transformer_tiny --data_dir=$(DEMO)/data \
		--output_dir=$(DEMO)/model --train_steps=1000 --local_eval_frequency=100 \
		--hparams=learning_rate_warmup_steps=300 --intra_op_parallelism_threads=1
	$(BIN)/t2t-avg-checkpoints --output_dir=$(DEMO)/model --num_last_checkpoints=5
	$(BIN)/python benchmarks/demo_text.py $(DEMO)/held_out
	$(BIN)/t2t-decoder --output_dir=$(DEMO)/model --decode_from_file=$(DEMO)/held_out.en \
		--decode_to_file=$(DEMO)/translated.de --decode_reference=$(DEMO)/held_out.de
	$(BIN)/t2t-exporter --output_dir=$(DEMO)/model
	@echo The exported model, in a process without this package:
	@$(BIN)/python benchmarks/demo_serving.py $(DEMO)/model/export/1 "three hundred and forty-two" \
		"seventeen thousand and six" "nine hundred and ninety-nine thousand, nine hundred and ninety-nine" \
		2>$(DEMO)/serving.log || { cat $(DEMO)/serving.log; exit 1; }
	@printf '%s\n' '' 'Next, type numbers in English words, which the model translates:' \
		'  $(BIN)/t2t-decoder --output_dir=$(DEMO)/model --decode_interactive' \
		'README.md explains how to train on your own text.'

test: check $(JAX)/installed
	$(BIN)/pytest -n 2 --dist loadfile --no-loadscope-reorder

test-pythons:
	tools/pythons.sh | while read -r version python; do tools/test_wheel.sh $$python </dev/null || exit; done

# mypy sees the packages where setup.py puts them: problems/, hparams/ and bin/ inside t2t_repro/.
check: .venv/with-test
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	rm -rf .mypy_tree
	mkdir -p .mypy_tree/t2t_repro
	ln -s $(CURDIR)/t2t_repro/* $(CURDIR)/problems $(CURDIR)/hparams $(CURDIR)/bin .mypy_tree/t2t_repro/
	cd .mypy_tree && ../$(BIN)/mypy --config-file ../pyproject.toml --cache-dir ../.mypy_cache -p t2t_repro
	cd .mypy_tree && MYPYPATH=../benchmarks ../$(BIN)/mypy --config-file ../pyproject.toml --cache-dir ../.mypy_cache ../benchmarks/*.py

format: .venv/with-test
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

# The variable hides the notice that mkdocs-material is maintained until May 2027.
docs: .venv/with-docs
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict

# One lock for Python 3.11 to 3.13, Linux and macOS. "benchmarks" is not in it: torch has a build for each GPU.
lock: $(INSTALLED)
	$(BIN)/pip install --quiet uv
	$(BIN)/uv pip compile setup.py --extra test --extra jax --universal --python-version 3.11 --upgrade --quiet \
		--no-annotate --no-emit-index-url --custom-compile-command "make lock" --output-file requirements/lock.txt

clean:
	rm -rf .venv .mypy_tree .mypy_cache .ruff_cache .pytest_cache build site $(DEMO)
