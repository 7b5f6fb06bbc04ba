// A client made with the official TypeScript SDK; prints one line of JSON for each thing it tried.
// Arguments: the era to speak ("handshake" or "stateless") and the URL of the server.

const [era, url] = process.argv.slice(2);
const identity = { name: 'typescript', version: '1' };
const capabilities = { elicitation: {}, sampling: {}, roots: {} };

function answered(request) {
  switch (request.method) {
    case 'elicitation/create':
      return { action: 'accept', content: { name: 'Alice', username: 'alice', email: 'a@example.com' } };
    case 'sampling/createMessage':
      return { role: 'assistant', content: { type: 'text', text: 'Paris' }, model: 'none' };
    default:
      return { roots: [{ uri: 'file:///home/alice', name: 'home' }] };
  }
}

async function handshake() {
  const { Client } = await import('@modelcontextprotocol/sdk/client/index.js');
  const { StreamableHTTPClientTransport } = await import('@modelcontextprotocol/sdk/client/streamableHttp.js');
  const types = await import('@modelcontextprotocol/sdk/types.js');
  const client = new Client(identity, { capabilities });
  for (const schema of [types.ElicitRequestSchema, types.CreateMessageRequestSchema, types.ListRootsRequestSchema]) {
    client.setRequestHandler(schema, answered);
  }
  const transport = new StreamableHTTPClientTransport(new URL(url));
  const callTool = (params, options) => client.callTool(params, undefined, options);
  return { client, transport, callTool, version: () => transport.protocolVersion };
}

async function stateless() {
  const { Client, StreamableHTTPClientTransport } = await import('@modelcontextprotocol/client');
  const versionNegotiation = { mode: { pin: '2026-07-28' } };
  const client = new Client(identity, { capabilities, versionNegotiation });
  for (const method of ['elicitation/create', 'sampling/createMessage', 'roots/list']) {
    client.setRequestHandler(method, answered);
  }
  const transport = new StreamableHTTPClientTransport(new URL(url));
  const callTool = (params, options) => client.callTool(params, options);
  return { client, transport, callTool, version: () => client.getNegotiatedProtocolVersion() };
}

async function check(name, expected, attempt) {
  let said;
  try {
    said = await attempt();
  } catch (error) {
    said = String(error);
  }
  const found = JSON.stringify(said);
  const good = found === JSON.stringify(expected);
  console.log(JSON.stringify({ check: name, good, said: good ? '' : `expected ${JSON.stringify(expected)}, got ${found}` }));
}

const { client, transport, callTool, version } = await (era === 'handshake' ? handshake : stateless)();
await client.connect(transport);
const textOf = async (name, args = {}) => (await callTool({ name, arguments: args })).content[0].text;

await check('revision', era === 'handshake' ? '2025-11-25' : '2026-07-28', version);
await check('tools are listed', true, async () =>
  (await client.listTools()).tools.some((tool) => tool.name === 'test_simple_text'));
await check('a tool is called', 'This is a simple text response for testing.', () => textOf('test_simple_text'));
await check('a tool that fails says so', true, async () =>
  (await callTool({ name: 'test_error_handling', arguments: {} })).isError);
await check('an unknown tool is an error', true, () =>
  callTool({ name: 'no_such_tool', arguments: {} }).then(() => false, () => true));
await check('progress is reported', [0, 50, 100], async () => {
  const seen = [];
  const onprogress = ({ progress }) => seen.push(progress);
  await callTool({ name: 'test_tool_with_progress', arguments: {} }, { onprogress });
  return seen;
});
await check('an argument travels in a header', 'Region eu', () => textOf('test_x_mcp_header', { region: 'eu' }));
await check('the user is asked', 'Hello, Alice!', () => textOf('test_input_required_result_elicitation'));
await check('the model is asked', 'LLM response: Paris', () => textOf('test_sampling', { prompt: 'The capital?' }));
await check('the roots are asked for', 'file:///home/alice', () => textOf('test_input_required_result_list_roots'));
await check('the user is asked twice', 'Alice likes .', () => textOf('test_input_required_result_multi_round'));
await check('a prompt is given', 'This is a simple prompt for testing.', async () =>
  (await client.getPrompt({ name: 'test_simple_prompt' })).messages[0].content.text);
await check('a resource is read', 'This is the content of the static text resource.', async () =>
  (await client.readResource({ uri: 'test://static-text' })).contents[0].text);
await check('an argument is completed', ['paris', 'park', 'party'], async () => {
  const ref = { type: 'ref/prompt', name: 'test_prompt_with_arguments' };
  return (await client.complete({ ref, argument: { name: 'arg1', value: 'par' } })).completion.values;
});
await client.close();
process.exit(0);
