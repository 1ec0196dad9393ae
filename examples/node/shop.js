// A shop that appends its orders to a file.

import { fdatasyncSync, openSync, writeSync } from "node:fs";

export class Shop {
  constructor(path) {
    this.file = openSync(path, "a");
  }

  /** Saves orders durably: all of them with one sync. */
  save(...orders) {
    orders.forEach((order) => writeSync(this.file, `${order}\n`));
    fdatasyncSync(this.file);
  }
}
