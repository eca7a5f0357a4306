# retro-server: one Makefile. `make demo` and `make test` are the two commands a new user needs.
#
#   make deps     install what is missing (Debian packages, FAISS with its C API, test environment, embedder);
#                 with CUDA=1 also FAISS' GPU part, for the architectures FAISS_GPUS (90; as "80;90"),
#                 with PTX for later ones unless it says so: 90-real
#   make all      build/retro-server, build/retro-index, build/retro-eval, build/retro-bench, build/retro-convert
#   make install  what `make` built, into DESTDIR and PREFIX (/usr/local); builds nothing, so that root may call it
#   make deb      a Debian package in build/deb; make deb-test installs it on a bare Debian 12 (root; docs/packages.md).
#                 ARCH=arm64 builds for that architecture, in build/deb-arm64, also on an x86 machine (root)
#   make dist     an archive in build/dist that runs on other distributions; make dist-test tries it on five (root; docs/packages.md)
#   make container-test  a container's image of the package, by buildah, which it installs (root; docs/packages.md)
#   make test     deps, build, every test that needs no GPU
#   make clients-test  langchain-openai, llama-index, lm-eval and MCP's client against the server, in an environment of their own
#   make agents-test   Claude Code, Codex and LangChain's client of MCP against the server, in an environment of their own
#   make replicas-test  three servers behind nginx and HAProxy, which it installs: docs/replicas.md
#   make milvus-test  collections in a real Milvus, which it fetches (make test has a fake one)
#   make page-test  the page at GET / in a real Chromium, which it installs
#   make c-test   the C tests alone, for SANITIZE=
#   make hostile-test  raw bytes, limits and clients that leave, against the server built with ASan and UBSan
#   make arm64-test  the C tests that need few libraries, built for arm64 and run by qemu; installs a cross compiler
#   make soak     300 000 requests whose clients leave: memory, descriptors, answers (SOAK="--seconds 60")
#   make noninterference  what one tenant sees does not depend on another: STEPS (2000) steps of SEEDS (4) seeds
#   make valgrind a reference model under valgrind, half a minute
#   make fuzz     every libFuzzer target for FUZZ_SECONDS (60), with clang and sanitizers
#   make cuda-check  compile the GPU kernels for every architecture, check that none spills registers (needs nvcc)
#   make gpu-bundle  what the checks on a GPU run, with its libraries, in build/gpu (needs nvcc, no GPU)
#   make gpu-check   those checks and the benchmarks, on a machine with a GPU: docs/gpu.md
#   make lint     include directions, one includer per library header, function sizes, formatting
#   make format   rewrite sources in the project's style
#   make info     what was found and how it is built
#   make bench    how fast this machine is, in two minutes; JSON=1 prints JSON lines: docs/benchmarks.md
#   make demo     documents in, an answer with its sources out, beside one without
#   make train-smoke, test-train   tools/retro_train in two minutes, and its tests; both install PyTorch (deps-train)
#
# CPU=generic leaves the kernels for the instruction sets of x86 and Arm out.
# SANITIZE=address,undefined (or thread) builds into build/sanitize-... beside the normal build; CC=clang works as gcc does.

.DEFAULT_GOAL := all
# One short line a step; V=1 shows whole commands.
V ?=
quiet = $(if $(V),,@printf '  %-6s %s\n' $(1) $@;)
DEPS ?= $(HOME)/.cache/retro-server
SANITIZE ?=
comma := ,
BUILD := build$(if $(SANITIZE),/sanitize-$(subst $(comma),-,$(SANITIZE)))
CC ?= cc
CXX ?= c++

# Kernels for the instruction sets of x86 or Arm beside those in portable C: CPU=generic leaves them out, as other
# machines do.
MACHINE := $(shell $(CC) -dumpmachine)
CPU ?= $(if $(filter x86_64-%,$(MACHINE)),x86,$(if $(filter aarch64-%,$(MACHINE)),arm,generic))
CPU := $(CPU)

# Machines that config/base/base.h refuses in every file are refused here once.
MACROS := $(shell $(CC) $(CPPFLAGS) $(CFLAGS) -dM -E -x c /dev/null 2>/dev/null)
ifneq ($(MACROS),)
ifeq ($(and $(findstring __SIZEOF_POINTER__ 8,$(MACROS)),$(findstring __BYTE_ORDER__ __ORDER_LITTLE_ENDIAN__,$(MACROS))),)
$(error retro-server is for 64-bit little-endian machines, as x86-64 and arm64 are, and $(CC) compiles for $(MACHINE))
endif
endif

# Debian's name of the architecture that make deb is for, where it is another than this machine's.
ARCH :=
ifneq ($(ARCH),)
PACKAGED := $(shell sed -n 's/^Architecture: //p' debian/control)
$(if $(filter $(PACKAGED),$(ARCH)),,$(error ARCH=$(ARCH): retro-server is for 64-bit little-endian machines, and packaged for $(PACKAGED)))
endif

# Targets that build before they do something else compile on all cores, unless the caller's -j says how many.
JOBS = $(if $(findstring jobserver,$(MAKEFLAGS)),,-j$(shell nproc))

# Libraries that `make deps` may still have to install are found by compiling and linking, never by guessing a path.
HASH := \#
probe = $(shell printf '$(HASH)include <$(1)>\nint main(void){return 0;}\n' | \
	$(CC) -x c - $(2) -o /dev/null >/dev/null 2>&1 && echo 1)
faiss_flags = -I$(1)/include -L$(1)/lib -Wl,-rpath,$(1)/lib

