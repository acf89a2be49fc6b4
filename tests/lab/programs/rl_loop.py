"""A training loop that starts its own inference server, asks it for rollouts and trains on them.
`rl_loop.py MODEL PORT STEPS LEAK_BYTES`: with a leak, the trainer keeps so much of every step."""

import json
import subprocess
import sys
import urllib.request
from pathlib import Path

import memtrace
import torch

VLLM = str(Path(sys.executable).with_name("vllm"))
PARAMETERS = 16 << 20


def serve(model: str, port: int) -> "subprocess.Popen[str]":
    words = ["serve", model, "--served-model-name", "tiny", "--load-format", "dummy"]
    words += ["--host", "127.0.0.1", "--port", str(port), "--enforce-eager"]
    words += ["--max-model-len", "256", "--max-num-seqs", "4"]
    server = subprocess.Popen(
        [VLLM, *words], stderr=subprocess.STDOUT, stdout=subprocess.PIPE, text=True
    )
    assert server.stdout
    for line in server.stdout:
        print(line, end="", flush=True)
        if "Application startup complete." in line:
            return server
    raise SystemExit("the server ended before it was ready")


def rollout(port: int, step: int) -> int:
    body = {"model": "tiny", "prompt": f"step {step}", "max_tokens": 8}
    request = urllib.request.Request(
        f"http://127.0.0.1:{port}/v1/completions",
        json.dumps(body).encode(),
        {"Content-Type": "application/json"},
    )
    with urllib.request.urlopen(request, timeout=120) as response:
        return int(json.load(response)["usage"]["completion_tokens"])


def main() -> None:
    model, port, steps, leak = sys.argv[1], *map(int, sys.argv[2:5])
    server = serve(model, port)
    weights = torch.zeros(PARAMETERS, requires_grad=True)
    optimizer = torch.optim.Adam([weights], lr=1e-3)
    kept = []
    for step in range(steps):
        with memtrace.phase("rollout", step=step):
            tokens = rollout(port, step)
        with memtrace.phase("train", step=step):
            optimizer.zero_grad()
            (weights * tokens).square().mean().backward()
            optimizer.step()
            if leak:
                kept.append(torch.ones(leak, dtype=torch.uint8))
    print("TRAINED", flush=True)
    server.terminate()
    server.wait(60)


main()
