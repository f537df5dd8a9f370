"""The text in the bytes of a file."""

_UTF_16 = (b"\xff\xfe", b"\xfe\xff")


class EncodingError(ValueError):
    """The bytes are not UTF-8; the message says why, and how to write them anew."""


def decode(content: bytes) -> str:
    """The text in `content`. Raises EncodingError if it is not UTF-8."""
    if _is_utf_16(content):
        raise EncodingError(
            "UTF-16, as `>` of Windows PowerShell writes it: write it as UTF-8, such as with "
            "`| Out-File -Encoding utf8`"
        )
    try:
        return content.decode("utf-8")
    except UnicodeDecodeError as error:
        raise EncodingError(f"not UTF-8 (byte {error.start})") from error


def _is_utf_16(content: bytes) -> bool:
    """Whether `content` begins as UTF-16 does: with its mark, or with half a character of ASCII."""
    return content.startswith(_UTF_16) or content[:2].count(0) == 1
