"""Celery: a pool of one process, with a broker of files."""

import os

import causes
from celery import Celery

PLACE = os.environ["ENDS_PLACE"]
for name in ("in", "control"):
    os.makedirs(f"{PLACE}/{name}", exist_ok=True)
app = Celery("on_celery", broker="filesystem://", backend=f"file://{PLACE}/control")
app.conf.update(
    broker_transport_options={
        "data_folder_in": f"{PLACE}/in",
        "data_folder_out": f"{PLACE}/in",
        "control_folder": f"{PLACE}/control",
    },
    worker_concurrency=1,
    broker_connection_retry_on_startup=True,
)
if os.environ.get("ENDS_CAUSE") == "import_error":
    import no_such_module  # noqa: F401


@app.task
def end(cause: str) -> str:
    return causes.end_by(cause)
