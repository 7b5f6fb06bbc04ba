"""The documentation as a site in `build/site`, made by zensical from mkdocs.yml.

Pages link to files of the repository, which a site does not have: there the text of such a link
stands alone. Any warning of zensical is a failure. Without zensical nothing is built, and said so.
"""

import re
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PAGES = ROOT / "docs"
COPY = ROOT / "build" / "docs"
CONFIG = ROOT / "build" / "mkdocs.yml"
LINK = re.compile(r"\[([^\]\n]+)\]\(([^)\s]+)\)")


def within(text: str, folder: Path) -> str:
    """The text of a page in `folder` without links that leave the documentation."""

    def kept(found: re.Match[str]) -> str:
        target = found[2].partition("#")[0]
        if not target or re.match(r"[a-z]+:", target):
            return found[0]
        inside = (folder / target).resolve().is_relative_to(PAGES)
        return found[0] if inside and target.endswith(".md") else found[1]

    return LINK.sub(kept, text)


def main() -> None:
    if shutil.which("zensical") is None:
        print("site: skipped, since zensical is not installed: pip install zensical==0.0.73")  # noqa: T201
        return
    shutil.rmtree(ROOT / "build" / "site", ignore_errors=True)
    for page in PAGES.rglob("*.md"):
        copy = COPY / page.relative_to(PAGES)
        copy.parent.mkdir(parents=True, exist_ok=True)
        copy.write_text(within(page.read_text(), page.parent))
    settings = (ROOT / "mkdocs.yml").read_text()
    CONFIG.write_text(settings.replace("site_dir: build/site", "site_dir: site"))
    command = ["zensical", "build", "--clean", "--strict", "--config-file", str(CONFIG)]
    sys.exit(subprocess.run(command, cwd=CONFIG.parent, check=False).returncode)


if __name__ == "__main__":
    main()
