#include "rehearse/script.h"

#include <string.h>
#include <time.h>

#define API "(APIServer pid={app}) "
#define ENGINE "(EngineCore pid={engine}) "
#define END {0, NULL}

const struct script_line SCRIPT_HEAD[] = {
    {0, "INFO: vLLM server arguments: ['--port', '8080', '--model', '{model}', '--served-model-name', '{model}']"},
    {0, "[INFO] model_hosting_container_standards.supervisor.scripts.standard_supervisor - standard_supervisor.py:177: Starting: "
        "python3 -m vllm.entrypoints.openai.api_server --port 8080 --model {model} --served-model-name {model}"},
    {0, "[INFO] model_hosting_container_standards.supervisor.scripts.standard_supervisor - standard_supervisor.py:43: Starting supervisord..."},
    {0, "{stamp} CRIT Supervisor is running as root.  Privileges were not dropped because no user is specified in the config file.  "
        "If you intend to run as root, you can set user=root in the config file to avoid this message."},
    {0, "{stamp} INFO supervisord started with pid 13"}, END};

const struct script_line SCRIPT_SPAWN[] = {
    {0, "{stamp} INFO spawned: 'app' with pid {app}"},
    {0, "{stamp} INFO success: app entered RUNNING state, process has stayed up for > than 1 seconds (startsecs)"}, END};

const struct script_line SCRIPT_EXIT[] = {{0, "{stamp} WARN exited: app (exit status 1; not expected)"}, END};

#define RESOLVED \
    {16, API "INFO {clock} [model.py:692] Resolved architecture: Gemma4ForCausalLM"}, {16, API "INFO {clock} [model.py:2030] Using max model len 8192"}
#define INITIALIZING \
    {63, ENGINE "INFO {clock} [core.py:123] Initializing a V1 LLM engine (v0.30.0) with config: model='{model}', speculative_config=None, tokenizer='{model}', dtype=torch.bfloat16, " \
         "max_seq_len=8192, quantization=compressed-tensors"}, \
    {65, ENGINE "INFO {clock} [compressed_tensors_wNa16.py:132] Using MarlinLinearKernel for CompressedTensorsWNA16"}, \
    {65, ENGINE "INFO {clock} [cuda.py:478] Using AttentionBackendEnum.TRITON_ATTN backend."}
#define ENGINE_FAILED \
    {104, API "INFO {clock} [utils.py:632] [shutdown] Process manager: send sigterm to process EngineCore"}, {104, API "Traceback (most recent call last):"}, \
    {104, API "  File \"/usr/local/lib/python3.12/dist-packages/vllm/v1/engine/utils.py\", line 1320, in wait_for_engine_startup"}, {104, API "    raise RuntimeError("}, \
    {104, API "RuntimeError: Engine core initialization failed. See root cause above. Failed core proc(s): {}"}, \
    {106, "{stamp} WARN exited: app (exit status 1; not expected)"}

static const struct script_line GPU_OUT_OF_MEMORY[] = {RESOLVED, INITIALIZING,
    {69, ENGINE "ERROR {clock} [core.py:1366] torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.62 GiB. GPU 0 has a total capacity of 21.96 GiB of which 1.84 GiB is free. "
         "Process 12856 has 20.11 GiB memory in use."},
    {69, ENGINE "Process EngineCore:"}, {69, ENGINE "Traceback (most recent call last):"},
    {69, ENGINE "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.62 GiB. GPU 0 has a total capacity of 21.96 GiB of which 1.84 GiB is free. "
         "Process 12856 has 20.11 GiB memory in use."}, ENGINE_FAILED, END};

