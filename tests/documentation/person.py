"""A person's browser: sets passwords, and logs in where a program sends it.

    python person.py FOLDER ADDRESS

People log in in the order of their invitations, which the folder keeps in a file.
"""

import asyncio
import re
import sys
from pathlib import Path
from urllib.parse import urlsplit

import aiohttp

PASSWORD = "three otters juggle plums"
PEOPLE = "people.txt"  # that have not logged in yet
TOKEN = re.compile(r'name="(_csrf|again|next)" value="([^"]*)"')
INVITED = re.compile(r"<bdi>([a-z]+)</bdi>")


async def accept_invitation(address: str, folder: Path) -> None:
    async with browsing() as http:
        async with http.get(address) as page:
            text = await page.text()
        name = INVITED.search(text)
        assert name is not None, text
        await _post(http, address, text, new=PASSWORD, repeated=PASSWORD, password="")
    with (folder / PEOPLE).open("a") as file:
        file.write(f"{name[1]}\n")


async def log_in(address: str, folder: Path) -> None:
    name, *others = (folder / PEOPLE).read_text().split()
    (folder / PEOPLE).write_text("\n".join(others))
    async with browsing() as http:
        async with http.get(address) as page:
            text = await page.text()
        back = await _post(http, address, text, choice="password", name=name, password=PASSWORD)
        await (await http.get(back)).read()


def browsing() -> aiohttp.ClientSession:
    return aiohttp.ClientSession(cookie_jar=aiohttp.CookieJar(unsafe=True))


async def _post(http: aiohttp.ClientSession, address: str, page: str, **form: str) -> str:
    """Send the first form of a page; where it leads."""
    parts = urlsplit(address)
    headers = {"Sec-Fetch-Site": "same-origin", "Origin": f"{parts.scheme}://{parts.netloc}"}
    fields = {**dict(TOKEN.findall(page)), **form}
    async with http.post(address, data=fields, headers=headers, allow_redirects=False) as answer:
        assert answer.status == 303, await answer.text()
        return answer.headers["location"]


if __name__ == "__main__":
    asyncio.run(log_in(sys.argv[2], Path(sys.argv[1])))
