"""Trials of real programs: Ray, vLLM, and a training loop around it. They take minutes and up to
5 GiB, and need a Python that has them."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path

import answers
from checks import MIB, Finding
from recording import Recording
from trial import Running, Trial

HERE = Path(__file__).parent
PORT = 8123
STEPS = 24
LEAK_BYTES = 20_000_000

# An emulated or a busy machine takes minutes to import torch three times over.
START_S = 900

SERVER = {
    "VLLM_CPU_KVCACHE_SPACE": "1",
    "VLLM_CPU_OMP_THREADS_BIND": "nobind",
    "VLLM_ENGINE_READY_TIMEOUT_S": str(START_S),
    "VLLM_NO_USAGE_STATS": "1",
    "HF_HUB_OFFLINE": "1",
}
# A poll of the PSS of some GiB takes a while, and holds up what it looks at.
PERIOD_S = 1.0


def answering(
    expected: set[str], *more: Callable[[Recording], Finding]
) -> Callable[[Recording, str], Iterator[Finding]]:
    """What is asked of every live trial, and more."""

    def answers_of(recording: Recording, group: str) -> Iterator[Finding]:
        yield answers.roles(recording, expected)
        if group:
            yield from answers.residuals(recording, group)
        for ask in more:
            yield ask(recording)

    return answers_of


def ray(python: Path, directory: Path) -> Iterator[Trial]:
    """Ray as a driver starts it, and a cluster that was there before."""
    session = str(HERE.parent / "workloads" / "ray_session.py")
    yield Trial(
        "ray-local",
        [str(python), session, "8", str(directory)],
        answers=answering(
            {"Ray actor Trainer", "Ray actor Rollout", "Ray raylet", "Ray gcs_server"},
            answers.no_grower,
        ),
        poll_period_s=PERIOD_S,
        holds=True,
    )
    yield Trial(
        "ray-start",
        [str(python), str(HERE / "programs" / "ray_cluster.py")],
        attach=["--ray"],
        ready="READY",
        meanwhile=lambda running: time.sleep(10),
        answers=answering({"Ray actor Holder", "Ray raylet", "Ray gcs_server"}, answers.no_grower),
        poll_period_s=PERIOD_S,
        # Its group has the program that starts the cluster too, which is not recorded. The ledger
        # of the group, which tells of it, is held against the controller instead.
        holds=False,
    )


def vllm(python: Path, directory: Path) -> Iterator[Trial]:
    """Servers on one process, with two ranks, with two engines, killed, and in a Ray actor."""
    model = tiny_model(python, directory)
    parts = {"vLLM API server", "vLLM engine core", "vLLM worker"}

    def loaded(recording: Recording) -> Finding:
        return answers.phase_ends(recording, "vllm.load_model", 200 * MIB)

    def server(name: str, *words: str, end: int = signal.SIGINT, ready: int = 1) -> Trial:
        return Trial(
            name,
            [*serving(python, model), *words],
            lambda running: ask_and_end(running, end, ready),
            answering(parts, loaded, answers.no_grower),
            options=["--marks-from-output"],
            environment=SERVER,
            poll_period_s=PERIOD_S,
            holds=True,
        )

    yield server("vllm-tp1", "--enforce-eager")
    yield server("vllm-tp2", "--enforce-eager", "--tensor-parallel-size", "2")
    yield server("vllm-dp2", "--enforce-eager", "--data-parallel-size", "2", ready=2)
    yield server("vllm-killed", "--enforce-eager", end=signal.SIGKILL)
    yield Trial(
        "vllm-in-ray",
        [str(python), str(HERE / "programs" / "vllm_actor.py"), str(model)],
        lambda running: running.wait_for("GENERATED", START_S),
        answering(
            {"Ray actor RolloutEngine", "vLLM engine core", "vLLM worker"}, answers.no_grower
        ),
        environment=SERVER,
        poll_period_s=PERIOD_S,
        holds=True,
    )


def rl(python: Path, directory: Path) -> Iterator[Trial]:
    """A loop of rollouts and training, with a leak in the trainer and without."""
    model = tiny_model(python, directory)

    def loop(name: str, leak: int, *asks: Callable[[Recording], Finding]) -> Trial:
        program = str(HERE / "programs" / "rl_loop.py")
        return Trial(
            name,
            [str(python), program, str(model), str(PORT), str(STEPS), str(leak)],
            lambda running: running.wait_for("TRAINED", START_S),
            answering({"vLLM API server", "vLLM engine core", "vLLM worker"}, *asks),
            options=["--marks-from-output"],
            environment=SERVER,
            poll_period_s=PERIOD_S,
            holds=True,
        )

    yield loop("rl-steady", 0, answers.no_grower)
    leaking = loop(
        "rl-leak",
        LEAK_BYTES,
        lambda recording: answers.slope(recording, "train", LEAK_BYTES),
        lambda recording: answers.grower(recording, "main"),
    )
    leaking.compared["rl-steady"] = lambda diff: answers.telling_diff(diff, "train", "main")
    yield leaking


LIVE = {"ray": ray, "vllm": vllm, "rl": rl}


def serving(python: Path, model: Path) -> list[str]:
    """The command of a server."""
    words = ["serve", str(model), "--served-model-name", "tiny", "--load-format", "dummy"]
    words += ["--host", "127.0.0.1", "--port", str(PORT)]
    words += ["--max-model-len", "256", "--max-num-seqs", "4"]
    return [str(python.with_name("vllm")), *words]


def ask_and_end(running: Running, end: int, ready: int) -> None:
    """Asks a server that is up, and ends it."""
    running.wait_for("Application startup complete.", START_S, ready)
    body = {"model": "tiny", "prompt": "hello", "max_tokens": 16}
    for _ in range(3):
        request = urllib.request.Request(
            f"http://127.0.0.1:{PORT}/v1/completions",
            json.dumps(body).encode(),
            {"Content-Type": "application/json"},
        )
        urllib.request.urlopen(request, timeout=300).close()
    time.sleep(5)
    os.kill(running.root(), end)


def tiny_model(python: Path, directory: Path) -> Path:
    """A model that is made here, for nothing can be fetched."""
    model = directory / "model"
    program = str(HERE / "programs" / "tiny_model.py")
    subprocess.run([str(python), program, str(model)], check=True, stdout=subprocess.DEVNULL)
    return model
