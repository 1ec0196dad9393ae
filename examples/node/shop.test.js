import assert from "node:assert/strict";
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import test from "node:test";
import { counting } from "fathom-io";
import { Shop } from "./shop.js";

const directory = mkdtempSync(join(tmpdir(), "shop-"));
test.after(() => rmSync(directory, { recursive: true }));

test("orders share a sync", async () => {
  const shop = new Shop(join(directory, "shared"));
  const counts = await counting(() => shop.save("tea", "coffee", "milk"));
  assert.equal(counts.fsyncs, 1);
  assert.equal(counts.bytesWritten, "tea\ncoffee\nmilk\n".length);
});

test("orders saved one by one do not", async () => {
  const shop = new Shop(join(directory, "single"));
  const counts = await counting(() => {
    for (let n = 0; n < 5; n++) shop.save("tea");
  });
  assert.equal(counts.fsyncs, 5);
});
