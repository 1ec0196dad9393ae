// Loads a trace into Perfetto's own trace processor and answers queries, offline.
//
//   node trace_processor.mjs FOLDER TRACE QUERY…      prints a JSON array: for each query its rows
//
// FOLDER holds trace_processor.wasm (Perfetto v55.3), engine_bundle.node.js (the worker that the Perfetto UI runs it in)
// and engine.mjs (the UI's client of that worker). The worker expects a browser; three of its lines are changed so that
// it takes the wasm from memory, uses 32-bit memory (the only variant that is shipped), and can be reached.

import { readFileSync } from "node:fs";
import { join } from "node:path";
import { pathToFileURL } from "node:url";
import vm from "node:vm";

const [folder, trace, ...queries] = process.argv.slice(2);

let worker = readFileSync(join(folder, "engine_bundle.node.js"), "utf8");
for (const [from, to] of [
  ["this.useMemory64 = hasMemory64Support();", "this.useMemory64 = false;"],
  ["locateFile: (s) => s,", "locateFile: (s) => s, wasmBinary: self.wasm,"],
  ["const wasmBridge = new wasm_bridge_1.WasmBridge();", "const wasmBridge = self.bridge = new wasm_bridge_1.WasmBridge();"],
]) {
  if (!worker.includes(from)) throw new Error(`the worker has no line "${from}": another version?`);
  worker = worker.replace(from, to);
}
globalThis.self = globalThis;
globalThis.WorkerGlobalScope = class {};
globalThis.location = { href: pathToFileURL(folder).href + "/" };
globalThis.wasm = new Uint8Array(readFileSync(join(folder, "trace_processor.wasm")));
console.warn = () => {}; // The client warns of fields that are newer than it.
vm.runInThisContext(worker, { filename: "worker.js" });
while (!self.bridge.reqBufferAddr) await new Promise((done) => setTimeout(done, 5));

const { EngineBase } = await import(pathToFileURL(join(folder, "engine.mjs")).href);
const channel = new MessageChannel();
class Engine extends EngineBase {
  rpcSendRequestBytes(bytes) {
    channel.port2.postMessage(bytes);
  }
  [Symbol.dispose]() {}
}
const engine = new Engine();
channel.port2.onmessage = (message) => engine.onRpcResponseBytes(message.data);
self.bridge.initialize(channel.port1);

await engine.parse(new Uint8Array(readFileSync(trace)));
await engine.notifyEof();
const answers = [];
for (const query of queries) {
  const result = await engine.query(query);
  if (result.error()) throw new Error(`${query}: ${result.error()}`);
  const rows = [];
  for (const row = result.iter({}); row.valid(); row.next()) {
    rows.push(result.columns().map((column) => (typeof row.get(column) === "bigint" ? Number(row.get(column)) : row.get(column))));
  }
  answers.push(rows);
}
process.stdout.write(JSON.stringify(answers) + "\n", () => process.exit(0));
