#!/bin/sh
# JSON-RPC 2.0 with curl: one call, a batch, and what there is.
#
#   sh examples/rpc.sh [URL]
set -eu
url=${1:-http://127.0.0.1:8765/rpc}

post() {
    curl --silent --show-error --fail-with-body "$url" -H 'Content-Type: application/json' -d "$1"
    echo
}

echo '# One call: the method is the name of a tool, the params are its arguments.'
post '{"jsonrpc": "2.0", "id": 1, "method": "getPet", "params": {"petId": 1}}'

echo '# A batch: the calls run side by side and answer in their order; a notification gets no answer.'
post '[
  {"jsonrpc": "2.0", "id": "dogs", "method": "listPets", "params": {"species": "dog", "limit": 1}},
  {"jsonrpc": "2.0", "method": "getPet", "params": {"petId": 2}},
  {"jsonrpc": "2.0", "id": "none", "method": "getPet", "params": {"petId": 99}},
  {"jsonrpc": "2.0", "id": "as a tool", "method": "tools/call",
   "params": {"name": "getOwner", "arguments": {"ownerId": 1}}}
]'

echo '# All methods, as an OpenRPC document (its beginning).'
post '{"jsonrpc": "2.0", "id": 2, "method": "rpc.discover"}' | cut -c 1-400
