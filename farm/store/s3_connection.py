"""Talking to one S3 bucket: endpoint and credentials from the usual places, retries, and errors a person can act on.

boto3 finds the credentials, endpoint and region (environment, profiles, containers, instance roles), lists, writes and
deletes; pyarrow reads Parquet with the same credentials. Both retry with backoff what may pass by itself: 500, 503, an
answer cut off, no answer.
"""

from __future__ import annotations

import base64
import contextlib
import hashlib
import os
import re
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit
from urllib.request import getproxies, proxy_bypass

from interpreter.errors import FarmError
from jobs.blobs import Absent, Conflict, Expected, StorageError

ATTEMPTS = 8  # of a request, with backoff: about a minute in all (AWS_MAX_ATTEMPTS wins)
CONNECT_SECONDS, READ_SECONDS = 10, 60
_KEPT = "What was finished before is kept: give the same command again"
_CREDENTIALS = "the usual places: AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, AWS_PROFILE, ~/.aws, an instance role"

# What error codes mean, and what to do: for a message 'store s3://...: TEXT'.
_MEANINGS: dict[str, str] = {
    "NoSuchBucket": "there is no such bucket; make it first (aws s3 mb, or your store's own tool)",
    "AccessDenied": "no permission; the credentials need s3:ListBucket, GetObject, PutObject and DeleteObject here",
    "AllAccessDisabled": "no permission: all access to the bucket is disabled",
    "403": "no permission, or the credentials are not valid here",
    "ExpiredToken": f"the credentials have expired; renew them. {_KEPT}",
    "ExpiredTokenException": f"the credentials have expired; renew them. {_KEPT}",
    "TokenRefreshRequired": f"the credentials have expired; renew them. {_KEPT}",
    "InvalidToken": "the session token is not valid (AWS_SESSION_TOKEN)",
    "InvalidAccessKeyId": "the store does not know this access key (AWS_ACCESS_KEY_ID, or the profile's)",
    "SignatureDoesNotMatch": "the secret key does not belong to the access key, or the region is wrong",
    "RequestTimeTooSkewed": f"this machine's clock differs too much from the store's; set it right. {_KEPT}",
    "QuotaExceeded": f"the store is full. Make room and go on. {_KEPT}",
    "InsufficientStorage": f"the store is full. Make room and go on. {_KEPT}",
    "XMinioStorageFull": f"the store is full. Make room and go on. {_KEPT}",
    "507": f"the store is full. Make room and go on. {_KEPT}",
    "SlowDown": f"the store asked to slow down and went on doing so. {_KEPT}",
    "ServiceUnavailable": f"the store is not available (503). {_KEPT}",
    "InternalError": f"the store fails (500). {_KEPT}",
    "500": f"the store fails (500). {_KEPT}",
    "503": f"the store is not available (503). {_KEPT}",
    "PermanentRedirect": "the bucket is in another region (AWS_REGION)",
    "AuthorizationHeaderMalformed": "the bucket is in another region (AWS_REGION)",
}

# pyarrow's words for the same, in the text of its OSError: 'AWS Error ACCESS_DENIED during ...'.
_ARROW_CODE = re.compile(r"AWS Error ([A-Z_]+)|HTTP status (\d+)|AWS Error.*?\b([A-Z][A-Za-z]+Token)\b")


@dataclass(frozen=True, slots=True)
class Listed:
    """A key below a prefix, without it."""

    name: str
    bytes: int


