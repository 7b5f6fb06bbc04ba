// Makes a component of a core module: lines.wasm of lines-core.wasm and chunker.wit.
// npm install @bytecodealliance/jco
import { readFile, writeFile } from "node:fs/promises";
import { componentEmbed, componentNew } from "@bytecodealliance/jco";

const binary = await readFile("lines-core.wasm");
const witSource = await readFile("chunker.wit", "utf8");
await writeFile("lines.wasm", await componentNew(await componentEmbed({ binary, witSource }), []));