static const struct script_line MISSING_PARAMETER[] = {RESOLVED, INITIALIZING,
    {70, ENGINE "INFO {clock} [weight_utils.py:895] Filesystem type for checkpoints: OVERLAY. Checkpoint size: 7.68 GiB. Available RAM: 0.98 GiB."},
    {72, ENGINE "ERROR {clock} [core.py:1366] ValueError: There is no module or parameter named 'vision_embedder.patch_dense.weight' in Gemma4UnifiedForConditionalGeneration. "
         "The available parameters belonging to vision_embedder.patch_dense (ReplicatedLinear) are: {'vision_embedder.patch_dense.weight_packed'}"},
    {72, ENGINE "Process EngineCore:"}, {72, ENGINE "Traceback (most recent call last):"},
    {72, ENGINE "  File \"/usr/local/lib/python3.12/dist-packages/vllm/model_executor/models/utils.py\", line 417, in _load_module"}, {72, ENGINE "    raise ValueError(msg)"},
    {72, ENGINE "ValueError: There is no module or parameter named 'vision_embedder.patch_dense.weight' in Gemma4UnifiedForConditionalGeneration. "
         "The available parameters belonging to vision_embedder.patch_dense (ReplicatedLinear) are: {'vision_embedder.patch_dense.weight_packed'}"}, ENGINE_FAILED, END};

static const struct script_line HOST_OUT_OF_MEMORY[] = {RESOLVED, INITIALIZING,
    {70, ENGINE "INFO {clock} [weight_utils.py:895] Filesystem type for checkpoints: OVERLAY. Checkpoint size: 21.70 GiB. Available RAM: 7.86 GiB."},
    {72, ENGINE "ERROR {clock} [core.py:1366] RuntimeError: unable to mmap 23300000000 bytes from file </root/.cache/huggingface/hub/model.safetensors>: Cannot allocate memory (12)"},
    {72, ENGINE "Process EngineCore:"}, {72, ENGINE "Traceback (most recent call last):"},
    {72, ENGINE "RuntimeError: unable to mmap 23300000000 bytes from file </root/.cache/huggingface/hub/model.safetensors>: Cannot allocate memory (12)"}, ENGINE_FAILED, END};

static const struct script_line HUB_RATE_LIMIT[] = {
    {17, API "ERROR {clock} [repo_utils.py:119] #015"},
    {17, API "ERROR {clock} [repo_utils.py:119] 429 Too Many Requests: you have reached your 'api' rate limit.#015"},
    {17, API "ERROR {clock} [repo_utils.py:119] Error retrieving file list: (Request ID: Root=1-00000000-3cd1a478).#015"},
    {17, API "ERROR {clock} [repo_utils.py:119] Retry after 15 seconds (0/500 requests remaining in current 300s window).#015"},
    {17, API "ERROR {clock} [repo_utils.py:119] Url: https://huggingface.co/api/models/{model}/tree/main?recursive=true&expand=false.#015"},
    {30, API "Traceback (most recent call last):"},
    {30, API "huggingface_hub.errors.HfHubHTTPError: 429 Too Many Requests: you have reached your 'api' rate limit."},
    {32, "{stamp} WARN exited: app (exit status 1; not expected)"}, END};

static const struct script_line HUB_NO_ACCESS[] = {
    {17, API "Traceback (most recent call last):"},
    {17, API "huggingface_hub.errors.GatedRepoError: 401 Client Error. (Request ID: Root=1-00000000-00000000)"}, {17, API ""},
    {17, API "Cannot access gated repo for url https://huggingface.co/{model}/resolve/main/config.json."},
    {17, API "Access to model {model} is restricted. You must have access to it and be authenticated to access it. Please log in."},
    {18, API "OSError: You are trying to access a gated repo."}, {22, "{stamp} WARN exited: app (exit status 1; not expected)"}, END};

static const struct script_line HUB_NOT_FOUND[] = {
    {17, API "Traceback (most recent call last):"},
    {17, API "huggingface_hub.errors.RepositoryNotFoundError: 404 Client Error. (Request ID: Root=1-00000000-00000000)"}, {17, API ""},
    {17, API "Repository Not Found for url: https://huggingface.co/api/models/{model}."},
    {17, API "Please make sure you specified the correct `repo_id` and `repo_type`."},
    {18, API "OSError: {model} is not a local folder and is not a valid model identifier listed on 'https://huggingface.co/models'"},
    {22, "{stamp} WARN exited: app (exit status 1; not expected)"}, END};

