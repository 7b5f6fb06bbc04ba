// Calls of tools whose output schemas the official TypeScript SDK has compiled; prints one line of
// JSON for each call. Arguments: the URL of the server, a bearer token or "", and the calls.

import { Client } from '@modelcontextprotocol/sdk/client/index.js';
import { StreamableHTTPClientTransport } from '@modelcontextprotocol/sdk/client/streamableHttp.js';

const [url, token, calls] = process.argv.slice(2);
const headers = token ? { Authorization: `Bearer ${token}` } : {};
const client = new Client({ name: 'typescript', version: '1' });
await client.connect(new StreamableHTTPClientTransport(new URL(url), { requestInit: { headers } }));

let cursor;
do {
  cursor = (await client.listTools({ cursor })).nextCursor;
} while (cursor);

for (const { name, arguments: given } of JSON.parse(calls)) {
  let said;
  try {
    const result = await client.callTool({ name, arguments: given });
    said = { failed: result.isError === true, text: result.content[0].text, thrown: null };
  } catch (error) {
    said = { failed: true, text: '', thrown: String(error) };
  }
  console.log(JSON.stringify({ name, ...said }));
}
await client.close();
process.exit(0);
