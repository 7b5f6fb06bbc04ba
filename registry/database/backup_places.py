"""Places of backups: a folder, or a bucket of S3. Both are blocking, and are used in threads.

A file appears whole or not at all: in a folder it is renamed, in a bucket its upload is completed.
"""

import os
import shutil
import time
from contextlib import suppress
from pathlib import Path
from typing import Any, Protocol

from config.backups import BackupsSettings
from schemas.errors import ToolgateError

PART = ".part"
ABANDONED_AFTER_S = 86_400.0  # after which a part is of a process that died
PART_BYTES = 64 * 1024 * 1024  # of an upload; S3 wants 5 MiB at least, and 10,000 parts at most
S3 = "s3://"


class BackupRefused(ToolgateError):
    """The place of backups cannot be used; the message gives the reason."""


class BackupPlace(Protocol):
    def names(self) -> list[str]: ...
    def put(self, name: str, file: Path) -> None: ...
    def fetch(self, name: str, file: Path) -> None: ...
    def delete(self, name: str) -> None: ...


def place_of(settings: BackupsSettings) -> BackupPlace:
    """Raises BackupRefused."""
    if not settings.to:
        raise BackupRefused("backups.to: expected a folder, or s3://BUCKET/PREFIX")
    return Bucket(settings) if settings.to.startswith(S3) else Folder(Path(settings.to))


def remove_abandoned(folder: Path, pattern: str) -> None:
    """Delete what processes have left that were killed."""
    for path in folder.glob(pattern):
        with suppress(OSError):
            if time.time() - path.stat().st_mtime > ABANDONED_AFTER_S:
                shutil.rmtree(path) if path.is_dir() else path.unlink()


class Folder:
    """A folder, for its owner only where it is made here. Raises BackupRefused."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def names(self) -> list[str]:
        try:
            return [entry.name for entry in self._folder.iterdir() if entry.is_file()]
        except FileNotFoundError:
            return []
        except OSError as error:
            raise self._refusal(error) from error

    def put(self, name: str, file: Path) -> None:
        part = self._folder / f".{name}{PART}"
        try:
            self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            remove_abandoned(self._folder, f".*{PART}")
            descriptor = os.open(part, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600)
            with file.open("rb") as source, os.fdopen(descriptor, "wb") as target:
                shutil.copyfileobj(source, target)
                target.flush()
                os.fsync(target.fileno())
            part.replace(self._folder / name)
        except OSError as error:
            raise self._refusal(error) from error
        finally:
            with suppress(OSError):
                part.unlink()

    def fetch(self, name: str, file: Path) -> None:
        try:
            with (self._folder / name).open("rb") as source, file.open("wb") as target:
                shutil.copyfileobj(source, target)
        except OSError as error:
            raise self._refusal(error, name) from error

    def delete(self, name: str) -> None:
        try:
            (self._folder / name).unlink(missing_ok=True)
        except OSError as error:
            raise self._refusal(error, name) from error

    def _refusal(self, error: OSError, name: str = "") -> BackupRefused:
        return BackupRefused(f"backups.to: {self._folder / name}: {error.strerror or error}")


class Bucket:
    """A bucket of S3, or of a server that speaks its API. Raises BackupRefused."""

    def __init__(self, settings: BackupsSettings) -> None:
        try:
            import botocore.session  # of the extra, and slow to import
            from botocore.config import Config
            from botocore.exceptions import BotoCoreError, ClientError
        except ImportError as error:
            text = "backups.to: a bucket takes the extra: pip install 'toolgate[knowledge]'"
            raise BackupRefused(text) from error
        self._errors = (BotoCoreError, ClientError, ValueError)
        self._bucket, _, prefix = settings.to.removeprefix(S3).partition("/")
        self._prefix = f"{prefix.strip('/')}/" if prefix.strip("/") else ""
        bucket = settings.bucket
        # Without keys those of the machine are used, as of its role.
        self._client: Any = botocore.session.Session().create_client(
            "s3",
            region_name=bucket.region,
            endpoint_url=bucket.endpoint or None,
            aws_access_key_id=bucket.key_id or None,
            aws_secret_access_key=bucket.secret or None,
            config=Config(
                s3={"addressing_style": "path" if bucket.endpoint else "virtual"},
                request_checksum_calculation="when_required",
                connect_timeout=bucket.timeout_s,
                read_timeout=bucket.timeout_s,
            ),
        )

    def names(self) -> list[str]:
        listed: list[str] = []
        more: dict[str, str] = {}
        while True:
            page = self._call("list_objects_v2", Prefix=self._prefix, **more)
            listed += [
                entry["Key"].removeprefix(self._prefix) for entry in page.get("Contents", ())
            ]
            if not page.get("IsTruncated"):
                return listed
            more = {"ContinuationToken": page["NextContinuationToken"]}

    def put(self, name: str, file: Path) -> None:
        upload = self._call("create_multipart_upload", name)["UploadId"]
        try:
            parts: list[dict[str, Any]] = []
            with file.open("rb") as source:
                while data := source.read(PART_BYTES):
                    number = len(parts) + 1
                    answer = self._call(
                        "upload_part", name, UploadId=upload, PartNumber=number, Body=data
                    )
                    parts.append({"PartNumber": number, "ETag": answer["ETag"]})
            self._call(
                "complete_multipart_upload", name, UploadId=upload, MultipartUpload={"Parts": parts}
            )
        except BaseException:
            with suppress(BackupRefused):  # the first error tells more
                self._call("abort_multipart_upload", name, UploadId=upload)
            raise

    def fetch(self, name: str, file: Path) -> None:
        body = self._call("get_object", name)["Body"]
        try:
            with file.open("wb") as target:
                shutil.copyfileobj(body, target)
        except (*self._errors, OSError) as error:
            raise BackupRefused(f"backups.to: {self._bucket}: {error}") from error

    def delete(self, name: str) -> None:
        self._call("delete_object", name)

    def _call(self, operation: str, name: str | None = None, **more: Any) -> Any:
        key = {} if name is None else {"Key": self._prefix + name}
        try:
            return getattr(self._client, operation)(Bucket=self._bucket, **key, **more)
        except self._errors as error:
            raise BackupRefused(f"backups.to: {self._bucket}: {error}") from error
