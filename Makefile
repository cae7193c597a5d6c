# q4sweep: one Makefile, not recursive.  `make help` lists the targets.
SHELL := bash
.SHELLFLAGS := -eu -o pipefail -c
.DELETE_ON_ERROR:
.SUFFIXES:
MAKEFLAGS += --no-builtin-rules

# --- the user's choices; ours are appended, never overwritten -------------------------------------------------------
CC ?= cc
ifeq ($(origin CC),default)
CC := cc
endif
CFLAGS ?= $(if $(filter cov,$(CONFIG)),-O0,-O2) -g
LDFLAGS ?=
PREFIX ?= /usr/local
DESTDIR ?=
# release | asan | tsan | fuzz | cov
CONFIG ?= release
WERROR ?=

# --- what is built --------------------------------------------------------------------------------------------------
BUILD := build/$(CONFIG)
BIN := $(if $(filter release,$(CONFIG)),bin,$(BUILD)/bin)
PROGRAMS := $(sort $(patsubst src/%.c,%,$(wildcard src/*.c)))
MODULES := base tensor gemma ct quant engine net aws serve rehearse report mcp
LIB_SRC := $(sort $(foreach m,$(MODULES),$(wildcard src/$(m)/*.c))) cuda/cuda_none.c
LIB_OBJ := $(LIB_SRC:%.c=$(BUILD)/%.o)
LIB := $(BUILD)/libq4sweep.a
UNIT := $(sort $(patsubst tests/unit/%.c,%,$(wildcard tests/unit/*.c)) $(patsubst tests/unit/%.cpp,%,$(wildcard tests/unit/*.cpp)))

SAN_asan := -fsanitize=address,undefined -fno-sanitize-recover=all -fno-omit-frame-pointer
SAN_fuzz := -fsanitize=fuzzer-no-link,address,undefined -fno-sanitize-recover=all -fno-omit-frame-pointer
SAN_tsan := -fsanitize=thread
SAN_cov := --coverage
SAN := $(SAN_$(CONFIG))
WARN := -Wall -Wextra -Wshadow -Wstrict-prototypes -Wmissing-prototypes -Wvla $(if $(WERROR),-Werror)
STRICT := base tensor gemma ct net aws rehearse report mcp
ALL_CFLAGS = -std=c11 -D_POSIX_C_SOURCE=200809L -Isrc -I. -I$(BUILD) -pthread -ffp-contract=off -MMD -MP $(WARN) $(SAN) $(CFLAGS)
LIBS := -Wl,--as-needed -ljansson -lcurl -lcrypto -lzstd -lmicrohttpd -lm -pthread

.PHONY: all
## all: build every program into bin/
all: $(PROGRAMS:%=$(BIN)/%)

$(foreach m,$(STRICT),$(eval $(BUILD)/src/$(m)/%.o: WARN += -Wconversion))

# Each twin of the kernels is compiled for its level; which one runs is decided at run time (engine/kernels.c).
$(BUILD)/src/engine/kernels_avx2.o: ALL_CFLAGS += -mavx2 -mfma -mf16c
$(BUILD)/src/engine/kernels_avx512.o: ALL_CFLAGS += -mavx512f -mavx512bw -mavx512dq -mavx512vl -mavx512vnni -mavx2 -mfma -mf16c

# The kernels are long functions with everything inlined: where each variable lives at each instruction would take most of their compile time,
# and a sanitizer's checks in every inlined copy minutes more.  Not inlined, gcc 12 takes the intrinsics' undefined lanes for variables of ours (its
# bug 105593).
KERNELS := $(BUILD)/src/engine/kernels_scalar.o $(BUILD)/src/engine/kernels_avx2.o $(BUILD)/src/engine/kernels_avx512.o
$(KERNELS): ALL_CFLAGS += -fno-var-tracking $(if $(SAN),-O1 '-DINLINE=static inline' $(if $(findstring clang,$(CC)),,-Wno-maybe-uninitialized))

# gcc 12 lays fake stack frames on 32 bytes, which 64-byte vectors do not survive (gcc bug 110027).
$(BUILD)/src/engine/kernels_avx512.o: SAN += $(if $(filter asan,$(CONFIG)),--param asan-use-after-return=0)

$(BUILD)/%.o: %.c | $(BUILD)/version.h
	@mkdir -p $(@D)
	$(CC) $(ALL_CFLAGS) -c $< -o $@

$(LIB): $(LIB_OBJ)
	rm -f $@
	ar rcs $@ $^

$(BIN)/%: $(BUILD)/src/%.o $(LIB)
	@mkdir -p $(@D)
	$(CC) $(SAN) $(LDFLAGS) $< $(LIB) $(LIBS) -o $@

$(BUILD)/unit/%: $(BUILD)/tests/unit/%.o $(LIB)
	@mkdir -p $(@D)
	$(CC) $(SAN) $(LDFLAGS) $< $(LIB) $(LIBS) -o $@

# tests/unit/cuda_*.cpp: the kernels in the host shim.
CUDA_UNIT_OBJ = $(filter $(BUILD)/shim/%,$(SHIM_OBJ)) $(BUILD)/cuda/shape.o
$(BUILD)/unit/cuda_%: $(BUILD)/tests/unit/cuda_%.o
	@mkdir -p $(@D)
	$(CXX) $(SAN) $(LDFLAGS) $(filter %.o,$^) -o $@

# version.h changes only when the version does; results and provenance carry it.
VERSION := $(shell cat VERSION)
$(BUILD)/version.h: VERSION
	@mkdir -p $(@D)
	echo '#define Q4SWEEP_VERSION "$(VERSION)"' > $@

# The GPUs that --info knows, as a string literal.
$(BUILD)/gpus_json.h: data/gpus.json
	@mkdir -p $(@D)
	sed -e 's/\\/\\\\/g' -e 's/"/\\"/g' -e 's/.*/"&\\n"/' $< > $@
$(BUILD)/src/engine/gpus.o: $(BUILD)/gpus_json.h

# --- CUDA -----------------------------------------------------------------------------------------------------------
# The GPU behind cuda/cuda.h: with nvcc the programs link it, without they link cuda_none.c, which the library holds.  CUDA= leaves it out, as all
# configurations but release do.
NVCC ?= $(shell command -v nvcc)
CUDA ?= $(if $(filter release,$(CONFIG)),$(NVCC))
CUDA_ARCH ?= sm_89 sm_90
CXX ?= c++
ifeq ($(origin CXX),default)
CXX := c++
endif
CUDA_C := cuda pass pages shape
CUDA_CU := $(sort $(patsubst cuda/%.cu,%,$(wildcard cuda/*.cu)))
# And PTX that the driver translates for every other GPU: A100, A10G, later ones; T4, which has no bf16.
CUDA_PTX := compute_75 compute_80
NVCC_ARCH = $(foreach a,$(CUDA_ARCH),-gencode arch=$(a:sm_%=compute_%),code=$(a)) $(foreach a,$(CUDA_PTX),-gencode arch=$(a),code=$(a))
CUDA_HOME = $(abspath $(dir $(firstword $(filter %/nvcc,$(realpath $(NVCC) $(shell type -aP nvcc)))))..)
CUDA_OBJ := $(CUDA_C:%=$(BUILD)/cuda/%.o) $(BUILD)/cuda/device_cuda.o $(CUDA_CU:%=$(BUILD)/cuda/%.cu.o)
CUDA_LIBS = -L$(firstword $(wildcard $(CUDA_HOME)/lib64 $(CUDA_HOME)/lib)) -lcudart_static -lstdc++ -ldl -lrt
GPU_PROGRAMS := gpu-decode gpu-serve

$(BUILD)/cuda/device_cuda.o: ALL_CFLAGS += -isystem $(CUDA_HOME)/include
# Beside the object what ptxas says of registers and spills, for tests/cuda-gates.bats, which also reads the code itself: so it is not compressed.
$(BUILD)/cuda/%.cu.o: cuda/%.cu
	@mkdir -p $(@D)
	$(NVCC) -std=c++17 -O3 -I. $(NVCC_ARCH) --no-compress -MMD -MP -Xcompiler -Wall -Xptxas -v $(if $(WERROR),-Werror all-warnings) -c $< -o $@ 2>$@.log || { cat $@.log >&2; exit 1; }

ifneq ($(CUDA),)
$(GPU_PROGRAMS:%=$(BIN)/%): $(BIN)/%: $(BUILD)/src/%.o $(CUDA_OBJ) $(LIB)
	@mkdir -p $(@D)
	$(CC) $(SAN) $(LDFLAGS) $< $(CUDA_OBJ) $(LIB) $(CUDA_LIBS) $(LIBS) -o $@
endif

# The same kernels compiled for the CPU: build/CONFIG/shim/gpu-decode and gpu-serve, for tests alone.  Their results say host-shim.
SHIM_OBJ := $(CUDA_C:%=$(BUILD)/cuda/%.o) $(BUILD)/cuda/device_host.o $(patsubst %,$(BUILD)/shim/%.o,$(filter-out launch,$(CUDA_CU))) $(BUILD)/shim/host/shim.o $(BUILD)/shim/host/launch.o
# Without a sanitizer the compiler reports every access of the kernels to the shim, which watches them (-fsanitize=thread calls functions that the shim defines).
SHIM_CXX = $(CXX) -std=c++17 -I. $(if $(filter-out -fsanitize=thread --coverage,$(SAN)),-O1,-O2) -g -ffp-contract=off -MMD -MP -Wall -Wextra $(if $(WERROR),-Werror) $(filter-out -fsanitize=thread,$(SAN))
SHIM_CU = $(SHIM_CXX) -x c++ -DGK_HOST -Wno-unknown-pragmas -Wno-maybe-uninitialized $(if $(SAN),,-fsanitize=thread)
$(BUILD)/shim/%.o: cuda/%.cu
	@mkdir -p $(@D)
	$(SHIM_CU) -c $< -o $@
$(BUILD)/shim/%.o: cuda/%.cpp
	@mkdir -p $(@D)
	$(SHIM_CXX) $(if $(SAN),,-DGK_WATCH) -c $< -o $@
$(BUILD)/tests/%.o: tests/%.cu
	@mkdir -p $(@D)
	$(SHIM_CU) -c $< -o $@
$(BUILD)/tests/%.o: tests/%.cpp
	@mkdir -p $(@D)
	$(SHIM_CXX) -c $< -o $@
$(filter $(BUILD)/unit/cuda_%,$(UNIT:%=$(BUILD)/unit/%)): $(CUDA_UNIT_OBJ)
$(BUILD)/unit/cuda_shim: $(BUILD)/tests/cuda/shim_faults.o
$(BUILD)/unit/cuda_lab: $(BUILD)/shim/lab/gemv.o
SHIM_PROGRAMS := $(GPU_PROGRAMS:%=$(BUILD)/shim/%)
$(SHIM_PROGRAMS): $(BUILD)/shim/%: $(BUILD)/src/%.o $(SHIM_OBJ) $(LIB)
	@mkdir -p $(@D)
	$(CC) $(SAN) $(LDFLAGS) $< $(SHIM_OBJ) $(LIB) $(LIBS) -lstdc++ -o $@

# And once more with what speaks to CUDA's runtime, on a runtime that is no GPU's but keeps its rules (tests/cuda/fake_runtime.cpp); it takes CUDA's headers.
FAKE_PROGRAMS := $(if $(NVCC),$(GPU_PROGRAMS:%=$(BUILD)/fake/%) $(BUILD)/fake/libcuda.so.1)
$(BUILD)/fake/launch.o: cuda/launch.cu
	@mkdir -p $(@D)
	$(SHIM_CXX) -x c++ -isystem $(CUDA_HOME)/include -include cuda_runtime_api.h -c $< -o $@
$(BUILD)/fake/runtime.o: tests/cuda/fake_runtime.cpp
	@mkdir -p $(@D)
	$(SHIM_CXX) -isystem $(CUDA_HOME)/include -c $< -o $@
FAKE_OBJ := $(filter-out %/device_host.o,$(SHIM_OBJ)) $(BUILD)/cuda/device_cuda.o $(BUILD)/fake/launch.o $(BUILD)/fake/runtime.o
$(GPU_PROGRAMS:%=$(BUILD)/fake/%): $(BUILD)/fake/%: $(BUILD)/src/%.o $(FAKE_OBJ) $(LIB)
	$(CC) $(SAN) $(LDFLAGS) $< $(FAKE_OBJ) $(LIB) $(LIBS) -lstdc++ -ldl -o $@
# The driver, as far as anybody looks for it.
$(BUILD)/fake/libcuda.so.1:
	@mkdir -p $(@D)
	$(CC) -shared -x c /dev/null -o $@

# The same tests with the kernels on a GPU, for check-gpu.
GPU_UNIT := $(patsubst tests/unit/%.cpp,$(BUILD)/gpu/%,$(filter-out tests/unit/cuda_shim.cpp tests/unit/cuda_lab.cpp,$(wildcard tests/unit/cuda_*.cpp)))
$(BUILD)/tests/cuda/on_gpu.o: ALL_CFLAGS += -isystem $(CUDA_HOME)/include
$(BUILD)/gpu/%: $(BUILD)/tests/unit/%.o $(BUILD)/tests/cuda/on_gpu.o $(CUDA_CU:%=$(BUILD)/cuda/%.cu.o) $(BUILD)/cuda/shape.o
	@mkdir -p $(@D)
	$(CXX) $(LDFLAGS) $^ $(CUDA_LIBS) -pthread -o $@

## lab: numbered versions of a kernel, each checked and timed on a GPU beside a plain read (cuda/lab/gemv.cu says what each is for)
.PHONY: lab
lab: $(BUILD)/lab
$(BUILD)/lab: $(BUILD)/cuda/lab/gemv.cu.o $(BUILD)/cuda/lab/time.cu.o $(CUDA_CU:%=$(BUILD)/cuda/%.cu.o) $(BUILD)/cuda/shape.o
	$(CXX) $(LDFLAGS) $^ $(CUDA_LIBS) -pthread -o $@

# --- tests ----------------------------------------------------------------------------------------------------------
# tests/tools/*.c: programs that the suites use as judges and generators; they share no code with what they judge, and are not themselves
# under test: no sanitizer.
$(BUILD)/tests/tools/%.o: SAN :=
TOOLS := $(sort $(patsubst tests/tools/%.c,$(BUILD)/tools/%,$(wildcard tests/tools/*.c)))
UNIT_BIN := $(UNIT:%=$(BUILD)/unit/%)

$(BUILD)/tools/%: $(BUILD)/tests/tools/%.o
	@mkdir -p $(@D)
	$(CC) $(LDFLAGS) $< -Wl,--as-needed -ljansson -lssl -lcrypto -lm -pthread -o $@

# The fault shim is loaded into the programs, sanitized or not; a sanitizer brings its own malloc.
$(BUILD)/tools/shim.so: tests/faults/shim.c
	@mkdir -p $(@D)
	$(CC) -std=c11 $(WARN) $(if $(filter-out --coverage,$(SAN)),-DNO_MALLOC) $(CFLAGS) -shared -fPIC $< -o $@ -ldl

.PHONY: test tests-built layers
## test: unit tests and all bats suites; T=REGEX picks suites, CONFIG=asan or tsan runs them under a sanitizer, FAULTS_EVERY=1 lets every single call fail
test: tests-built
	@Q4CONFIG=$(CONFIG) Q4BIN="$(abspath $(BIN))" Q4BUILD="$(abspath $(BUILD))" tests/run '$(value T)'

# tests/fuzz/NAME.c: a libFuzzer target; make test replays tests/fuzz/corpus/NAME through it, make fuzz searches.
FUZZ := $(sort $(filter-out replay,$(patsubst tests/fuzz/%.c,%,$(wildcard tests/fuzz/*.c))))
FUZZ_BIN := $(FUZZ:%=$(BUILD)/fuzz/%)

$(BUILD)/fuzz/%: $(BUILD)/tests/fuzz/%.o $(if $(filter fuzz,$(CONFIG)),,$(BUILD)/tests/fuzz/replay.o) $(LIB)
	@mkdir -p $(@D)
	$(CC) $(if $(filter fuzz,$(CONFIG)),-fsanitize=fuzzer) $(SAN) $(LDFLAGS) $(filter %.o,$^) $(LIB) $(LIBS) -o $@

FUZZ_SECONDS ?= 60
## fuzz: every fuzz target for FUZZ_SECONDS under clang's libFuzzer, ASan and UBSan; new inputs stay in build/fuzz/new
.PHONY: fuzz fuzz-run
fuzz:
	@$(MAKE) CONFIG=fuzz CC=clang fuzz-run
fuzz-run: $(FUZZ_BIN)
	@for target in $(FUZZ); do mkdir -p $(BUILD)/new/$$target; echo "== $$target"; \
	$(BUILD)/fuzz/$$target -max_total_time=$(FUZZ_SECONDS) -timeout=10 -rss_limit_mb=2048 -verbosity=0 \
	-artifact_prefix=$(BUILD)/new/ $(BUILD)/new/$$target tests/fuzz/corpus/$$target; done

## coverage: run suites (T=REGEX) on programs that count their lines; prints, by module, which share of lines any run since the last build has reached
.PHONY: coverage
coverage:
	@$(MAKE) CONFIG=cov test || echo "coverage: some tests failed: see above"
	@tests/coverage

## messages: error messages that no test asserts (make test holds it); after make coverage, those that no run has made
.PHONY: messages
messages:
	@tests/messages.sh
	@if [ -d build/cov ]; then tests/messages.sh --reached; fi

tests-built: all $(SHIM_PROGRAMS) $(FAKE_PROGRAMS) $(UNIT_BIN) $(TOOLS) $(BUILD)/tools/shim.so $(FUZZ_BIN)

## peers: the light Python peers that some tests use (they skip without), into build/peers
.PHONY: peers
peers:
	@tests/peers/venv.sh light

## bench: speed and memory against peers, one table; B=REGEX picks rows (tests/bench/run says more)
.PHONY: bench
bench: all $(TOOLS)
	@tests/bench/run '$(value B)'

## check-gpu: what only a GPU can show: models against the CPU, compute-sanitizer, tokens/s and each kernel's bandwidth; P=REGEX picks parts; skips, visibly, where there is none
.PHONY: check-gpu
check-gpu: all $(TOOLS) $(if $(CUDA),$(GPU_UNIT) $(BUILD)/lab)
	@tests/check-gpu '$(value P)'

## valgrind: the unit tests under valgrind; U=REGEX picks tests
.PHONY: valgrind
valgrind: $(UNIT_BIN)
	@command -v valgrind >/dev/null || { echo "valgrind: skipped: it is not installed: apt-get install valgrind"; exit 0; }; \
	for test in $(UNIT); do grep -qE -e '$(value U)' <<<"$$test" || continue; echo "== $$test"; \
	valgrind -q --error-exitcode=99 --leak-check=full --errors-for-leak-kinds=definite $(BUILD)/unit/$$test >/dev/null; done

# --- installation ---------------------------------------------------------------------------------------------------
# The scripts find data and programs by their own place, as in the checkout: share/q4sweep/ has the same shape, with a link to bin/.
SHARED = q4sweep sweep.mk VERSION $(shell find pipelines data -type f ! -name convert)
MANUALS = $(wildcard man/*.[157])
COMPLETED = q4sweep $(PROGRAMS)
DOC = README.md LICENSE $(wildcard docs/*.md)

.PHONY: install uninstall deb
## install: programs, scripts, data, manual pages, completion, documents below DESTDIR and PREFIX [/usr/local]
install: all
	@to="$(DESTDIR)$(PREFIX)"; echo "install: $$to"; put() { install -D -m "$$1" "$$2" "$$to/$$3"; }; \
	for p in $(PROGRAMS); do put 755 $(BIN)/$$p bin/$$p; done; \
	for f in $(SHARED); do if [ -x $$f ]; then put 755 $$f share/q4sweep/$$f; else put 644 $$f share/q4sweep/$$f; fi; done; \
	for f in $(MANUALS); do put 644 $$f share/man/man$${f##*.}/$${f#man/}; done; \
	for f in $(DOC); do put 644 $$f share/doc/q4sweep/$$f; done; \
	ln -sfn ../../bin "$$to/share/q4sweep/bin"; ln -sfn ../share/q4sweep/q4sweep "$$to/bin/q4sweep"; \
	completions="$$to/share/bash-completion/completions"; install -d "$$completions"; \
	for p in $(COMPLETED); do { cat packaging/completion.bash; echo "complete -o default -F _q4sweep $$p"; } >"$$completions/$$p"; done

## uninstall: remove what install put there, and directories that are empty then
uninstall:
	@to="$(DESTDIR)$(PREFIX)"; echo "uninstall: $$to"; \
	rm -f $(COMPLETED:%="$$to/bin/%") $(COMPLETED:%="$$to/share/bash-completion/completions/%"); \
	for f in $(MANUALS); do rm -f "$$to/share/man/man$${f##*.}/$${f#man/}"; done; \
	rm -rf "$$to/share/q4sweep" "$$to/share/doc/q4sweep"; \
	for d in bin share/man/man1 share/man/man5 share/man/man7 share/bash-completion/completions share/doc; do \
	$(if $(DESTDIR),(cd "$(DESTDIR)/" && rmdir -p ".$(PREFIX)/$$d"),rmdir "$$to/$$d") 2>/dev/null || true; done

## deb: a package for Debian, build/q4sweep_VERSION_ARCH.deb
deb: all
	@packaging/deb

## layers: check that a module includes only what it may know (docs/architecture.md, Layers)
layers:
	@tests/layers.sh

include sweep.mk

.SECONDARY:
-include $(LIB_OBJ:.o=.d) $(CUDA_OBJ:.o=.d) $(SHIM_OBJ:.o=.d) $(BUILD)/tests/cuda/shim_faults.d $(BUILD)/shim/lab/gemv.d $(BUILD)/fake/launch.d $(BUILD)/fake/runtime.d $(PROGRAMS:%=$(BUILD)/src/%.d) $(UNIT:%=$(BUILD)/tests/unit/%.d) \
	$(TOOLS:$(BUILD)/tools/%=$(BUILD)/tests/tools/%.d) $(FUZZ:%=$(BUILD)/tests/fuzz/%.d)

.PHONY: help clean info
## help: this list
help:
	@sed -n 's/^## //p' $(HERE)/sweep.mk Makefile

## info: what was chosen: compiler, flags, programs
info:
	@echo "CC=$(CC) ($$($(CC) --version | head -n 1))"; echo "CFLAGS=$(ALL_CFLAGS)"; echo "programs=$(PROGRAMS)"

## clean: remove everything that was built
clean:
	rm -rf build bin
