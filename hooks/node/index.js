// Counts what a piece of a test asks of files: syncs, calls, bytes. Needs the program `fathom` in PATH (or FATHOM), Linux 5.3, and no root;
// but where only ancestors may attach to a process (Yama, kernel.yama.ptrace_scope=1), Node cannot permit it: start the tests as root there.
//
//   const counts = await counting(() => shop.save(order));
//   assert(counts.fsyncs <= 1);
//
// Counts are of the whole process: of other threads and children, too.

import { spawn } from "node:child_process";
import { createInterface } from "node:readline";

const SYNCS = ["fsync", "fdatasync", "sync_file_range", "sync", "msync"];

export class Counts {
  constructor(byKind) {
    this.byKind = byKind;
  }

  calls(...names) {
    const of = Object.entries(this.byKind).filter(([kind]) => names.includes(kind.split(" ")[0]));
    return of.reduce((sum, [, n]) => sum + n, 0);
  }

  get fsyncs() {
    return this.calls(...SYNCS);
  }

  get bytesWritten() {
    const of = Object.entries(this.byKind).filter(([kind]) => kind.startsWith("bytes written"));
    return of.reduce((sum, [, n]) => sum + n, 0);
  }
}

let running;

function start() {
  const program = process.env.FATHOM ?? "fathom";
  const child = spawn(program, ["check", "attach", String(process.pid)], { stdio: ["pipe", "pipe", "inherit"] });
  const waiting = [];
  let ended;
  const end = (why) => {
    ended = new Error(`fathom cannot count here: ${why}`);
    waiting.splice(0).forEach(({ reject }) => reject(ended));
  };
  child.on("error", (error) => end(error.message));
  child.on("exit", () => end("the program has ended; it says why on stderr"));
  child.stdin.on("error", () => {});
  createInterface({ input: child.stdout }).on("line", (line) => waiting.shift()?.resolve(JSON.parse(line)));
  // The counter does not keep the tests from ending, unless it is asked something.
  const handles = [child, child.stdin, child.stdout];
  const ask = (question) =>
    new Promise((resolve, reject) => {
      if (ended) return reject(ended);
      handles.forEach((handle) => handle.ref());
      const done = (settle) => (value) => {
        handles.forEach((handle) => handle.unref());
        settle(value);
      };
      waiting.push({ resolve: done(resolve), reject: done(reject) });
      child.stdin.write(`${question}\n`);
    });
  return { ask, attached: ask("attach") };
}

async function read() {
  running ??= start();
  await running.attached;
  return (await running.ask("count")).counts;
}

export async function counting(work) {
  const before = await read();
  await work();
  const after = await read();
  const changed = Object.entries(after).map(([kind, n]) => [kind, n - (before[kind] ?? 0)]);
  return new Counts(Object.fromEntries(changed.filter(([, n]) => n > 0)));
}
