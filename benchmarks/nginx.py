"""nginx as upstream stub and as reverse proxy: one unprivileged process each, own prefix."""

import shutil
from pathlib import Path

from benchmarks.processes import Child, Cores, free_port, start
from benchmarks.stub import ITEM

# Debian keeps it where an ordinary user's PATH does not look.
BINARY = shutil.which("nginx") or shutil.which("nginx", path="/usr/sbin:/usr/local/sbin")

_FRAME = """\
daemon off;
master_process off;
pid nginx.pid;
error_log stderr error;
events {{ worker_connections 4096; }}
http {{
  access_log off;
  client_body_temp_path body;
  proxy_temp_path proxy;
  fastcgi_temp_path fastcgi;
  uwsgi_temp_path uwsgi;
  scgi_temp_path scgi;
  tcp_nodelay on;
  keepalive_timeout 300;
  keepalive_requests 1000000000;
{body}
}}
"""

_STUB = """\
  server {{
    listen 127.0.0.1:{port};
    location / {{ default_type application/json; return 200 '{item}'; }}
  }}"""

_PROXY = """\
  upstream stub {{
    server 127.0.0.1:{upstream};
    keepalive 64;
    keepalive_requests 1000000000;
  }}
  server {{
    listen 127.0.0.1:{port};
    location / {{
      proxy_method GET;
      proxy_pass_request_body off;
      proxy_set_header Content-Length "";
      proxy_set_header Connection "";
      proxy_http_version 1.1;
      proxy_pass http://stub/items/1;
    }}
  }}"""


def start_stub(nginx: str, directory: Path, cores: Cores) -> Child:
    port = free_port()
    body = _STUB.format(port=port, item=ITEM.decode())
    return _start(nginx, "stub", body, directory, cores.load, port)


def start_proxy(nginx: str, upstream: int, directory: Path, cores: Cores) -> Child:
    port = free_port()
    body = _PROXY.format(port=port, upstream=upstream)
    return _start(nginx, "proxy", body, directory, cores.tested, port)


def _start(
    nginx: str, name: str, body: str, directory: Path, cores: frozenset[int], port: int
) -> Child:
    prefix = directory / f"nginx-{name}"
    prefix.mkdir(exist_ok=True)  # the proxy is started once for each group that names it
    configuration = prefix / "nginx.conf"
    configuration.write_text(_FRAME.format(body=body))
    arguments = [nginx, "-p", str(prefix), "-c", str(configuration), "-e", "stderr"]
    return start(f"nginx-{name}", arguments, directory, cores, port=port)
