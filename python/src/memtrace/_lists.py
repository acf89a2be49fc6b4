"""What `instrument` wraps for a name like ``vllm``: the parts of a start-up, or of a step.

Each entry is one part. Where it moved or was renamed, its other names follow, newest
first: all that exist are wrapped, and the part counts as missing only when none does.
"""

from collections.abc import Callable, Mapping
from typing import Any

from . import _steps

Part = tuple[str, ...]

_ENGINE = "vllm.v1.engine"
_EXECUTOR = "vllm.v1.executor"
_WORKER = "vllm.v1.worker"
_GPU = f"{_WORKER}.gpu_worker:Worker"
_CPU = f"{_WORKER}.cpu_worker:CPUWorker"
# The model runner that has been the default, and the one that is to replace it (V2).
_RUNNER = f"{_WORKER}.gpu_model_runner:GPUModelRunner"
_RUNNER_V2 = f"{_WORKER}.gpu.model_runner:GPUModelRunner"

# Checked against the sources of vLLM 0.11.0, 0.20.0, 0.32.0 and 0.33.0; the workspace manager
# is younger than the first of them.
VLLM: tuple[Part, ...] = (
    # The front end.
    (f"{_ENGINE}.async_llm:AsyncLLM.__init__",),
    (f"{_ENGINE}.llm_engine:LLMEngine.__init__",),
    (f"{_ENGINE}.core_client:MPClient.__init__",),
    # The engine core, which holds all that follows, itself or by its workers.
    (f"{_ENGINE}.core:EngineCoreProc.__init__",),
    (f"{_ENGINE}.core:EngineCore.__init__",),
    (f"{_ENGINE}.core:EngineCore._initialize_kv_caches",),
    # The executor starts the workers and hands calls on to them.
    (
        f"{_EXECUTOR}.uniproc_executor:UniProcExecutor._init_executor",
        "vllm.executor.uniproc_executor:UniProcExecutor._init_executor",
    ),
    (f"{_EXECUTOR}.multiproc_executor:MultiprocExecutor._init_executor",),
    (
        f"{_EXECUTOR}.ray_executor_v2:RayExecutorV2._init_executor",
        f"{_EXECUTOR}.ray_executor:RayDistributedExecutor._init_executor",
        f"{_EXECUTOR}.ray_distributed_executor:RayDistributedExecutor._init_executor",
    ),
    # The worker.
    (
        f"{_WORKER}.worker_base:WorkerWrapperBase.init_worker",
        "vllm.worker.worker_base:WorkerWrapperBase.init_worker",
    ),
    (
        f"{_WORKER}.worker_base:WorkerWrapperBase.init_device",
        "vllm.worker.worker_base:WorkerWrapperBase.init_device",
    ),
    (
        f"{_WORKER}.worker_base:WorkerWrapperBase.initialize_from_config",
        "vllm.worker.worker_base:WorkerWrapperBase.initialize_from_config",
    ),
    (f"{_WORKER}.workspace:init_workspace_manager",),
    (f"{_GPU}.__init__",),
    (f"{_GPU}.init_device",),
    (f"{_GPU}.load_model",),
    (f"{_GPU}.determine_available_memory",),
    # Before, the sizes that the engine core decided on came by a call of their own.
    (f"{_GPU}.initialize_from_config", f"{_GPU}.initialize_cache"),
    (f"{_GPU}.compile_or_warm_up_model",),
    (f"{_CPU}.__init__",),
    (f"{_CPU}.init_device",),
    (f"{_CPU}.determine_available_memory",),
    (f"{_CPU}.compile_or_warm_up_model",),
    (f"{_WORKER}.xpu_worker:XPUWorker.init_device",),
    # The model runner, and the weights.
    (f"{_RUNNER_V2}.__init__", f"{_RUNNER}.__init__"),
    (f"{_RUNNER_V2}.load_model", f"{_RUNNER}.load_model"),
    (f"{_RUNNER_V2}.profile_run", f"{_RUNNER}.profile_run"),
    (f"{_RUNNER_V2}.capture_model", f"{_RUNNER}.capture_model"),
    (f"{_WORKER}.cpu_model_runner:CPUModelRunner.load_model",),
    (f"{_WORKER}.cpu_model_runner:CPUModelRunner.warming_up_model",),
    ("vllm.model_executor.model_loader.base_loader:BaseModelLoader.load_model",),
    # The input batch: what a worker keeps per request and token.
    (
        f"{_WORKER}.gpu.input_batch:InputBuffers.__init__",
        f"{_WORKER}.gpu_input_batch:InputBatch.__init__",
    ),
    (f"{_WORKER}.block_table:MultiGroupBlockTable.__init__",),
    # The KV cache: its configuration in the engine core, its memory in the worker.
    (f"{_EXECUTOR}.abstract:Executor.get_kv_cache_specs",),
    (
        "vllm.v1.core.kv_cache_planning:get_kv_cache_configs",
        "vllm.v1.core.kv_cache_utils:get_kv_cache_configs",
    ),
    (f"{_RUNNER_V2}.initialize_kv_cache", f"{_RUNNER}.initialize_kv_cache"),
    (f"{_WORKER}.utils:allocate_kv_cache", f"{_RUNNER}._allocate_kv_cache_tensors"),
    ("vllm.v1.core.kv_cache_manager:KVCacheManager.__init__",),
    # What the engine core makes last.
    ("vllm.v1.structured_output:StructuredOutputManager.__init__",),
    ("vllm.v1.core.sched.scheduler:Scheduler.__init__",),
)

_VERL = "verl.workers.engine_workers"
_VERL_BEFORE = ("verl.workers.fsdp_workers", "verl.workers.megatron_workers")


def _of_verl(name: str, name_before: str) -> Part:
    return (f"{_VERL}:{name}", *(f"{module}:{name_before}" for module in _VERL_BEFORE))


# What the trainer logs to, at the end of each step.
VERL_STEPS: Mapping[str, Callable[[Any], Any]] = {
    "verl.utils.tracking:Tracking.__init__": _steps.begins,
    "verl.utils.tracking:Tracking.log": _steps.ends,
}

# What the workers of verl do in each step. Checked against the sources of verl 0.5.0 (workers for
# FSDP and for Megatron) and 0.9.1 (one worker for all engines).
VERL: tuple[Part, ...] = (
    *(
        _of_verl(f"ActorRolloutRefWorker.{method}", f"ActorRolloutRefWorker.{method}")
        for method in ("init_model", "compute_log_prob", "compute_ref_log_prob", "update_actor")
    ),
    # The newer ones hand weights to servers that generate.
    _of_verl("ActorRolloutRefWorker.update_weights", "ActorRolloutRefWorker.generate_sequences"),
    _of_verl("TrainingWorker.infer_batch", "CriticWorker.compute_values"),
    _of_verl("TrainingWorker.train_mini_batch", "CriticWorker.update_critic"),
    *((target,) for target in VERL_STEPS),
)

LISTS: Mapping[str, tuple[Part, ...]] = {"verl": VERL, "vllm": VLLM}
