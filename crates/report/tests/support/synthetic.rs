//! Synthetic figures of a recording: INSERTs with a rollback journal on ext4, a SELECT served from the page cache, and a
//! statement with markup and control characters in it. Shaped like the output of `analysis::figures`; seeded, so that every
//! run produces the same.

use serde_json::{Map, Value, json};

/// The statement that imitates markup.
pub const HOSTILE_STATEMENT: &str =
    "SELECT '</script><img src=x onerror=alert(1)>\u{1b}[31m' AS \"<b>\u{202e}\" FROM t";
/// The statement that writes.
pub const INSERT_STATEMENT: &str = "INSERT INTO items VALUES (?, ?)";
/// The statement that reads.
pub const SELECT_STATEMENT: &str = "SELECT * FROM items";

const LAYER_NAMES: [&str; 7] = ["App", "Database", "Syscall", "FileSystem", "Block", "IoScheduler", "Driver"];
/// The lane of the journal's thread in `layers[3].lanes` of the timeline.
const JOURNAL_LANE: u64 = 1;

/// Rows that become columns.
#[derive(Default)]
struct Columns(Vec<Map<String, Value>>);

impl Columns {
    fn push(&mut self, row: Value) -> u64 {
        let Value::Object(row) = row else { unreachable!("rows are written as objects") };
        self.0.push(row);
        self.0.len() as u64 - 1
    }

    fn columns(self) -> Value {
        let mut columns: Map<String, Value> =
            self.0.first().into_iter().flat_map(|row| row.keys()).map(|name| (name.clone(), json!([]))).collect();
        for row in self.0 {
            for (name, value) in row {
                if let Some(Value::Array(column)) = columns.get_mut(&name) {
                    column.push(value);
                }
            }
        }
        Value::Object(columns)
    }
}

/// The figures under construction.
#[derive(Default)]
pub struct Synthetic {
    now: u64,
    seed: u64,
    marks: bool,
    strings: Vec<String>,
    spans: Columns,
    links: Columns,
    operations: Columns,
    slices: Columns,
    causes: Columns,
    points: Columns,
    commands: u64,
}

impl Synthetic {
    /// Returns the page's parts for this many INSERTs, each inside a mark: timeline, scatter, counts, summary.
    pub fn figures(inserts: u64) -> [Value; 4] {
        Self::make_figures(inserts, true)
    }

    /// The same for a program without marks.
    pub fn without_marks(inserts: u64) -> [Value; 4] {
        Self::make_figures(inserts, false)
    }

    fn make_figures(inserts: u64, marks: bool) -> [Value; 4] {
        let mut made = Self { now: 3_000_000, seed: 7, marks, ..Self::default() };
        made.string("");
        for nth in 0..inserts {
            made.insert(nth);
            made.now += 40_000 + made.random(60_000);
        }
        let select_start = made.now;
        for nth in 0..(inserts / 10).max(1) {
            made.select(1, nth);
        }
        made.select(2, 0);
        made.finish(inserts, select_start)
    }