# The GPU backend is built where there are a GPU and nvcc with cuBLASLt's header. CUDA=1 builds it where there is no GPU,
# CUDA= leaves it out. The library itself is opened with the first device. The same kernels run without either on an
# emulated device, for tests (EMULATED below).
NVCC ?= nvcc
NVCC_PATH := $(realpath $(shell command -v $(NVCC)))
CUDA_HOME ?= $(patsubst %/bin/,%,$(dir $(NVCC_PATH)))
CUDA_LIBS := -L$(CUDA_HOME)/lib64 -Wl,-rpath,$(CUDA_HOME)/lib64 -lcudart_static -ldl -lrt -lpthread
GPU := $(wildcard /dev/nvidia0)
ifeq ($(origin CUDA),undefined)
CUDA := $(if $(and $(GPU),$(NVCC_PATH)),$(if $(SANITIZE),,$(call probe,cublasLt.h,-I$(CUDA_HOME)/include $(CUDA_LIBS))))
endif
# FAISS with its GPU part (make deps CUDA=1) is taken by builds with CUDA; both can be there, each in its own folder.
FAISS_GPU ?= $(if $(CUDA),$(call probe,faiss/c_api/gpu/StandardGpuResources_c.h,$(call \
	faiss_flags,$(DEPS)/faiss-gpu) -isystem $(CUDA_HOME)/include -lfaiss_c))
FAISS_GPU := $(FAISS_GPU)
FAISS_HOME := $(DEPS)/faiss$(if $(FAISS_GPU),-gpu)
FAISS ?= $(call probe,faiss/c_api/Index_c.h,$(call faiss_flags,$(FAISS_HOME)) -lfaiss_c)
FAISS := $(FAISS)
# NCCL comes with the toolkit or beside it; MPI's compiler flags from pkg-config.
NCCL ?= $(if $(CUDA),$(call probe,nccl.h,-I$(CUDA_HOME)/include -L$(CUDA_HOME)/lib64 -lnccl))
MPI_FLAGS := $(shell pkg-config --cflags --libs ompi-c 2>/dev/null)
MPI ?= $(call probe,mpi.h,$(MPI_FLAGS))
NCCL := $(NCCL)
MPI := $(MPI)
# Collections in Milvus.
CURL ?= $(call probe,curl/curl.h,-lcurl)
CURL := $(CURL)
CUDA_DEFINES := -DHAVE_CUDA=$(if $(CUDA),1,0) -DHAVE_CUDA_HOST=0

# The system that is built for, where it is another than this machine's (tools/dist.sh): CC and CXX are told of it, too.
SYSROOT ?=

# pass-failed: clang warns where sanitizers keep it from vectorising an `omp simd` loop; gcc does not know the name.
WARNINGS := -Wall -Wextra -Werror -Wshadow -Wvla -Wpointer-arith -Wundef -Wno-pass-failed
CPPFLAGS += -I. -D_GNU_SOURCE -DCPU_X86=$(if $(filter x86,$(CPU)),1,0) -DCPU_ARM=$(if $(filter arm,$(CPU)),1,0) \
	$(CUDA_DEFINES) -DXXH_INLINE_ALL \
	-isystem $(SYSROOT)/usr/include/libxml2
# What debuggers read costs a sixth of the compiler's time: a first build by make demo has lines of functions alone. Later
# builds are as the one that is there, unless DEBUG= says another.
DEBUG ?= $(or $(firstword $(filter -g%,$(shell cat $(BUILD)/built-with 2>/dev/null))),$(if $(filter demo,$(MAKECMDGOALS)),-g1,-g))
DEBUG := $(DEBUG)
OPTIMISE := -O2 $(DEBUG) -fno-math-errno -ffp-contract=off -fopenmp
HARDEN := -fstack-protector-strong -fPIE $(if $(SANITIZE),-fsanitize=$(SANITIZE) -fno-omit-frame-pointer \
	-fno-sanitize-recover=all,-D_FORTIFY_SOURCE=2)
CFLAGS += -std=c11 -Wstrict-prototypes -Wmissing-prototypes $(WARNINGS) $(OPTIMISE) $(HARDEN)
CXXFLAGS += -std=c++17 $(WARNINGS) $(OPTIMISE) $(HARDEN)
# Under a sanitizer dlopen is the sanitizer's library's, which sees an RPATH of the program and no RUNPATH.
LDFLAGS += -pie -Wl,-z,relro,-z,now -fopenmp $(if $(SANITIZE),-fsanitize=$(SANITIZE) -Wl$(comma)--disable-new-dtags) \
	$(if $(FAISS),-L$(FAISS_HOME)/lib -Wl$(comma)-rpath$(comma)$(FAISS_HOME)/lib)
LDLIBS += -lmicrohttpd -lgnutls -lnettle -ljansson -lpcre2-8 -lutf8proc -lsentencepiece -lxml2 \
	-ljpeg -lpng -lwebpdemux -lwebp -larchive -lyaml -lsqlite3 -lz -lseccomp $(if $(CURL),-lcurl) \
	$(if $(NCCL),-lnccl) $(if $(CUDA),$(CUDA_LIBS)) $(if $(MPI),$(filter -L% -l%,$(MPI_FLAGS))) \
	-lstdc++ -lm -lpthread
# A program finds FAISS relative to itself, built or installed: a user's folder of dependencies is nobody else's.
PROGRAM_LDFLAGS := $(filter-out -Wl$(comma)-rpath$(comma)$(FAISS_HOME)/lib,$(LDFLAGS)) \
	'-Wl,-rpath,$$ORIGIN/lib:$$ORIGIN/../lib/retro-server'

