// A portal's `fetchClient` without dependencies, for browsers and Node 18 or newer.
//
// Pages keep their legacy commands {host, service, action, version, data}; what leaves the browser
// is JSON-RPC 2.0. Reads that a page asks for in one turn of the event loop travel as one batch, and
// each succeeds or fails on its own.

const TUPLE = ["host", "service", "action", "version"];
const MEMBERS = 100; // of one batch: rpc.batch_limit of the gateway may be lower or higher

/** What a page catches. `thrown` is the error of JSON-RPC, the Status, or the status line's text. */
export class FetchError extends Error {
  constructor(thrown) {
    super(describe(thrown));
    this.name = "FetchError";
    this.thrown = thrown;
  }
}

/** What a page shows of an error, wherever it says so. */
export function describe(error) {
  if (typeof error !== "object" || error === null) return String(error);
  const texts = [error.data?.description, error.description, error.message, error.error];
  return texts.find((text) => typeof text === "string" && text) ?? "Unknown error";
}

/** A legacy command as a request of JSON-RPC; what concerns the page only (title, success) stays. */
export function converted(command, id) {
  if (command?.jsonrpc === "2.0") return command;
  if (!TUPLE.every((part) => command?.[part])) return null;
  const method = TUPLE.map((part) => command[part]).join("/");
  return { jsonrpc: "2.0", id, method, params: command.data ?? {} };
}

/**
 * A client of one gateway.
 *
 * `baseUrl`: the gateway's, empty on its own origin; `headers`: an object, or a function that
 * returns one before each request (a token, the CSRF header); `fetch`: another implementation.
 */
export function createClient({
  baseUrl = "",
  queryPath = "/portal/query",
  commandPath = "/portal/command",
  headers = {},
  batchMembers = MEMBERS,
  fetch = globalThis.fetch,
} = {}) {
  let waiting = []; // reads of this turn of the event loop
  let lastId = 0;

  async function send(path, body, more = {}) {
    const own = typeof headers === "function" ? await headers() : headers;
    const response = await fetch(baseUrl + path, {
      method: "POST",
      credentials: "include",
      headers: { "Content-Type": "application/json", ...own, ...more },
      body: JSON.stringify(body),
    });
    const text = await response.text();
    const answer = parsed(text);
    if (!response.ok) throw new FetchError(answer?.error ?? answer ?? response.statusText);
    return text === "" ? null : answer;
  }

  function flush() {
    const reads = waiting;
    waiting = [];
    for (let first = 0; first < reads.length; first += batchMembers) {
      settle(reads.slice(first, first + batchMembers));
    }
  }

  async function settle(reads) {
    try {
      const requests = reads.map((read) => read.request);
      const answer = await send(queryPath, requests.length > 1 ? requests : requests[0]);
      const answers = new Map([answer].flat().map((one) => [one?.id, one]));
      for (const { request, resolve, reject } of reads) {
        try {
          resolve(result(answers.get(request.id)));
        } catch (error) {
          reject(error);
        }
      }
    } catch (error) {
      for (const { reject } of reads) reject(error);
    }
  }

  /** Read: resolves to what the service says; rejects with a FetchError. */
  function query(command) {
    return new Promise((resolve, reject) => {
      const request = converted(command, `q${++lastId}`);
      if (request === null) throw new TypeError("host, service, action and version are needed");
      if (waiting.length === 0) queueMicrotask(flush);
      waiting.push({ request, resolve, reject });
    });
  }

  /** Write, by itself: {data} or {error}, as `apiPost` has it; a key makes it safe to repeat. */
  async function command(payload, { idempotencyKey } = {}) {
    const request = converted(payload, `c${++lastId}`);
    if (request === null) throw new TypeError("host, service, action and version are needed");
    const more = idempotencyKey === undefined ? {} : { "Idempotency-Key": idempotencyKey };
    try {
      const answer = await send(commandPath, request, more);
      return { data: answer === null ? {} : result(answer) };
    } catch (error) {
      if (error instanceof FetchError) return { error: error.thrown };
      throw error;
    }
  }

  /** In place of a page's `fetchClient`: `GET /portal/query?cmd=...`, or a POST with a command. */
  async function fetchClient(path, { body } = {}) {
    const url = new URL(path, "http://portal.invalid");
    const cmd = url.searchParams.get("cmd");
    if (url.pathname === queryPath && cmd !== null) return query(JSON.parse(cmd));
    const value = typeof body === "string" ? JSON.parse(body) : body;
    const answer = await send(path, converted(value, `f${++lastId}`) ?? value);
    return answer?.jsonrpc === "2.0" ? result(answer) : (answer ?? {});
  }

  return { query, command, fetchClient };
}

function result(answer) {
  if (answer === undefined) throw new FetchError("The gateway did not answer this request");
  if (answer?.error !== undefined) throw new FetchError(answer.error);
  return answer?.result;
}

function parsed(text) {
  try {
    return JSON.parse(text);
  } catch {
    return undefined;
  }
}
