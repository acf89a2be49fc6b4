//! The starts, release by release: their lines, and the phases that these are.

/// When, in tenths of a second, and a line.
pub(super) type Line = (i64, &'static str);

/// Phase, who (its id or rank, or nothing), begin and end in tenths of a second.
pub(super) type Paired = (&'static str, &'static str, i64, i64);

pub(super) struct Start {
    /// The release and how it was started.
    pub(super) of: &'static str,
    pub(super) lines: &'static [Line],
    pub(super) paired: &'static [Paired],
    /// Phases that began and have no end of their own.
    pub(super) open: &'static [&'static str],
}

pub(super) const STARTS: &[Start] = &[
    // vllm/engine/llm_engine.py, worker/model_runner.py, executor/distributed_gpu_executor.py,
    // executor/multiproc_worker_utils.py: the driver has no name, the others are VllmWorkerProcess.
    Start {
        of: "vLLM 0.6.3.post1, two ranks",
        lines: &[
            (
                0,
                "INFO 10-10 18:57:30 llm_engine.py:237] Initializing an LLM engine (v0.6.3.post1) with config: model='m'",
            ),
            (
                10,
                "(VllmWorkerProcess pid=32) INFO 10-10 18:57:31 model_runner.py:1056] Starting to load model m...",
            ),
            (
                15,
                "INFO 10-10 18:57:31 model_runner.py:1056] Starting to load model m...",
            ),
            (
                35,
                "INFO 10-10 18:57:33 model_runner.py:1067] Loading model weights took 7.5100 GB",
            ),
            (
                55,
                "(VllmWorkerProcess pid=32) INFO 10-10 18:57:35 model_runner.py:1067] Loading model weights took 7.5100 GB",
            ),
            (
                60,
                "INFO 10-10 18:57:36 distributed_gpu_executor.py:57] # GPU blocks: 27862, # CPU blocks: 2340",
            ),
            (
                61,
                "INFO 10-10 18:57:36 model_runner.py:1395] Capturing the model for CUDA graphs. This may lead to unexpected consequences",
            ),
            (
                90,
                "INFO 10-10 18:57:39 model_runner.py:1523] Graph capturing finished in 3 secs.",
            ),
            (96, "INFO:     Application startup complete."),
        ],
        paired: &[
            ("vllm.load_model", "", 15, 35),
            ("vllm.load_model", "32", 10, 55),
        ],
        open: &["vllm.engine_init"],
    },
    // engine/llm_engine.py:235, worker/model_runner.py:1094, executor/gpu_executor.py:76.
    Start {
        of: "vLLM 0.6.6.post1, one rank",
        lines: &[
            (
                0,
                "INFO 01-21 10:00:00 llm_engine.py:235] Initializing an LLM engine (v0.6.6.post1) with config: model='m', speculative_config=None",
            ),
            (
                10,
                "INFO 01-21 10:00:01 model_runner.py:1094] Starting to load model m...",
            ),
            (
                30,
                "INFO 01-21 10:00:03 model_runner.py:1099] Loading model weights took 2.3 GB",
            ),
            (
                52,
                "INFO 01-21 10:00:05 gpu_executor.py:76] # GPU blocks: 27862, # CPU blocks: 2340",
            ),
            (
                90,
                "INFO 01-21 10:00:09 model_runner.py:1535] Graph capturing finished in 3 secs, took 0.20 GiB",
            ),
            (
                96,
                "INFO 01-21 10:00:09 llm_engine.py:431] init engine (profile, create kv cache, warmup model) took 6.60 seconds",
            ),
            (99, "INFO:     Application startup complete."),
        ],
        paired: &[
            ("vllm.load_model", "", 10, 30),
            ("vllm.engine_init", "", 0, 96),
        ],
        open: &[],
    },
    // v1/engine/core.py:49, v1/worker/gpu_model_runner.py:587.
    Start {
        of: "vLLM 0.6.6.post1, V1",
        lines: &[
            (
                0,
                "INFO 01-21 10:00:00 core.py:49] Initializing an LLM engine (v0.6.6.post1) with config: model='m'",
            ),
            (
                10,
                "INFO 01-21 10:00:01 gpu_model_runner.py:587] Starting to load model m...",
            ),
            (
                30,
                "INFO 01-21 10:00:03 gpu_model_runner.py:592] Loading model weights took 2.3185 GB",
            ),
            (
                52,
                "INFO 01-21 10:00:05 uniproc_executor.py:64] # GPU blocks: 27862",
            ),
            (
                96,
                "INFO 01-21 10:00:09 core.py:88] init engine (profile, create kv cache, warmup model) took 6.60 seconds",
            ),
        ],
        paired: &[
            ("vllm.load_model", "", 10, 30),
            ("vllm.engine_init", "", 0, 96),
        ],
        open: &[],
    },
    // engine/llm_engine.py:233, worker/model_runner.py:1110, executor/executor_base.py:108.
    Start {
        of: "vLLM 0.7.0, two ranks",
        lines: &[
            (
                0,
                "INFO 01-30 11:53:40 llm_engine.py:233] Initializing an LLM engine (v0.7.0) with config: model='m'",
            ),
            (
                10,
                "(VllmWorkerProcess pid=32) INFO 01-30 11:53:41 model_runner.py:1110] Starting to load model m...",
            ),
            (
                15,
                "INFO 01-30 11:53:41 model_runner.py:1110] Starting to load model m...",
            ),
            (
                35,
                "INFO 01-30 11:53:43 model_runner.py:1115] Loading model weights took 7.5100 GB",
            ),
            (
                55,
                "(VllmWorkerProcess pid=32) INFO 01-30 11:53:45 model_runner.py:1115] Loading model weights took 7.5100 GB",
            ),
            (
                60,
                "INFO 01-30 11:53:46 executor_base.py:108] # CUDA blocks: 27862, # CPU blocks: 2340",
            ),
            (
                96,
                "INFO 01-30 11:53:49 llm_engine.py:429] init engine (profile, create kv cache, warmup model) took 4.10 seconds",
            ),
        ],
        paired: &[
            ("vllm.load_model", "", 15, 35),
            ("vllm.load_model", "32", 10, 55),
            ("vllm.engine_init", "", 0, 96),
        ],
        open: &[],
    },
    // v1/engine/core.py:50, v1/worker/gpu_model_runner.py:1049, v1/core/kv_cache_utils.py:522.
    Start {
        of: "vLLM 0.7.3, V1",
        lines: &[
            (
                0,
                "INFO 02-21 10:00:00 core.py:50] Initializing a V1 LLM engine (v0.7.3) with config: model='m'",
            ),
            (
                10,
                "INFO 02-21 10:00:01 gpu_model_runner.py:1049] Starting to load model m...",
            ),
            (
                30,
                "INFO 02-21 10:00:03 gpu_model_runner.py:1060] Loading model weights took 2.3185 GB",
            ),
            (
                52,
                "INFO 02-21 10:00:05 kv_cache_utils.py:522] # GPU blocks: 27862",
            ),
            (
                96,
                "INFO 02-21 10:00:09 core.py:116] init engine (profile, create kv cache, warmup model) took 6.60 seconds",
            ),
            (
                98,
                "INFO 02-21 10:00:09 api_server.py:958] Starting vLLM API server on http://0.0.0.0:8000",
            ),
        ],
        paired: &[
            ("vllm.load_model", "", 10, 30),
            ("vllm.engine_init", "", 0, 96),
        ],
        open: &[],
    },
    // v1/engine/core.py:53, v1/worker/gpu_model_runner.py:1128: the size is in GB.
    Start {
        of: "vLLM 0.8.0, two ranks",
        lines: &[
            (
                0,
                "INFO 03-20 10:00:00 [core.py:53] Initializing a V1 LLM engine (v0.8.0) with config: model='m'",
            ),
            (
                10,
                "(VllmWorker rank=1 pid=32) INFO 03-20 10:00:01 [gpu_model_runner.py:1128] Starting to load model m...",
            ),
            (
                15,
                "(VllmWorker rank=0 pid=31) INFO 03-20 10:00:01 [gpu_model_runner.py:1128] Starting to load model m...",
            ),
            (
                35,
                "(VllmWorker rank=0 pid=31) INFO 03-20 10:00:03 [gpu_model_runner.py:1140] Model loading took 14.9889 GB and 2.000000 seconds",
            ),
            (
                55,
                "(VllmWorker rank=1 pid=32) INFO 03-20 10:00:05 [gpu_model_runner.py:1140] Model loading took 14.9889 GB and 4.500000 seconds",
            ),
            (
                60,
                "INFO 03-20 10:00:06 [kv_cache_utils.py:537] GPU KV cache size: 570,848 tokens",
            ),
            (
                96,
                "INFO 03-20 10:00:09 [core.py:138] init engine (profile, create kv cache, warmup model) took 4.10 seconds",
            ),
        ],
        paired: &[
            ("vllm.load_model", "31", 15, 35),
            ("vllm.load_model", "32", 10, 55),
            ("vllm.engine_init", "", 0, 96),
        ],
        open: &[],
    },
    // engine/llm_engine.py:241, worker/model_runner.py:1108.
    Start {
        of: "vLLM 0.8.5.post1, V0, one rank",
        lines: &[
            (
                0,
                "INFO 05-14 17:44:22 [llm_engine.py:241] Initializing a V0 LLM engine (v0.8.5.post1) with config: model='m'",
            ),
            (
                10,
                "INFO 05-14 17:44:23 [model_runner.py:1108] Starting to load model m...",
            ),
            (
                30,
                "INFO 05-14 17:44:25 [model_runner.py:1140] Model loading took 2.3185 GiB and 2.000000 seconds",
            ),
            (
                96,
                "INFO 05-14 17:44:31 [llm_engine.py:437] init engine (profile, create kv cache, warmup model) took 6.60 seconds",
            ),
        ],
        paired: &[
            ("vllm.load_model", "", 10, 30),
            ("vllm.engine_init", "", 0, 96),
        ],
        open: &[],
    },
    // v1/worker/gpu_model_runner.py:1770 and 1775: two lines for one begin, without a name.
    Start {
        of: "vLLM 0.9.2, one rank",
        lines: &[
            (
                0,
                "INFO 07-08 10:00:00 [core.py:69] Initializing a V1 LLM engine (v0.9.2) with config: model='m'",
            ),
            (
                10,
                "INFO 07-08 10:00:01 [gpu_model_runner.py:1770] Starting to load model m...",
            ),
            (
                11,
                "INFO 07-08 10:00:01 [gpu_model_runner.py:1775] Loading model from scratch...",
            ),
            (
                30,
                "INFO 07-08 10:00:03 [gpu_model_runner.py:1801] Model loading took 2.3185 GiB and 2.000000 seconds",
            ),
            (
                52,
                "INFO 07-08 10:00:05 [kv_cache_utils.py:716] GPU KV cache size: 570,848 tokens",
            ),
            (
                96,
                "INFO 07-08 10:00:09 [core.py:172] init engine (profile, create kv cache, warmup model) took 6.60 seconds",
            ),
        ],
        paired: &[
            ("vllm.load_model", "", 10, 30),
            ("vllm.engine_init", "", 0, 96),
        ],
        open: &[],
    },
    // v1/worker/gpu_model_runner.py:2338, utils/__init__.py:3392.
    Start {
        of: "vLLM 0.10.2, two ranks",
        lines: &[
            (
                0,
                "(EngineCore_DP0 pid=30) INFO 09-13 21:26:00 [core.py:76] Initializing a V1 LLM engine (v0.10.2) with config: model='m'",
            ),
            (
                10,
                "(Worker_TP1 pid=32) INFO 09-13 21:26:01 [gpu_model_runner.py:2338] Starting to load model m...",
            ),
            (
                11,
                "(Worker_TP1 pid=32) INFO 09-13 21:26:01 [gpu_model_runner.py:2370] Loading model from scratch...",
            ),
            (
                15,
                "(Worker_TP0 pid=31) INFO 09-13 21:26:01 [gpu_model_runner.py:2338] Starting to load model m...",
            ),
            (
                16,
                "(Worker_TP0 pid=31) INFO 09-13 21:26:01 [gpu_model_runner.py:2370] Loading model from scratch...",
            ),
            (
                35,
                "(Worker_TP0 pid=31) INFO 09-13 21:26:03 [gpu_model_runner.py:2392] Model loading took 7.5123 GiB and 2.000000 seconds",
            ),
            (
                55,
                "(Worker_TP1 pid=32) INFO 09-13 21:26:05 [gpu_model_runner.py:2392] Model loading took 7.5123 GiB and 4.500000 seconds",
            ),
            (
                60,
                "(EngineCore_DP0 pid=30) INFO 09-13 21:26:06 [kv_cache_utils.py:864] GPU KV cache size: 570,848 tokens",
            ),
            (
                96,
                "(EngineCore_DP0 pid=30) INFO 09-13 21:26:09 [core.py:218] init engine (profile, create kv cache, warmup model) took 4.10 seconds",
            ),
            (
                99,
                "(APIServer pid=29) INFO:     Application startup complete.",
            ),
        ],
        paired: &[
            ("vllm.load_model", "31", 15, 35),
            ("vllm.load_model", "32", 10, 55),
            ("vllm.engine_init", "30", 0, 96),
        ],
        open: &[],
    },
    // v1/worker/gpu_model_runner.py:3468 and 3550; the other ranks say nothing (info_once).
    Start {
        of: "vLLM 0.12.0, two ranks",
        lines: &[
            (
                0,
                "(EngineCore_DP0 pid=30) INFO 12-03 10:00:00 [core.py:93] Initializing a V1 LLM engine (v0.12.0) with config: model='m'",
            ),
            (
                10,
                "(Worker_TP0 pid=31) INFO 12-03 10:00:01 [gpu_model_runner.py:3467] Starting to load model m...",
            ),
            (
                30,
                "(Worker_TP0 pid=31) INFO 12-03 10:00:03 [gpu_model_runner.py:3549] Model loading took 7.5123 GiB memory and 2.000000 seconds",
            ),
            (
                60,
                "(EngineCore_DP0 pid=30) INFO 12-03 10:00:06 [kv_cache_utils.py:1286] GPU KV cache size: 570,848 tokens",
            ),
            (
                96,
                "(EngineCore_DP0 pid=30) INFO 12-03 10:00:09 [core.py:254] init engine (profile, create kv cache, warmup model) took 4.10 seconds",
            ),
        ],
        paired: &[
            ("vllm.load_model", "31", 10, 30),
            ("vllm.engine_init", "30", 0, 96),
        ],
        open: &[],
    },
    // v1/worker/gpu/model_runner.py:270 and 292: the second runner.
    Start {
        of: "vLLM 0.19.1, second runner, two ranks",
        lines: &[
            (
                0,
                "(EngineCore pid=30) INFO 04-18 10:00:00 [core.py:106] Initializing a V1 LLM engine (v0.19.1) with config: model='m'",
            ),
            (
                10,
                "(Worker_TP1 pid=32) INFO 04-18 10:00:01 [model_runner.py:270] Loading model from scratch...",
            ),
            (
                15,
                "(Worker_TP0 pid=31) INFO 04-18 10:00:01 [model_runner.py:270] Loading model from scratch...",
            ),
            (
                35,
                "(Worker_TP0 pid=31) INFO 04-18 10:00:03 [model_runner.py:292] Model loading took 7.51 GiB and 2.000000 seconds",
            ),
            (
                55,
                "(Worker_TP1 pid=32) INFO 04-18 10:00:05 [model_runner.py:292] Model loading took 7.51 GiB and 4.500000 seconds",
            ),
            (
                96,
                "(EngineCore pid=30) INFO 04-18 10:00:09 [core.py:283] init engine (profile, create kv cache, warmup model) took 4.10 seconds",
            ),
        ],
        paired: &[
            ("vllm.load_model", "31", 15, 35),
            ("vllm.load_model", "32", 10, 55),
            ("vllm.engine_init", "30", 0, 96),
        ],
        open: &[],
    },
    // A recorded log of `vllm serve --tensor-parallel-size 2`, with its times.
    Start {
        of: "vLLM 0.32.0 on CPUs, two ranks",
        lines: &[
            (
                0,
                "(EngineCore pid=27067) INFO 11-27 23:09:40 [core.py:133] Initializing a V1 LLM engine (v0.32.0) with config: model='m'",
            ),
            (
                1250,
                "(Worker_TP0 pid=27835) INFO 11-27 23:11:45 [cpu_model_runner.py:68] Starting to load model m...",
            ),
            (
                1251,
                "(Worker_TP1 pid=27836) INFO 11-27 23:11:45 [cpu_model_runner.py:68] Starting to load model m...",
            ),
            (
                1280,
                "(Worker_TP1 pid=27836) INFO 11-27 23:11:48 [cpu_model_runner.py:87] Warming up model for the compilation...",
            ),
            (
                1281,
                "(Worker_TP0 pid=27835) INFO 11-27 23:11:48 [cpu_model_runner.py:87] Warming up model for the compilation...",
            ),
            (
                1990,
                "(Worker_TP0 pid=27835) INFO 11-27 23:12:59 [monitor.py:91] [backbone] Initial profiling/warmup run took 2.19 s",
            ),
            (
                1991,
                "(Worker_TP1 pid=27836) INFO 11-27 23:12:59 [monitor.py:91] [backbone] Initial profiling/warmup run took 1.13 s",
            ),
            (
                2010,
                "(Worker_TP1 pid=27836) INFO 11-27 23:13:01 [cpu_model_runner.py:91] Warming up done.",
            ),
            (
                2011,
                "(Worker_TP0 pid=27835) INFO 11-27 23:13:01 [cpu_model_runner.py:91] Warming up done.",
            ),
            (
                2012,
                "(EngineCore pid=27067) INFO 11-27 23:13:01 [kv_cache_utils.py:2327] CPU KV cache size: 524,288 tokens, Maximum concurrency for 256 tokens per request: 2048.00x",
            ),
            (
                2030,
                "(EngineCore pid=27067) INFO 11-27 23:13:03 [core.py:402] init engine (profile, create kv cache, warmup model) took 75.01 s",
            ),
            (
                2100,
                "(APIServer pid=24995) INFO 11-27 23:13:10 [entry.py:140] Starting vLLM server on http://127.0.0.1:18898",
            ),
            (2101, "INFO:     Application startup complete."),
        ],
        paired: &[
            ("vllm.load_model", "27835", 1250, 1281),
            ("vllm.load_model", "27836", 1251, 1280),
            ("vllm.warm_up", "27836", 1280, 2010),
            ("vllm.warm_up", "27835", 1281, 2011),
            ("vllm.engine_init", "27067", 0, 2030),
        ],
        open: &[],
    },
    // v1/worker/gpu/model_runner.py:399 and 429, v1/engine/core.py:413, logger.py:28.
    Start {
        of: "vLLM 0.33.0, second runner, one rank",
        lines: &[
            (
                0,
                "(EngineCore pid=30) INFO 11-21 02:46:20 [core.py:140] Initializing a V1 LLM engine (v0.33.0) with config: model='m'",
            ),
            (
                10,
                "(EngineCore pid=30) INFO 11-21 02:46:21 [model_runner.py:399] Loading model from scratch...",
            ),
            (
                30,
                "(EngineCore pid=30) INFO 11-21 02:46:23 [model_runner.py:429] Model loading took 7.51 GiB memory and 2.000000 seconds",
            ),
            (
                52,
                "(EngineCore pid=30) INFO 11-21 02:46:25 [kv_cache_utils.py:1147] GPU KV cache size: 262,144 tokens, Maximum concurrency for 512 tokens per request: 512.00x",
            ),
            (
                96,
                "(EngineCore pid=30) INFO 11-21 02:46:29 [core.py:413] init engine (profile, create kv cache, warmup model) took 6.60 s",
            ),
        ],
        paired: &[
            ("vllm.load_model", "30", 10, 30),
            ("vllm.engine_init", "30", 0, 96),
        ],
        open: &[],
    },
    // v1/worker/cpu_model_runner.py:68 and 87: no line says that the model is loaded.
    Start {
        of: "vLLM 0.33.0 on CPU",
        lines: &[
            (
                0,
                "(EngineCore pid=30) INFO 11-21 02:46:20 [core.py:140] Initializing a V1 LLM engine (v0.33.0) with config: model='m'",
            ),
            (
                10,
                "(Worker pid=31) INFO 11-21 02:46:21 [cpu_model_runner.py:68] Starting to load model m...",
            ),
            (
                30,
                "(Worker pid=31) INFO 11-21 02:46:23 [cpu_model_runner.py:87] Warming up model for the compilation...",
            ),
            (
                50,
                "(Worker pid=31) INFO 11-21 02:46:25 [cpu_model_runner.py:91] Warming up done.",
            ),
            (
                96,
                "(EngineCore pid=30) INFO 11-21 02:46:29 [core.py:413] init engine (profile, create kv cache, warmup model) took 6.60 s",
            ),
        ],
        paired: &[
            ("vllm.load_model", "31", 10, 30),
            ("vllm.warm_up", "31", 30, 50),
            ("vllm.engine_init", "30", 0, 96),
        ],
        open: &[],
    },
    // v1/worker/gpu_model_runner.py:2602 and 2653, v1/executor/ray_distributed_executor.py: the engine's Ray
    // writes what its workers say.
    Start {
        of: "vLLM 0.11.0, two Ray workers",
        lines: &[
            (
                0,
                "(EngineCore_DP0 pid=30) INFO 10-03 10:00:00 [core.py:77] Initializing a V1 LLM engine (v0.11.0) with config: model='m'",
            ),
            (
                10,
                "(EngineCore_DP0 pid=30) (RayWorkerWrapper pid=52) INFO 10-03 10:00:01 [gpu_model_runner.py:2602] Starting to load model m...",
            ),
            (
                15,
                "(EngineCore_DP0 pid=30) (RayWorkerWrapper pid=51) INFO 10-03 10:00:01 [gpu_model_runner.py:2602] Starting to load model m...",
            ),
            (
                16,
                "(EngineCore_DP0 pid=30) (RayWorkerWrapper pid=51) INFO 10-03 10:00:01 [gpu_model_runner.py:2634] Loading model from scratch...",
            ),
            (
                35,
                "(EngineCore_DP0 pid=30) (RayWorkerWrapper pid=51) INFO 10-03 10:00:03 [gpu_model_runner.py:2653] Model loading took 7.5123 GiB and 2.000000 seconds",
            ),
            (
                55,
                "(EngineCore_DP0 pid=30) (RayWorkerWrapper pid=52) INFO 10-03 10:00:05 [gpu_model_runner.py:2653] Model loading took 7.5123 GiB and 4.500000 seconds",
            ),
            (
                60,
                "(EngineCore_DP0 pid=30) INFO 10-03 10:00:06 [kv_cache_utils.py:1087] GPU KV cache size: 570,848 tokens",
            ),
            (
                90,
                "(EngineCore_DP0 pid=30) (RayWorkerWrapper pid=51) INFO 10-03 10:00:09 [gpu_model_runner.py:3480] Graph capturing finished in 3 secs, took 0.45 GiB",
            ),
            (
                96,
                "(EngineCore_DP0 pid=30) INFO 10-03 10:00:09 [core.py:210] init engine (profile, create kv cache, warmup model) took 4.10 seconds",
            ),
            (
                99,
                "(APIServer pid=29) INFO:     Application startup complete.",
            ),
        ],
        paired: &[
            ("vllm.load_model", "51", 15, 35),
            ("vllm.load_model", "52", 10, 55),
            ("vllm.engine_init", "30", 0, 96),
        ],
        open: &[],
    },
    // v1/engine/core.py:690: each engine has a worker within it.
    Start {
        of: "vLLM 0.11.0, two engines",
        lines: &[
            (
                0,
                "(EngineCore_DP1 pid=31) INFO 10-03 10:00:00 [core.py:77] Initializing a V1 LLM engine (v0.11.0) with config: model='m'",
            ),
            (
                2,
                "(EngineCore_DP0 pid=30) INFO 10-03 10:00:00 [core.py:77] Initializing a V1 LLM engine (v0.11.0) with config: model='m'",
            ),
            (
                10,
                "(EngineCore_DP1 pid=31) INFO 10-03 10:00:01 [gpu_model_runner.py:2602] Starting to load model m...",
            ),
            (
                15,
                "(EngineCore_DP0 pid=30) INFO 10-03 10:00:01 [gpu_model_runner.py:2602] Starting to load model m...",
            ),
            (
                35,
                "(EngineCore_DP0 pid=30) INFO 10-03 10:00:03 [gpu_model_runner.py:2653] Model loading took 7.5123 GiB and 2.000000 seconds",
            ),
            (
                55,
                "(EngineCore_DP1 pid=31) INFO 10-03 10:00:05 [gpu_model_runner.py:2653] Model loading took 7.5123 GiB and 4.500000 seconds",
            ),
            (
                80,
                "(EngineCore_DP0 pid=30) INFO 10-03 10:00:08 [core.py:210] init engine (profile, create kv cache, warmup model) took 4.10 seconds",
            ),
            (
                96,
                "(EngineCore_DP1 pid=31) INFO 10-03 10:00:09 [core.py:210] init engine (profile, create kv cache, warmup model) took 4.10 seconds",
            ),
            (
                98,
                "(ApiServer_1 pid=28) INFO:     Application startup complete.",
            ),
            (
                99,
                "(ApiServer_0 pid=29) INFO:     Application startup complete.",
            ),
        ],
        paired: &[
            ("vllm.load_model", "30", 15, 35),
            ("vllm.load_model", "31", 10, 55),
            ("vllm.engine_init", "30", 2, 80),
            ("vllm.engine_init", "31", 0, 96),
        ],
        open: &[],
    },
    // v1/worker/gpu_model_runner.py:4125 (one rank of all says it) and 4222 (one of each host).
    Start {
        of: "vLLM 0.16.0, two ranks",
        lines: &[
            (
                0,
                "(EngineCore_DP0 pid=30) INFO 02-13 10:00:00 [core.py:98] Initializing a V1 LLM engine (v0.16.0) with config: model='m'",
            ),
            (
                10,
                "(Worker_TP0 pid=31) INFO 02-13 10:00:01 [gpu_model_runner.py:4124] Starting to load model m...",
            ),
            (
                30,
                "(Worker_TP0 pid=31) INFO 02-13 10:00:03 [gpu_model_runner.py:4221] Model loading took 7.51 GiB memory and 2.000000 seconds",
            ),
            (
                60,
                "(EngineCore_DP0 pid=30) INFO 02-13 10:00:06 [kv_cache_utils.py:1307] GPU KV cache size: 570,848 tokens",
            ),
            (
                90,
                "(Worker_TP0 pid=31) INFO 02-13 10:00:09 [gpu_model_runner.py:5246] Graph capturing finished in 3 secs, took 0.45 GiB",
            ),
            (
                96,
                "(EngineCore_DP0 pid=30) INFO 02-13 10:00:09 [core.py:278] init engine (profile, create kv cache, warmup model) took 4.10 seconds",
            ),
        ],
        paired: &[
            ("vllm.load_model", "31", 10, 30),
            ("vllm.engine_init", "30", 0, 96),
        ],
        open: &[],
    },
    // v1/worker/gpu/model_runner.py:274 and 295, compilation/decorators.py:674.
    Start {
        of: "vLLM 0.22.1, second runner, two stages of a pipeline",
        lines: &[
            (
                0,
                "(EngineCore pid=30) INFO 06-05 10:00:00 [core.py:113] Initializing a V1 LLM engine (v0.22.1) with config: model='m'",
            ),
            (
                10,
                "(Worker_PP1_TP0 pid=32) INFO 06-05 10:00:01 [model_runner.py:274] Loading model from scratch...",
            ),
            (
                15,
                "(Worker_PP0_TP0 pid=31) INFO 06-05 10:00:01 [model_runner.py:274] Loading model from scratch...",
            ),
            (
                35,
                "(Worker_PP0_TP0 pid=31) INFO 06-05 10:00:03 [model_runner.py:295] Model loading took 7.51 GiB and 2.000000 seconds",
            ),
            (
                55,
                "(Worker_PP1_TP0 pid=32) INFO 06-05 10:00:05 [model_runner.py:295] Model loading took 7.51 GiB and 4.500000 seconds",
            ),
            (
                58,
                "(Worker_PP0_TP0 pid=31) INFO 06-05 10:00:05 [decorators.py:674] torch.compile and initial profiling/warmup run together took 1.50 s in total",
            ),
            (
                60,
                "(EngineCore pid=30) INFO 06-05 10:00:06 [kv_cache_utils.py:1733] GPU KV cache size: 570,848 tokens",
            ),
            (
                96,
                "(EngineCore pid=30) INFO 06-05 10:00:09 [core.py:303] init engine (profile, create kv cache, warmup model) took 4.10 s (compilation: 1.50 s)",
            ),
        ],
        paired: &[
            ("vllm.load_model", "31", 15, 35),
            ("vllm.load_model", "32", 10, 55),
            ("vllm.engine_init", "30", 0, 96),
        ],
        open: &[],
    },
    // v1/worker/gpu_model_runner.py:5420 and 5516, v1/engine/core.py:338.
    Start {
        of: "vLLM 0.28.0, one rank",
        lines: &[
            (
                0,
                "(EngineCore pid=30) INFO 08-28 10:00:00 [core.py:122] Initializing a V1 LLM engine (v0.28.0) with config: model='m'",
            ),
            (
                10,
                "(EngineCore pid=30) INFO 08-28 10:00:01 [gpu_model_runner.py:5419] Starting to load model m...",
            ),
            (
                30,
                "(EngineCore pid=30) INFO 08-28 10:00:03 [gpu_model_runner.py:5515] Model loading took 7.51 GiB memory and 2.000000 seconds",
            ),
            (
                52,
                "(EngineCore pid=30) INFO 08-28 10:00:05 [kv_cache_utils.py:1869] GPU KV cache size: 262,144 tokens, Maximum concurrency for 512 tokens per request: 512.00x",
            ),
            (
                96,
                "(EngineCore pid=30) INFO 08-28 10:00:09 [core.py:338] init engine (profile, create kv cache, warmup model) took 6.60 s (compilation: 2.00 s — language_model: 1.50 s, encoder: 0.50 s)",
            ),
        ],
        paired: &[
            ("vllm.load_model", "30", 10, 30),
            ("vllm.engine_init", "30", 0, 96),
        ],
        open: &[],
    },
    // A release that nobody has seen: no line says in words of the rules that the model is loaded.
    Start {
        of: "vLLM 0.40.0, made up",
        lines: &[
            (
                0,
                "INFO 06-01 10:00:00 core.py:161] Initializing a V2 LLM engine (v0.40.0) with config: model='m'",
            ),
            (
                10,
                "INFO 06-01 10:00:01 [model_runner.py:680] Starting to load model m...",
            ),
            (96, "INFO:     Application startup complete."),
        ],
        paired: &[],
        open: &["vllm.engine_init", "vllm.load_model"],
    },
    // srt/model_executor/model_runner.py:123, 166, 222, 410 and 496, managers/tp_worker.py:149.
    Start {
        of: "SGLang 0.2.15, two ranks",
        lines: &[
            (0, "[2024-08-30 10:00:00 TP1] Init nccl begin."),
            (1, "[2024-08-30 10:00:00 TP0] Init nccl begin."),
            (
                10,
                "[2024-08-30 10:00:01 TP1] Load weight begin. avail mem=78.81 GB",
            ),
            (
                15,
                "[2024-08-30 10:00:01 TP0] Load weight begin. avail mem=78.81 GB",
            ),
            (
                35,
                "[2024-08-30 10:00:03 TP0] Load weight end. type=LlamaForCausalLM, dtype=torch.bfloat16, avail mem=63.72 GB",
            ),
            (
                55,
                "[2024-08-30 10:00:05 TP1] Load weight end. type=LlamaForCausalLM, dtype=torch.bfloat16, avail mem=63.72 GB",
            ),
            (
                60,
                "[2024-08-30 10:00:06 TP1] Memory pool end. avail mem=8.34 GB",
            ),
            (
                61,
                "[2024-08-30 10:00:06 TP1] Capture cuda graph begin. This can take up to several minutes.",
            ),
            (
                62,
                "[2024-08-30 10:00:06 TP0] Capture cuda graph begin. This can take up to several minutes.",
            ),
            (
                80,
                "[2024-08-30 10:00:08 TP0] max_total_num_tokens=444500, max_prefill_tokens=16384, max_running_requests=2049, context_len=131072",
            ),
            (
                90,
                "[2024-08-30 10:00:09 TP1] max_total_num_tokens=444500, max_prefill_tokens=16384, max_running_requests=2049, context_len=131072",
            ),
            (
                96,
                "[2024-08-30 10:00:09] The server is fired up and ready to roll!",
            ),
        ],
        paired: &[
            ("sglang.init_distributed", "TP1", 0, 10),
            ("sglang.init_distributed", "TP0", 1, 15),
            ("sglang.load_model", "TP0", 15, 35),
            ("sglang.load_model", "TP1", 10, 55),
            ("sglang.capture_graphs", "TP0", 62, 80),
            ("sglang.capture_graphs", "TP1", 61, 90),
        ],
        open: &[],
    },
    // srt/model_executor/model_runner.py:180, 277, 313, 520 and 586, managers/scheduler.py:214.
    Start {
        of: "SGLang 0.3.6.post3, one rank",
        lines: &[
            (0, "[2024-11-30 10:00:00 TP0] Init torch distributed begin."),
            (
                10,
                "[2024-11-30 10:00:01 TP0] Load weight begin. avail mem=78.81 GB",
            ),
            (
                30,
                "[2024-11-30 10:00:03 TP0] Load weight end. type=LlamaForCausalLM, dtype=torch.bfloat16, avail mem=63.72 GB",
            ),
            (
                52,
                "[2024-11-30 10:00:05 TP0] Memory pool end. avail mem=8.34 GB",
            ),
            (
                55,
                "[2024-11-30 10:00:05 TP0] Capture cuda graph begin. This can take up to several minutes.",
            ),
            (
                90,
                "[2024-11-30 10:00:09 TP0] max_total_num_tokens=444500, max_prefill_tokens=16384, max_running_requests=2049, context_len=131072",
            ),
            (
                96,
                "[2024-11-30 10:00:09] The server is fired up and ready to roll!",
            ),
        ],
        paired: &[
            ("sglang.init_distributed", "TP0", 0, 10),
            ("sglang.load_model", "TP0", 10, 30),
            ("sglang.capture_graphs", "TP0", 55, 90),
        ],
        open: &[],
    },
    // srt/mem_cache/memory_pool.py:195: the cache has no `#tokens`.
    Start {
        of: "SGLang 0.4.1.post7, one rank",
        lines: &[
            (0, "[2025-01-23 19:35:14 TP0] Init torch distributed begin."),
            (
                10,
                "[2025-01-23 19:35:15 TP0] Load weight begin. avail mem=78.81 GB",
            ),
            (
                30,
                "[2025-01-23 19:35:20 TP0] Load weight end. type=LlamaForCausalLM, dtype=torch.bfloat16, avail mem=63.72 GB",
            ),
            (
                50,
                "[2025-01-23 19:35:20 TP0] KV Cache is allocated. K size: 27.13 GB, V size: 27.13 GB.",
            ),
            (
                51,
                "[2025-01-23 19:35:20 TP0] Memory pool end. avail mem=8.34 GB",
            ),
            (
                52,
                "[2025-01-23 19:35:20 TP0] Capture cuda graph begin. This can take up to several minutes.",
            ),
            (
                90,
                "[2025-01-23 19:35:27 TP0] Capture cuda graph end. Time elapsed: 6.57 s",
            ),
            (
                91,
                "[2025-01-23 19:35:27 TP0] max_total_num_tokens=444500, max_prefill_tokens=16384, max_running_requests=2049, context_len=131072",
            ),
            (
                96,
                "[2025-01-23 19:35:27] INFO:     Application startup complete.",
            ),
        ],
        paired: &[
            ("sglang.init_distributed", "TP0", 0, 10),
            ("sglang.load_model", "TP0", 10, 30),
            ("sglang.capture_graphs", "TP0", 52, 90),
        ],
        open: &[],
    },
    // srt/model_executor/model_runner.py:569, 679, 686 and 799, mem_cache/memory_pool.py:509.
    Start {
        of: "SGLang 0.5.5, two ranks",
        lines: &[
            (0, "[2025-11-07 10:00:00 TP1] Init torch distributed begin."),
            (1, "[2025-11-07 10:00:00 TP0] Init torch distributed begin."),
            (
                5,
                "[2025-11-07 10:00:00 TP0] Init torch distributed ends. mem usage=1.77 GB",
            ),
            (
                6,
                "[2025-11-07 10:00:00 TP1] Init torch distributed ends. mem usage=1.77 GB",
            ),
            (
                10,
                "[2025-11-07 10:00:01 TP1] Load weight begin. avail mem=137.29 GB",
            ),
            (
                15,
                "[2025-11-07 10:00:01 TP0] Load weight begin. avail mem=137.29 GB",
            ),
            (
                35,
                "[2025-11-07 10:00:03 TP0] Load weight end. type=Qwen3ForCausalLM, dtype=torch.bfloat16, avail mem=122.05 GB, mem usage=15.24 GB.",
            ),
            (
                55,
                "[2025-11-07 10:00:05 TP1] Load weight end. type=Qwen3ForCausalLM, dtype=torch.bfloat16, avail mem=122.05 GB, mem usage=15.24 GB.",
            ),
            (
                60,
                "[2025-11-07 10:00:06 TP0] KV Cache is allocated. #tokens: 383872, K size: 9.68 GB, V size: 9.68 GB",
            ),
            (
                96,
                "[2025-11-07 10:00:09] The server is fired up and ready to roll!",
            ),
        ],
        paired: &[
            ("sglang.init_distributed", "TP0", 1, 5),
            ("sglang.init_distributed", "TP1", 0, 6),
            ("sglang.load_model", "TP0", 15, 35),
            ("sglang.load_model", "TP1", 10, 55),
        ],
        open: &[],
    },
    // srt/model_executor/model_runner.py:416, 495, 502, 575 and 1096, speculative/eagle_worker.py:235.
    Start {
        of: "SGLang 0.4.6.post5, a draft model on two ranks",
        lines: &[
            (0, "[2025-05-20 10:00:00 TP1] Init torch distributed begin."),
            (1, "[2025-05-20 10:00:00 TP0] Init torch distributed begin."),
            (
                5,
                "[2025-05-20 10:00:00 TP0] Init torch distributed ends. mem usage=1.77 GB",
            ),
            (
                6,
                "[2025-05-20 10:00:00 TP1] Init torch distributed ends. mem usage=1.77 GB",
            ),
            (
                10,
                "[2025-05-20 10:00:01 TP1] Load weight begin. avail mem=78.81 GB",
            ),
            (
                15,
                "[2025-05-20 10:00:01 TP0] Load weight begin. avail mem=78.81 GB",
            ),
            (
                35,
                "[2025-05-20 10:00:03 TP0] Load weight end. type=LlamaForCausalLM, dtype=torch.bfloat16, avail mem=63.72 GB, mem usage=15.09 GB.",
            ),
            (
                55,
                "[2025-05-20 10:00:05 TP1] Load weight end. type=LlamaForCausalLM, dtype=torch.bfloat16, avail mem=63.72 GB, mem usage=15.09 GB.",
            ),
            (
                56,
                "[2025-05-20 10:00:05 TP0] KV Cache is allocated. #tokens: 20480, K size: 1.25 GB, V size: 1.25 GB",
            ),
            (
                57,
                "[2025-05-20 10:00:05 TP0] Memory pool end. avail mem=14.61 GB",
            ),
            (
                60,
                "[2025-05-20 10:00:06 TP1] Capture cuda graph begin. This can take up to several minutes. avail mem=13.95 GB",
            ),
            (
                61,
                "[2025-05-20 10:00:06 TP0] Capture cuda graph begin. This can take up to several minutes. avail mem=13.95 GB",
            ),
            (
                70,
                "[2025-05-20 10:00:07 TP0] Capture cuda graph end. Time elapsed: 0.90 s. mem usage=1.04 GB. avail mem=11.22 GB.",
            ),
            (
                75,
                "[2025-05-20 10:00:07 TP1] Capture cuda graph end. Time elapsed: 1.50 s. mem usage=1.04 GB. avail mem=11.22 GB.",
            ),
            (
                80,
                "[2025-05-20 10:00:08 TP0] Capture draft cuda graph begin. This can take up to several minutes. avail mem=11.22 GB",
            ),
            (
                90,
                "[2025-05-20 10:00:09 TP0] Capture draft cuda graph end. Time elapsed: 1.00 s. avail mem=11.00 GB. mem usage=0.22 GB.",
            ),
            (
                96,
                "[2025-05-20 10:00:09] The server is fired up and ready to roll!",
            ),
        ],
        paired: &[
            ("sglang.init_distributed", "TP0", 1, 5),
            ("sglang.init_distributed", "TP1", 0, 6),
            ("sglang.load_model", "TP0", 15, 35),
            ("sglang.load_model", "TP1", 10, 55),
            ("sglang.capture_graphs", "TP0", 61, 70),
            ("sglang.capture_graphs", "TP1", 60, 75),
            ("sglang.capture_graphs", "TP0", 80, 90),
        ],
        open: &[],
    },
    // srt/model_executor/model_runner.py:479, 572, 579, 658 and 1371, managers/scheduler.py: a rank of each kind.
    Start {
        of: "SGLang 0.4.9, two replicas with attention of their own",
        lines: &[
            (
                0,
                "[2025-07-05 10:00:00 DP1 TP1] Init torch distributed begin.",
            ),
            (
                1,
                "[2025-07-05 10:00:00 DP0 TP0] Init torch distributed begin.",
            ),
            (
                5,
                "[2025-07-05 10:00:00 DP0 TP0] Init torch distributed ends. mem usage=1.77 GB",
            ),
            (
                6,
                "[2025-07-05 10:00:00 DP1 TP1] Init torch distributed ends. mem usage=1.77 GB",
            ),
            (
                10,
                "[2025-07-05 10:00:01 DP1 TP1] Load weight begin. avail mem=78.81 GB",
            ),
            (
                15,
                "[2025-07-05 10:00:01 DP0 TP0] Load weight begin. avail mem=78.81 GB",
            ),
            (
                35,
                "[2025-07-05 10:00:03 DP0 TP0] Load weight end. type=LlamaForCausalLM, dtype=torch.bfloat16, avail mem=63.72 GB, mem usage=15.09 GB.",
            ),
            (
                55,
                "[2025-07-05 10:00:05 DP1 TP1] Load weight end. type=LlamaForCausalLM, dtype=torch.bfloat16, avail mem=63.72 GB, mem usage=15.09 GB.",
            ),
            (
                96,
                "[2025-07-05 10:00:09] The server is fired up and ready to roll!",
            ),
        ],
        paired: &[
            ("sglang.init_distributed", "DP0 TP0", 1, 5),
            ("sglang.init_distributed", "DP1 TP1", 0, 6),
            ("sglang.load_model", "DP0 TP0", 15, 35),
            ("sglang.load_model", "DP1 TP1", 10, 55),
        ],
        open: &[],
    },
    // srt/model_executor/model_runner.py:891, 1021, 1075, 1247, 2566 and 2574.
    Start {
        of: "SGLang 0.5.10, two stages of a pipeline",
        lines: &[
            (
                0,
                "[2026-04-10 10:00:00 PP1 TP0] Init torch distributed begin.",
            ),
            (
                1,
                "[2026-04-10 10:00:00 PP0 TP0] Init torch distributed begin.",
            ),
            (
                5,
                "[2026-04-10 10:00:00 PP0 TP0] Init torch distributed ends. elapsed=0.40 s, mem usage=1.77 GB",
            ),
            (
                6,
                "[2026-04-10 10:00:00 PP1 TP0] Init torch distributed ends. elapsed=0.60 s, mem usage=1.77 GB",
            ),
            (
                10,
                "[2026-04-10 10:00:01 PP1 TP0] Load weight begin. avail mem=78.81 GB",
            ),
            (
                15,
                "[2026-04-10 10:00:01 PP0 TP0] Load weight begin. avail mem=78.81 GB",
            ),
            (
                35,
                "[2026-04-10 10:00:03 PP0 TP0] Load weight end. elapsed=2.00 s, type=Qwen3ForCausalLM, avail mem=76.05 GB, mem usage=2.33 GB.",
            ),
            (
                55,
                "[2026-04-10 10:00:05 PP1 TP0] Load weight end. elapsed=4.50 s, type=Qwen3ForCausalLM, avail mem=76.05 GB, mem usage=2.33 GB.",
            ),
            (
                56,
                "[2026-04-10 10:00:05 PP0 TP0] KV Cache is allocated. #tokens: 383872, K size: 9.68 GB, V size: 9.68 GB",
            ),
            (
                60,
                "[2026-04-10 10:00:06 PP1 TP0] Capture piecewise CUDA graph begin. avail mem=13.95 GB",
            ),
            (
                61,
                "[2026-04-10 10:00:06 PP0 TP0] Capture piecewise CUDA graph begin. avail mem=13.95 GB",
            ),
            (
                80,
                "[2026-04-10 10:00:08 PP0 TP0] Capture piecewise CUDA graph end. Time elapsed: 1.90 s. mem usage=1.04 GB. avail mem=11.22 GB.",
            ),
            (
                90,
                "[2026-04-10 10:00:09 PP1 TP0] Capture piecewise CUDA graph end. Time elapsed: 3.00 s. mem usage=1.04 GB. avail mem=11.22 GB.",
            ),
            (
                96,
                "[2026-04-10 10:00:09] The server is fired up and ready to roll!",
            ),
        ],
        paired: &[
            ("sglang.init_distributed", "PP0 TP0", 1, 5),
            ("sglang.init_distributed", "PP1 TP0", 0, 6),
            ("sglang.load_model", "PP0 TP0", 15, 35),
            ("sglang.load_model", "PP1 TP0", 10, 55),
            ("sglang.capture_graphs", "PP0 TP0", 61, 80),
            ("sglang.capture_graphs", "PP1 TP0", 60, 90),
        ],
        open: &[],
    },
    // srt/model_executor/model_runner.py:1274 and 1373, model_runner_components/cuda_graph_setup.py:685 and 696,
    // speculative/multi_layer_eagle_draft_extend_cuda_graph_runner.py:632 and 641, frozen_kv_mtp_worker_v2.py:396 and 411.
    // One rank has no name.
    Start {
        of: "SGLang 0.5.23, a draft model on one rank",
        lines: &[
            (
                10,
                "[2026-11-20 10:00:01] Load weight begin. avail mem=78.81 GB",
            ),
            (
                30,
                "[2026-11-20 10:00:03] Load weight end. elapsed=2.00 s, type=Qwen3ForCausalLM, avail mem=76.05 GB, mem usage=2.33 GB.",
            ),
            (
                40,
                "[2026-11-20 10:00:04] KV Cache VA upper bound. dtype: torch.bfloat16, #tokens: 454112, K size: 3.46 GB, V size: 3.46 GB",
            ),
            (
                41,
                "[2026-11-20 10:00:04] Memory pool end. avail mem=14.61 GB",
            ),
            (
                50,
                "[2026-11-20 10:00:05] Capture target prefill CUDA graph begin. backend=cudnn, num_tokens=[4, 8], avail mem=13.95 GB",
            ),
            (
                60,
                "[2026-11-20 10:00:06] Capture target prefill CUDA graph end. elapsed=1.00 s, mem usage=0.10 GB, avail mem=11.22 GB.",
            ),
            (
                62,
                "[2026-11-20 10:00:06] Capture draft extend CUDA graph begin. step=0, avail mem=11.22 GB",
            ),
            (
                70,
                "[2026-11-20 10:00:07] Capture draft extend CUDA graph end. step=0, elapsed=0.80 s, mem usage=0.10 GB, avail mem=11.12 GB.",
            ),
            (
                72,
                "[2026-11-20 10:00:07] Capture Frozen-KV MTP draft cuda graph begin.",
            ),
            (
                80,
                "[2026-11-20 10:00:08] Capture Frozen-KV MTP draft cuda graph end.",
            ),
            (
                85,
                "[2026-11-20 10:00:08] Post-capture KV sizing: KV cache allocated. dtype: torch.bfloat16, #tokens: 454112, KV size: 6.92 GB, avail mem=4.20 GB",
            ),
            (
                96,
                "[2026-11-20 10:00:09] The server is fired up and ready to roll!",
            ),
        ],
        paired: &[
            ("sglang.load_model", "", 10, 30),
            ("sglang.capture_graphs", "", 50, 60),
            ("sglang.capture_graphs", "", 62, 70),
            ("sglang.capture_graphs", "", 72, 80),
        ],
        open: &[],
    },
    // srt/model_executor/model_runner_components/startup_weight_load.py:538: weights come while graphs are captured.
    Start {
        of: "SGLang 0.5.23, weights loaded during the start",
        lines: &[
            (
                10,
                "[2026-11-20 10:00:01 TP1] Load weight begin. avail mem=78.81 GB",
            ),
            (
                15,
                "[2026-11-20 10:00:01 TP0] Load weight begin. avail mem=78.81 GB",
            ),
            (
                20,
                "[2026-11-20 10:00:02 TP1] Capture target decode CUDA graph begin. backend=full, avail mem=13.95 GB",
            ),
            (
                21,
                "[2026-11-20 10:00:02 TP0] Capture target decode CUDA graph begin. backend=full, avail mem=13.95 GB",
            ),
            (
                40,
                "[2026-11-20 10:00:04 TP0] Capture target decode CUDA graph end. elapsed=1.90 s, mem usage=0.10 GB, avail mem=11.22 GB.",
            ),
            (
                50,
                "[2026-11-20 10:00:05 TP1] Capture target decode CUDA graph end. elapsed=3.00 s, mem usage=0.10 GB, avail mem=11.22 GB.",
            ),
            (
                60,
                "[2026-11-20 10:00:06 TP0] Load weight end. Committed real weights after CUDA graph capture in 1.50 s (capture overlap window 2.00 s, startup overlap total 4.00 s)",
            ),
            (
                70,
                "[2026-11-20 10:00:07 TP1] Load weight end. Committed real weights after CUDA graph capture in 1.50 s (capture overlap window 2.00 s, startup overlap total 4.00 s)",
            ),
            (
                96,
                "[2026-11-20 10:00:09] The server is fired up and ready to roll!",
            ),
        ],
        paired: &[
            ("sglang.load_model", "TP0", 15, 60),
            ("sglang.load_model", "TP1", 10, 70),
            ("sglang.capture_graphs", "TP0", 21, 40),
            ("sglang.capture_graphs", "TP1", 20, 50),
        ],
        open: &[],
    },
];