# Every folder's sources make one library; a program is server/main.c or a folder of tools/.
PROGRAMS := $(BUILD)/retro-server $(BUILD)/retro-index $(BUILD)/retro-eval $(BUILD)/retro-bench $(BUILD)/retro-convert
X86_SOURCES := $(wildcard kernels/cpu/x86/*.c)
ARM_SOURCES := $(wildcard kernels/cpu/arm/*.c)
SOURCES := $(filter-out server/main.c $(if $(filter x86,$(CPU)),,$(X86_SOURCES)) $(if $(filter arm,$(CPU)),,$(ARM_SOURCES)) $(if $(MPI),,kernels/comm/comm_mpi.c) $(if $(NCCL),,kernels/comm/comm_nccl.c), \
	$(wildcard config/*/*.c kernels/*.c kernels/*/*.c kernels/cpu/x86/*.c kernels/cpu/arm/*.c retro/*/*.c retro/*/*/*.c retrieval/*.c retrieval/*/*.c retrieval/*/*/*.c \
	server/*.c server/*/*.c server/*/*/*.c)) $(wildcard retro/*/*.cc) $(if $(CUDA),$(wildcard kernels/cuda/*.cu))
OBJECTS := $(addprefix $(BUILD)/,$(addsuffix .o,$(SOURCES)))
LIBRARY := $(BUILD)/libretro.a

# Kernels begin at a cache line. Whether a kernel's loops straddle lines must not depend on what the linker puts before
# it: with the same instructions elsewhere, one machine decoded bf16 by 3 to 9 % slower.
ALIGN := -falign-functions=64

# How objects were made, and what they were made from. When the settings change (make deps found FAISS a home), all
# objects are made anew; when a source comes or goes, the library is.
BUILT_WITH := $(strip $(CC) $(CXX) $(CPPFLAGS) $(CFLAGS) $(ALIGN))
BUILT_FROM := $(strip $(SOURCES))
# The few files that ask for FAISS or MPI are made anew when these come, and no others: make demo builds without them.
FAISS_FLAGS := $(if $(FAISS),-DHAVE_FAISS=1 -isystem $(FAISS_HOME)/include,-DHAVE_FAISS=0)
COMM_FLAGS := -DHAVE_MPI=$(if $(MPI),1,0) -DHAVE_NCCL=$(if $(NCCL),1,0)
LINKED_WITH := $(strip $(FAISS_FLAGS) $(COMM_FLAGS) $(PROGRAM_LDFLAGS) $(LDLIBS))
ifneq ($(MAKECMDGOALS),install)
ifneq ($(shell cat $(BUILD)/built-with 2>/dev/null),$(BUILT_WITH))
$(shell mkdir -p $(BUILD))
$(file >$(BUILD)/built-with,$(BUILT_WITH))
endif
ifneq ($(shell cat $(BUILD)/built-from 2>/dev/null),$(BUILT_FROM))
$(file >$(BUILD)/built-from,$(BUILT_FROM))
endif
ifneq ($(shell cat $(BUILD)/linked-with 2>/dev/null),$(LINKED_WITH))
$(file >$(BUILD)/linked-with,$(LINKED_WITH))
endif
endif

# Kernels of one instruction set are compiled for it and picked by CPUID at run time.
# Contraction to FMA is off everywhere: what is fused is written as an intrinsic, so results do not depend on the compiler.
# Fuzzing is for what parses: instrumented for it, one of these files takes clang minutes.
# Lines are enough for debuggers there: variables are registers, and finding them took a third of the compiler's time.
VECTOR := $(if $(SANITIZE),-O1,-O3) $(if $(filter -g,$(DEBUG)),-g1) $(if $(findstring fuzzer,$(SANITIZE)),-fno-sanitize=all)
$(BUILD)/kernels/cpu/%.c.o: CFLAGS += $(ALIGN)
$(BUILD)/kernels/cpu/arm/%_neon.c.o: CFLAGS += $(VECTOR)
$(BUILD)/kernels/cpu/arm/%_dotprod.c.o: CFLAGS += -march=armv8.2-a+dotprod $(VECTOR)
$(BUILD)/kernels/cpu/arm/%_i8mm.c.o: CFLAGS += -march=armv8.2-a+dotprod+i8mm $(VECTOR)
$(BUILD)/kernels/cpu/arm/%_bf16.c.o: CFLAGS += -march=armv8.2-a+dotprod+i8mm+bf16 $(VECTOR)
$(BUILD)/kernels/cpu/x86/%_avx2.c.o: CFLAGS += -mavx2 -mfma -mf16c $(VECTOR)
$(BUILD)/kernels/cpu/x86/%_avxvnni.c.o: CFLAGS += -mavx2 -mfma -mf16c -mavxvnni $(VECTOR)
$(BUILD)/kernels/cpu/x86/%_avx512.c.o: CFLAGS += -mavx512f -mavx512bw -mavx512vl -mavx512dq -mfma -mf16c $(VECTOR)
$(BUILD)/kernels/cpu/x86/%_avx512vnni.c.o: CFLAGS += -mavx512f -mavx512bw -mavx512vl -mavx512dq -mavx512vnni -mfma -mf16c $(VECTOR)
$(BUILD)/kernels/cpu/x86/%_amx.c.o: CFLAGS += -mavx512f -mavx512bw -mavx512vl -mavx512dq -mavx512bf16 -mamx-tile -mamx-bf16 $(VECTOR)
$(BUILD)/kernels/cpu/x86/%_avx512bf16.c.o: CFLAGS += -mavx512f -mavx512bw -mavx512vl -mavx512dq -mavx512bf16 -mfma -mf16c $(VECTOR)

# The kernels for Arm are written in the order in which registers suffice: gcc's first scheduling would move loads ahead
# of it and put sums on the stack.
$(BUILD)/kernels/cpu/arm/%.c.o: CFLAGS += $(if $(findstring clang,$(CC)),,-fno-schedule-insns)

# Their loops are unrolled by name, and -O3 puts sums that -O2 keeps in registers on the stack (gcc 12).
$(BUILD)/kernels/cpu/x86/linear_%.c.o: CFLAGS += $(if $(SANITIZE),,-O2)

ASKS_FAISS := $(patsubst %,$(BUILD)/%.c.o,$(basename $(wildcard retrieval/index/*.c)) server/cli tools/index/retro_index \
	$(patsubst %,tests/unit/test_%,faiss_file filter generation index index_gpu store))
$(ASKS_FAISS): CPPFLAGS += $(FAISS_FLAGS)
$(BUILD)/kernels/comm/comm.c.o: CPPFLAGS += $(COMM_FLAGS)
$(ASKS_FAISS) $(BUILD)/kernels/comm/comm.c.o: $(BUILD)/linked-with
# The GPU part's headers include CUDA's.
$(patsubst %,$(BUILD)/retrieval/index/%.c.o,index_faiss index_faiss_lists index_faiss_gpu faiss_api): \
	CPPFLAGS += -DHAVE_FAISS_GPU=$(if $(FAISS_GPU),1 -isystem $(CUDA_HOME)/include,0)
# Where make deps puts the embedder: what is benchmarked when none is named.
$(BUILD)/tools/bench/bench_embed.c.o $(BUILD)/tools/bench/bench_datastore.c.o: CPPFLAGS += -DDEFAULT_EMBEDDER='"$(DEPS)/minilm"'

# The page's files are part of the program: the assembler copies them (.incbin), which the compiler's -MMD does not tell.
$(BUILD)/server/page/page_files.c.o: $(wildcard server/page/*.html server/page/*.css server/page/*.js server/page/*.svg) docs/agents.md docs/mcp.md
# So are two libraries that it loads, as Debian installs them.
PAGE_LIBRARIES := /usr/share/javascript
PAGE_LIBRARY_FILES := $(PAGE_LIBRARIES)/marked/marked.umd.min.js $(PAGE_LIBRARIES)/katex/katex.min.js
$(BUILD)/server/page/page_files.c.o: CPPFLAGS += -DPAGE_LIBRARIES='"$(PAGE_LIBRARIES)"'
$(BUILD)/server/page/page_files.c.o: $(PAGE_LIBRARY_FILES)
$(PAGE_LIBRARY_FILES):
	$(error $@ is missing: run make deps, or install the packages libjs-marked and libjs-katex)

$(patsubst %,$(BUILD)/%.c.o,config/web/curl retrieval/milvus/client/link retrieval/extract/model/model_link server/fetch/fetcher \
	server/fetch/web_guard server/tools/http_link): CPPFLAGS += -DHAVE_CURL=$(if $(CURL),1,0)
# GMime's headers alone: the process of a parser opens the library.
GMIME_FLAGS := $(patsubst -I%,-isystem%,$(filter -I%,$(shell pkg-config --cflags gmime-3.0)))
$(BUILD)/retrieval/extract/mail/message.c.o: CPPFLAGS += $(GMIME_FLAGS)
# Poppler's and cairo's headers alone, likewise.
POPPLER_FLAGS := $(patsubst -I%,-isystem%,$(filter -I%,$(shell pkg-config --cflags poppler-glib cairo)))
$(patsubst %,$(BUILD)/retrieval/extract/pdf/pdf_%.c.o,fields library structure): CPPFLAGS += $(POPPLER_FLAGS)
$(BUILD)/kernels/comm/comm_mpi.c.o: CPPFLAGS += $(patsubst -I%,-isystem%,$(filter -I%,$(MPI_FLAGS)))
$(BUILD)/kernels/comm/comm_nccl.c.o: CPPFLAGS += -isystem $(CUDA_HOME)/include

# Manual pages and completions are made of what --help prints; EMULATOR runs programs built for another machine.
MANUAL := $(BUILD)/manual
EMULATOR :=
$(MANUAL)/share/man/man5/retro.json.5: $(PROGRAMS) $(wildcard tools/manual/*.py)
	$(call quiet,MANUAL)python3 -B tools/manual/generate.py $(BUILD) $(MANUAL) $(EMULATOR)

all: $(PROGRAMS) $(MANUAL)/share/man/man5/retro.json.5

$(LIBRARY): $(OBJECTS) $(BUILD)/built-with $(BUILD)/built-from
	@rm -f $@
	$(call quiet,AR)$(AR) rcs $@ $(OBJECTS)

$(BUILD)/retro-server: $(BUILD)/server/main.c.o $(LIBRARY)
$(BUILD)/retro-index: $(patsubst %,$(BUILD)/%.o,$(wildcard tools/index/*.c)) $(LIBRARY)
$(BUILD)/retro-eval: $(patsubst %,$(BUILD)/%.o,$(wildcard tools/eval/*.c)) $(LIBRARY)
$(BUILD)/retro-bench: $(patsubst %,$(BUILD)/%.o,$(wildcard tools/bench/*.c)) $(LIBRARY)
CONVERT := $(patsubst %,$(BUILD)/%.o,$(filter-out %/retro_convert.c,$(wildcard tools/convert/*.c tools/convert/*/*.c)))
$(BUILD)/retro-convert: $(BUILD)/tools/convert/retro_convert.c.o $(CONVERT) $(LIBRARY)
$(PROGRAMS): $(BUILD)/linked-with
	@mkdir -p $(BUILD)/lib
	@$(if $(FAISS),ln -sfn $(FAISS_HOME)/lib/* $(BUILD)/lib)
	$(call quiet,LINK)$(CC) $(PROGRAM_LDFLAGS) $(filter-out %/linked-with,$^) $(LDLIBS) -o $@

$(BUILD)/%.c.o: %.c $(BUILD)/built-with
	@mkdir -p $(@D)
	$(call quiet,CC)$(CC) $(CPPFLAGS) $(CFLAGS) -MMD -MP -c $< -o $@
$(BUILD)/%.cc.o: %.cc $(BUILD)/built-with
	@mkdir -p $(@D)
	$(call quiet,CXX)$(CXX) $(CPPFLAGS) $(CXXFLAGS) -MMD -MP -c $< -o $@

# GPU code for the architectures we know, and PTX for later ones. As on the CPU, what is fused is written so.
GPUS := 80 90 100
NVCCFLAGS := -std=c++17 -O2 -g --fmad=false -Xptxas -v -Xcompiler "-Wall -Wextra -fPIE -fstack-protector-strong" \
	$(foreach gpu,$(GPUS),-gencode arch=compute_$(gpu)$(comma)code=sm_$(gpu)) \
	-gencode arch=compute_$(lastword $(GPUS))$(comma)code=compute_$(lastword $(GPUS))
$(BUILD)/kernels/cuda/%.cu.o: kernels/cuda/%.cu
	@mkdir -p $(@D)
	$(call quiet,NVCC)$(NVCC) -I. $(NVCCFLAGS) -MMD -MP -MF $(@:.o=.d) -c $< -o $@ 2> $(@:.o=.ptxas) || { cat $(@:.o=.ptxas); exit 1; }

# The emulated device: the same kernels, compiled by the host compiler against tests/cuda_host. Only tests have it.
HOST := $(BUILD)/cuda_host
EMULATED := $(patsubst %,$(HOST)/%.o,kernels/device/backend.c $(filter-out %/gemm_cublas.cu,$(wildcard kernels/cuda/*.cu)) \
	$(wildcard tests/cuda_host/*.cc))
EMULATED_LIBRARY := $(HOST)/libretro-cuda-host.a
$(HOST)/%.o: CUDA_DEFINES := -DHAVE_CUDA=0 -DHAVE_CUDA_HOST=1
# A GPU refuses misaligned vectors; so do the kernels here.
$(HOST)/%.o: CXXFLAGS += -Itests/cuda_host -fno-strict-aliasing \
	$(if $(SANITIZE),,-fsanitize=alignment -fsanitize-undefined-trap-on-error)
$(HOST)/%.c.o: %.c
	@mkdir -p $(@D)
	$(call quiet,CC)$(CC) $(CPPFLAGS) $(CFLAGS) -MMD -MP -c $< -o $@
$(HOST)/%.cc.o: %.cc
	@mkdir -p $(@D)
	$(call quiet,CXX)$(CXX) $(CPPFLAGS) $(CXXFLAGS) -MMD -MP -c $< -o $@
$(HOST)/%.cu.o: %.cu
	@mkdir -p $(@D)
	$(call quiet,CXX)$(CXX) $(CPPFLAGS) $(CXXFLAGS) -x c++ -MMD -MP -c $< -o $@
$(EMULATED_LIBRARY): $(EMULATED) $(filter-out $(BUILD)/kernels/device/backend.c.o $(BUILD)/kernels/cuda/%,$(OBJECTS))
	@rm -f $@
	$(call quiet,AR)$(AR) rcs $@ $^
# ThreadSanitizer does not follow fibers.
EMULATED_TESTS := $(if $(findstring thread,$(SANITIZE)),,$(patsubst %,$(HOST)/%,$(basename \
	$(wildcard tests/cuda/test_*.c tests/cuda/test_*.cc))))
$(HOST)/tests/cuda/test_cuda_steps: $(HOST)/tests/cuda/test_cuda_steps.c.o $(CONVERT)
$(patsubst %.c,$(HOST)/%,$(wildcard tests/cuda/test_*.c)): $(HOST)/%: $(HOST)/%.c.o $(EMULATED_LIBRARY)
$(patsubst %.cc,$(HOST)/%,$(wildcard tests/cuda/test_*.cc)): $(HOST)/%: $(HOST)/%.cc.o $(EMULATED_LIBRARY)
$(EMULATED_TESTS):
	$(call quiet,LINK)$(CC) $(LDFLAGS) $^ $(LDLIBS) -lcmocka -o $@
$(HOST)/retro-eval: $(patsubst %,$(BUILD)/%.o,$(wildcard tools/eval/*.c)) $(EMULATED_LIBRARY)
	$(call quiet,LINK)$(CC) $(LDFLAGS) $^ $(LDLIBS) -o $@
emulated: $(EMULATED_TESTS) $(HOST)/retro-eval

# GPU code is checked without a GPU: it compiles for every architecture, and no kernel spills registers.
# So do the few files of C that differ where there is CUDA.
CUDA_OBJECTS := $(patsubst %,$(BUILD)/%.o,$(wildcard kernels/cuda/*.cu))
cuda-check:
	@$(MAKE) --no-print-directory $(JOBS) CUDA=1 BUILD=$(BUILD)/cuda cuda-checked
	@tests/cuda/spills.sh $(BUILD)/cuda
cuda-checked: $(CUDA_OBJECTS) $(patsubst %,$(BUILD)/%.c.o,kernels/device/backend retrieval/index/faiss_api retrieval/index/index_faiss \
	retrieval/index/index_faiss_gpu) \
	$(if $(NCCL),$(BUILD)/kernels/comm/comm_nccl.c.o)
# The programs that tools/gpu_check.sh runs on a GPU: the bundle is made here, with its libraries, and carried to a machine that has
# none of them. Large libraries that one GPU needs nothing of are left out; the op tests need nothing but cmocka.
GPU_OPS := $(addprefix $(BUILD)/tests/cuda/,test_cuda_ops test_cuda_attention test_cuda_blocks test_cuda_experts test_cuda_delta)
GPU_STEPS := $(BUILD)/tests/cuda/test_cuda_steps
GPU_PARITY := $(BUILD)/tests/cuda/retro-parity
$(GPU_OPS): %: %.c.o $(filter-out $(BUILD)/kernels/comm/%,$(filter \
	$(patsubst %,$(BUILD)/config/base/%.c.o,base buffer line log memory utf8) $(BUILD)/kernels/%,$(OBJECTS)))
	$(call quiet,LINK)$(CC) $(LDFLAGS) $^ $(CUDA_LIBS) -lcmocka -lstdc++ -lm -o $@
$(GPU_PARITY): $(patsubst %,$(BUILD)/%.o,tests/cuda/parity.c $(addprefix tools/eval/,eval_parity.c eval_options.c parity_cases.c parity_pictures.c)) $(LIBRARY)
	$(call quiet,LINK)$(CC) $(LDFLAGS) -Wl,--as-needed $^ $(LDLIBS) -o $@
$(GPU_STEPS): $(GPU_STEPS).c.o $(CONVERT) $(LIBRARY)
	$(call quiet,LINK)$(CC) $(LDFLAGS) -Wl,--as-needed $^ $(LDLIBS) -lcmocka -o $@
gpu-ops: $(GPU_OPS)
gpu-programs: $(GPU_OPS) $(GPU_STEPS) $(GPU_PARITY) $(BUILD)/retro-bench $(if $(FAISS_GPU),$(BUILD)/tests/unit/test_index_gpu)
gpu-bundle:
	@$(MAKE) --no-print-directory CUDA=1 gpu-bundled
gpu-bundled:
	@$(MAKE) --no-print-directory BUILD=$(BUILD)/gpu-objects MPI= NCCL= FAISS=$(FAISS_GPU) gpu-programs
	@tools/gpu_check.sh pack $(BUILD)/gpu $(patsubst %,$(BUILD)/gpu-objects/%,$(addprefix tests/cuda/,test_cuda_ops \
		test_cuda_attention test_cuda_blocks test_cuda_experts test_cuda_delta test_cuda_steps retro-parity) retro-bench \
		$(if $(FAISS_GPU),tests/unit/test_index_gpu)) $(if $(FAISS_GPU),$(FAISS_HOME)/lib/libfaiss_c.so)
gpu-check:
	@tools/gpu_check.sh run

# One cmocka program per tests/unit/test_X.c and tests/ops/test_X.c, ...
C_TESTS := $(patsubst %.c,$(BUILD)/%,$(wildcard tests/unit/test_*.c tests/ops/test_*.c tests/golden/test_*.c tests/tp/test_*.c))
$(BUILD)/tests/unit/test_budget $(BUILD)/tests/unit/test_mapped_experts: $(CONVERT)
$(BUILD)/tests/unit/test_estimate: $(BUILD)/tools/index/index_estimate.c.o
$(C_TESTS): $(BUILD)/%: $(BUILD)/%.c.o $(LIBRARY)
$(C_TESTS):
	$(call quiet,LINK)$(CC) $(LDFLAGS) $^ $(LDLIBS) -lcmocka -o $@
# What tests/crash runs: a program that changes collections, and a library that lets its writes go wrong. The library is
# loaded into programs without a sanitizer only.
CRASH := $(BUILD)/tests/crash/worker $(BUILD)/tests/crash/shim.so
$(BUILD)/tests/crash/worker: $(BUILD)/tests/crash/worker.c.o $(LIBRARY)
	$(call quiet,LINK)$(CC) $(LDFLAGS) -Wl,--as-needed $^ $(LDLIBS) -o $@
# Prints what is read of a file: tests/reading scores it.
READING := $(BUILD)/tests/reading/read_file
$(READING): $(BUILD)/tests/reading/read_file.c.o $(LIBRARY)
	$(call quiet,LINK)$(CC) $(LDFLAGS) -Wl,--as-needed $^ $(LDLIBS) -o $@
$(BUILD)/tests/crash/shim.so: tests/crash/shim.c $(BUILD)/built-with
	@mkdir -p $(@D)
	$(call quiet,CC)$(CC) -std=gnu11 $(WARNINGS) -O1 -g -fPIC -shared $< -o $@ -ldl
# Prints the experts that tokens choose: tests/race counts them.
EXPERTS := $(BUILD)/tests/reference/print_experts
# Counts instructions: tests/growth/test_growth.py compares them.
GROWTH := $(BUILD)/tests/growth/growth
$(GROWTH): $(patsubst %,$(BUILD)/%.o,$(wildcard tests/growth/*.c)) $(CONVERT) $(LIBRARY)
	$(call quiet,LINK)$(CC) $(LDFLAGS) -Wl,--as-needed $^ $(LDLIBS) -lcmocka -o $@
# Collections of a million chunks, made without a model.
SCALE := $(BUILD)/tests/scale/scale
$(SCALE): $(patsubst %,$(BUILD)/%.o,$(wildcard tests/scale/*.c) tools/bench/bench_vectors.c) $(LIBRARY)
	$(call quiet,LINK)$(CC) $(LDFLAGS) -Wl,--as-needed $^ $(LDLIBS) -o $@
# A prompt and a step, whose instructions tests/arm/counts.py counts under qemu.
STEP_COUNTS := $(BUILD)/tests/arm/step_counts
$(STEP_COUNTS): $(STEP_COUNTS).c.o $(patsubst %,$(BUILD)/%.o,$(filter-out %/retro_bench.c,$(wildcard tools/bench/*.c))) $(LIBRARY)
	$(call quiet,LINK)$(CC) $(LDFLAGS) -Wl,--as-needed $^ $(LDLIBS) -o $@
# The program of parity on GPUs is linked here too, where no GPU is needed to see that it links.
c-tests: $(C_TESTS) emulated $(CRASH) $(GROWTH) $(SCALE) $(READING) $(EXPERTS) $(GPU_PARITY)
# The longest first: tests/run.sh runs several at once.
list-c-tests:
	@echo $(EMULATED_TESTS) $(filter $(BUILD)/tests/tp/%,$(C_TESTS)) $(filter-out $(BUILD)/tests/tp/%,$(C_TESTS))

# libFuzzer targets; tests/fuzz/run.sh builds them with clang and the right SANITIZE.
FUZZERS := $(patsubst %.c,$(BUILD)/%,$(wildcard tests/fuzz/fuzz_*.c))
$(BUILD)/tests/fuzz/fuzz_checkpoint: $(CONVERT)
$(FUZZERS): $(BUILD)/%: $(BUILD)/%.c.o $(LIBRARY)
	$(call quiet,LINK)$(CXX) $(LDFLAGS) -fsanitize=fuzzer $(filter %.o,$^) $(LIBRARY) $(LDLIBS) -o $@
FUZZ_SECONDS ?= 60
fuzz:
	@tests/fuzz/run.sh $(FUZZ_SECONDS)

# Programs that tests and documentation use. The option reference is generated, and a unit test compares it.
$(BUILD)/tests/reference/%: $(BUILD)/tests/reference/%.c.o $(LIBRARY)
	$(call quiet,LINK)$(CC) $(LDFLAGS) $^ $(LDLIBS) -o $@
docs/config.md: $(BUILD)/tests/reference/print_config_docs $(wildcard config/options/*.c server/host/options/*.c)
	$< > $@
docs/agents-conformance.md: $(BUILD)/tests/reference/print_conformance $(wildcard server/doors/fields/*.c)
	$< > $@

# The GPU part of FAISS takes long to build: only where CUDA=1 is on the command line, not where it was found.
FAISS_GPUS ?= 90
deps:
	@tools/deps.sh $(DEPS) $(if $(and $(filter command,$(origin CUDA)),$(CUDA)),"$(FAISS_GPUS)")

info:
	@echo "compiler   $$($(CC) --version | head -1)"
	@echo "build      $(BUILD)"
	@echo "faiss      $(if $(FAISS),yes ($(FAISS_HOME)),no: exact search only; run make deps)"
	@echo "faiss gpu  $(if $(FAISS_GPU),yes,no: needs CUDA and make deps CUDA=1)"
	@echo "cuda       $(if $(CUDA),yes ($(CUDA_HOME)),no: there is no GPU or no nvcc with cuBLASLt; CUDA=1 builds it all the same)"
	@echo "mpi        $(if $(MPI),yes ($(patsubst -l%,%,$(filter -l%,$(MPI_FLAGS)))),no: ranks are threads, or joined by sockets; run make deps)"
	@echo "curl       $(if $(CURL),yes,no: no collections in Milvus and no server.image_urls; run make deps)"
	@echo "nccl       $(if $(NCCL),yes,no: nccl.h and libnccl were not found beside CUDA, or it is left out)"
	@echo "sanitizer  $(if $(SANITIZE),$(SANITIZE),none)"

# DESTDIR is where a package is put together, PREFIX where its files will lie.
PREFIX ?= /usr/local
DESTDIR ?=
install:
	@tools/install.sh $(BUILD) "$(DESTDIR)" "$(PREFIX)" $(notdir $(PROGRAMS))

# Of ARCH, the name of another architecture than this machine's.
OTHER = $(filter-out $(shell dpkg --print-architecture),$(ARCH))
DEB_FOLDER = $(BUILD)/deb$(if $(OTHER),-$(OTHER))
deb: deps
	@tools/deps_extra.sh debhelper lintian $(if $(OTHER),mmdebstrap crossbuild-essential-$(OTHER))
	@tools/deb.sh $(DEPS) $(DEB_FOLDER) $(OTHER)
# Programs of another architecture are begun by the kernel (binfmt_misc) in qemu-user-static.
EMULATION = $(if $(OTHER),qemu-user-static binfmt-support)
deb-test: deb
	@tools/deps_extra.sh debootstrap systemd $(EMULATION) $(if $(OTHER),qemu-system-arm cpio)
	@RETRO_BUILD=$(BUILD) RETRO_DEPS=$(DEPS) RETRO_ARCH=$(OTHER) $(DEPS)/venv/bin/python -m pytest -q -s -p no:cacheprovider tests/deb

# An archive that runs on other distributions, and its test on some of them.
dist: deps
	@tools/deps_extra.sh debootstrap patchelf
	@tools/dist.sh $(DEPS) $(BUILD)/dist
dist-test: dist
	@tests/dist/run.sh $(BUILD)/dist/retro-server-*-x86_64.tar.gz $(DEPS)/minilm

# The image that buildah makes of it, as root and without a daemon; with ARCH= that architecture's too, and a list of both.
container-test: deb
	$(if $(OTHER),@$(MAKE) --no-print-directory deb ARCH=)
	@tools/deps_extra.sh buildah uidmap $(EMULATION)
	@RETRO_BUILD=$(BUILD) RETRO_DEPS=$(DEPS) RETRO_ARCH=$(OTHER) $(DEPS)/venv/bin/python -m pytest -q -s -p no:cacheprovider tests/container

test: deps
	@tests/run.sh $(BUILD)
c-test:
	@tests/run.sh $(BUILD) --c-only
# What clients may do to the connection, against the build with sanitizers: a report of theirs ends the server, and the
# test that saw it fails.
hostile-test: HOSTILE := $(if $(SANITIZE),$(BUILD),$(BUILD)/sanitize-address-undefined)
hostile-test: deps
	@$(MAKE) --no-print-directory -s $(if $(SANITIZE),,SANITIZE=address,undefined) $(HOSTILE)/retro-server
	@$(MAKE) --no-print-directory -s SANITIZE= build/retro-index
	@RETRO_BUILD=$(HOSTILE) RETRO_TOOLS=build RETRO_DEPS=$(DEPS) UBSAN_OPTIONS=halt_on_error=1:print_stacktrace=1 timeout --kill-after=10 1200 \
		$(DEPS)/venv/bin/python -m pytest -q -p no:cacheprovider -n 2 --dist loadfile -m hostile tests/http
arm64-test:
	@DEPS=$(DEPS) tests/arm64.sh

# Apart from `make test`: a browser is large, and nothing else needs it.
page-test: deps
	@tools/deps_page.sh $(DEPS)
	@$(MAKE) --no-print-directory $(JOBS) all
	@RETRO_BUILD=$(BUILD) RETRO_DEPS=$(DEPS) $(DEPS)/page-venv/bin/python -m pytest -q -p no:cacheprovider tests/page

# Apart from `make test`: these clients bring many packages.
clients-test: deps
	@tools/deps_venv.sh $(DEPS) clients
	@$(MAKE) --no-print-directory $(JOBS) all
	@RETRO_BUILD=$(BUILD) RETRO_DEPS=$(DEPS) $(DEPS)/clients-venv/bin/python -m pytest -q -p no:cacheprovider tests/clients

# Apart from `make test`: Claude Code, Codex and LangChain's client of MCP, half a gigabyte.
agents-test: deps
	@tools/deps_venv.sh $(DEPS) agents
	@$(MAKE) --no-print-directory $(JOBS) all
	@RETRO_BUILD=$(BUILD) RETRO_DEPS=$(DEPS) $(DEPS)/agents-venv/bin/python -m pytest -q -p no:cacheprovider tests/agents

# Apart from `make test`: three servers behind nginx and HAProxy, which it installs.
replicas-test: deps
	@tools/deps_extra.sh nginx-light haproxy
	@$(MAKE) --no-print-directory $(JOBS) all
	@RETRO_BUILD=$(BUILD) RETRO_DEPS=$(DEPS) $(DEPS)/venv/bin/python -m pytest -q -p no:cacheprovider tests/replicas

# Apart from `make test`: ranks on machines that are network namespaces, as root or where users may make namespaces.
hosts-test: deps
	@$(MAKE) --no-print-directory $(JOBS) all
	@RETRO_BUILD=$(BUILD) tests/hosts/run.sh $(DEPS)/venv/bin/python

# Apart from `make test`: Milvus is 58 MB to fetch and 250 MB unpacked.
milvus-test: deps
	@tools/deps_milvus.sh $(DEPS)
	@$(MAKE) --no-print-directory $(JOBS) all
	@tests/milvus/run.sh $(BUILD) $(DEPS)

# What tests/tokenizers leaves out of `make test`: the reference libraries need ten minutes for these texts.
tokenizer-test: deps
	@RETRO_TOKENIZER_TEXTS=whole RETRO_BUILD=$(BUILD) RETRO_DEPS=$(DEPS) $(DEPS)/venv/bin/python -m pytest -q -p no:cacheprovider tests/tokenizers

# Many requests whose clients leave: memory, descriptors and answers. SOAK= is more of tests/soak/soak.py's options.
SOAK ?= --requests 300000
noninterference: deps
	@$(MAKE) --no-print-directory all
	@RETRO_NONINTERFERENCE=$(or $(STEPS),2000):$(or $(SEEDS),4) RETRO_BUILD=$(BUILD) RETRO_DEPS=$(DEPS) \
		$(DEPS)/venv/bin/python -m pytest -q -s -p no:cacheprovider tests/http/test_noninterference.py

soak: deps
	@$(MAKE) --no-print-directory $(BUILD)/retro-server
	@$(DEPS)/venv/bin/python tests/soak/soak.py --build $(BUILD) $(SOAK)

# Valgrind knows no AVX-512 and shows the program a CPU without: what runs is the AVX2 kernels.
VALGRIND := valgrind --quiet --error-exitcode=1 --leak-check=full --errors-for-leak-kinds=definite
valgrind: deps
	@$(MAKE) --no-print-directory $(BUILD)/retro-eval
	@$(VALGRIND) $(BUILD)/retro-eval parity tests/golden/retro/case_a

lint:
	@tests/lint.sh

format:
	clang-format -i $(shell git ls-files '*.c' '*.h' '*.cc' '*.cu' '*.cuh')

# Only figures go to standard output.
BENCH := $(BUILD)/retro-bench
bench:
	@$(MAKE) --no-print-directory deps >&2
	@$(MAKE) --no-print-directory $(BENCH) >&2
	@$(BENCH) roofline decode prefill batch embed retrieval --model s $(if $(JSON),--json)
	@$(BENCH) load models/retro-docs $(if $(JSON),--json)

# Only what it runs, and nothing waits for what it does not need: manuals come beside packages, the embedder beside the
# compiler. There is one job more than cores, since the embedder's waits for the network.
DEMO_PROGRAMS := $(BUILD)/retro-server $(BUILD)/retro-index
demo:
	@tools/deps_demo.sh packages $(BUILD)/demo/corpus
	@$(MAKE) --no-print-directory $(if $(JOBS),-j$(shell expr $(shell nproc) + 1)) demo-parts
	@tools/demo.sh
demo-parts: $(DEMO_PROGRAMS) demo-embedder
demo-embedder:
	@tools/deps_demo.sh embedder $(DEPS)

# Training is apart: PyTorch is large, and nothing else needs it.
TRAIN_PYTHON := $(DEPS)/train-venv/bin/python
deps-train:
	@tools/deps_venv.sh $(DEPS) train tools

train-smoke: deps deps-train
	@$(MAKE) --no-print-directory $(JOBS) all
	@$(TRAIN_PYTHON) -m retro_train.smoke --build $(BUILD) --embedder $(DEPS)/minilm --out $(BUILD)/train-smoke

test-train: deps deps-train
	@$(MAKE) --no-print-directory $(JOBS) all
	@RETRO_BUILD=$(BUILD) RETRO_DEPS=$(DEPS) $(TRAIN_PYTHON) -m pytest -q -p no:cacheprovider tests/train

clean:
	rm -rf build

.PHONY: agents-test all bench c-test c-tests clean clients-test container-test cuda-check cuda-checked deb deb-test demo demo-embedder \
	demo-parts deps deps-train dist dist-test emulated format fuzz gpu-bundle gpu-bundled gpu-check gpu-ops gpu-programs hostile-test hosts-test info \
	install lint list-c-tests milvus-test noninterference page-test replicas-test soak test test-train train-smoke \
	valgrind arm64-test
# Below deb, dist and container lie whole systems, with programs that are named so.
-include $(shell find $(BUILD) -path '$(BUILD)/deb*' -prune -o -path $(BUILD)/dist -prune -o -path $(BUILD)/container -prune -o \
	-type f -name '*.c*.d' -print 2>/dev/null)
