"""The documentation as a site, from mkdocs.yml: by zensical in `build/site`, and by mkdocs-material
in `build/site-mkdocs`.

Both read the same pages, so that either can be left. Pages link to files of the repository, which a
site does not have: there the text of such a link stands alone. Any warning is a failure. A builder
that is not installed is skipped, and said so.
"""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PAGES = ROOT / "docs"
BUILD = ROOT / "build"
COPY = BUILD / "docs"
LINK = re.compile(r"\[([^\]\n]+)\]\(([^)\s]+)\)")
PROGRAMS = Path(sys.executable).parent
BUILDERS = {  # by folder of the site
    "site": ("zensical", "build", "--clean", "--strict"),
    "site-mkdocs": ("mkdocs", "build", "--clean", "--strict", "--quiet"),
}


def within(text: str, folder: Path) -> str:
    """The text of a page in `folder` without links that leave the documentation."""

    def kept(found: re.Match[str]) -> str:
        target = found[2].partition("#")[0]
        if not target or re.match(r"[a-z]+:", target):
            return found[0]
        inside = (folder / target).resolve().is_relative_to(PAGES)
        return found[0] if inside and target.endswith((".md", ".png")) else found[1]

    return LINK.sub(kept, text)


def copied() -> None:
    """Copy the documentation to where it is built from."""
    shutil.rmtree(COPY, ignore_errors=True)
    shutil.copytree(PAGES, COPY)
    for page in PAGES.rglob("*.md"):
        (COPY / page.relative_to(PAGES)).write_text(within(page.read_text(), page.parent))


def built(site: str) -> int:
    """Build one site; the exit status of its builder."""
    program, *options = BUILDERS[site]
    found = shutil.which(program, path=f"{PROGRAMS}{os.pathsep}{os.environ['PATH']}")
    if found is None:
        print(f"docs: {program} is not installed here, so it is skipped (make docs)")  # noqa: T201
        return 0
    settings = (ROOT / "mkdocs.yml").read_text()
    file = BUILD / f"{site}.yml"
    file.write_text(settings.replace("site_dir: build/site", f"site_dir: {site}"))
    quiet = os.environ | {"NO_MKDOCS_2_WARNING": "1"}  # about the next version of mkdocs
    command = [found, *options, "--config-file", str(file)]
    return subprocess.run(command, cwd=BUILD, env=quiet, check=False).returncode


def main() -> int:
    copied()
    return max(built(site) for site in BUILDERS)


if __name__ == "__main__":
    sys.exit(main())
