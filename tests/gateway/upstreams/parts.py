"""Multipart bodies as the standard library reads them."""

from email.message import Message
from email.parser import BytesParser
from email.policy import HTTP


def parts_of(content_type: str, body: bytes) -> list[Message]:
    head = f"Content-Type: {content_type}\r\n\r\n".encode()
    message = BytesParser(policy=HTTP).parsebytes(head + body)
    assert message.is_multipart()
    assert not message.defects
    return list(message.iter_parts())


def name_of(part: Message) -> str:
    return str(part.get_param("name", header="content-disposition"))


def field(part: Message) -> tuple[str, str | None, str | None, bytes]:
    """Name, file name, stated type and content."""
    stated = part.get_content_type() if "Content-Type" in part else None
    return name_of(part), part.get_filename(), stated, part.get_payload(decode=True)
