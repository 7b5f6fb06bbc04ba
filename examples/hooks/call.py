"""Open a ticket: python call.py URL FILE-OF-A-KEY TEXT"""

import json
import sys
import urllib.request
from pathlib import Path

url, file, text = sys.argv[1:]
key = Path(file).read_text().strip()
body = {"jsonrpc": "2.0", "id": 1, "method": "openTicket", "params": {"text": text}}
headers = {"Content-Type": "application/json", "X-API-Key": key}
request = urllib.request.Request(f"{url}/rpc", json.dumps(body).encode(), headers)
with urllib.request.urlopen(request) as response:
    answer = json.load(response)
shown = answer["error"]["message"] if "error" in answer else json.dumps(answer["result"])
print(f"{Path(file).stem}: {shown}")
