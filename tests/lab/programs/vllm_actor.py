"""vLLM inside a Ray actor: `vllm_actor.py MODEL`."""

import sys

import ray


@ray.remote(num_cpus=1)
class RolloutEngine:
    def __init__(self, model: str) -> None:
        from vllm import LLM

        self.engine = LLM(
            model, load_format="dummy", max_model_len=256, max_num_seqs=4, enforce_eager=True
        )

    def generate(self) -> int:
        return len(self.engine.generate(["hello"])[0].outputs)


def main() -> None:
    ray.init(num_cpus=2, object_store_memory=200_000_000, include_dashboard=False)
    engine = RolloutEngine.remote(sys.argv[1])
    for _ in range(3):
        ray.get(engine.generate.remote())
    print("GENERATED", flush=True)


main()
