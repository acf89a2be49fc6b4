"""What an address names, read by the file systems that pyarrow brings: S3, Google Cloud Storage,
Azure. Credentials and settings are those of the environment, as for `memtrace report s3://…`."""

from __future__ import annotations

import contextlib
import datetime
import os
import re
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any, BinaryIO, TypeVar
from urllib.parse import urlsplit

from .places import RUN_BYTES_MAX
from .table import arrow

_Item = TypeVar("_Item")
_Made = TypeVar("_Made")
# So many files are read at once: most of the time goes into waiting.
_READERS = 8
_PATIENCE_SECONDS = 40
_FORMS = (
    "write it like s3://bucket/prefix, gs://bucket/prefix, az://container/prefix or "
    "file:///directory; a server that speaks S3 is named by AWS_ENDPOINT_URL"
)


class Bucket:
    """A folder at an address. What is in it is listed once: it is read as it was then, until
    `look_again`."""

    is_remote = True

    def __init__(self, files: Any, path: str, address: str, credentials: str) -> None:
        self._files, self._path, self._address = files, path, address
        self._credentials = credentials
        self._listed: dict[str, int] | None = None

    @classmethod
    def at(cls, address: str) -> Bucket:
        """What an address names. Asks nobody yet, but where a bucket is."""
        scheme, _, path = address.rstrip("/").partition("://")
        if scheme not in _KINDS:
            raise ValueError(f"{address} is not an address of recordings: {_FORMS}")
        bucket = path.partition("/")[0]
        if not bucket or any(letter in bucket for letter in "@?#:"):
            raise ValueError(f"{address} names no bucket: {_FORMS}")
        arrow()
        name, connect, credentials = _KINDS[scheme]
        import pyarrow.fs

        if not hasattr(pyarrow.fs, name):
            raise ImportError(
                f"this pyarrow was built without {name}, by which {address} is read: install the "
                "one of PyPI (pip install pyarrow), or copy the recording to this machine"
            )
        shown = address.rstrip("/")
        with _said(shown, credentials):
            return cls(connect(bucket), path, shown, credentials)

    def __str__(self) -> str:
        return self._address

    @property
    def name(self) -> str:
        """The last name of the address."""
        return self._address.rpartition("/")[2]

    def below(self, name: str) -> Bucket:
        """A folder in it."""
        path, address = f"{self._path}/{name}", f"{self._address}/{name}"
        return Bucket(self._files, path, address, self._credentials)

    def names(self, folder: str = "") -> list[str]:
        """The names in it, or in a folder of it; none where there is none."""
        if self._listed is None and not folder:
            # A root has more below it than anybody wants to list.
            return sorted(each.base_name for each in self._infos(recursive=False))
        above = f"{folder}/" if folder else ""
        inside = (file[len(above) :] for file in self._all() if file.startswith(above))
        return sorted({rest.partition("/")[0] for rest in inside})

    def size(self, file: str) -> int:
        """How many bytes a file has."""
        try:
            return self._all()[file]
        except KeyError:
            raise FileNotFoundError(f"{self}/{file} is not there") from None

    def stamp(self, file: str) -> tuple[int, int]:
        """What is another when a file has been written to, as far as it was listed."""
        return self.size(file), 0

    @contextlib.contextmanager
    def open(self, file: str) -> Iterator[BinaryIO]:
        """A file, for reading from any place in it."""
        said = _said(f"{self}/{file}", self._credentials)
        with said, self._files.open_input_file(f"{self._path}/{file}") as opened:
            yield opened

    def run_json(self) -> bytes:
        """The file of such a name."""
        return self.read_small("run.json", RUN_BYTES_MAX)

    def read_small(self, file: str, most: int) -> bytes:
        """As many bytes of a file."""
        with self.open(file) as opened:
            return opened.read(most)

    def each(self, make: Callable[[_Item], _Made], items: Iterable[_Item]) -> Iterable[_Made]:
        """`make` of each item, in order, for some at a time."""
        with ThreadPoolExecutor(_READERS) as readers:
            yield from readers.map(make, items)

    def check(self) -> None:
        """`FileNotFoundError` where there is no such bucket; what is not there lists as empty."""
        import pyarrow.fs

        with _said(self._address, self._credentials):
            bucket = self._files.get_file_info(self._path.partition("/")[0])
        if bucket.type == pyarrow.fs.FileType.NotFound:
            raise FileNotFoundError(_no_bucket(self._address))

    def look_again(self) -> None:
        """Lists it anew when it is asked for next."""
        self._listed = None

    def _all(self) -> dict[str, int]:
        """The sizes of all files below it."""
        if self._listed is None:
            infos = self._infos(recursive=True)
            start = len(self._path) + 1
            self._listed = {each.path[start:]: each.size for each in infos if each.is_file}
        return self._listed

    def _infos(self, recursive: bool) -> list[Any]:
        import pyarrow.fs

        chosen = pyarrow.fs.FileSelector(self._path, allow_not_found=True, recursive=recursive)
        with _said(self._address, self._credentials):
            return list(self._files.get_file_info(chosen))


def _s3(bucket: str) -> Any:
    import pyarrow.fs

    server = os.environ.get("AWS_ENDPOINT_URL_S3") or os.environ.get("AWS_ENDPOINT_URL")
    region = os.environ.get("AWS_REGION") or os.environ.get("AWS_DEFAULT_REGION")
    options: dict[str, Any] = {}
    if server:
        at = urlsplit(server)
        is_here = at.hostname in ("localhost", "127.0.0.1", "::1")
        may = os.environ.get("AWS_ALLOW_HTTP", "").lower() in ("1", "true")
        if at.scheme == "http" and not is_here and not may:
            raise ValueError(
                f"http:// to {at.hostname} is readable for everyone on the way: use https://, or "
                "set AWS_ALLOW_HTTP=true"
            )
        options = {"endpoint_override": at.netloc + at.path.rstrip("/"), "scheme": at.scheme}
    elif not region:
        region = pyarrow.fs.resolve_s3_region(bucket)
    if region:
        options["region"] = region
    wait = {"connect_timeout": _PATIENCE_SECONDS, "request_timeout": _PATIENCE_SECONDS}
    return pyarrow.fs.S3FileSystem(**options, **wait)


