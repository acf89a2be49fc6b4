"""Callbacks of frameworks, each with the framework itself where it is installed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from conftest import FakeRecorder, run_python

from memtrace._steps import Steps, begins, ends

# Their own business.
foreign_warnings = pytest.mark.filterwarnings("ignore")


def told(recorder: FakeRecorder) -> list[tuple[str, str]]:
    return [(message["kind"], message["name"]) for message in recorder.messages()]


def steps(*numbers: int) -> list[tuple[str, str]]:
    return [(kind, f"step_{number}") for number in numbers for kind in ("begin", "end")]


def test_steps_end_when_the_next_begins_or_with_an_error(recorder: FakeRecorder) -> None:
    loop = Steps(every=2)
    for number in range(4):
        loop.begin(number)
    loop.begin(4)
    loop.end(KeyError("x"))
    loop.end()
    messages = recorder.messages()
    assert [(one["kind"], one["name"]) for one in messages] == steps(0, 2, 4)
    assert messages[-1]["attrs"]["error"] == "KeyError"


def numbers(recorder: FakeRecorder) -> list[int | None]:
    """The number that each phase `step` has at its end; the last has none yet."""
    messages = [message for message in recorder.messages() if message["name"] == "step"]
    assert [message["kind"] for message in messages] == ["begin", "end"] * (len(messages) // 2) + [
        "begin"
    ]
    return [message["attrs"]["step"] for message in messages[1::2]]


def test_a_step_that_is_logged_ends_and_what_is_logged_of_it_later_ends_none(
    recorder: FakeRecorder,
) -> None:
    class Log:
        @begins
        def __init__(self, name: str) -> None:
            self.name = name

        @ends
        def log(self, data: float, step: int, backend: str | None = None) -> str:
            return f"{self.name} {step}: {data}"

    log = Log("loss")
    assert [log.log(0.5, step=step) for step in (0, 1, 1, 2)][2] == "loss 1: 0.5"
    log.log(0.5, 3, "console")
    assert numbers(recorder) == [0, 1, 2, 3]


@foreign_warnings
def test_steps_of_a_trainer_of_transformers(recorder: FakeRecorder, tmp_path: Path) -> None:
    pytest.importorskip("accelerate")
    transformers = pytest.importorskip("transformers")
    torch = pytest.importorskip("torch")
    from memtrace.transformers import StepPhases

    class Model(torch.nn.Module):  # type: ignore[misc, name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.layer = torch.nn.Linear(2, 1)

        def forward(self, x: Any, labels: Any) -> Any:
            return {"loss": (self.layer(x) - labels).square().mean()}

    arguments = transformers.TrainingArguments(
        output_dir=str(tmp_path), max_steps=5, per_device_train_batch_size=2, use_cpu=True,
        report_to=[], save_strategy="no", disable_tqdm=True,
    )  # fmt: skip
    data = [{"x": torch.ones(2), "labels": torch.ones(1)} for _ in range(8)]
    trainer = transformers.Trainer(
        Model(), arguments, train_dataset=data, callbacks=[StepPhases(every=2)]
    )
    trainer.train()
    assert told(recorder) == steps(0, 2, 4)


@foreign_warnings
def test_steps_of_a_trainer_of_lightning(recorder: FakeRecorder, tmp_path: Path) -> None:
    lightning = pytest.importorskip("lightning")
    torch = pytest.importorskip("torch")
    from memtrace.lightning import StepPhases

    class Model(lightning.LightningModule):  # type: ignore[misc, name-defined]
        fails_at: int | None = None

        def __init__(self) -> None:
            super().__init__()
            self.layer = torch.nn.Linear(2, 1)

        def training_step(self, batch: Any, index: int) -> Any:
            if index == self.fails_at:
                raise KeyError(index)
            return self.layer(batch).square().mean()

        def validation_step(self, batch: Any, index: int) -> None:
            self.layer(batch)

        def configure_optimizers(self) -> Any:
            return torch.optim.SGD(self.parameters(), 0.1)

    def fit(model: Any) -> None:
        trainer = lightning.Trainer(
            max_steps=3, accelerator="cpu", logger=False, enable_checkpointing=False,
            enable_progress_bar=False, enable_model_summary=False, num_sanity_val_steps=0,
            default_root_dir=tmp_path, callbacks=[StepPhases()],
        )  # fmt: skip
        loader = torch.utils.data.DataLoader(torch.ones(6, 2), batch_size=2)
        trainer.fit(model, loader, loader)

    fit(Model())
    validation = [("begin", "validation"), ("end", "validation")]
    assert told(recorder) == [*steps(0, 1, 2), *validation]
    model = Model()
    model.fails_at = 1
    with pytest.raises(KeyError):
        fit(model)
    messages = recorder.messages()
    assert [(one["kind"], one["name"]) for one in messages] == steps(0, 1)
    assert messages[-1]["attrs"]["error"] == "KeyError"


@foreign_warnings
def test_steps_of_a_loop_of_ray_train(recorder: FakeRecorder, tmp_path: Path) -> None:
    ray = pytest.importorskip("ray")
    train = pytest.importorskip("ray.train", exc_type=ImportError)
    torch_trainer = pytest.importorskip("ray.train.torch", exc_type=ImportError)
    import memtrace.ray

    def loop(config: dict[str, Any]) -> None:
        for number in range(config["steps"]):
            train.report({"number": number})

    environment = {"env_vars": {"MEMTRACE_SOCKET": recorder.path}}
    ray.init(num_cpus=1, include_dashboard=False, runtime_env=environment)
    try:
        trainer = torch_trainer.TorchTrainer(
            memtrace.ray.step_phases(loop),
            train_loop_config={"steps": 3},
            scaling_config=train.ScalingConfig(num_workers=1),
            run_config=train.RunConfig(storage_path=str(tmp_path)),
        )
        trainer.fit()
    finally:
        ray.shutdown()
    assert told(recorder) == steps(0, 1, 2, 3)


def test_steps_of_a_trainer_of_verl(recorder: FakeRecorder) -> None:
    pytest.importorskip("verl.utils.tracking", exc_type=ImportError)
    code = """
import memtrace

memtrace.instrument("verl")
from verl.utils.tracking import Tracking

log = Tracking("project", "experiment", "console")
for step in (0, 1, 1, 2):
    log.log(data={"loss": 0.5}, step=step)
"""
    ran = run_python("-c", code)
    assert "step:2 - loss:" in ran.stdout, ran.stderr
    assert numbers(recorder) == [0, 1, 2]


def test_all_of_the_list_of_verl_is_in_it() -> None:
    pytest.importorskip("verl.workers.engine_workers", exc_type=ImportError)
    code = """
import warnings, memtrace
from memtrace import _instrument

memtrace.instrument("verl")
import verl.workers.engine_workers as workers

method = workers.ActorRolloutRefWorker.update_actor
# verl finds the methods that its workers have for the driver by what it put on them.
print(getattr(method, _instrument._MARKER), len(vars(method.__wrapped__)), len(vars(method)))
print(_instrument._reported)
"""
    told, missing = run_python("-c", code).stdout.splitlines()[-2:]
    marker, of_verl, of_wrapper = told.split()
    assert marker == "verl.workers.engine_workers:ActorRolloutRefWorker.update_actor"
    assert int(of_wrapper) > int(of_verl) > 0
    assert missing == "set()"
