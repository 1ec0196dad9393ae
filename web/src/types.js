// The shapes of what Rust writes into the pages, as their JSON has them. Types only: no page holds this file.

/** @typedef { { value?: string, unknown?: string, unit?: string, source?: string, varies?: string } } Fact */
/** @typedef { Record<string, Fact> } Environment */
/** @typedef { [number, number] } Interval */

// A benchmark's page (analysis::bench::page::Page).

/** @typedef { { label: string, workload: string, x: string | null, series: string | null, estimate: number | null, ci95: Interval | null, values: number[], unit: string, notes: string[] } } Bar */
/** @typedef { { what: string, paper: number, ours: number | null, unit: string } } Stated */
/** @typedef { { paper: string, figure: string, title: string, says: string, x: string | null, series: string | null, bars: Bar[], stated: Stated[] } } Figure */
/** @typedef { { block: number, class: string | null, steady_from: number | null, points: [number, number][], segments: [number, number, number][], outliers: number[], iterations: number, score: string } } Curve */
/** @typedef { { title: string, unit: string, processes: Curve[] } } CurvesOfCell */
/** @typedef { { name: string, points: [number, number][] } } Flow */
/** @typedef { { from: number, to: number, cause: string } } Band */
/** @typedef { { title: string, unit: string, flows: Flow[], bands: Band[], end: number } } FlowChart */
/** @typedef { { run: string | null, direction: string, limits: { cause: string, share: number, evidence: string, remedy: string | null }[] } } Held */
/** @typedef { { workload: string, parameters: Record<string, string>, name?: string, score?: string | null } } CellName */
/**
 * @typedef { CellName & {
 *   quick: boolean, unit: string, estimate: number | null, ci95: Interval | null, class: string | null, processes: number,
 *   failed: number, failure: string | null, iterations: number, outliers: number, gates: Record<string, Record<string, number>>,
 *   verified: boolean | null, verified_by: string | null, absent: string | null, marks: Record<string, string>
 * } } CellResult
 */
/** @typedef { { estimate: number | null } } Side */
/** @typedef { CellName & { unit: string, a: Side, b: Side, ratio: number | null, ratio_ci95: Interval | null, ratio_ci_told: Interval | null, verdict: string, notes: string[] } } Pair */
/**
 * @typedef { {
 *   a: string, b: string, scope: string, results: Pair[], incomparable: (CellName & { why: string[] })[],
 *   unmatched: (CellName & { of: string })[], differs: { fact: string, a: string, b: string, varies: string }[]
 * } } Compared
 */
/** @typedef { { title: string, metric: string, unit: string, mean: number, range: Interval } } Metric */
/**
 * @typedef { {
 *   shown: { complete: boolean, results: CellResult[], marks: { name: string, text: string }[], environment: Environment },
 *   metrics: Metric[], command: string[], designs: { name: string, question: string, method: string[] }[],
 *   figures: Figure[], curves: CurvesOfCell[], flows: FlowChart[], held: Held[], compared: Compared | null
 * } } BenchPage
 */

export {};
