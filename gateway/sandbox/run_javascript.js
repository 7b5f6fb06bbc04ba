// What runs a tool written in JavaScript, inside the jail: as run_python.py does.
"use strict";

const fs = require("node:fs");

console.log = console.info = console.debug = console.error;

function told(error) {
  if (!(error instanceof Error)) return String(error);
  const line = /tool\.js:(\d+)/.exec(error.stack ?? "");
  return (line ? `line ${line[1]}: ` : "") + `${error.name}: ${error.message}`;
}

async function answer({ source, arguments: given }) {
  try {
    const main = require("node:vm").runInThisContext(
      source + '\n;typeof main === "function" ? main : undefined;',
      { filename: "tool.js" },
    );
    if (main === undefined) return { error: "the script defines no main(arguments)" };
    return { answer: (await main(given)) ?? null };
  } catch (error) {
    return { error: told(error) };
  }
}

answer(JSON.parse(fs.readFileSync(0, "utf8"))).then((found) => {
  let data;
  try {
    data = Buffer.from(JSON.stringify(found));
  } catch (error) {
    data = Buffer.from(JSON.stringify({ error: told(error) }));
  }
  for (let at = 0; at < data.length; ) at += fs.writeSync(1, data, at);
  process.exit(0);
});
