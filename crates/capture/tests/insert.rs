//! Statements as recorded by the probes: text, executions, rows, nesting and system calls inside.

mod common;

use capture::request::Function;
use capture::{FinishedRecording, Request, Scope, sqlite};
use common::{LoopDisk, Recorder};
use model::event::{File, Statement, flags, header_flags};
use model::{Call, Event};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// Returns a system library that the test's programs use.
fn library_path(name: &str) -> Option<PathBuf> {
    ["/usr/lib/x86_64-linux-gnu", "/usr/lib/aarch64-linux-gnu", "/lib64", "/usr/lib64", "/usr/lib"]
        .into_iter()
        .map(|directory| Path::new(directory).join(name))
        .find(|path| path.exists())
}

/// One execution of a statement.
#[derive(Debug)]
struct Execution {
    text: String,
    start_ns: u64,
    end_ns: u64,
    rows: u64,
    depth: u32,
}

/// Returns the executions in order of their begin, each with the text its statement had then.
fn executions(events: &[Event]) -> Vec<Execution> {
    let mut texts: BTreeMap<u64, String> = BTreeMap::new();
    let mut all: Vec<Execution> = Vec::new();
    let mut open: BTreeMap<u64, usize> = BTreeMap::new();
    for event in events {
        match &event.record {
            model::Record::Statement(Statement { stmt, text, .. }) => {
                texts.insert(*stmt, text.clone());
            }
            model::Record::OpBegin(op) => {
                open.insert(op.key, all.len());
                let text = texts.get(&op.key).cloned().unwrap_or_default();
                all.push(Execution { text, start_ns: event.header.time_ns, end_ns: 0, rows: 0, depth: op.depth });
            }
            model::Record::OpEnd(op) => {
                let at = open.remove(&op.key).expect("an end has a begin");
                assert_eq!(all[at].start_ns, op.start_ns);
                assert!(op.inside_ns <= event.header.time_ns - op.start_ns);
                all[at].end_ns = event.header.time_ns;
                all[at].rows = op.rows;
            }
            _ => {}
        }
    }
    assert!(open.is_empty(), "executions that never ended: {open:?}");
    all
}

#[test]
fn sqlite3_shell_insert_is_traced_to_file() {
    needs_live_kernel!();
    let Some(library) = library_path("libsqlite3.so.0") else { return common::skip("no libsqlite3.so.0") };
    if Command::new("sqlite3").arg("--version").output().is_err() {
        return common::skip("no sqlite3 shell");
    }
    let disk = LoopDisk::ext4();
    let db = disk.path().join("t.db");
    let child = common::spawn_gated(&format!(
        "exec sqlite3 {} \"pragma page_size=4096; create table t(a integer, b text); insert into t values (1, 'x'); \
         insert into t values (2, 'y'); select * from t\"",
        db.display()
    ));
    let symbols = sqlite::find(&library).unwrap();
    let mut recorder = Recorder::start(&Request::new(Scope::Command));
    assert!(recorder.session.attach_sqlite(&library, &symbols));
    assert!(recorder.session.attach_sqlite(&library, &symbols), "a second time is no harm");
    recorder.release(child);
    let (events, finished) = recorder.finish();
    assert_eq!(finished.lost, 0);

    let all = executions(&events);
    let outer: Vec<&Execution> = all.iter().filter(|e| e.depth == 1 && e.text.contains(" t")).collect();
    let texts: Vec<&str> = outer.iter().map(|e| e.text.as_str()).collect();
    assert_eq!(
        texts,
        [
            "create table t(a integer, b text);",
            "insert into t values (1, 'x');",
            "insert into t values (2, 'y');",
            "select * from t"
        ]
    );
    assert_eq!(outer.iter().map(|e| e.rows).collect::<Vec<_>>(), [0, 0, 0, 2]);

    let within = |e: &Execution, call: Call| {
        records!(events, Syscall)
            .filter(|(_, s)| s.call == call as u16 && s.start_ns > e.start_ns && s.start_ns < e.end_ns && s.result >= 0)
            .map(|(_, s)| s.clone())
            .collect::<Vec<_>>()
    };
    let journal: Vec<&File> =
        records!(events, File).filter(|(_, f)| f.text.ends_with("t.db-journal")).map(|(_, f)| f).collect();
    for insert in &outer[1..3] {
        // DELETE mode, by SQLite's own account: journal, its directory, journal's header, database.
        let syncs = within(insert, Call::Fsync).len() + within(insert, Call::Fdatasync).len();
        assert_eq!(syncs, 4);
        let removed = within(insert, Call::Unlink);
        assert_eq!(removed.len(), 1);
        let writes = within(insert, Call::Pwrite64);
        assert!(writes.iter().any(|w| w.ino == removed[0].ino), "the journal that is removed was written");
        assert!(journal.iter().any(|f| f.ino == removed[0].ino && f.what == 2), "its removal is recorded by name");
        for write in &writes {
            assert_eq!((write.dev, write.bytes as i64), (disk.dev(), write.result));
            assert!(write.fs_writes > 0 && write.fs_start_ns >= write.start_ns && write.fs_end_ns >= write.fs_start_ns);
        }
    }
    assert!(within(outer[3], Call::Pwrite64).is_empty(), "a SELECT writes nothing");
}