def _gcs(_bucket: str) -> Any:
    import pyarrow.fs

    return pyarrow.fs.GcsFileSystem(retry_time_limit=datetime.timedelta(seconds=_PATIENCE_SECONDS))


def _azure(_container: str) -> Any:
    import pyarrow.fs

    account = os.environ.get("AZURE_STORAGE_ACCOUNT_NAME")
    if not account:
        raise PermissionError("AZURE_STORAGE_ACCOUNT_NAME is not set")
    given = {
        "account_key": os.environ.get("AZURE_STORAGE_ACCOUNT_KEY"),
        "sas_token": os.environ.get("AZURE_STORAGE_SAS_TOKEN"),
    }
    options = {name: value for name, value in given.items() if value}
    if "sas_token" in options:
        # It is put behind addresses as it is.
        options["sas_token"] = "?" + options["sas_token"].lstrip("?")
    return pyarrow.fs.AzureFileSystem(account, **options)


_AWS = (
    "set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY (and AWS_SESSION_TOKEN where there is one), "
    "as `aws configure export-credentials --format env` prints them, or run where the machine or "
    "the pod has a role"
)
_GOOGLE = (
    "set GOOGLE_APPLICATION_CREDENTIALS to a key file, run `gcloud auth application-default "
    "login`, or run where the machine has a service account"
)
_MICROSOFT = (
    "set AZURE_STORAGE_ACCOUNT_NAME and AZURE_STORAGE_ACCOUNT_KEY or AZURE_STORAGE_SAS_TOKEN, or "
    "run where the machine has an identity"
)
# By scheme: what pyarrow calls its file system, how to make one, where credentials come from.
_KINDS: dict[str, tuple[str, Callable[[str], Any], str]] = {
    **dict.fromkeys(("s3", "s3a"), ("S3FileSystem", _s3, _AWS)),
    **dict.fromkeys(("gs", "gcs"), ("GcsFileSystem", _gcs, _GOOGLE)),
    **dict.fromkeys(("az", "abfs", "abfss"), ("AzureFileSystem", _azure, _MICROSOFT)),
}

_NO_BUCKET = ("nosuchbucket", "containernotfound", "bucketdoesnotexist", "bucket does not exist")
_EXPIRED = ("expiredtoken", "tokenrefreshrequired", "token has expired", "requestexpired")
_WRONG = (
    "invalidaccesskeyid",
    "signaturedoesnotmatch",
    "invalidtoken",
    "authenticationfailed",
    "invalidclienttokenid",
)
_NONE = (
    "missingauthenticationtoken",
    "could not create credentials",
    "no credentials",
    "unauthorized",
)
_DENIED = ("accessdenied", "authorizationpermissionmismatch", "http status 403", "forbidden")
_UNREACHED = (
    "networkconnection",
    "couldn't connect",
    "could not resolve",
    "couldn't resolve",
    "curlcode",
)
# All else that a server says is no damage either.
_FAILED = ("aws error", "azure error", "google cloud storage")


# In addresses that are signed: https://learn.microsoft.com/rest/api/storageservices/create-service-sas
_SIGNATURE = re.compile(r"\b(sig|X-Amz-Signature|X-Goog-Signature)=[^\s&'\"]+", re.IGNORECASE)


def _no_bucket(shown: str) -> str:
    return f"the bucket of {shown} does not exist: make it, or check its name"


@contextlib.contextmanager
def _said(shown: str, credentials: str) -> Iterator[None]:
    """Errors in words that name the way out."""
    try:
        yield
    except (OSError, ValueError) as failure:
        said = " ".join(str(failure).split())
        error = failure
        if _SIGNATURE.search(said):
            # What has a signed address in it is shown to nobody, and is no cause of another error.
            said = _SIGNATURE.sub(r"\1=***", said)
            error = type(failure)(said)
        plain = said.lower().replace("_", "")

        def has(words: tuple[str, ...]) -> bool:
            return any(word in plain for word in words)

        if has(_NO_BUCKET):
            raise FileNotFoundError(_no_bucket(shown)) from error
        if has(_EXPIRED):
            told = f"the credentials for {shown} have expired: {credentials}"
            raise PermissionError(told) from error
        if has(_WRONG):
            told = f"the credentials for {shown} are wrong: {credentials} ({said})"
            raise PermissionError(told) from error
        if has(_NONE) or isinstance(error, PermissionError):
            told = f"there are no credentials for {shown}: {credentials} ({said})"
            raise PermissionError(told) from error
        if has(_DENIED):
            told = (
                f"no permission for {shown}: the credentials need the right to list and read "
                f"there; where there are none, {credentials} ({said})"
            )
            raise PermissionError(told) from error
        if isinstance(error, FileNotFoundError):
            raise FileNotFoundError(f"{shown} is not there") from error
        if has(_UNREACHED):
            told = f"{shown} can't be reached: check the network and AWS_ENDPOINT_URL ({said})"
            raise ConnectionError(told) from error
        if has(_FAILED):
            raise ConnectionError(f"{shown} can't be read: {said}") from error
        if error is not failure:
            raise error from None
        raise
