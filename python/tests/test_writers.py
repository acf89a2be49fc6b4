"""Memory for what people log their runs to, each with the package itself where it is installed."""

from __future__ import annotations

import unittest.mock
from pathlib import Path

import pytest

import memtrace
from memtrace._recording.writers import stage

pytest.importorskip("pyarrow")

TRAINING = Path(__file__).parent / "data" / "training"
GIB = 1 << 30
# Their own business.
foreign_warnings = pytest.mark.filterwarnings("ignore")


class Writer:
    """The method of mlflow, and what it was called with."""

    def __init__(self) -> None:
        self.logged: list[tuple[int, dict[str, float]]] = []

    def log_metrics(self, metrics: dict[str, float], step: int) -> None:
        self.logged.append((step, metrics))


def expected() -> dict[int, float]:
    """The peak of each rollout, out of the table itself."""
    phases = memtrace.load(TRAINING).phases().to_arrow().to_pylist()
    return {
        row["step"]: row["held_peak_bytes"] / GIB
        for row in phases
        if row["name"] == f"step_{row['step']}_rollout"
    }


def test_each_step_has_what_its_phases_took() -> None:
    writer = Writer()
    count = memtrace.load(TRAINING).log_to(writer)
    assert count == len(writer.logged) == len(expected()) == 3
    told = {step: one["memtrace/step_rollout/peak_gib"] for step, one in writer.logged}
    assert told == expected()
    assert [step for step, _ in writer.logged] == sorted(told)
    assert all(one["memtrace/step_update/held_gib"] > 0 for _, one in writer.logged)


@pytest.mark.parametrize(
    ("name", "step", "metrics_of"),
    [
        ("step_40_rollout", 40, "step_rollout"),
        ("rollout 40", 40, "rollout"),
        ("40", 40, "step"),
        ("step_040", 40, "step"),
        ("gpu0_step_0", 0, "gpu0_step"),
        ("epoch_2_step_2", 2, "epoch_2_step"),
        ("load_4bit", 4, "load_4bit"),
        ("rollout", 40, "rollout"),
    ],
)
def test_steps_of_one_stage_are_one_metric(name: str, step: int, metrics_of: str) -> None:
    assert stage(name, step) == metrics_of


def test_over_time_no_peak_is_lost_between_two_points() -> None:
    recording = memtrace.load(TRAINING)
    fine, coarse = Writer(), Writer()
    recording.log_to(fine, by="time", every="100ms", prefix="memory")
    recording.log_to(coarse, by="time", every="3s", prefix="memory")
    assert len(fine.logged) > 5 * len(coarse.logged)
    held = recording.peak().held_bytes
    assert held is not None
    for writer in (fine, coarse):
        assert max(one["memory/peak_gib"] for _, one in writer.logged) == held / GIB
        assert all(one["memory/held_gib"] <= one["memory/peak_gib"] for _, one in writer.logged)
    # All processes have ended then.
    assert fine.logged[-1][1]["memory/held_gib"] == coarse.logged[-1][1]["memory/held_gib"]


def test_what_is_no_writer_or_no_way_is_refused() -> None:
    recording = memtrace.load(TRAINING)
    with pytest.raises(TypeError, match="is no writer: it has neither add_scalar"):
        recording.log_to(print)
    with pytest.raises(ValueError, match="by is 'step' or 'time'"):
        recording.log_to(Writer(), by="wish")
    with pytest.raises(ValueError, match="more than zero"):
        recording.log_to(Writer(), by="time", every=0)


@foreign_warnings
def test_tensorboard_has_the_steps_and_their_times(tmp_path: Path) -> None:
    tensorboard = pytest.importorskip("torch.utils.tensorboard", exc_type=ImportError)
    accumulator = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    recording = memtrace.load(TRAINING)
    with tensorboard.SummaryWriter(tmp_path) as writer:
        recording.log_to(writer)
    events = accumulator.EventAccumulator(str(tmp_path)).Reload()
    scalars = events.Scalars("memtrace/step_rollout/peak_gib")
    told = {one.step: one.value for one in scalars}
    assert told == pytest.approx(expected())
    start = recording.wall_ns(recording.start_ns) / 1e9
    end = recording.wall_ns(recording.end_ns) / 1e9
    assert all(start <= one.wall_time <= end for one in scalars)


@foreign_warnings
def test_mlflow_has_the_steps(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    mlflow = pytest.importorskip("mlflow")
    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")
    mlflow.set_tracking_uri((tmp_path / "runs").as_uri())
    mlflow.set_experiment("training")
    with mlflow.start_run() as run:
        memtrace.load(TRAINING).log_to(mlflow)
    client = mlflow.MlflowClient()
    history = client.get_metric_history(run.info.run_id, "memtrace/step_rollout/peak_gib")
    assert {one.step: one.value for one in history} == expected()


@foreign_warnings
def test_wandb_has_steps_of_before_the_runs_own(tmp_path: Path) -> None:
    wandb = pytest.importorskip("wandb")
    with wandb.init(mode="offline", dir=tmp_path) as run:
        for step in range(100):
            run.log({"loss": 1 / (step + 1)})
        with unittest.mock.patch.object(run, "log", wraps=run.log) as log:
            memtrace.load(TRAINING).log_to(run)
        last = max(expected())
        summary = run.summary
        assert summary["memtrace/step"] == last
        assert summary["memtrace/step_rollout/peak_gib"] == expected()[last]
    logged = [call.args[0] for call in log.call_args_list]
    told = {one["memtrace/step"]: one["memtrace/step_rollout/peak_gib"] for one in logged}
    assert told == expected()
