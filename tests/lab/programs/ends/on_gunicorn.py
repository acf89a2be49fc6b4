"""gunicorn: a worker that answers one request by its end."""

import os

import causes

if os.environ.get("ENDS_CAUSE") == "import_error":
    import no_such_module  # noqa: F401


def app(environ, start_response):
    said = causes.end_by(os.environ["ENDS_CAUSE"])
    start_response("200 OK", [("Content-Type", "text/plain")])
    return [said.encode()]