class Connection:
    """One bucket. Safe to use from several threads."""

    def __init__(self, bucket: str) -> None:
        self.bucket = bucket
        self._lock = threading.Lock()
        self._session: Any = None
        self._client: Any = None
        self._arrow: tuple[Any, Any] | None = None  # (credentials, filesystem)

    # ---- clients

    @property
    def client(self) -> Any:
        """boto3's client."""
        with self._lock:
            if self._client is None:
                self._session, self._client = _client(self.bucket)
            return self._client

    @property
    def endpoint(self) -> str:
        """Where the store is, without user and password."""
        parts = urlsplit(self.client.meta.endpoint_url)
        return f"{parts.scheme}://{parts.hostname}" + (f":{parts.port}" if parts.port else "")

    def arrow(self) -> Any:
        """pyarrow's filesystem; paths begin with the bucket. Renewed when the credentials are."""
        from pyarrow.fs import AwsStandardS3RetryStrategy, S3FileSystem

        client = self.client
        found = self._session.get_credentials()
        frozen = found.get_frozen_credentials() if found is not None else None
        with self._lock:
            if self._arrow is not None and self._arrow[0] == frozen:
                return self._arrow[1]
        parts = urlsplit(client.meta.endpoint_url)
        own = not (parts.hostname or "").endswith((".amazonaws.com", ".amazonaws.com.cn"))
        region = client.meta.region_name if own else self.region()
        with self._lock:
            attempts = int(client.meta.config.retries.get("total_max_attempts") or ATTEMPTS)
            arguments: dict[str, Any] = {
                "retry_strategy": AwsStandardS3RetryStrategy(max_attempts=attempts),
                "region": region,
                "connect_timeout": CONNECT_SECONDS,
                "request_timeout": READ_SECONDS,
            }
            if own:
                arguments["endpoint_override"] = (parts.hostname or "") + (f":{parts.port}" if parts.port else "")
                arguments["scheme"] = parts.scheme
                style = (client.meta.config.s3 or {}).get("addressing_style")
                arguments["force_virtual_addressing"] = style == "virtual"
            if frozen is not None:
                arguments |= {"access_key": frozen.access_key, "secret_key": frozen.secret_key}
                if frozen.token:
                    arguments["session_token"] = frozen.token
            else:
                arguments["anonymous"] = True
            if os.environ.get("AWS_CA_BUNDLE"):
                arguments["tls_ca_file_path"] = os.environ["AWS_CA_BUNDLE"]
            proxy = getproxies().get(parts.scheme)
            if proxy and not proxy_bypass(parts.hostname or ""):
                arguments["proxy_options"] = proxy
            self._arrow = (frozen, S3FileSystem(**arguments))
            return self._arrow[1]

    def region(self) -> str:
        """The bucket's region, which need not be the one that the environment names."""
        with self._errors(""):
            found = self.client.head_bucket(Bucket=self.bucket).get("BucketRegion")
        return str(found or self.client.meta.region_name)

    # ---- operations; keys are whole

    def get(self, key: str) -> tuple[bytes, str]:
        """Content and ETag. Raises FileNotFoundError."""

        def once() -> tuple[bytes, str]:
            answer = self.client.get_object(Bucket=self.bucket, Key=key)
            return answer["Body"].read(), answer["ETag"]

        with self._errors(key):
            return _again_when_cut(once)

    def put(self, key: str, content: Any, length: int, digest: bytes, expected: Expected = None) -> str:
        """Write an object, return its ETag. `content` is bytes or an open file, `digest` its MD5.

        Raises Conflict when the object is not what was `expected`.
        """
        condition: dict[str, Any] = {}
        if isinstance(expected, Absent):
            condition["IfNoneMatch"] = "*"
        elif expected is not None:
            condition["IfMatch"] = expected
        with self._errors(key):
            for wait in (0.1, 0.5, 2.0, None):
                try:
                    answer = self.client.put_object(
                        Bucket=self.bucket,
                        Key=key,
                        Body=content,
                        ContentLength=length,
                        ContentMD5=base64.b64encode(digest).decode(),
                        **condition,
                    )
                    return str(answer["ETag"])
                except Exception as error:
                    code = _code(error)
                    if code == "ConditionalRequestConflict" and wait is not None:  # two at the same time: again
                        time.sleep(wait)
                        continue
                    if condition and code in ("PreconditionFailed", "ConditionalRequestConflict", "NoSuchKey", "412"):
                        # a request that was tried again after an answer that got lost fails on its own success
                        tag = self._if_written(key, content)
                        if tag is not None:
                            return tag
                        raise Conflict(key) from None
                    raise
        raise AssertionError("unreachable")

    def put_bytes(self, key: str, content: bytes, expected: Expected = None) -> str:
        return self.put(key, content, len(content), hashlib.md5(content, usedforsecurity=False).digest(), expected)

    def _if_written(self, key: str, content: Any) -> str | None:
        if not isinstance(content, bytes):
            return None
        try:
            found, tag = self.get(key)
        except FileNotFoundError:
            return None
        return tag if found == content else None

    def modified(self, key: str) -> float | None:
        """When the store says an object was written (seconds since 1970), None when it is not there."""
        with self._errors(key):
            try:
                return float(self.client.head_object(Bucket=self.bucket, Key=key)["LastModified"].timestamp())
            except Exception as error:
                if _code(error) in ("404", "NoSuchKey", "NotFound"):
                    return None
                raise

    def objects(self, prefix: str) -> Iterator[Listed]:
        """The objects whose key begins with `prefix`."""
        for page in self._pages(prefix, ""):
            for entry in page.get("Contents", ()):
                yield Listed(entry["Key"][len(prefix) :], entry["Size"])

    def folders(self, prefix: str) -> list[str]:
        """What comes between `prefix` and the next slash, of all keys that have one."""
        found = []
        for page in self._pages(prefix, "/"):
            found += [entry["Prefix"][len(prefix) : -1] for entry in page.get("CommonPrefixes", ())]
        return found

    def _pages(self, prefix: str, delimiter: str) -> Iterator[dict[str, Any]]:
        arguments = {"Bucket": self.bucket, "Prefix": prefix, "Delimiter": delimiter}
        while True:
            with self._errors(prefix):
                page = self.client.list_objects_v2(**{k: v for k, v in arguments.items() if v or k == "Prefix"})
            yield page
            if not page.get("IsTruncated"):
                return
            arguments["ContinuationToken"] = page["NextContinuationToken"]

    def delete(self, keys: Iterable[str]) -> None:
        """Remove objects, one request each: not every store understands the request for many at once."""
        for key in keys:
            with self._errors(key):
                self.client.delete_object(Bucket=self.bucket, Key=key)

    # ---- errors

    @contextlib.contextmanager
    def _errors(self, key: str) -> Iterator[None]:
        try:
            yield
        except (FarmError, Conflict, OSError) as error:
            if isinstance(error, OSError) and not isinstance(error, FileNotFoundError):
                raise StorageError(f"store {self._where(key)}: {error}") from None
            raise
        except Exception as error:
            if _code(error) in ("NoSuchKey", "404"):  # 404: the answer's body was cut off
                raise FileNotFoundError(self._where(key)) from None
            raise self._explained(error, key) from None

    def _where(self, key: str) -> str:
        return f"s3://{self.bucket}/{key}"

    def _explained(self, error: Exception, key: str) -> FarmError:
        from botocore import exceptions

        code, where = _code(error), f"store {self._where(key)}"
        if code in _MEANINGS:
            return StorageError(f"{where}: {_MEANINGS[code]} ({code}, at {self.endpoint})")
        if code:
            message = error.response["Error"].get("Message", "")  # type: ignore[attr-defined]
            return StorageError(f"{where}: the store refuses: {code}: {message} (at {self.endpoint})")
        if isinstance(error, exceptions.NoCredentialsError | exceptions.PartialCredentialsError):
            return StorageError(f"{where}: no credentials found ({_CREDENTIALS})")
        if isinstance(error, exceptions.HTTPClientError | exceptions.ConnectionError):
            kind = type(error).__name__
            return StorageError(f"{where}: no answer from {self.endpoint} ({kind}). {_KEPT}")
        if isinstance(error, exceptions.BotoCoreError):
            return StorageError(f"{where}: {type(error).__name__}: {error}")
        raise error

    def explain_arrow(self, error: OSError, key: str) -> FarmError:
        """The error to report for one of pyarrow's: its text says little, so the store is asked once more."""
        found = _ARROW_CODE.search(str(error))
        code = next((group for group in found.groups() if group), "no code") if found else type(error).__name__
        with self._errors(key):  # raises when the reason is one that boto3 sees as well
            self.client.list_objects_v2(Bucket=self.bucket, Prefix=key, MaxKeys=1)
        return StorageError(f"store {self._where(key)}: reading failed ({code}, at {self.endpoint}); try again")


