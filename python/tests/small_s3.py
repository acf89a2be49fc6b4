"""A small S3 of one bucket, which counts what it is asked for."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import parse_qs, unquote, urlsplit
from xml.sax.saxutils import escape

KEY = "AKIDTEST"


class S3:
    """What is in the bucket, and what was asked."""

    def __init__(self) -> None:
        self.objects: dict[str, bytes] = {}
        self.asked: list[tuple[str, str]] = []
        """Method and key; of a listing its prefix."""
        self.sent_bytes = 0
        """Of objects."""
        self.fails_after: int | None = None
        """So many more requests are answered, and then none."""

    def put_folder(self, folder: Path, prefix: str) -> int:
        """Has the files of a folder; gives how many bytes they are."""
        sizes = 0
        for path in folder.rglob("*"):
            if path.is_file():
                read = path.read_bytes()
                self.objects[f"{prefix}/{path.relative_to(folder)}"] = read
                sizes += len(read)
        return sizes

    @contextmanager
    def serving(self) -> Iterator[dict[str, str]]:
        """Serves; gives the environment of who reads there."""
        served = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_GET(self) -> None:
                at = urlsplit(self.path)
                bucket, _, key = unquote(at.path).lstrip("/").partition("/")
                asked = {name: values[0] for name, values in parse_qs(at.query).items()}
                served.asked.append((self.command, key or asked.get("prefix", "")))
                if f"Credential={KEY}/" not in self.headers.get("Authorization", ""):
                    self.refuse(403, "InvalidAccessKeyId")
                elif served.fails_after is not None and len(served.asked) > served.fails_after:
                    self.refuse(403, "AccessDenied")
                elif bucket != "bucket":
                    self.refuse(404, "NoSuchBucket")
                elif not key:
                    self.listed(asked.get("prefix", ""), asked.get("delimiter", ""))
                elif key not in served.objects:
                    self.refuse(404, "NoSuchKey")
                else:
                    self.found(served.objects[key])

            do_HEAD = do_GET

            def found(self, whole: bytes) -> None:
                status, sent = 200, whole
                wanted = self.headers.get("Range")
                if wanted is not None:
                    first, _, last = wanted.removeprefix("bytes=").partition("-")
                    status, sent = 206, whole[int(first) : int(last) + 1]
                self.answer(status, sent, {"Last-Modified": "Mon, 23 Nov 2026 12:19:13 GMT"})
                served.sent_bytes += len(sent) if self.command == "GET" else 0

            def listed(self, prefix: str, delimiter: str) -> None:
                keys: list[str] = []
                folders: dict[str, None] = {}
                for key in sorted(served.objects):
                    rest = key[len(prefix) :]
                    if key.startswith(prefix) and delimiter and delimiter in rest:
                        folders[prefix + rest.partition(delimiter)[0] + delimiter] = None
                    elif key.startswith(prefix):
                        keys.append(key)
                time = "<LastModified>2026-11-23T12:19:13.000Z</LastModified>"
                inside = "".join(
                    f"<Contents><Key>{escape(key)}</Key>{time}"
                    f"<Size>{len(served.objects[key])}</Size></Contents>"
                    for key in keys
                )
                common = "".join(
                    f"<CommonPrefixes><Prefix>{escape(folder)}</Prefix></CommonPrefixes>"
                    for folder in folders
                )
                count = len(keys) + len(folders)
                told = f"<KeyCount>{count}</KeyCount><IsTruncated>false</IsTruncated>"
                name = f"<Name>bucket</Name><Prefix>{escape(prefix)}</Prefix>"
                xml = f"<ListBucketResult>{name}{told}{inside}{common}</ListBucketResult>"
                self.answer(200, xml.encode(), {"Content-Type": "application/xml"})

            def refuse(self, status: int, code: str) -> None:
                xml = f"<Error><Code>{code}</Code><Message>{code}</Message></Error>"
                self.answer(status, xml.encode(), {"Content-Type": "application/xml"})

            def answer(self, status: int, body: bytes, headers: dict[str, str]) -> None:
                self.send_response(status)
                for name, value in {**headers, "Content-Length": str(len(body))}.items():
                    self.send_header(name, value)
                self.end_headers()
                if self.command != "HEAD":
                    self.wfile.write(body)

            def log_message(self, format: str, *args: object) -> None:
                pass

        with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
            threading.Thread(target=server.serve_forever, daemon=True).start()
            yield {
                "AWS_ENDPOINT_URL": f"http://127.0.0.1:{server.server_port}",
                "AWS_ACCESS_KEY_ID": KEY,
                "AWS_SECRET_ACCESS_KEY": "secret",
                "AWS_REGION": "us-east-1",
            }
            server.shutdown()
