// What a program of JavaScript sees, inside the jail: tools of the host as functions.
//
// Evaluates to a function by which `javascript.py` starts the program, settles asks, and advances
// its time. Nothing here protects the host, which checks what it gets. The clock and the random
// numbers are the same in each run.
"use strict";

(() => {
  const { ask, print, end } = globalThis;
  const { errors, seed, clock_ms, line: preludeLine, files } = JSON.parse(globalThis.shared);
  for (const name of ["ask", "print", "end", "shared"]) delete globalThis[name];

  const {
    Array, ArrayBuffer, BigInt, DataView, Error, Map, Number, Object, Promise, RangeError, Reflect,
    Set, String, Symbol, TypeError, Uint8Array, atob,
  } = globalThis;
  const { parse, stringify, rawJSON } = JSON;
  const AsyncFunction = (async () => {}).constructor;
  const HEAD_LINES = 2; // that the engine writes before the body of a function
  const PLACES = 500; // at which the last expression is looked for
  const calls = new Map(); // open ones, by number
  const made = [];
  const given = [];
  let timers = [];
  let timerNumber = 0;
  let now = 0;
  let source = "";

  // ---- errors

  class ToolError extends Error {
    constructor(message, tool = "", facts = {}) {
      super(message);
      Object.assign(this, { tool, code: null, data: null, retryable: false, ...facts });
    }
  }
  const kinds = { ToolError };
  for (const name of errors) kinds[name] ??= { [name]: class extends ToolError {} }[name];
  for (const [name, kind] of Object.entries(kinds)) {
    Object.defineProperty(kind.prototype, "name", { value: name, configurable: true });
    globalThis[name] = kind;
  }

  // ---- values

  // Whole numbers that a Number cannot hold are BigInts in both directions.
  Object.defineProperty(BigInt.prototype, "toJSON", {
    value() { return rawJSON(String(this)); },
  });

  function decode(text) {
    if (!/\d{16}/.test(text)) return parse(text);
    return parse(text, (_key, value, { source }) =>
      typeof value === "number" && !Number.isSafeInteger(value) && /^-?\d+$/.test(source)
        ? BigInt(source) : value);
  }

  function plain(_key, value) {
    if (typeof value === "number" && !Number.isFinite(value)) {
      throw new RangeError(`JSON has no ${value}`);
    }
    if (value instanceof Map) return Object.fromEntries(value);
    if (value instanceof Set) return [...value];
    if (ArrayBuffer.isView(value) && !(value instanceof DataView)) return [...value];
    if (value instanceof Error) return value.message;
    if (value instanceof Promise) throw new TypeError("a promise in a value: await it first");
    return value;
  }

  // JSON in which no half of a character stands as an escape, as the host reads none.
  const encode = (value) =>
    (stringify(value, plain) ?? "null").replace(/(\\\\)|\\ud[89a-f]../gi, (text, pair) => pair ?? "?");

  // ---- calls

  // A promise that tells programs which forget to await it.
  function awaited(promise, name, more = {}) {
    const call = { promise, isUsed: false };
    promise.catch(() => {});
    made.push(call);
    return new Proxy(promise, {
      get(_, key) {
        if (Object.hasOwn(more, key)) return more[key];
        if (key === "then") call.isUsed = true;
        const value = promise[key];
        if (value === undefined && key !== Symbol.toStringTag) {
          throw new TypeError(`${name}(...) is a promise: await it before using ${String(key)}`);
        }
        return typeof value === "function" ? value.bind(promise) : value;
      },
    });
  }

  function begin(do_, name, members) {
    const number = ask(do_, encode(members));
    const { promise, resolve, reject } = Promise.withResolvers();
    calls.set(number, { name, resolve, reject, stack: new Error().stack });
    return promise;
  }

  function settle(text) {
    const id = Number(/\d+/.exec(text)[0]);
    const call = calls.get(id);
    calls.delete(id);
    let frame;
    try {
      frame = decode(text);
    } catch (error) {
      frame = { error: { kind: "ToolError", message: `The answer cannot be read: ${error}` } };
    }
    if (!Object.hasOwn(frame, "error")) return call.resolve(frame.value);
    const { kind, message, ...facts } = frame.error;
    const error = new (kinds[kind] ?? ToolError)(message, call.name, facts);
    // That of the call: where it is awaited, no line may be left.
    Object.defineProperty(error, "stack", { value: call.stack, configurable: true });
    call.reject(error);
  }

  const isObject = (value) =>
    typeof value === "object" && value !== null && !Array.isArray(value);

  function checked(name, values) {
    if (values.length > 1 || !isObject(values[0] ?? {})) {
      const text = `${name}: expected one object, as in tools.${name}({limit: 3})`;
      throw new kinds.Invalid(text, name);
    }
    return values[0] ?? {};
  }

  const names = new WeakMap(); // of the functions of tools

  function toolFunction(name, exact) {
    const tool = (...values) =>
      awaited(begin("call", name, { name, exact, arguments: checked(name, values) }), name);
    names.set(tool, name);
    return tool;
  }

  async function readPages(tool, given_, limit) {
    const name = names.get(tool) ?? String(tool);
    const exact = !names.has(tool);
    const pages = [];
    let following = checked(name, given_ === undefined ? [] : [given_]);
    while (following && pages.length < limit) {
      const page = await begin("page", name, { name, exact, arguments: following });
      pages.push(page.value);
      following = page.next;
    }
    return pages;
  }

  const askFor = (do_, members) => awaited(begin(do_, do_, members), do_);

  const contentsOf = ({ blob, text }) =>
    blob === undefined ? text : Uint8Array.from(atob(blob), (letter) => letter.charCodeAt(0));

  const own = {
    call: (name, ...values) => toolFunction(String(name), true)(...values),
    all(values, { errors = false } = {}) {
      const waiting = [...values];
      if (!errors) return awaited(Promise.all(waiting), "all");
      const caught = waiting.map(async (value) => {
        try {
          return await value;
        } catch (error) {
          if (error instanceof ToolError) return error;
          throw error;
        }
      });
      return awaited(Promise.all(caught), "all");
    },
    pages(tool, given_, { limit = 20 } = {}) {
      const pages = readPages(tool, given_, limit);
      const one = async function* () { yield* await pages; };
      return awaited(pages, "pages", { [Symbol.asyncIterator]: one });
    },
    search: (text, limit = 5) => askFor("search", { text: String(text), limit }),
    read: (uri) => awaited(begin("read", "read", { uri: String(uri) }).then(contentsOf), "read"),
    describe: (...tools) =>
      askFor("describe", { names: tools.map((tool) => names.get(tool) ?? String(tool)) }),
  };

  globalThis.tools = new Proxy({}, {
    get(_, name) {
      if (typeof name !== "string" || name === "then" || name === "toJSON") return undefined;
      return Object.hasOwn(own, name) ? own[name] : toolFunction(name, false);
    },
  });
  globalThis.files = files;
  globalThis.result = (value) => { given.push(value); };

  // ---- output, time and chance

  function show(value) {
    if (typeof value === "string") return value;
    if (value instanceof Error) return describe(value);
    try {
      return stringify(value) ?? String(value);
    } catch {
      return String(value);
    }
  }
  const log = (...values) => { print(encode(`${values.map(show).join(" ")}\n`)); };
  globalThis.console = { log, info: log, debug: log, warn: log, error: log };

  const RealDate = Date;
  RealDate.now = () => clock_ms;
  globalThis.Date = new Proxy(RealDate, {
    construct: (target, values, self) =>
      Reflect.construct(target, values.length ? values : [clock_ms], self),
    apply: () => new RealDate(clock_ms).toString(),
  });
  RealDate.prototype.constructor = globalThis.Date;
  globalThis.performance = { now: () => 0, timeOrigin: clock_ms };

  let state = seed;
  Math.random = () => { // mulberry32
    state = (state + 0x6d2b79f5) | 0;
    let mixed = Math.imul(state ^ (state >>> 15), 1 | state);
    mixed = (mixed + Math.imul(mixed ^ (mixed >>> 7), 61 | mixed)) ^ mixed;
    return ((mixed ^ (mixed >>> 14)) >>> 0) / 2 ** 32;
  };

  function addTimer(run, delay, every) {
    const wait = Math.max(Number(delay) || 0, every ? 1 : 0);
    timers.push({ number: ++timerNumber, at: now + wait, run, every: every ? wait : 0 });
    return timerNumber;
  }
  const clear = (number) => { timers = timers.filter((timer) => timer.number !== number); };
  globalThis.setTimeout = (run, delay, ...values) => addTimer(() => run(...values), delay, false);
  globalThis.setInterval = (run, delay, ...values) => addTimer(() => run(...values), delay, true);
  globalThis.clearTimeout = globalThis.clearInterval = clear;

  function advance() {
    if (!timers.length) {
      return fail(new Error("the program waits for something that nothing will do"));
    }
    const timer = timers.reduce((first, next) => (next.at < first.at ? next : first));
    now = timer.at;
    if (timer.every) timer.at += timer.every;
    else clear(timer.number);
    try {
      timer.run();
    } catch (error) {
      fail(error);
    }
  }

  // ---- the program

  function parses(text) {
    try {
      new AsyncFunction(text);
      return true;
    } catch {
      return false;
    }
  }

  // The function of a program, whose last expression it returns. Where that begins is tried: what
  // is before it, and what follows in parentheses, are parsed each on their own.
  function compile(code) {
    let places = 0;
    for (let at = code.length; at >= 0 && places < PLACES; at--) {
      if (at > 0 && !";\n}".includes(code[at - 1])) continue;
      places++;
      const head = code.slice(0, at);
      const tail = code.slice(at);
      const last = expression(head, tail);
      if (last !== undefined) return new AsyncFunction(`${head}return (${last}\n)`);
    }
    return new AsyncFunction(code);
  }

  function expression(head, tail) {
    if (/^\s*(?:async\s+function|function|class)\b/.test(tail)) return undefined;
    const goesOn = /^\s*[([`+\-/]/.test(tail) && !/^\s*\/[/*]/.test(tail);
    if (goesOn && !/(?:^|[;}])\s*$/.test(head)) return undefined; // it belongs to the line before
    const last = [tail, tail.replace(/;[;\s]*(?:\/\/[^\n]*|\/\*[^]*?\*\/)?\s*$/, "")].find(
      (text) => text.trim() && parses(`return (${text}\n)`),
    );
    const isCode = last !== undefined && parses(head) && !parses(`${head} @`); // no comment
    return isCode ? last : undefined;
  }

  function describe(error) {
    try {
      if (error === null) return "Error: null, which stands for a lack of memory, too";
      if (!(error instanceof Error)) return `Error: ${show(error)}`;
      const tool = error instanceof ToolError && error.tool ? ` [${error.tool.slice(0, 100)}]` : "";
      return `${error.name}${tool}: ${error.message}`;
    } catch (failed) {
      return "Error: its text cannot be read";
    }
  }

  function lines(error) {
    const text = source.split("\n");
    const numbers = [];
    try {
      for (const [, number] of String(error?.stack).matchAll(/<input>:(\d+)/g)) {
        if (number < preludeLine) numbers.unshift(number - HEAD_LINES);
      }
    } catch {
      // an error may have a stack that cannot be read
    }
    const known = numbers.filter((number) => number > 0 && number <= text.length);
    const view = (number) => `line ${number}: ${text[number - 1].trim().slice(0, 200)}\n`;
    return [...new Set(known)].slice(-5).map(view).join("");
  }

  function fail(error) {
    end(encode({ end: "failed", error: `${lines(error)}${describe(error)}`.slice(0, 4000) }));
  }

  async function run(code) {
    try {
      source = code.replace(/^\ufeff/, "");
      let value = await compile(source)();
      if (typeof value === "function") value = await value();
      if (given.length) value = await given.at(-1);
      const text = encode(value);
      for (const call of made) { // all are waited for; one that fails unseen fails the program
        await call.promise.catch((error) => { if (!call.isUsed) throw error; });
      }
      end(`{"end": "completed", "result": ${text}}`);
    } catch (error) {
      fail(error);
    }
  }

  // What this file stands on. Objects, arrays, functions and errors stay open: an assignment to an
  // object would fail silently for a name that its frozen prototype has.
  for (const { prototype } of [Map, WeakMap, Promise, String, RegExp]) Object.freeze(prototype);
  Object.freeze(Promise);

  const tasks = { start: (code) => { run(code); }, settle, advance };
  return (task, text) => { tasks[task](text); };
})();
