/** Counts by kind of file, by the names of `fathom check`: `fdatasync WAL`, `bytes written file`. */
export class Counts {
  readonly byKind: Readonly<Record<string, number>>;
  /** Calls that wait for the medium. */
  readonly fsyncs: number;
  /** Bytes that calls wrote to files. */
  readonly bytesWritten: number;
  /** The number of calls of these names, on any kind of file. */
  calls(...names: string[]): number;
}

/** Counts what the process asks of files while `work` runs. Rejects where that is not possible, with the reason. */
export function counting(work: () => unknown): Promise<Counts>;
