# make sweep: for each build of a model one chain, repack -> check -> up -> measure -> down (pipelines/chain), then the table.
# Included by the Makefile; where only this is installed it stands alone: make -f PREFIX/share/q4sweep/sweep.mk sweep, or q4sweep sweep.
#
#   make sweep                                     a small synthetic Gemma 4 E2B, builds text and emb4
#   make sweep MODEL=DIR BUILDS="text emb4"        a checkpoint on disk, one safetensors file, hf://ORG/NAME or an http(s):// place
#   make sweep SERVER='vllm serve {build} --port {port}'   served by any OpenAI-compatible server, or SERVER=URL; beside gpu-serve's rows
#   make sweep TARGET=rehearsal FAULTS="capacity:us-east-2 lag:30m" REGION=us-east-2,us-west-2     the cloud's sweep on this machine
#   make sweep RUN=slurm JOB_GPUS=1                each chain a job of its own on a Slurm cluster (pipelines/slurm says more)
#   make sweep TARGET=sagemaker -j4                as many endpoints at a time as the quota allows, at most four
#   REPACK, SERVE, MEASURE                         more options for the recipes, the server, pipelines/measure
#
# A chain that fails does not stop the others; make exits non-zero at the end.  With -j chains overlap, but
# measurements of what this machine serves do not.

HERE := $(patsubst %/,%,$(dir $(lastword $(MAKEFILE_LIST))))
ifneq ($(origin BIN),file)
SHELL := bash
.SHELLFLAGS := -eu -o pipefail -c
BIN := $(or $(Q4BIN),$(HERE)/bin)
endif

MODEL ?=
BUILDS ?= text emb4
# Each once, in the order given.
once = $(if $1,$(firstword $1) $(call once,$(filter-out $(firstword $1),$1)))
override BUILDS := $(strip $(call once,$(BUILDS)))
TARGET ?= local
OUT ?= out
# OUT= is no place: results would lie in the root directory.
override OUT := $(or $(OUT),out)
SERVER ?=
export MODEL OUT TARGET REPACK SERVE MEASURE SERVER
RUN ?=
# The limit of a chain's time as a Slurm job: an endpoint may take hours to come up, and what is left of it then is deleted.
JOB_TIME ?= $(if $(filter rehearsal sagemaker,$(TARGET)),6:00:00,8:00:00)
export JOB_TIME JOB_GPUS JOB_OPTIONS
# What targets that are endpoints take: see the head of pipelines/targets/rehearsal.
export INSTANCE REGION EXPIRES FAULTS

