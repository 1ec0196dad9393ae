// The types of the JSON that Rust writes into the pages. Types only: no page includes this file.

/** @typedef { { value?: string, unknown?: string, unit?: string, source?: string, varies?: string } } Fact */
/** @typedef { Record<string, Fact> } Environment */
/** @typedef { [number, number] } Interval */

// A benchmark's page (scores::page::Page).

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
/** @typedef { CellName & { unit: string, a: Side, b: Side, ratio: number | null, ratio_ci95: Interval | null, ratio_ci_adjusted: Interval | null, verdict: string, notes: string[] } } Pair */
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

// What `fathom diff` adds to a page (the shown part of verdicts::diff::contract::Diff).

/** @typedef { { phase: string | null, layer: string | null, reason: string | null, a_ns: number, b_ns: number, delta_ns: number, interval: Interval | null, share: number | null, different_work: boolean | null } } DifferencePart */
/** @typedef { { statement: string, edge: string, executions: number, of: number, sure: boolean } } DifferenceEdge */
/**
 * @typedef { {
 *   titles: [string, string],
 *   diff: {
 *     verdict: string, why: string, latency_ns: { ratio: number | null, ratio_interval: Interval | null },
 *     phases: DifferencePart[], layers: DifferencePart[],
 *     times?: { what: string, a_ns: number, b_ns: number, delta_ns: number }[],
 *     counts?: { what: string, a: [number, number], b: [number, number], delta: number, direction: string }[],
 *     statements: { statement: string, pairs: number, verdict: string, median_ns: { a: number, b: number } }[],
 *     edges: { only_a: DifferenceEdge[], only_b: DifferenceEdge[] }
 *   }
 * } } Difference
 */

// A recording's page (analysis::contract::Summary, analysis::figures, analysis::counts). Fields that an archive or a test lacks are absent.

/** @typedef { (number | boolean | null)[] } Numbers */
/** @typedef { { at: number, rows: number, form: string } } Place */
/** @typedef { { after_ns?: number | null, why?: string, spans?: number } } LeftOut */
/** @typedef { { name: string, role?: string } } DiskAxis */
/** @typedef { { name: string, lanes: { name: string, group: number }[] } } LayerLanes */
/** @typedef { { text: string, kind: string, count: number, charged?: number } } Shape */
/** @typedef { { path?: string, class: string } } FileInfo */
/** @typedef { { source: string, start: number, end: number } } LossMark */
/** @typedef { Partial<Record<'layer' | 'lane' | 'kind' | 'start' | 'end' | 'operation' | 'file' | 'disk' | 'id' | 'tgid' | 'tid' | 'offset' | 'sector' | 'bytes' | 'result' | 'number' | 'label' | 'flags', Numbers | Place>> } SpanColumns */
/** @typedef { Partial<Record<'id' | 'shape' | 'nth' | 'span' | 'parent' | 'start' | 'end' | 'rows' | 'result' | 'whole' | 'part', Numbers | Place>> } OperationColumns */
/** @typedef { Partial<Record<'parent' | 'child' | 'relation' | 'confidence' | 'weakened', Numbers | Place>> } LinkColumns */
/** @typedef { Partial<Record<'command' | 'operation' | 'origin' | 'process' | 'tgid' | 'share' | 'confidence' | 'via', Numbers | Place>> } CauseColumns */
/** @typedef { Partial<Record<'operation' | 'layer' | 'reason' | 'start' | 'end' | 'span' | 'confidence', Numbers | Place>> } SliceColumns */
/** @typedef { Partial<Record<'row' | 'at' | 'busy' | 'begun', Numbers | Place>> } CellColumns */
/** @typedef { Partial<{ spans: SpanColumns, links: LinkColumns, slices: SliceColumns, causes: CauseColumns }> } HeldColumns */
/** @typedef { { at?: Numbers | Place } } Positions */
/** @typedef { HeldColumns & { rows: { spans: Positions, links: Positions, causes: Positions }, packed: string } } PartData */
/** @typedef { { first: number, own: number, spans: number, start: number, end: number | null, id_low: number, id_high: number } } PartOf */
/**
 * @typedef { Partial<{
 *   parts: PartOf[], levels: { part_ns: number, cells: CellColumns }[], origin_ns: number, duration_ns: number, presets_ns: number[], strings: string[], layers: LayerLanes[], processes: { tgid: number, name: string }[],
 *   spans: SpanColumns, links: LinkColumns, operations: OperationColumns, shapes: Shape[], slices: SliceColumns,
 *   causes: CauseColumns, files: FileInfo[], disks: DiskAxis[], losses: LossMark[], left_out: LeftOut, packed: string
 * }> } TimelineData
 */
