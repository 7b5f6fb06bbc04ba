"""Signed URLs of objects in S3 buckets."""

import os
from typing import TYPE_CHECKING, Any

import botocore.session
from botocore import UNSIGNED
from botocore.config import Config
from botocore.exceptions import BotoCoreError

from gateway.wings.documents.reading.reading_limits import ReadingRefused

if TYPE_CHECKING:
    from gateway.wings.documents.reading.url_and_s3_files import Bucket

_URL_S = 300  # life of a signed URL
_KEYS = 1000  # of one listing


class Signer:
    """Signs URLs with the keys of a bucket, never with those of the machine."""

    def __init__(self, bucket: "Bucket") -> None:
        self._bucket = bucket
        signature = "s3v4" if bucket.key_id else UNSIGNED
        style = "path" if bucket.endpoint else "virtual"
        session = botocore.session.Session(session_vars={"profile": (None, None, None, None)})
        session.set_config_variable("config_file", os.devnull)
        session.set_config_variable("credentials_file", os.devnull)
        try:
            self._client: Any = session.create_client(
                "s3",
                region_name=bucket.region,
                endpoint_url=bucket.endpoint or None,
                aws_access_key_id=bucket.key_id or None,
                aws_secret_access_key=bucket.secret or None,
                aws_session_token=bucket.token or None,
                config=Config(signature_version=signature, s3={"addressing_style": style}),
            )
        except (BotoCoreError, ValueError) as error:
            raise ReadingRefused(f"the bucket cannot be read: {error}") from error

    def listing(self, after: str) -> str:
        parameters = {"Prefix": self._bucket.prefix, "MaxKeys": _KEYS, "EncodingType": "url"}
        more = {"ContinuationToken": after} if after else {}
        return self._presign("list_objects_v2", {**parameters, **more})

    def object(self, key: str) -> str:
        return self._presign("get_object", {"Key": key})

    def _presign(self, operation: str, parameters: dict[str, Any]) -> str:
        parameters = {"Bucket": self._bucket.name, **parameters}
        try:
            return str(self._client.generate_presigned_url(operation, parameters, _URL_S))
        except BotoCoreError as error:
            raise ReadingRefused(f"the bucket cannot be read: {error}") from error
