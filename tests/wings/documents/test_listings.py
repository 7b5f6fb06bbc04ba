"""Listings of buckets are XML of a server that nobody vouches for."""

from gateway.wings.documents.reading import url_and_s3_files
from gateway.wings.documents.reading.source_files import LeftOut, WantedFiles


def test_a_listing_expands_no_entities() -> None:
    listing = b"""<!DOCTYPE l [<!ENTITY e "boom"><!ENTITY f SYSTEM "file:///etc/hostname">]>
        <l><Contents><Key>a&e;&f;</Key><ETag>1</ETag><Size>1</Size></Contents></l>"""
    [found] = url_and_s3_files._parse_listing(listing, WantedFiles()).entries
    assert not isinstance(found, LeftOut)
    assert found.key == "a"
