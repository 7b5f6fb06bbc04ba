// Runs programs in a peer's code mode, for `code_peers.py`: `node code_peers.mjs PEER FOLDER URL`.
//
// FOLDER has the modules of the peers and the descriptions of the services, whose operations are
// the tools; they are served below URL, too. Each line of standard input is a program as JSON; its
// answer is a line of output.
import { readdirSync, readFileSync } from "node:fs";
import { createRequire } from "node:module";
import { createInterface } from "node:readline";

const [peer, folder, url] = process.argv.slice(2);
const require = createRequire(`${folder}/`);
const specs = readdirSync(folder).filter((name) => name.startsWith("spec-")).map((name) =>
  JSON.parse(readFileSync(`${folder}/${name}`)));

// What a worker of Cloudflare runs: its functions are requests to the services.
const WORKER = `
import { DynamicWorkerExecutor } from "@cloudflare/codemode";
function toolsOf(specs) {
  const tools = {};
  for (const { servers, paths } of specs) {
    for (const [path, methods] of Object.entries(paths)) {
      for (const [method, { operationId }] of Object.entries(methods)) {
        if (!operationId) continue;
        tools[operationId.replaceAll(/\\W/g, "_")] = async (given) => {
          const rest = { ...given };
          const filled = path.replaceAll(/{(\\w+)}/g, (_, name) => {
            const value = rest[name];
            delete rest[name];
            return encodeURIComponent(value);
          });
          const url = new URL(servers[0].url + filled);
          const isRead = method === "get";
          if (isRead) for (const pair of Object.entries(rest)) url.searchParams.set(...pair);
          const init = isRead ? {} : { method, body: JSON.stringify(rest) };
          const answer = await fetch(url, init);
          if (!answer.ok) throw new Error(await answer.text());
          return answer.json();
        };
      }
    }
  }
  return tools;
}
export default {
  async fetch(request, env) {
    const executor = new DynamicWorkerExecutor({ loader: env.LOADER });
    const { code, specs } = await request.json();
    return Response.json(await executor.execute("async () => {" + code + "}", [{ name: "codemode", fns: toolsOf(specs) }]));
  },
};`;

async function cloudflare() {
  const { Miniflare } = require("miniflare");
  const built = require("esbuild").buildSync({
    stdin: { contents: WORKER, resolveDir: folder },
    bundle: true, format: "esm", write: false, external: ["cloudflare:workers"],
  });
  const miniflare = new Miniflare({
    modules: true, script: built.outputFiles[0].text, workerLoaders: { LOADER: {} },
    compatibilityDate: "2026-04-01", compatibilityFlags: ["nodejs_compat"],
  });
  const run = async (code) => {
    const body = JSON.stringify({ code, specs });
    const answer = await miniflare.dispatchFetch("http://worker/", { method: "POST", body });
    return answer.json();
  };
  return [run, () => miniflare.dispose()];
}

async function utcp() {
  await import(require.resolve("@utcp/http"));
  const { CodeModeUtcpClient } = await import(require.resolve("@utcp/code-mode"));
  const client = await CodeModeUtcpClient.create();
  for (const place of specs.keys()) {
    const at = { http_method: "GET", url: `${url}/spec-${place}.json` };
    await client.registerManual({ name: `s${place}`, call_template_type: "http", ...at });
  }
  return [(code) => client.callToolChain(code), () => client.close?.()];
}

const [run, close] = await { cloudflare, utcp }[peer]();
for await (const line of createInterface({ input: process.stdin })) {
  const begun = performance.now();
  let end;
  try {
    end = await run(JSON.parse(line));
  } catch (error) {
    end = { error: String(error.message) };
  }
  console.log(JSON.stringify({ ...end, ms: performance.now() - begun }));
}
await close();
process.exit(0);