    fn random(&mut self, below: u64) -> u64 {
        self.seed = self.seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.seed >> 33) % below.max(1)
    }

    fn string(&mut self, text: &str) -> u64 {
        let at = self.strings.iter().position(|known| known == text).unwrap_or_else(|| {
            self.strings.push(text.to_owned());
            self.strings.len() - 1
        });
        at as u64
    }

    /// Adds a span; `more` overrides the default values.
    fn span(&mut self, layer: u64, kind: &str, start: u64, end: u64, operation: Option<u64>, more: Value) -> u64 {
        let label = more.get("label").and_then(Value::as_str).unwrap_or(kind).to_owned();
        let mut row = json!({
            "id": 5000 + self.spans.0.len(), "layer": layer, "lane": 0, "kind": self.string(kind), "start": start, "end": end,
            "operation": operation, "tgid": 4711, "tid": 4711, "file": null, "offset": null, "disk": null, "sector": null,
            "bytes": 0, "result": null, "number": null, "flags": 0,
        });
        if let (Some(row), Value::Object(more)) = (row.as_object_mut(), more) {
            row.extend(more);
            row.insert("label".into(), json!(self.string(&label)));
        }
        self.spans.push(row)
    }

    fn link(&mut self, parent: u64, child: u64, relation: &str, confidence: &str) {
        let (relation, confidence) = (self.string(relation), self.string(confidence));
        self.links.push(json!({ "parent": parent, "child": child, "relation": relation, "confidence": confidence, "weakened": false }));
    }

    fn slice(&mut self, operation: u64, layer: &str, reason: &str, start: u64, end: u64) {
        let sure = self.string(if reason == "cpu" { "structural" } else { "interval" });
        let (layer, reason) = (self.string(layer), self.string(reason));
        self.slices.push(json!({
            "operation": operation, "layer": layer, "reason": reason, "start": start, "end": end, "span": null, "confidence": sure,
        }));
    }

    fn operation(&mut self, shape: u64, nth: u64, start: u64) -> (u64, u64) {
        let operation = self.operations.0.len() as u64;
        let span = self.span(
            1,
            "step",
            start,
            start,
            Some(operation),
            json!({ "label": if shape == 0 { "INSERT" } else { "SELECT" } }),
        );
        self.operations.push(json!({
            "id": 100 + operation, "shape": shape, "nth": nth, "span": span, "parent": null, "start": start, "end": null, "rows": 0, "result": 101,
            "whole": true, "part": null,
        }));
        (operation, span)
    }

    fn end_operation(&mut self, operation: u64, span: u64) {
        self.operations.0[operation as usize].insert("end".into(), json!(self.now));
        self.spans.0[span as usize].insert("end".into(), json!(self.now));
    }

    /// Adds a bio, its request and the command that served it, issued now; returns when the command completed.
    #[expect(clippy::too_many_arguments, reason = "what tells one command from another")]
    fn command(
        &mut self,
        parent: u64,
        relation: &str,
        confidence: &str,
        kind: &str,
        sector: u64,
        bytes: u64,
        operation: u64,
        lane: u64,
    ) -> u64 {
        let queued = self.now + 3_000;
        let issued = queued + 9_000 + self.random(5_000);
        let done = issued + if kind == "flush" { 420_000 } else { 60_000 } + self.random(90_000);
        let sector = if kind == "flush" { Value::Null } else { json!(sector) };
        let label = if kind == "flush" { "flush".to_owned() } else { format!("{kind} {} KiB", bytes / 1024) };
        let place = |lane: u64| json!({ "lane": lane, "disk": 0, "sector": sector, "bytes": bytes, "label": label, "tgid": 0, "tid": 0 });
        let request = if kind == "flush" { "flush" } else { "request" };
        // A bio of the thread itself carries its operation; one of the journal's thread does not.
        let own = (lane == 0).then_some(operation);
        let bio = self.span(4, "bio", queued, issued - 4_000, own, place(lane));
        let queue = self.span(5, request, issued - 4_000, issued, None, place(lane));
        let command = self.span(6, request, issued, done, None, place(lane));
        self.link(parent, bio, relation, confidence);
        self.link(bio, queue, "carries", "exact");
        self.link(queue, command, "carries", "exact");
        self.commands += 1;
        let words = ["operation", confidence, "page", kind].map(|word| self.string(word));
        self.causes.push(json!({
            "command": command, "origin": words[0], "operation": operation, "tgid": null, "process": null, "share": 1.0, "confidence": words[1], "via": words[2],
        }));
        self.points.push(json!({
            "t": issued, "latency": done - issued, "sector": sector, "bytes": bytes, "kind": words[3], "disk": 0, "shape": 0,
            "origin": words[0], "share": 1.0, "command": 5000 + command,
        }));
        done
    }

    /// Adds one synchronous phase: pages written, then an fsync that writes them, commits the journal and flushes.
    fn phase(&mut self, operation: u64, step: u64, file: u64, writes: &[(u64, u64)], sector: u64) {
        let mut wrote = 0;
        for &(offset, bytes) in writes {
            let start = self.now;
            let work = self.random(4_000);
            self.now += 9_000 + work;
            wrote = self.span(
                2,
                "pwrite64",
                start,
                self.now,
                Some(operation),
                json!({ "file": file, "offset": offset, "bytes": bytes, "result": bytes }),
            );
            let inside = self.span(
                3,
                "write",
                start + 1_500,
                self.now - 1_000,
                Some(operation),
                json!({ "file": file, "offset": offset, "bytes": bytes }),
            );
            self.link(step, wrote, "calls", "structural");
            self.link(wrote, inside, "calls", "exact");
            self.slice(operation, "FileSystem", "cpu", start, self.now);
            self.slice(operation, "Database", "cpu", self.now, self.now + 6_000);
            self.now += 6_000;
        }
        let start = self.now;
        let sync = self.span(2, "fdatasync", start, start, Some(operation), json!({ "file": file }));
        self.link(step, sync, "calls", "structural");
        let written =
            self.command(wrote, "dirties", "structural", "write", sector, 4096 * writes.len() as u64, operation, 0);
        self.slice(operation, "Syscall", "cpu", start, start + 15_000);
        self.slice(operation, "Driver", "device", start + 15_000, written);
        self.now = written + 8_000;
        let commit = self.span(
            3,
            "commit",
            self.now,
            self.now,
            None,
            json!({ "lane": JOURNAL_LANE, "tgid": 212, "tid": 212, "number": 900 + operation }),
        );
        self.link(wrote, commit, "joins transaction", "exact");
        self.link(sync, commit, "joins transaction", "structural");
        let logged = self.command(
            commit,
            "commits",
            "interval",
            "write",
            2_100_000 + operation * 24 % 65_536,
            8192,
            operation,
            1,
        );
        self.now = logged + 5_000;
        let flushed = self.command(sync, "waits for flush", "exact", "flush", 0, 0, operation, 0);
        self.spans.0[commit as usize].insert("end".into(), json!(flushed));
        self.spans.0[sync as usize].insert("end".into(), json!(flushed + 12_000));
        self.slice(operation, "FileSystem", "journal", written, logged);
        self.slice(operation, "Driver", "flush", logged, flushed);
        self.slice(operation, "RunQueue", "run queue", flushed, flushed + 12_000);
        self.now = flushed + 12_000;
    }

    fn insert(&mut self, nth: u64) {
        let begin = self.now;
        let mark = self.marks.then(|| self.span(0, "mark", begin, begin, None, json!({ "label": "insert" })));
        self.now += 4_000;
        let (operation, step) = self.operation(0, nth, self.now);
        if let Some(mark) = mark {
            self.link(mark, step, "calls", "interval");
        }
        let page = nth / 30;
        self.phase(operation, step, 1, &[(0, 512), (512, 4), (516, 4096), (4612, 4)], 4_300_000 + page * 8);
        self.phase(operation, step, 1, &[(0, 12)], 4_300_000);
        self.phase(operation, step, 0, &[(0, 4096), ((page + 2) * 4096, 4096)], 6_800_000 + page * 8);
        self.end_operation(operation, step);
        self.now += 3_000;
        if let Some(mark) = mark {
            self.spans.0[mark as usize].insert("end".into(), json!(self.now));
        }
    }

    fn select(&mut self, shape: u64, nth: u64) {
        let begin = self.now;
        let (operation, step) = self.operation(shape, nth, begin);
        for page in 0..3 {
            let start = self.now + 5_000;
            let read = self.span(
                2,
                "pread64",
                start,
                start + 7_000,
                Some(operation),
                json!({ "file": 0, "offset": page * 4096, "bytes": 4096 }),
            );
            self.link(step, read, "calls", "structural");
            self.slice(operation, "Database", "cpu", self.now, start);
            self.slice(operation, "Syscall", "cpu", start, start + 7_000);
            self.now = start + 7_000;
        }
        self.slice(operation, "Database", "cpu", self.now, self.now + 280_000);
        self.now += 280_000;
        self.end_operation(operation, step);
        self.now += 20_000;
    }

    fn finish(self, inserts: u64, select_start: u64) -> [Value; 4] {
        let selects = (inserts / 10).max(1);
        let lane = |name: &str, group: u64| json!({ "name": name, "group": group });
        let layers: Vec<Value> = LAYER_NAMES
            .iter()
            .map(|name| match *name {
                "FileSystem" => json!({ "name": name, "lanes": [lane("python3 4711", 0), lane("jbd2/vda1-8 212", 1)] }),
                "Block" | "IoScheduler" | "Driver" => {
                    json!({ "name": name, "lanes": [lane("vda", 0), lane("vda", 0)] })
                }
                _ => json!({ "name": name, "lanes": [lane("python3 4711", 0)] }),
            })
            .collect();
        let shape = |text: &str, count: u64| json!({ "text": text, "kind": "statement", "count": count, "charged": if text == INSERT_STATEMENT { count } else { 0 } });
        let disks =
            json!([{ "name": "vda", "role": "holds the files", "sectors_low": 2_000_000, "sectors_high": 7_000_000 }]);
        let timeline = json!({
            "version": 1, "origin_ns": 86_400_000_000_000u64, "duration_ns": self.now, "presets_ns": [12_000_000, 80_000_000],
            "strings": self.strings, "layers": layers, "spans": self.spans.columns(), "links": self.links.columns(),
            "operations": self.operations.columns(), "shapes": [shape(INSERT_STATEMENT, inserts), shape(SELECT_STATEMENT, selects), shape(HOSTILE_STATEMENT, 1)],
            "slices": self.slices.columns(), "causes": self.causes.columns(), "disks": disks,
            "files": [{ "path": "/home/ann/test.db", "class": "database" }, { "path": "/home/ann/test.db-journal", "class": "rollback journal" }],
            "losses": [], "left_out": { "operations": 0, "spans": 0, "links": 0, "slices": 0, "causes": 0, "after_ns": null, "why": "" },
        });
        let reach = |text: &str, reads: bool, start: u64, end: u64, commands: u64| json!({ "text": text, "kind": "statement", "read_only_looking": reads, "start": start, "end": end, "commands": commands });
        let scatter = json!({
            "version": 1, "origin_ns": 86_400_000_000_000u64, "duration_ns": self.now, "strings": self.strings, "points": self.points.columns(),
            "shapes": [
                reach(INSERT_STATEMENT, false, 3_004_000, select_start, self.commands), reach(SELECT_STATEMENT, true, select_start, self.now, 0), reach(HOSTILE_STATEMENT, true, select_start, self.now, 0),
            ],
            "disks": disks, "left_out": { "operations": 0, "spans": 0, "links": 0, "slices": 0, "causes": 0, "after_ns": null, "why": "" },
        });
        [timeline, scatter, make_counts(), make_summary(inserts, self.commands, self.now)]
    }
}