/// Not a test: the program traced by [`work_between_rows_is_distinguished`], in this file because it must contain SQLite.
#[test]
#[ignore = "root: the traced program of another test"]
fn rows_workload() {
    let Some(path) = std::env::var_os("FATHOM_TEST_DATABASE") else { return };
    std::io::stdin().read_line(&mut String::new()).unwrap();
    let log = std::fs::File::create(Path::new(&path).with_extension("log")).unwrap();
    let db = rusqlite::Connection::open(path).unwrap();
    db.execute_batch("create table t(a integer); insert into t values (1), (2), (3)").unwrap();
    let mut select = db.prepare("select a from t order by a desc").unwrap();
    let mut update = db.prepare("update t set a = a + 10 where a = ?").unwrap();
    let mut rows = select.query([]).unwrap();
    while let Some(row) = rows.next().unwrap() {
        update.execute([row.get::<_, i64>(0).unwrap()]).unwrap();
        log.sync_all().unwrap();
    }
    drop(rows);
    // Abandoned before its end: the reset is the end.
    let first: i64 = db.query_row("select a from t", [], |row| row.get(0)).unwrap();
    assert_eq!(first, 11);
}

#[test]
fn work_between_rows_is_distinguished() {
    needs_live_kernel!();
    let program = std::env::current_exe().unwrap();
    let directory = tempfile::tempdir().unwrap();
    let child = Command::new(&program)
        .args(["--exact", "rows_workload", "--ignored"])
        .env("FATHOM_TEST_DATABASE", directory.path().join("t.db"))
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    let symbols = sqlite::find(&program).unwrap();
    let mut recorder = Recorder::start(&Request::new(Scope::Command));
    assert!(recorder.session.attach_sqlite(&program, &symbols));
    recorder.release(child);
    let (events, finished) = recorder.finish();
    assert_eq!(finished.lost, 0);

    let all = executions(&events);
    let select = all.iter().find(|e| e.text.starts_with("select a from t order")).expect("the scan");
    let updates: Vec<&Execution> = all.iter().filter(|e| e.text.starts_with("update")).collect();
    assert_eq!((select.rows, select.depth, updates.len()), (3, 1, 3));
    for update in &updates {
        assert!(update.depth == 1 && update.start_ns > select.start_ns && update.end_ns < select.end_ns, "{update:?}");
    }
    // The log is synced while only the scan is open, the database while an update's step runs as well.
    let syncs = |inside: &dyn Fn(u64) -> bool| -> Vec<u16> {
        records!(events, Syscall)
            .filter(|(_, s)| [Call::Fsync as u16, Call::Fdatasync as u16].contains(&s.call) && inside(s.start_ns))
            .map(|(_, s)| s.ctx & (flags::IN_OP | flags::BETWEEN_ROWS))
            .collect()
    };
    let in_update = |at: u64| updates.iter().any(|u| u.start_ns < at && at < u.end_ns);
    let stepped = syncs(&in_update);
    assert!(stepped.len() >= 3 && stepped.iter().all(|&c| c == flags::IN_OP), "{stepped:?}");
    let between = syncs(&|at| select.start_ns < at && at < select.end_ns && !in_update(at));
    assert_eq!(between, [flags::BETWEEN_ROWS; 3]);
    let last = all.iter().rfind(|e| e.text == "select a from t").expect("the one that is left early");
    assert_eq!(last.rows, 1);
}

