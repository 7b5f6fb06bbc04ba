"""The pages that people see: one to log in and agree, one for what went wrong."""

from collections.abc import Sequence
from html import escape

from tests.servers.issuer.accounts import SCOPES

# No script, no frame around it (OAuth 2.1, section 7.8), no address in a Referer.
HEADERS = {
    "Content-Security-Policy": "default-src 'none'; style-src 'unsafe-inline'; "
    "frame-ancestors 'none'; base-uri 'none'",
    "Cache-Control": "no-store",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
}
PAGE = """<!doctype html>
<html lang="en">
<head><meta charset="utf-8"><title>{title}</title>
<meta name="viewport" content="width=device-width">
<style>
body {{ font: 1rem/1.5 system-ui, sans-serif; max-width: 26rem; margin: 4rem auto;
  padding: 0 1rem }}
input {{ display: block; width: 100%; font: inherit; padding: .4rem; margin-bottom: 1rem;
  box-sizing: border-box }}
button {{ font: inherit; padding: .4rem 1.2rem }}
.problem {{ color: #a00 }}
</style></head>
<body><h1>{title}</h1>
{body}
</body></html>
"""


def login(client: str, resource: str, scope: str, problem: str = "") -> str:
    """The form goes to its own address, which holds the request."""
    said = f'<p class="problem">{escape(problem)}</p>' if problem else ""
    name = escape(client or "A program without a name")
    return PAGE.format(
        title="Log in",
        body=f"""{said}
<p><b>{name}</b> wants to use <code>{escape(resource)}</code> as you, to:</p>
<ul>{_items(scope.split())}</ul>
<form method="post">
<label>Name <input name="username" autocomplete="username" required autofocus></label>
<label>Password <input name="password" type="password" autocomplete="current-password"></label>
<button name="answer" value="allow">Allow</button>
<button name="answer" value="deny" formnovalidate>Deny</button>
</form>""",
    )


def failure(text: str) -> str:
    return PAGE.format(title="This did not work", body=f"<p>{escape(text)}</p>")


def _items(scopes: Sequence[str]) -> str:
    texts = [SCOPES.get(scope, scope) for scope in scopes] or ["know who you are"]
    return "".join(f"<li>{escape(text)}</li>" for text in texts)