/** @typedef { Partial<{ p50: number, p95: number, p99: number, max: number, sum: number }> } Times */
/** @typedef { { from_ns: number, to_ns: number, count: number } } Bin */
/** @typedef { { queued: number, queue_to_issue_ns: Times, completed: number, issue_to_complete_ns: Times } } CommandTimes */
/** @typedef { Partial<{ exclusive_ns: number, p50_ns: number, p95_ns: number, reasons: Record<string, number> }> } LayerTime */
/** @typedef { { ns: number, low_ns: number, high_ns: number, large: boolean } } TracerPart */
/** @typedef { { count?: number, cache_hits?: number } } Reads */
/** @typedef { { wait: string, file: string | null, by_tgid: number | null, by_process: string | null, by_statement: string | null, times: number, ns: number } } WaitedFor */
/** @typedef { { longest_ns: number, ns: number, times: number, call: string | null, program: string[], program_ended: string | null, kernel: string[] } } SlowWait */
/**
 * @typedef { { statement: string, count: number, unexplained_ns: number } & Partial<{
 *   latency_ns: Times, distribution: Bin[], layers: Record<string, LayerTime>, waits: WaitedFor[], slow_waits: SlowWait[], tracer: TracerPart | null, per_operation: { filesystem_reads?: Record<string, Reads> },
 *   phases: { phase: string, count: number, writes: number, bytes: number, duration_ns?: Times }[],
 *   gaps: { from: string, to: string, count: number, fsyncs: number, duration_ns?: Times }[]
 * }> } OperationSummary
 */
/** @typedef { { source: string, program?: string | null, cpu?: number | null, start_ns: number, end_ns: number, events?: number | null, at_least?: boolean, weakened_links: number } } LossInterval */
/** @typedef { { events: number, events_at_unknown_time?: number, at_least?: boolean, unattributed_commands?: number, intervals?: LossInterval[] } } Loss */
/** @typedef { { state: string, why?: string | null } } Completeness */
/** @typedef { { layer: string, probe: string, attached: boolean, how: string, runs_per_s?: number | null, misses?: number | null, price_ns?: number | null } } Probe */
/** @typedef { { path: string | null, class: string, dev: string, ino: number, writes: number, bytes_written: number, reads: number, bytes_read: number } } FileUse */
/** @typedef { { role?: string, total: number, kinds?: Record<string, number>, bytes_read: number, bytes_written: number, times?: Record<string, CommandTimes>, depth_mean?: number, depth_max?: number, depth_over_time?: { from_ns: number, mean: number, max: number }[] } } DiskCommands */
/**
 * @typedef { Partial<Record<'total' | 'incomplete' | 'untimed' | 'attributed' | 'other_processes' | 'tracer' | 'unattributed', number>> & {
 *   by_disk?: Record<string, DiskCommands>,
 *   processes?: { name: string, tgid?: number | null, origin: string, commands: number, bytes: number }[]
 * } } DeviceCommands
 */
/**
 * @typedef { Partial<{
 *   trace: Partial<{ command: string[], complete: boolean, start_ns: number, end_ns: number }>, operations: OperationSummary[],
 *   device_commands: DeviceCommands, links: Record<string, number>, cause_confidence: Record<string, number>, loss: Loss,
 *   completeness: Completeness, environment: Environment, files: FileUse[], coverage: Probe[],
 *   blind: { layer: string, wholly: boolean, means: string }[]
 * }> } Summary
 */
/** @typedef { { statement: string, rows?: { layer: string, name: string, class: string | null, count: number, bytes: number | null, note?: string }[] } } StatementCounts */
/** @typedef { { statements?: StatementCounts[] } } Counts */
/** @typedef { { text: string, kind: string, read_only_looking: boolean, start: number | null, end: number | null, commands?: number } } ScatterShape */
/** @typedef { Partial<Record<'t' | 'latency' | 'sector' | 'bytes' | 'kind' | 'disk' | 'shape' | 'origin' | 'share' | 'command', Numbers | Place>> } PointColumns */
/** @typedef { Partial<{ origin_ns: number, strings: string[], shapes: ScatterShape[], disks: DiskAxis[], points: PointColumns, left_out: LeftOut, packed: string }> } ScatterData */
/** @typedef { { code: string } & Partial<{ title: string, statement: string | null, claim: string, executions: number, of: number, time_ns: number | null, share: number | null, interval: [number, number] | null, share_of_all: number | null, saving_ns: number | null, remedy: string, evidence: number[], slow_waits: SlowWait[] }> } Finding */
/** @typedef { { what: string, ns: number, share: number, listed: boolean, interval: [number, number] | null, executions: number, statement: string | null, statement_ns: number, longest_span: number | null, findings?: string[], slow_waits?: SlowWait[] } } Leaf */
/** @typedef { { whole_ns: number, executions: number, leaves: Leaf[], unaccounted_ns: number } } Account */
/** @typedef { { what: string, ns: number, share: number, listed: boolean, interval: [number, number] | null, threads: number } } BetweenLeaf */
/** @typedef { { whole_ns: number, threads: number, operations_ns: number, leaves: BetweenLeaf[], unaccounted_ns: number } } Between */
/** @typedef { { executions?: number, findings?: Finding[], account?: Account, between?: Between } } Explanation */
/** @typedef { { title?: string, scatter?: ScatterData | null, operations?: OperationSummary[] | null } } CommandsData */
/** @typedef { { title?: string, summary?: Summary | null, timeline?: TimelineData | null, counts?: Counts | null, explanation?: Explanation | null } } RecordingData */

export {};