def _client(bucket: str) -> tuple[Any, Any]:
    try:
        import boto3
        from botocore.config import Config
        from botocore.exceptions import BotoCoreError
    except ImportError:
        raise StorageError(f"store s3://{bucket}: boto3 is not installed (pip install 'farm[s3]')") from None
    try:
        session = boto3.session.Session()
        retries: dict[str, Any] = {"mode": "standard"}
        if "AWS_MAX_ATTEMPTS" in os.environ:
            retries["total_max_attempts"] = int(os.environ["AWS_MAX_ATTEMPTS"])
        else:
            retries["total_max_attempts"] = ATTEMPTS
        config = Config(
            connect_timeout=CONNECT_SECONDS,
            read_timeout=READ_SECONDS,
            retries=retries,
            max_pool_connections=16,
            # many stores that speak S3 do not know the newer checksums; MD5 goes with every write
            request_checksum_calculation="when_required",
            response_checksum_validation="when_required",
        )
        # the region only signs requests for stores of one's own
        region = session.region_name or os.environ.get("AWS_REGION") or "us-east-1"
        return session, session.client("s3", config=config, region_name=region)
    except BotoCoreError as error:
        raise StorageError(f"store s3://{bucket}: {error}") from None
    except ValueError as error:
        raise StorageError(f"store s3://{bucket}: endpoint, region or AWS_MAX_ATTEMPTS: {error}") from None


def _code(error: Exception) -> str:
    """S3's code of an error, '' for others."""
    response = getattr(error, "response", None)
    return str(response.get("Error", {}).get("Code", "")) if isinstance(response, dict) else ""


def _again_when_cut(once: Callable[[], tuple[bytes, str]]) -> tuple[bytes, str]:
    """Retry a read whose body was cut off, which botocore leaves to its caller."""
    from botocore import exceptions

    for wait in (0.1, 0.4, 1.6, 6.4):
        try:
            return once()
        except (exceptions.ResponseStreamingError, exceptions.IncompleteReadError, exceptions.ReadTimeoutError):
            time.sleep(wait)
    return once()