/// Debian's Python with a SQLite whose resets are not watched from the start.
struct Python {
    library: PathBuf,
    symbols: sqlite::SqliteSymbols,
    directory: tempfile::TempDir,
}

impl Python {
    /// `None` without it; then the reason is printed.
    fn new() -> Option<Self> {
        let Some(library) = library_path("libsqlite3.so.0") else {
            common::skip("no libsqlite3.so.0");
            return None;
        };
        let symbols = sqlite::find(&library).unwrap();
        if symbols.running.is_none() {
            common::skip("this SQLite does not show whether a statement runs: its reset is watched from the start");
            return None;
        }
        Some(Self { library, symbols, directory: tempfile::tempdir().unwrap() })
    }

    /// Records a script with uprobes.
    fn record(&self, script: &str) -> (Vec<Event>, FinishedRecording) {
        let directory = self.directory.path();
        std::fs::write(directory.join("script.py"), script).unwrap();
        let child = common::spawn_gated(&format!("cd {} && exec /usr/bin/python3 script.py", directory.display()));
        let mut recorder = Recorder::start(&Request::new(Scope::Command));
        assert!(recorder.session.attach_sqlite(&self.library, &self.symbols));
        recorder.release(child);
        let (events, finished) = recorder.finish();
        assert_eq!(finished.lost, 0);
        (events, finished)
    }
}

/// Statements that are abandoned after their first row and reset: each execution ends exactly once, whether the probe on the
/// reset is already attached or not; and it is attached when they end late by more than a millisecond in total, not for
/// INSERTs and a PRAGMA that is abandoned before its end.
#[test]
fn reset_is_probed_after_late_ends_of_abandoned_statements() {
    needs_live_kernel!();
    let Some(python) = Python::new() else { return };
    let record = |script: &str| {
        let (events, finished) = python.record(script);
        let reset = finished.coverage.iter().filter(|c| c.probe.ends_with(":sqlite3_reset"));
        let [reset] = reset.collect::<Vec<_>>()[..] else { panic!("one row for it") };
        assert!(reset.attached, "{reset:?}");
        (executions(&events), events, reset.how.starts_with("uprobe"))
    };
    let begin = "import os, sqlite3, time\n\
        db = sqlite3.connect('t.db', isolation_level=None)\n\
        log = os.open('log', os.O_CREAT | os.O_WRONLY)\n";

    let inserts = "db.execute('pragma table_list').fetchone()\ndb.execute('create table t(a)')\nfor i in range(9): db.execute('insert into t values (?)', (i,))\n";
    let (all, _, watched) = record(&format!("{begin}{inserts}"));
    assert_eq!(all.iter().filter(|e| e.text.starts_with("insert")).count(), 9);
    assert!(!watched, "none of them needs it");

    // Only the next step of the same statement follows, a microsecond or two later.
    let loops = "for i in range(5000):\n    c = db.execute('select a from t')\n    c.fetchone()\n    c.close()\n";
    let (all, _, watched) = record(&format!("{begin}{loops}"));
    assert!(watched);
    let left = all.iter().filter(|e| e.text.starts_with("select a") && (1..=2).contains(&e.rows));
    assert_eq!(left.count(), 5000);

    // Between a reset and the next event that a probe sees there are at least 40 ms.
    let selects = "for i in range(9):\n    c = db.execute('select a from t order by a')\n    c.fetchone()\n    c.close()\n    \
        end = time.monotonic() + 0.04\n    while time.monotonic() < end: pass\n    os.pwrite(log, b'x', 0)\n";
    let (all, events, watched) = record(&format!("{begin}{selects}"));
    assert!(watched);
    let left: Vec<&Execution> = all.iter().filter(|e| e.text.starts_with("select a")).collect();
    assert_eq!(left.len(), 9);
    // Python may read one row ahead.
    assert!(left.iter().all(|e| (1..=2).contains(&e.rows)), "{left:?}");
    let writes: Vec<u64> = records!(events, Syscall)
        .filter(|(_, s)| s.call == Call::Pwrite64 as u16 && s.bytes == 1)
        .map(|(_, s)| s.start_ns)
        .collect();
    assert_eq!(writes.len(), 9);
    for (nth, (select, write)) in left.iter().zip(&writes).enumerate() {
        assert!(select.end_ns <= *write, "the {nth}th ends before what follows it");
    }
    // The first ones may end where something else begins; once the probe is attached, all end at their reset.
    let (last, write) = (left[8].end_ns, writes[8]);
    assert!(write - last >= 40_000_000, "it ended {} ns before", write - last);
}