fn make_counts() -> Value {
    let row = |layer: &str, name: &str, class: Option<&str>, count: f64, bytes: Option<f64>| json!({ "layer": layer, "name": name, "class": class, "count": count, "bytes": bytes, "note": "" });
    json!({ "statements": [
        { "statement": INSERT_STATEMENT, "count": 1000, "rows": [
            row("Syscall", "calls", None, 11.0, None), row("Syscall", "fsyncs", None, 3.0, None),
            row("FileSystem", "writes", Some("rollback journal"), 5.0, Some(4628.0)), row("FileSystem", "writes", Some("database"), 2.0, Some(8192.0)),
            row("FileSystem", "journal commits", None, 2.98, None), row("Block", "bios", None, 9.0, Some(45_056.0)),
            row("Driver", "requests", None, 6.0, Some(45_056.0)), row("Driver", "flushes", None, 3.0, None),
        ] },
        { "statement": SELECT_STATEMENT, "count": 100, "rows": [row("Syscall", "calls", None, 3.0, None), row("FileSystem", "reads", Some("database"), 3.0, Some(12_288.0))] },
    ] })
}

fn make_summary(inserts: u64, commands: u64, duration_ns: u64) -> Value {
    let time = |ns: u64, reasons: Value| json!({ "exclusive_ns": ns * inserts, "p50_ns": ns, "p95_ns": ns * 13 / 10, "reasons": reasons });
    let operation = |statement: &str, count: u64, p50: u64, more: Value| {
        let mut operation = json!({ "statement": statement, "kind": "statement", "count": count, "latency_ns": make_percentiles(p50, count), "layers": {}, "per_operation": {} });
        if let (Some(operation), Value::Object(more)) = (operation.as_object_mut(), more) {
            operation.extend(more);
        }
        operation
    };
    let gap = |from: &str, to: &str, ns: u64| json!({ "from": from, "to": to, "count": inserts, "duration_ns": make_percentiles(ns, inserts), "fsyncs": 1.0 });
    let phase = |name: &str, writes: f64, bytes: f64| json!({ "phase": name, "count": inserts, "writes": writes, "bytes": bytes, "duration_ns": make_percentiles(41_000, inserts) });
    let fact = |value: &str, source: &str| json!({ "value": value, "source": source, "varies": "boot" });
    let start_ns = 86_400_000_000_000u64;
    json!({
        "version": 1,
        "trace": { "command": ["python3", "insert.py", "--rows", inserts.to_string()], "complete": true, "start_ns": start_ns, "end_ns": start_ns + duration_ns },
        "operations": [
            operation(INSERT_STATEMENT, inserts, 2_430_000, json!({
                "layers": {
                    "Database": time(190_000, json!({ "cpu": 190_000 * inserts })), "Syscall": time(60_000, json!({ "cpu": 60_000 * inserts })),
                    "FileSystem": time(420_000, json!({ "journal": 340_000 * inserts, "cpu": 80_000 * inserts })),
                    "IoScheduler": time(25_000, json!({ "queue": 25_000 * inserts })),
                    "Driver": time(1_710_000, json!({ "flush": 1_400_000 * inserts, "device": 310_000 * inserts })),
                    "RunQueue": time(36_000, json!({ "run queue": 36_000 * inserts })),
                },
                "phases": [phase("rollback journal write 1", 4.0, 4616.0), phase("rollback journal write 2", 1.0, 12.0), phase("database write 1", 2.0, 8192.0)],
                "gaps": [
                    gap("rollback journal write 1", "rollback journal write 2", 760_000), gap("rollback journal write 2", "database write 1", 790_000),
                    gap("database write 1", "next statement", 810_000),
                ],
            })),
            operation(SELECT_STATEMENT, inserts / 10, 316_000, json!({
                "layers": { "Database": { "exclusive_ns": 29_500_000, "p50_ns": 295_000, "p95_ns": 380_000, "reasons": { "cpu": 29_500_000 } } },
                "per_operation": { "filesystem_reads": { "database": { "count": 3.0, "bytes": 12_288.0, "cache_hits": 3.0 } } },
            })),
            operation(HOSTILE_STATEMENT, 1, 316_000, json!({})),
        ],
        "device_commands": {
            "total": commands + 12, "attributed": commands, "other_processes": 9, "unattributed": 1, "tracer": 2, "incomplete": 0,
            "by_disk": { "vda": {
                "role": "holds the files", "total": commands + 12, "kinds": { "write": commands * 2 / 3 + 12, "flush": commands / 3 }, "bytes_read": 0, "bytes_written": commands * 6144,
            } },
            "processes": [
                { "name": "systemd-journal", "tgid": 310, "origin": "other process", "commands": 9.0, "bytes": 36_864.0 },
                { "name": "fathom", "tgid": 4700, "origin": "tracer", "commands": 2.0, "bytes": 524_288.0 },
                { "name": "", "tgid": null, "origin": "unattributed", "commands": 1.0, "bytes": 4096.0 },
            ],
        },
        "links": { "exact": inserts * 31, "structural": inserts * 6, "interval": inserts * 3, "address": 0, "guess": 0 },
        "cause_confidence": { "exact": inserts * 3, "structural": inserts * 3, "interval": inserts * 3, "address": 0, "guess": 0 },
        "loss": { "events": 0, "at_least": false, "weakened_links": 0, "intervals": [] },
        "files": [
            { "path": "/home/ann/test.db", "class": "database", "dev": "254:1", "ino": 131_077, "writes": inserts * 2, "bytes_written": inserts * 8192, "reads": 300, "bytes_read": 1_228_800 },
            { "path": "/home/ann/test.db-journal", "class": "rollback journal", "dev": "254:1", "ino": 131_078, "writes": inserts * 5, "bytes_written": inserts * 4628, "reads": 0, "bytes_read": 0 },
        ],
        "coverage": [
            { "layer": "Database", "probe": "uprobe sqlite3_step", "attached": true, "how": "symbol in libsqlite3.so.0.8.6", "hits": 2200, "misses": 0, "price_ns": 1180.0 },
            { "layer": "Driver", "probe": "tp_btf block_rq_issue", "attached": true, "how": "BTF of vmlinux", "hits": commands, "misses": 0, "price_ns": 310.0 },
            { "layer": "FileSystem", "probe": "raw_tp f2fs_write_begin", "attached": false, "how": "f2fs is not loaded", "hits": null, "misses": null, "price_ns": null },
            { "layer": "FileSystem", "probe": "btrfs_sync_enter", "attached": false, "how": "no btrfs was mounted", "hits": null, "misses": null, "price_ns": null },
        ],
        "environment": {
            "cpu.model": fact("Example CPU at 2.4 GHz", "/proc/cpuinfo"), "kernel.release": fact("6.1.0-18-amd64", "uname"),
            "fs.type": fact("ext4", "/proc/self/mountinfo"), "fs.options": fact("rw,relatime,data=ordered", "/proc/self/mountinfo"),
            "disk.name": fact("vda", "/sys/block"), "disk.scheduler": fact("mq-deadline", "/sys/block/vda/queue/scheduler"), "sqlite.version": fact("3.40.1", "the library"),
            "disk.write_cache": { "unknown": "the driver does not say", "source": "/sys/block/vda/queue/write_cache", "varies": "boot" },
        },
    })
}

/// Returns percentiles in the contract's form.
fn make_percentiles(p50: u64, count: u64) -> Value {
    json!({ "p50": p50, "p95": p50 * 13 / 10, "sum": p50 * count })
}