const struct script_line SCRIPT_DIE[] = {
    {0, ENGINE "ERROR {clock} [core.py:1375] EngineCore encountered a fatal error."}, {0, ENGINE "ERROR {clock} [core.py:1375] Traceback (most recent call last):"},
    {0, ENGINE "ERROR {clock} [core.py:1375] torch.AcceleratorError: CUDA error: an illegal memory access was encountered"},
    {0, API "ERROR {clock} [async_llm.py:546] AsyncLLM output_handler failed."},
    {0, API "ERROR {clock} [async_llm.py:546] vllm.v1.engine.exceptions.EngineDeadError: EngineCore encountered an issue. See stack trace (above) for the root cause."},
    {0, API "INFO:     169.254.178.2:43566 - \"GET /ping HTTP/1.1\" 503 Service Unavailable"}, {0, API "INFO:     Shutting down"},
    {0, API "INFO:     Application shutdown complete."}, {0, API "INFO:     Finished server process [{app}]"},
    {0, "{stamp} WARN exited: app (exit status 0; expected)"}, END};

const struct script_line SCRIPT_SERVED[] = {
    {0, "{stamp} INFO spawned: 'app' with pid {app}"}, RESOLVED, INITIALIZING,
    {98, ENGINE "INFO {clock} [model_runner.py:428] Model loading took 2.86 GiB memory and 20.157062 seconds"},
    {195, ENGINE "INFO {clock} [monitor.py:53] torch.compile took 70.31 s in total"},
    {208, ENGINE "INFO {clock} [gpu_worker.py:640] Available KV cache memory: 14.77 GiB"},
    {208, ENGINE "INFO {clock} [kv_cache_utils.py:2395] GPU KV cache size: 1,209,977 tokens, Maximum concurrency for 8,192 tokens per request: 147.70x"},
    {223, API "INFO:     Application startup complete."}, {228, API "INFO:     169.254.178.2:60670 - \"GET /ping HTTP/1.1\" 200 OK"}, END};

static const struct { const char *kind; const struct script_line *script; } FAILURES[] = {{"gpu-out-of-memory", GPU_OUT_OF_MEMORY},
    {"missing-parameter", MISSING_PARAMETER}, {"host-out-of-memory", HOST_OUT_OF_MEMORY}, {"hub-rate-limit", HUB_RATE_LIMIT}, {"hub-no-access", HUB_NO_ACCESS},
    {"hub-not-found", HUB_NOT_FOUND}};
#define N_FAILURES (sizeof FAILURES / sizeof *FAILURES)

const struct script_line *script_failure(const char *kind)
{
    for (size_t i = 0; i < N_FAILURES; i++)
        if (!strcmp(FAILURES[i].kind, kind)) return FAILURES[i].script;
    return NULL;
}

const char *script_kinds(void) { return "gpu-out-of-memory, missing-parameter, host-out-of-memory, hub-rate-limit, hub-no-access, hub-not-found"; }

static bool name_is(const char *p, const char *name) { return !strncmp(p, name, strlen(name)); }

void script_text(struct buf *out, const char *text, const struct script_names *n)
{
    char clock[32], stamp[32];
    time_t t = (time_t)n->now;
    struct tm tm;
    gmtime_r(&t, &tm);
    strftime(clock, sizeof clock, "%m-%d %H:%M:%S", &tm);
    strftime(stamp, sizeof stamp, "%Y-%m-%d %H:%M:%S", &tm);
    for (const char *p = text; *p; p++) {
        const char *end = *p == '{' ? strchr(p, '}') : NULL;
        if (!end) {
            buf_char(out, *p);
            continue;
        }
        if (name_is(p, "{app}")) buf_printf(out, "%ld", n->app);
        else if (name_is(p, "{engine}")) buf_printf(out, "%ld", n->engine);
        else if (name_is(p, "{clock}")) buf_str(out, clock);
        else if (name_is(p, "{stamp}")) buf_printf(out, "%s,%03d", stamp, (int)((n->now - (double)t) * 1000));
        else if (name_is(p, "{model}")) buf_str(out, n->model);
        else {
            buf_char(out, '{');
            continue;
        }
        p = end;
    }
}