SWEEP_PROGRAMS := st-extract q4-regrid emb-untie ct-pack ct-check gpu-decode gpu-serve sm-invoke tabulate $(if $(filter rehearsal sagemaker,$(TARGET)),sm-endpoint sm-local)
# Not every script in pipelines/ makes a build.
RECIPES := $(filter-out chain measure pair report publish status card slurm,$(notdir $(shell find $(HERE)/pipelines -maxdepth 1 -type f -perm -u+x)))
TARGETS := $(notdir $(wildcard $(HERE)/pipelines/targets/*))
KNOWN := $(filter $(RECIPES),$(BUILDS))
UNKNOWN := $(firstword $(filter-out $(RECIPES),$(BUILDS)))
# A value as one word of the shell, whatever it holds.
quoted = '$(subst ','\'',$1)'
# Shell text, expanded when a recipe runs: st-synth is built by then.  Another st-synth may make another model: another directory.
SWEEP_MODEL = $${MODEL:-$$OUT/source/$$(sha256sum <"$(BIN)/st-synth" | cut -c 1-16)/e2b-nano}

.PHONY: sweep sweep-source $(KNOWN:%=sweep-%)
## sweep: repack, check, serve and measure builds, print the table; MODEL=DIR BUILDS="text emb4" TARGET=local
sweep: $(if $(BUILDS),sweep-source) $(KNOWN:%=sweep-%)
	@if [ -z "$(strip $(BUILDS))" ]; then echo "sweep: BUILDS is empty: there are: $(sort $(RECIPES))" >&2; exit 64; fi
	@. "$(HERE)/pipelines/model.bash"; dir=$$OUT/$$(model_label "$(SWEEP_MODEL)"); done=(); failed=; as=; \
	if [ -n "$$SERVER" ]; then as=@$$($(HERE)/pipelines/targets/server name); fi; \
	for build in $(BUILDS); do \
	    if [ -n "$$as" ] && [ -e "$$dir/$$build.json" ]; then done+=("$$dir/$$build.json"); fi; \
	    if [ -e "$$dir/$$build$$as.json" ]; then done+=("$$dir/$$build$$as.json"); else failed+=" $$build"; fi; done; \
	if [ $${#done[@]} -gt 0 ]; then \
	    $(BIN)/tabulate --format csv "$${done[@]}" >"$$dir/table.csv"; \
	    $(BIN)/tabulate --table summary,bytes,identity$${as:+,peers} "$${done[@]}" | tee "$$dir/table.md"; \
	    echo "sweep: builds, results and this table are in $$dir" >&2; \
	fi; \
	if [ -n "$$failed" ]; then echo "sweep: failed:$$failed: see the messages above" >&2; exit 1; fi

# The dash: the others go on.  pdeathsig: a chain ends, and stops its server, also when make is killed outright; that needs make as
# its parent, so the shell is replaced.
ifeq ($(RUN),slurm)
$(KNOWN:%=sweep-%): sweep-jobs
.PHONY: sweep-jobs
sweep-jobs: sweep-source
	-@exec setpriv --pdeathsig TERM -- env Q4BIN="$(abspath $(BIN))" $(HERE)/pipelines/slurm "$(SWEEP_MODEL)" $(BUILDS)
else
$(KNOWN:%=sweep-%): sweep-%: sweep-source
	-@exec setpriv --pdeathsig TERM -- env Q4BIN="$(abspath $(BIN))" $(HERE)/pipelines/chain "$(SWEEP_MODEL)" $*
endif

sweep-source: $(SWEEP_PROGRAMS:%=$(BIN)/%) $(if $(MODEL),,$(BIN)/st-synth)
	@$(if $(UNKNOWN),printf 'sweep: no build %s: there are: %s\n' $(call quoted,$(UNKNOWN)) "$(sort $(RECIPES))" >&2; exit 64)
	@case " $(TARGETS) " in *" $$TARGET "*) ;; *) echo "sweep: no target $$TARGET: there are: $(sort $(TARGETS))" >&2; exit 64 ;; esac
	@if [ "$$TARGET" = sagemaker ] && [ -z "$$SERVER" ]; then $(HERE)/pipelines/targets/sagemaker ready; fi
	@run=$(call quoted,$(RUN)); case $$run in '' | slurm) ;; *) echo "sweep: RUN=$$run: expected slurm, or nothing for this machine" >&2; exit 64 ;; esac
	@. "$(HERE)/pipelines/model.bash"; model="$(SWEEP_MODEL)"; if ! model_is_remote "$$model" && [ ! -e "$$model" ]; then \
	    if [ -n "$$MODEL" ]; then echo "sweep: $$model: no such checkpoint" >&2; exit 66; fi; \
	    parent=$$(dirname "$$model"); mkdir -p "$$parent" || { echo "sweep: OUT=$$OUT: nothing can be made there: name another directory" >&2; exit 74; }; exec 9>"$$parent/.lock"; flock 9; \
	    [ -e "$$model" ] || $(BIN)/st-synth --size e2b -o "$$model" 9>&-; fi

.PHONY: pair
## pair: two builds up at the same time, measured in turns; MODEL=DIR BUILDS="text emb4"
pair: sweep-source
	@exec setpriv --pdeathsig TERM -- env Q4BIN="$(abspath $(BIN))" $(HERE)/pipelines/pair "$(SWEEP_MODEL)" $(BUILDS)

RESULTS ?= $(HERE)/data/published $(HERE)/data/published/single
TITLE ?= $(if $(filter data/published %/data/published,$(RESULTS)),The published study: Gemma 4 on one L4,Measured builds)
export TITLE RESULTS
.PHONY: report
## report: RESULTS="FILE|DIR ..." as one page, out/report/report.html, and report.md; the published study without RESULTS
report: $(BIN)/tabulate
	@if [ -e "$$RESULTS" ]; then set -- "$$RESULTS"; else set -- $$RESULTS; fi; \
	    Q4BIN="$(abspath $(BIN))" $(HERE)/pipelines/report --title "$$TITLE" -o "$$OUT/report" "$$@"