/// A statement is reset, which nothing sees, and another is prepared, which reads a schema that has changed: at its first call the
/// statement turns out to run no more. The prepare began between its rows nevertheless, and is none of its work.
#[test]
fn prepare_after_unseen_reset_begins_between_rows() {
    needs_live_kernel!();
    let Some(python) = Python::new() else { return };
    let script = "import sqlite3\n\
        one, two = (sqlite3.connect(name, isolation_level=None) for name in ('t.db', 'u.db'))\n\
        one.execute('create table t(a)')\n\
        one.execute('insert into t values (1), (2), (3), (4)')\n\
        one.execute(\"attach 'u.db' as u\")\n\
        for i in range(5):\n    \
            two.execute(f'create table t{i}(a)')\n    \
            c = one.execute('select a from t order by a')\n    \
            c.fetchone()\n    \
            c.close()\n    \
            one.execute(f'select count(*) from u.t{i}').fetchall()\n";
    let (events, _) = python.record(script);
    let prepares: Vec<bool> = records!(events, Statement)
        .filter(|(_, s)| s.start_ns != 0 && s.text.starts_with("select") && s.text.contains("count"))
        .map(|(event, _)| event.header.flags & header_flags::BETWEEN_ROWS != 0)
        .collect();
    assert_eq!(prepares, [true; 5]);
}

#[test]
fn function_is_recorded_as_operation() {
    needs_live_kernel!();
    let Some(library) = library_path("libc.so.6") else { return common::skip("no libc.so.6") };
    let directory = tempfile::tempdir().unwrap();
    let child = common::spawn_gated(&format!(
        "exec dd if=/dev/zero of={}/f bs=4k count=1 conv=fsync status=none",
        directory.path().display()
    ));
    let mut request = Request::new(Scope::Command);
    request.functions.push(Function { path: library, name: "fsync".into(), inside: None });
    let mut recorder = Recorder::start(&request);
    recorder.release(child);
    let (events, _) = recorder.finish();
    let begins: Vec<_> = records!(events, OpBegin).map(|(_, op)| (op.key, op.kind, op.depth)).collect();
    assert_eq!(begins, [(0, 1, 1)]);
    let (end, op) = records!(events, OpEnd).next().expect("its end");
    assert_eq!((op.key, op.kind, op.steps, op.result), (0, 1, 1, 0));
    let call = records!(events, Syscall).find(|(_, s)| s.call == Call::Fsync as u16).expect("the call within");
    assert!(call.1.start_ns > op.start_ns && call.0.header.time_ns < end.header.time_ns);
}
