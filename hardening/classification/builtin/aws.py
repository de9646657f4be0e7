"""Rules for botocore, and so for boto3: the service's error code decides, then the HTTP status."""

from __future__ import annotations

from ..codes import asks_to_wait, attribute, http_status, http_verdict, retry_after, tls_alert, tls_verdict
from ..rule import Rule
from ..verdict import Kind

__all__ = ["RULES"]

_B = "botocore.exceptions."

# Codes that say more than their HTTP status, mostly 400. The first two groups are those that botocore itself
# tries again (botocore.retries.standard).
NOT_NOW = frozenset(
    {
        # Too much at once.
        "Throttling", "ThrottlingException", "ThrottledException", "RequestThrottled",
        "RequestThrottledException", "SlowDown", "TooManyRequestsException",
        "ProvisionedThroughputExceededException", "RequestLimitExceeded", "EC2ThrottledException",
        "BandwidthLimitExceeded", "LimitExceededException", "TransactionInProgressException",
        "PriorRequestNotComplete",
        # Too slow.
        "RequestTimeout", "RequestTimeoutException",
        # The same of single services, and S3's errors within an answer that began with 200.
        "OverLimit", "KMS.ThrottlingException", "InternalError", "InternalFailure",
        "InternalServerError", "ServiceUnavailable",
        # Another request was in the way.
        "ConcurrentModificationException", "OperationAborted", "TransactionConflictException",
        "ConditionalRequestConflict", "ResourceConflictException", "ResourceInUseException",
        # What is used, or being made or deleted, and will not be for ever.
        "AWS.SimpleQueueService.QueueDeletedRecently", "DependencyViolation", "QueueDeletedRecently",
        # Credentials that ran out: the next try signs with new ones, and by a clock that was set right.
        "ExpiredToken", "ExpiredTokenException", "IDPCommunicationError", "RequestExpired",
        "RequestTimeTooSkewed",
        # The body of the request did not arrive whole.
        "BadDigest", "IncompleteBody",
    }
)  # fmt: skip
# Services spell these in several ways: ResourceInUse, ResourceInUseFault, ResourceConflict.
_NOT_NOW_BEGIN = ("ResourceConflict", "ResourceInUse")
# A transaction fails for the reasons of its members, which may be of either kind.
EITHER = frozenset({"TransactionCanceledException"})


def _code(exc: BaseException) -> str | None:
    """The service's error code; where there is none (an answer to HEAD), botocore puts the status there."""
    code = attribute(exc, "response", "Error", "Code")
    return str(code) if isinstance(code, (str, int)) and code else None


def _code_verdict(code: str) -> Kind | None:
    if code in NOT_NOW or code.startswith(_NOT_NOW_BEGIN):
        return Kind.TRANSIENT
    return Kind.UNKNOWN if code in EITHER else None


def _status_is(kind: Kind, exc: BaseException) -> bool:
    status = http_status(exc)
    return status is not None and http_verdict(status) is kind


def _is_unavailable(exc: BaseException) -> bool:
    return _status_is(Kind.TRANSIENT, exc)


def _is_refused(exc: BaseException) -> bool:
    return _status_is(Kind.PERMANENT, exc)


def _waited_in_vain(exc: BaseException) -> bool:
    reason = attribute(exc, "kwargs", "reason")
    return isinstance(reason, str) and reason.startswith("Max attempts exceeded")


RULES: tuple[Rule, ...] = (
    Rule(
        name="aws.code",
        classes=(_B + "ClientError",),
        read=_code,
        decide=_code_verdict,
        retry_after=retry_after,
        why=(
            "Throttling, time-out, conflict, what is in use, expired credentials and internal error pass, "
            "whatever their HTTP status; a cancelled transaction may have failed for either kind of reason."
        ),
    ),
    Rule(
        name="aws.unavailable",
        classes=(_B + "ClientError",),
        when=_is_unavailable,
        read=_code,
        verdict=Kind.TRANSIENT,
        retry_after=retry_after,
        why='The HTTP status says "not now": 408, 425, 429 and 5xx.',
    ),
    Rule(
        name="aws.retry_after",
        classes=(_B + "ClientError",),
        when=asks_to_wait,
        read=_code,
        verdict=Kind.TRANSIENT,
        retry_after=retry_after,
        why='A refusal (4xx) with a Retry-After header says "later".',
    ),
    Rule(
        name="aws.refused",
        classes=(_B + "ClientError",),
        when=_is_refused,
        read=_code,
        verdict=Kind.PERMANENT,
        why="The HTTP status says that this very request is refused: access denied, validation, not found.",
    ),
    Rule(
        name="aws.certificate",
        classes=(_B + "SSLError", _B + "ProxyConnectionError"),
        read=tls_alert,
        decide=tls_verdict,
        why="The certificate of the endpoint is not trusted.",
    ),
    Rule(
        name="aws.connection",
        classes=(
            _B + "ConnectionError",
            _B + "ConnectionClosedError",
            _B + "ReadTimeoutError",
            _B + "ResponseStreamingError",
            _B + "IncompleteReadError",
            _B + "ChecksumError",
            _B + "FlexibleChecksumError",
            _B + "CredentialRetrievalError",
            _B + "MetadataRetrievalError",
        ),
        verdict=Kind.TRANSIENT,
        why="No connection to the endpoint or the source of credentials, or it broke, or no answer in time.",
    ),
    Rule(
        name="aws.waiter",
        classes=(_B + "WaiterError",),
        when=_waited_in_vain,
        verdict=Kind.TRANSIENT,
        why="What was waited for had not come about yet.",
    ),
    Rule(
        name="aws.configuration",
        classes=(
            _B + "NoCredentialsError",
            _B + "PartialCredentialsError",
            _B + "NoAuthTokenError",
            _B + "NoRegionError",
            _B + "InvalidRegionError",
            _B + "ProfileNotFound",
            _B + "ConfigNotFound",
            _B + "ConfigParseError",
            _B + "InvalidConfigError",
            _B + "UnknownServiceError",
            _B + "UnauthorizedSSOTokenError",
        ),
        verdict=Kind.PERMANENT,
        why="Credentials, region or another setting are missing or wrong.",
    ),
    Rule(
        name="aws.parameters",
        classes=(
            _B + "ParamValidationError",
            _B + "ValidationError",
            _B + "MissingParametersError",
            _B + "EndpointProviderError",
        ),
        verdict=Kind.PERMANENT,
        why="botocore does not send the request: its parameters do not fit the service's model.",
    ),
)
