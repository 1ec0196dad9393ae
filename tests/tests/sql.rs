//! `fathom sql` and `fathom fleet` through the program, with the archives' own indexes, DuckDB and arithmetic as oracles.
//!
//! All of them are long: the program under test compiles an SQL engine (`make test-sql` builds it and runs them).

use anyhow::{Context, Result, bail, ensure};
use fathom_tests::contracts::hold;
use fathom_tests::fleets::{
    S3, answer, archives, built, copy, counted, fleet, here, others, python, python_has, refused, sql, text, told,
};
use fathom_tests::tmpfs::Tmpfs;
use fathom_tests::{Case, fathom, lane, run};
use serde_json::Value;
use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Output, Stdio};

fn main() -> ExitCode {
    let with_s3 = || built().and_then(|()| python_has("moto"));
    let cases: Vec<Case> = vec![
        ("long::every_table_of_every_archive_version_has_its_rows", built(), every_row),
        ("long::sql_that_writes_or_reads_files_is_refused", built(), only_reads),
        ("long::sql_error_marks_column", built(), marked),
        ("long::formats_hold_same_rows", built(), formats),
        ("long::failed_query_leaves_old_file", built(), old_file_stays),
        ("long::archive_without_tables_gets_them", built(), linked_first),
        ("long::same_recording_twice_is_refused", built(), twice),
        ("long::every_example_answers", built(), examples),
        ("long::shell_completes_tables_and_keeps_history", built(), shell),
        ("long::deep_statement_overflows_no_stack", built(), deep),
        ("long::integer_that_wraps_is_refused", built(), wraps),
        ("long::memory_limit_and_plan_are_explained", built(), explained),
        ("long::select_of_10000_columns_is_answered", built(), wide),
        ("long::ctrl_c_stops_planning_and_running", built(), stops),
        ("long::ctrl_c_leaves_no_directory_of_older_tables", built(), leaves_nothing),
        ("long::killed_query_leaves_directory_to_next_start_only", built(), swept),
        ("long::full_directory_of_spilled_rows_is_named", built(), full_spill),
        ("long::fleet_holds_same_rows_as_archives", built(), fleet_rows),
        ("long::killed_add_is_repeated_without_loss_or_double", built(), killed),
        ("long::two_writers_add_each_archive_once", built(), writers),
        ("long::bad_archives_are_named_and_others_added", built(), bad_archives),
        ("long::word_without_archive_hides_no_other", built(), wrong_word),
        ("long::private_texts_are_nowhere_in_fleet", built(), private),
        ("long::gc_merges_files_and_removes_orphans", built(), collected),
        ("long::full_store_is_reported_and_add_repeats", built(), full),
        ("long::fleet_in_s3_holds_same_rows", with_s3(), in_s3),
    ];
    lane(cases)
}

fn every_row() -> Result<()> {
    let directory = tempfile::tempdir()?;
    let archives = archives(directory.path())?;
    let expected = told(&archives)?;
    let place = text(directory.path());
    ensure!(
        counted(place, &expected)? == expected,
        "{:?}, and the indexes say {expected:?}",
        counted(place, &expected)?
    );
    // A table that no archive has is empty, and not an error.
    ensure!(
        answer(place, "SELECT count(*) AS n FROM losses")?[0]["n"].as_u64()
            == Some(expected.get("losses").copied().unwrap_or(0))
    );
    // Every row names its archive and run.
    let kinds = answer(
        place,
        "SELECT kind, count(DISTINCT run) AS runs, count(DISTINCT archive) AS names FROM archives GROUP BY kind ORDER BY kind",
    )?;
    let runs: u64 = kinds.iter().filter_map(|row| row["runs"].as_u64()).sum();
    ensure!(kinds.len() == 3 && runs == archives.len() as u64, "{kinds:?}");
    let stray = answer(
        place,
        "SELECT count(*) AS n FROM spans s LEFT JOIN archives a ON a.run = s.run WHERE a.run IS NULL OR a.date <> s.date",
    )?;
    ensure!(stray[0]["n"] == 0, "{stray:?}");
    // Times of an older version, which were unsigned, can be subtracted.
    let negative = answer(place, "SELECT min(start_ns - end_ns) AS least FROM spans WHERE archive LIKE 'v1%'")?;
    ensure!(negative[0]["least"].as_i64().is_some_and(|least| least < 0), "{negative:?}");
    Ok(())
}

fn only_reads() -> Result<()> {
    let directory = tempfile::tempdir()?;
    let archive = &archives(directory.path())?[0];
    let out = directory.path().join("out");
    let secret = directory.path().join("secret.csv");
    fs::write(&secret, "a\n1\n")?;
    let before = run(Command::new("find").arg(directory.path()).args(["-printf", "%p %s\n"]))?.stdout;
    let (out, secret) = (text(&out), text(&secret));
    for statement in [
        format!("COPY (SELECT 1) TO '{out}' STORED AS PARQUET"),
        format!("COPY archives TO '{out}.csv'"),
        format!("CREATE EXTERNAL TABLE x (a INT) STORED AS CSV LOCATION '{secret}'"),
        "CREATE TABLE x AS SELECT 1".into(),
        "CREATE VIEW x AS SELECT 1".into(),
        "INSERT INTO facts SELECT * FROM facts".into(),
        "DROP TABLE facts".into(),
        "DELETE FROM facts".into(),
        "UPDATE facts SET name = 'x'".into(),
        "SET datafusion.execution.batch_size = 1".into(),
        "PREPARE x AS SELECT 1".into(),
        "EXPLAIN ANALYZE INSERT INTO facts SELECT * FROM facts".into(),
        format!("WITH x AS (SELECT 1) SELECT * FROM '{secret}'"),
        "SELECT * FROM '/etc/passwd'".into(),
        format!("SELECT * FROM read_csv('{secret}')"),
        format!("SELECT * FROM \"{secret}\""),
    ] {
        refused(sql(&[text(archive), &statement])).context(statement)?;
    }
    let after = run(Command::new("find").arg(directory.path()).args(["-printf", "%p %s\n"]))?.stdout;
    ensure!(before == after, "files changed: {}", String::from_utf8_lossy(&after));
    Ok(())
}

fn marked() -> Result<()> {
    let archive = here("archives/v3-bench");
    let said = refused(sql(&[text(&archive), "SELECT device,\n  nmae FROM facts"]))?;
    ensure!(said.contains("  nmae FROM facts\n") && said.contains("\n    ^^^^"), "{said}");
    let said = refused(sql(&[text(&archive), "--explain", "SELECT nmae FROM facts"]))?;
    ensure!(said.contains("\n  SELECT nmae FROM facts\n         ^^^^"), "{said}");
    let plan = String::from_utf8(run(&mut sql(&[text(&archive), "--explain", "SELECT name FROM facts"]))?.stdout)?;
    ensure!(plan.starts_with("logical_plan\n  ") && plan.contains("\nphysical_plan\n  "), "{plan}");
    let said = refused(sql(&[text(&archive), "SELECT FROM WHERE"]))?;
    ensure!(said.contains('^'), "{said}");
    let said = refused(sql(&[text(&archive), "SELECT 1 FROM nothing"]))?;
    ensure!(said.contains("nothing"), "{said}");
    Ok(())
}

fn formats() -> Result<()> {
    let directory = tempfile::tempdir()?;
    let archive = here("archives/v3-linux-6.18-virtio");
    // A text that would be a formula, and one that would control a terminal.
    let statement = "SELECT name, value, '=1+1' AS formula, chr(27) || 'x' AS escape, -1 AS minus, CAST(NULL AS BIGINT) AS none FROM facts ORDER BY name";
    let rows = answer(text(&archive), statement)?;
    ensure!(rows.len() > 50 && rows[0]["escape"] == "\u{1b}x" && rows[0]["minus"] == -1 && rows[0]["none"].is_null());
    for ending in ["csv", "parquet", "json"] {
        let path = directory.path().join(format!("a.{ending}"));
        run(&mut sql(&[text(&archive), "-o", text(&path), statement]))?;
    }
    let csv = fs::read_to_string(directory.path().join("a.csv"))?;
    ensure!(
        csv.lines().count() == rows.len() + 1
            && csv.contains("\"'=1+1\"")
            && csv.contains(",-1,")
            && !csv.contains('\u{1b}')
    );
    let table = run(&mut sql(&[text(&archive), statement]))?.stdout;
    ensure!(!table.contains(&0x1b), "a text steers the terminal");
    let mut json: Value = serde_json::from_slice(&fs::read(directory.path().join("a.json"))?)?;
    ensure!(json["rows"].as_array().is_some_and(|again| *again == rows));
    // Column names depend on the query, so the schema does not list them.
    json["rows"] = Value::Array(Vec::new());
    hold("sql", &json)?;
    let names: Vec<PathBuf> = fs::read_dir(directory.path())?.map(|e| Ok(e?.path())).collect::<Result<_>>()?;
    ensure!(names.len() == 3, "something temporary is left: {names:?}");
    if python_has("duckdb").is_ok() {
        let program = "import duckdb, sys; print(len(duckdb.sql(f\"SELECT * FROM '{sys.argv[1]}'\").fetchall()))";
        let read = run(Command::new(python()).args(["-c", program]).arg(directory.path().join("a.parquet")))?;
        ensure!(String::from_utf8(read.stdout)?.trim() == rows.len().to_string());
    }
    let said = refused(sql(&[text(&archive), "--format", "parquet", "SELECT 1"]))?;
    ensure!(said.contains("-o"), "{said}");
    Ok(())
}

fn old_file_stays() -> Result<()> {
    let directory = tempfile::tempdir()?;
    let (archive, path) = (here("archives/v3-bench"), directory.path().join("a.csv"));
    fs::write(&path, "old")?;
    // This fails only at run time.
    refused(sql(&[
        text(&archive),
        "-o",
        text(&path),
        "SELECT 1 / (value - value) FROM (SELECT CAST(value AS BIGINT) AS value FROM samples)",
    ]))?;
    ensure!(fs::read_to_string(&path)? == "old" && fs::read_dir(directory.path())?.count() == 1);
    let said = refused(sql(&[text(&archive), "-o", "/nonexistent/a.csv", "SELECT 1"]))?;
    ensure!(said.contains("/nonexistent"), "{said}");
    for (output, place) in [(&["-o", "/dev/full"][..], "/dev/full"), (&[], "standard output")] {
        let mut command = sql(output);
        command.args([text(&archive), "SELECT * FROM samples"]).stdout(fs::File::create("/dev/full")?);
        let out = command.stderr(Stdio::piped()).spawn()?.wait_with_output()?;
        let said = String::from_utf8_lossy(&out.stderr);
        ensure!(!out.status.success() && said.contains(&format!("write the result to {place}: No space")), "{said}");
    }
    Ok(())
}

fn linked_first() -> Result<()> {
    let directory = tempfile::tempdir()?;
    let archive = directory.path().join("a.fathom");
    copy(&here("archives/v3-linux-6.18-virtio"), &archive)?;
    let rows = answer(text(&archive), "SELECT count(*) AS n FROM spans")?;
    fs::remove_dir_all(archive.join("tables"))?;
    ensure!(answer(text(&archive), "SELECT count(*) AS n FROM spans")? == rows);
    fs::remove_dir_all(archive.join("tables"))?;
    fs::remove_file(archive.join("events.log"))?;
    let said = refused(sql(&[text(&archive), "SELECT count(*) FROM spans"]))?;
    ensure!(said.contains("a.fathom"), "{said}");
    // A damaged table gives no answer.
    let damaged = directory.path().join("b.fathom");
    copy(&here("archives/v3-bench"), &damaged)?;
    let table = damaged.join("tables/samples.parquet");
    let mut bytes = fs::read(&table)?;
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    fs::write(&table, bytes)?;
    let said = refused(sql(&[text(&damaged), "SELECT count(*) FROM samples"]))?;
    ensure!(said.contains("samples.parquet") && said.contains("reindex"), "{said}");
    ensure!(!answer(text(&damaged), "SELECT count(*) AS n FROM facts")?.is_empty(), "the other tables can be asked");
    Ok(())
}

fn twice() -> Result<()> {
    let directory = tempfile::tempdir()?;
    copy(&here("archives/v3-bench"), &directory.path().join("a.fathom"))?;
    copy(&here("archives/v3-bench"), &directory.path().join("b.fathom"))?;
    let said = refused(sql(&[text(directory.path()), "SELECT 1"]))?;
    ensure!(said.contains("a.fathom") && said.contains("b.fathom") && said.contains("twice"), "{said}");
    let said = refused(sql(&["/nonexistent/x.fathom", "SELECT 1"]))?;
    ensure!(said.contains("/nonexistent/x.fathom"), "{said}");
    Ok(())
}

fn examples() -> Result<()> {
    let directory = tempfile::tempdir()?;
    archives(directory.path())?;
    let answers = run(&mut sql(&[text(directory.path()), "--examples"]))?;
    let answers = String::from_utf8(answers.stdout)?;
    let titles =
        answers.lines().filter(|line| line.contains('?') && line.chars().take(2).all(|c| c.is_ascii_digit())).count();
    ensure!(titles == 20, "{titles} answers");
    // Four flushes per INSERT with a rollback journal, as in the recording of the sample.
    let sample = here("archives/v3-linux-6.18-virtio");
    let one = run(&mut sql(&[text(&sample), "--format", "json", "--example", "flushes-an-insert"]))?;
    let one: Value = serde_json::from_slice(&one.stdout)?;
    let one = one["rows"].as_array().context("rows")?.clone();
    ensure!(one[0]["file_system"] == "ext4" && one[0]["inserts"] == 2 && one[0]["flushes_an_insert"] == 4.0, "{one:?}");
    let listed = run(&mut sql(&["--examples"]))?;
    ensure!(String::from_utf8(listed.stdout)?.matches("-- ").count() >= 40);
    Ok(())
}

/// Deep statements are answered or refused; a stack overflow would be a signal.
fn deep() -> Result<()> {
    let archive = here("archives/v3-bench");
    let sum = |terms: usize| format!("SELECT {} AS n", vec!["1"; terms].join("+"));
    ensure!(answer(text(&archive), &sum(1000))?[0]["n"] == 1000);
    for statement in [sum(100_000), format!("SELECT {}1{}", "(".repeat(20_000), ")".repeat(20_000))] {
        // From stdin: an argument of the command line has its own limit.
        let mut command = sql(&[text(&archive)]);
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null()).spawn()?;
        child.stdin.take().context("a stdin")?.write_all(statement.as_bytes())?;
        let status = child.wait()?;
        ensure!(status.code().is_some_and(|code| code < 2), "{}…: {status}", &statement[..40]);
    }
    Ok(())
}

fn wraps() -> Result<()> {
    let archive = here("archives/v3-linux-6.18-virtio");
    let largest = "9223372036854775807";
    for statement in [
        format!("SELECT max(start_ns) + {largest} FROM spans"),
        format!("SELECT start_ns - {largest} - {largest} FROM spans"),
        format!("SELECT id * {largest} FROM spans WHERE id > 1"),
        format!("SELECT sum({largest}) FROM spans"),
        format!("SELECT layer, sum({largest}) FROM spans GROUP BY layer"),
        format!("SELECT sum({largest}) OVER (PARTITION BY layer) FROM spans"),
    ] {
        let said = refused(sql(&[text(&archive), &statement])).context(statement.clone())?;
        ensure!(said.contains("64 bits") && said.contains("CAST"), "{statement}: {said}");
    }
    // A sum that fits equals one computed in another way.
    let sums = answer(
        text(&archive),
        "SELECT sum(start_ns) AS a, CAST(sum(0.0 + start_ns) AS BIGINT) AS b FROM spans GROUP BY layer",
    )?;
    ensure!(sums.len() > 3 && sums.iter().all(|row| row["a"].is_i64() && row["a"] == row["b"]), "{sums:?}");
    Ok(())
}

fn explained() -> Result<()> {
    let archive = here("archives/v3-linux-6.18-virtio");
    let said = refused(sql(&[text(&archive), "--memory", "1k", "SELECT * FROM spans ORDER BY start_ns"]))?;
    ensure!(said.contains("--memory") && !said.to_lowercase().contains("pool"), "{said}");
    // With the keyword as with the option.
    let plan = String::from_utf8(run(&mut sql(&[text(&archive), "EXPLAIN SELECT count(*) FROM spans"]))?.stdout)?;
    ensure!(plan.starts_with("logical_plan\n  ") && !plan.contains("\\u{"), "{plan}");
    let option =
        String::from_utf8(run(&mut sql(&[text(&archive), "--explain", "SELECT count(*) FROM spans"]))?.stdout)?;
    ensure!(option == plan, "{option}, and {plan}");
    // Only the comment has a `;`.
    let two = run(&mut sql(&[text(&archive), "--format", "csv", "SELECT 1 AS one /* a; b */"]))?;
    ensure!(String::from_utf8(two.stdout)? == "one\r\n1\r\n");
    Ok(())
}

fn wide() -> Result<()> {
    let directory = tempfile::tempdir()?;
    let (archive, path) = (here("archives/v3-bench"), directory.path().join("wide.sql"));
    let columns: Vec<String> = (0..10_000).map(|n| format!("{n} c{n}")).collect();
    fs::write(&path, format!("SELECT {}", columns.join(",")))?;
    let output = sql(&[text(&archive), "--format", "json", "--file", text(&path)]).output()?;
    let said = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "{said}");
    let whole: Value = serde_json::from_slice(&output.stdout)?;
    ensure!(whole["rows"][0]["c9999"] == 9999 && whole["columns"].as_array().is_some_and(|all| all.len() == 10_000));
    Ok(())
}

/// CPU time of a process, in ticks of the kernel; `None` once it has exited.
fn worked(pid: u32) -> Option<u64> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let fields: Vec<&str> = stat.rsplit_once(')')?.1.split(' ').collect();
    (fields.get(1) != Some(&"Z")).then(|| fields.get(12)?.parse().ok())?
}

fn stops() -> Result<()> {
    let archive = here("archives/v3-linux-6.18-virtio");
    let terms = format!("SELECT {} FROM spans", vec!["layer"; 900].join(" || "));
    for statement in
        ["SELECT count(*) FROM spans a, spans b, spans c, spans d WHERE a.id + b.id + c.id + d.id < 0", &terms]
    {
        let mut child =
            sql(&[text(&archive)]).stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::piped()).spawn()?;
        child.stdin.take().context("a stdin")?.write_all(statement.as_bytes())?;
        fathom_tests::until("it is at work", || Ok(worked(child.id()).is_none_or(|ticks| ticks > 60)))?;
        // Its statement may be done, so that nothing is left to cancel.
        let _ = Command::new("kill").args(["-INT", &child.id().to_string()]).stderr(Stdio::null()).status()?;
        let output = child.wait_with_output()?;
        let said = String::from_utf8_lossy(&output.stderr);
        // The plan may be complete before the signal arrives.
        let stopped = output.status.code() == Some(1) && said.contains("stopped");
        ensure!(stopped || (statement == terms && output.status.success()), "{}: {said}", output.status);
    }
    Ok(())
}

fn leaves_nothing() -> Result<()> {
    let directory = tempfile::tempdir()?;
    let (runs, tmp) = (directory.path().join("runs"), directory.path().join("tmp"));
    fs::create_dir(&runs)?;
    fs::create_dir(&tmp)?;
    others(&here("archives/v1-linux-6.1-virtio"), &runs, 40, 1)?;
    // The query has no end: however long the signal takes, the program is still at work.
    let endless = "SELECT count(*) FROM spans a CROSS JOIN spans b CROSS JOIN spans c CROSS JOIN spans d";
    let mut command = sql(&[text(&runs), endless]);
    let mut child = command.env("TMPDIR", &tmp).stdout(Stdio::null()).stderr(Stdio::piped()).spawn()?;
    let some = || -> Result<bool> { Ok(fs::read_dir(&tmp)?.next().is_some()) };
    fathom_tests::until("older tables are written anew", some)?;
    run(Command::new("kill").args(["-INT", &child.id().to_string()]))?;
    let ended = child.wait()?;
    ensure!(ended.code() == Some(1) && !some()?, "{ended}, and there is {:?}", fs::read_dir(&tmp)?.next());
    // Nor does a closed terminal leave anything behind.
    let mut child = command.spawn()?;
    fathom_tests::until("older tables are written anew", some)?;
    run(Command::new("kill").args(["-HUP", &child.id().to_string()]))?;
    let ended = child.wait()?;
    ensure!(ended.code() == Some(1) && !some()?, "{ended}, and there is {:?}", fs::read_dir(&tmp)?.next());
    // Nor does a completed query.
    run(sql(&[text(&runs), "SELECT count(*) FROM spans"]).env("TMPDIR", &tmp))?;
    ensure!(!some()?);
    Ok(())
}

/// A query that exceeds its memory.
const SPILLS: &str = "SELECT a.text || b.name AS x, b.value, a.run FROM shapes a CROSS JOIN facts b CROSS JOIN facts c ORDER BY x, b.value";

fn swept() -> Result<()> {
    let directory = tempfile::tempdir()?;
    let (runs, tmp) = (directory.path().join("runs"), directory.path().join("tmp"));
    fs::create_dir(&runs)?;
    fs::create_dir(&tmp)?;
    others(&here("archives/v1-linux-6.1-virtio"), &runs, 3, 1)?;
    let start = || -> Result<std::process::Child> {
        let mut command = sql(&[text(&runs), "--memory", "16M", SPILLS]);
        Ok(command.env("TMPDIR", &tmp).stdout(Stdio::null()).stderr(Stdio::null()).spawn()?)
    };
    // Rewritten older tables, and spilled rows.
    let spilled = || -> Result<bool> {
        let found =
            run(Command::new("find").arg(&tmp).args(["-type", "f", "-not", "-name", "*.parquet", "-size", "+0"]))?;
        Ok(!found.stdout.is_empty())
    };
    let mut child = start()?;
    fathom_tests::until("it spills", spilled)?;
    child.kill()?;
    child.wait()?;
    ensure!(fs::read_dir(&tmp)?.next().is_some(), "nothing was left");
    // A running process keeps its own files, while the next one removes those of the killed one.
    let mut other = start()?;
    fathom_tests::until("it spills", || {
        let listed = fs::read_dir(&tmp)?.count();
        Ok(spilled()? && listed > 0)
    })?;
    run(sql(&[text(&here("archives/v3-bench")), "SELECT 1"]).env("TMPDIR", &tmp))?;
    let alive = other.try_wait()?.is_none();
    ensure!(alive && spilled()?, "what was lived in is gone");
    other.kill()?;
    other.wait()?;
    run(sql(&[text(&here("archives/v3-bench")), "SELECT 1"]).env("TMPDIR", &tmp))?;
    let left: Vec<_> = fs::read_dir(&tmp)?.collect::<Result<_, _>>()?;
    ensure!(left.is_empty(), "{left:?}");
    Ok(())
}

/// A small tmpfs for spilled rows.
fn full_spill() -> Result<()> {
    if let Err(why) = fathom_tests::root() {
        println!("SKIP long::full_directory_of_spilled_rows_is_named: {why}");
        return Ok(());
    }
    let directory = tempfile::tempdir()?;
    let small = Tmpfs::new(directory.path().join("small"), "2m")?;
    let mut command = sql(&[text(&here("archives/v3-linux-6.18-virtio")), "--memory", "16M", SPILLS]);
    command.env("TMPDIR", &small.0).stdout(Stdio::null());
    let said = refused(command)?;
    ensure!(said.contains("No space left"), "{said}");
    ensure!(fs::read_dir(&small.0)?.next().is_none(), "something is left");
    Ok(())
}

fn shell() -> Result<()> {
    let state = tempfile::tempdir()?;
    let archive = here("archives/v3-bench");
    let program = here("programs/terminal.py");
    // Tab completes the table; the statement spans two lines; an error does not end the session.
    let typed = "SELECT count(*) AS n FROM sam\t\n;\nSELECT nmae FROM facts;\n\\d cells\n\\q\n";
    let mut child = Command::new("python3")
        .arg(program)
        .arg(fathom())
        .args(["sql", text(&archive)])
        .env("XDG_STATE_HOME", state.path())
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()?;
    child.stdin.take().context("a stdin")?.write_all(typed.as_bytes())?;
    let output = child.wait_with_output()?;
    let said = String::from_utf8_lossy(&output.stdout);
    ensure!(output.status.success(), "{said}");
    ensure!(
        said.contains("samples") && said.contains("252") && said.contains("^^^^") && said.contains("same_as"),
        "{said}"
    );
    let history = fs::read_to_string(state.path().join("fathom/sql_history"))?;
    ensure!(history.contains("samples"), "{history}");
    Ok(())
}

/// Creates a fleet with these archives in it.
fn filled(place: &str, archives: &Path) -> Result<Output> {
    run(&mut fleet(&["init", place]))?;
    run(&mut fleet(&["add", place, text(archives)]))
}

fn fleet_rows() -> Result<()> {
    let directory = tempfile::tempdir()?;
    let (runs, place) = (directory.path().join("runs"), directory.path().join("fleet"));
    fs::create_dir(&runs)?;
    let archives = archives(&runs)?;
    let expected = told(&archives)?;
    let place = text(&place);
    let said = String::from_utf8(filled(place, &runs)?.stdout)?;
    ensure!(said.starts_with(&format!("{} archives added", archives.len())), "{said}");
    ensure!(counted(place, &expected)? == expected);
    // Sums over values, in the fleet and directly in the archives.
    for statement in [
        "SELECT device, run, date, archive, CAST(sum(start_ns) AS DECIMAL(38)) AS s, count(end_ns) AS n FROM spans GROUP BY 1, 2, 3, 4 ORDER BY 2",
        "SELECT run, name, value, unit, source FROM facts ORDER BY 1, 2, 3",
        "SELECT run, metric, labels, time_ns, value FROM samples ORDER BY 1, 2, 3, 4, 5",
        "SELECT * FROM archives ORDER BY run",
    ] {
        let (raw, kept) = (answer(text(&runs), statement)?, answer(place, statement)?);
        ensure!(raw == kept && !raw.is_empty(), "{statement}: {} rows, and {}", raw.len(), kept.len());
    }
    // Added again, also under another name: nothing changes.
    let moved = runs.join("renamed.fathom");
    fs::rename(&archives[0], &moved)?;
    let said = String::from_utf8(run(&mut fleet(&["add", place, text(&runs)]))?.stdout)?;
    ensure!(
        said.starts_with("0 archives added") && said.contains(&format!("{} already there", archives.len())),
        "{said}"
    );
    ensure!(counted(place, &expected)? == expected);
    let listed: Value = serde_json::from_slice(&run(&mut fleet(&["ls", "--json", place]))?.stdout)?;
    hold("fleet-ls", &listed)?;
    ensure!(listed["archives"] == archives.len(), "{listed}");
    Ok(())
}

fn killed() -> Result<()> {
    let directory = tempfile::tempdir()?;
    let (runs, place) = (directory.path().join("runs"), directory.path().join("fleet"));
    fs::create_dir(&runs)?;
    let archives = others(&here("archives/v3-linux-6.18-virtio"), &runs, 40, 1)?;
    let expected = told(&archives)?;
    let place = text(&place);
    run(&mut fleet(&["init", place]))?;
    // Each round runs longer; the last one finishes by itself.
    let mut rounds = 0;
    for n in 1.. {
        let mut child = fleet(&["add", place, text(&runs)]).stdout(Stdio::null()).spawn()?;
        // A fixed wait: the moment of the kill is what the test varies.
        std::thread::sleep(std::time::Duration::from_millis(7 * n * n));
        let ended = child.try_wait()?.is_some();
        child.kill()?;
        child.wait()?;
        rounds = n;
        if ended {
            break;
        }
        // The store is consistent: every archive's rows, or none of them.
        let whole = answer(
            place,
            "SELECT count(*) AS n FROM archives a JOIN (SELECT run, count(*) AS c FROM spans GROUP BY run) s ON s.run = a.run WHERE s.c <> 252",
        )?;
        ensure!(whole[0]["n"] == 0, "{whole:?}");
    }
    ensure!(rounds > 2, "nothing was killed");
    run(&mut fleet(&["add", place, text(&runs)]))?;
    ensure!(counted(place, &expected)? == expected);
    // Files of the killed runs are removed, and nothing else.
    run(&mut fleet(&["gc", "--grace", "0", place]))?;
    ensure!(counted(place, &expected)? == expected);
    let files = String::from_utf8(run(&mut fleet(&["ls", "--files", "--", place]))?.stdout)?;
    let found = run(Command::new("find").arg(place).args(["-name", "*.parquet", "-printf", "%P\n"]))?;
    let mut found: Vec<String> = String::from_utf8(found.stdout)?.lines().map(str::to_string).collect();
    found.sort();
    ensure!(found == files.lines().collect::<Vec<_>>(), "{found:?}");
    Ok(())
}

fn writers() -> Result<()> {
    let directory = tempfile::tempdir()?;
    let (runs, place) = (directory.path().join("runs"), directory.path().join("fleet"));
    fs::create_dir(&runs)?;
    let archives = others(&here("archives/v3-bench"), &runs, 30, 1)?;
    let expected = told(&archives)?;
    let place = text(&place);
    run(&mut fleet(&["init", "--keep-raw", place]))?;
    let start = || fleet(&["add", place, text(&runs)]).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn();
    let both = [start()?, start()?, start()?];
    let mut added = 0;
    for writer in both {
        let output = writer.wait_with_output()?;
        ensure!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        let said = String::from_utf8(output.stdout)?;
        added += said.split(' ').next().and_then(|n| n.parse::<usize>().ok()).with_context(|| said.clone())?;
    }
    ensure!(added == archives.len(), "{added} added");
    ensure!(counted(place, &expected)? == expected);
    // Each archive's own files are kept, whichever writer committed it.
    let kept = |name: &str| -> Result<usize> {
        let raw = fs::read_dir(Path::new(place).join("_raw"))?.collect::<std::io::Result<Vec<_>>>()?;
        Ok(raw.iter().filter(|one| one.path().join(name).is_file()).count())
    };
    ensure!((kept("runs.jsonl")?, kept("meta.json")?) == (archives.len(), archives.len()));
    Ok(())
}

fn bad_archives() -> Result<()> {
    let directory = tempfile::tempdir()?;
    let (runs, place) = (directory.path().join("runs"), directory.path().join("fleet"));
    fs::create_dir(&runs)?;
    let good = others(&here("archives/v3-linux-6.18-virtio"), &runs, 5, 0)?;
    let expected = told(&good)?;
    let bad = |name: &str| -> Result<PathBuf> {
        let to = runs.join(name);
        copy(&good[0], &to)?;
        let path = to.join("meta.json");
        let mut meta: Value = serde_json::from_slice(&fs::read(&path)?)?;
        // Each is a distinct recording.
        meta["created_unix_ns"] = (name.len() as u64 * 1000 + u64::from(name.as_bytes()[0])).into();
        fs::write(&path, serde_json::to_vec(&meta)?)?;
        Ok(to)
    };
    // Truncated, of another program, of a newer version, with a flipped bit, and with rows that its index does not have.
    let cut = bad("cut.fathom")?.join("tables/spans.parquet");
    fs::write(&cut, &fs::read(&cut)?[..100])?;
    fs::write(bad("foreign.fathom")?.join("meta.json"), "{\"name\": \"web\"}")?;
    let newer = bad("newer.fathom")?.join("meta.json");
    fs::write(&newer, fs::read_to_string(&newer)?.replace("\"version\":1", "\"version\":99"))?;
    let flipped = bad("flipped.fathom")?.join("tables/links.parquet");
    let mut bytes = fs::read(&flipped)?;
    bytes[40] ^= 1;
    fs::write(&flipped, bytes)?;
    let index = bad("index.fathom")?.join("tables/index.json");
    fs::write(&index, fs::read_to_string(&index)?.replace("\"slices\": 309", "\"slices\": 308"))?;
    let place = text(&place);
    run(&mut fleet(&["init", place]))?;
    let output = fleet(&["add", place, text(&runs)]).output()?;
    let (out, said) = (String::from_utf8(output.stdout)?, String::from_utf8(output.stderr)?);
    ensure!(output.status.code() == Some(1), "{out}{said}");
    for name in ["cut", "foreign", "newer", "flipped", "index"] {
        ensure!(said.lines().any(|line| line.contains(&format!("{name}.fathom"))), "{name}: {said}");
    }
    ensure!(out.starts_with("5 archives added") && out.contains("5 skipped"), "{out}");
    ensure!(counted(place, &expected)? == expected);
    Ok(())
}

fn wrong_word() -> Result<()> {
    let directory = tempfile::tempdir()?;
    let (place, empty) = (directory.path().join("fleet"), directory.path().join("empty"));
    fs::create_dir(&empty)?;
    run(&mut fleet(&["init", text(&place)]))?;
    let good = here("archives/v3-bench");
    let output = fleet(&["add", text(&place), "/nonexistent/a.fathom", text(&good), text(&empty)]).output()?;
    let (out, said) = (String::from_utf8(output.stdout)?, String::from_utf8(output.stderr)?);
    ensure!(
        output.status.code() == Some(1) && out.starts_with("1 archive added") && out.contains("2 skipped"),
        "{out}{said}"
    );
    ensure!(said.contains("/nonexistent/a.fathom") && said.contains(text(&empty)), "{said}");
    // A query fails instead: without that archive it would be another query.
    let said = refused(sql(&[text(&good), "/nonexistent/a.fathom", "SELECT 1"]))?;
    ensure!(said.contains("/nonexistent/a.fathom"), "{said}");
    Ok(())
}

fn private() -> Result<()> {
    let directory = tempfile::tempdir()?;
    let place = directory.path().join("fleet");
    let place = text(&place);
    run(&mut fleet(&["init", place, "--commands", "drop", "--paths", "hash", "--sql", "hash"]))?;
    run(&mut fleet(&["add", place, text(&here("archives/v3-linux-6.18-virtio")), text(&here("archives/v3-net"))]))?;
    // A comparison of commands, which are the names of its cells.
    let compared = directory.path().join("ab.fathom");
    let mut bench = Command::new(fathom());
    bench.args(["bench", "ab", "--blocks", "10", "--budget", "1s", "-o"]).arg(&compared);
    run(bench.args(["--", "true hiddenword", "true otherhiddenword"]))?;
    run(&mut fleet(&["add", place, text(&compared)]))?;
    // In every text column of every table, texts that occur in the archives only in private fields.
    let columns = answer(
        place,
        "SELECT table_name, column_name FROM information_schema.columns WHERE table_schema = 'public' AND data_type LIKE 'Utf8%'",
    )?;
    ensure!(columns.len() > 50, "{columns:?}");
    for column in columns {
        let (table, name) =
            (column["table_name"].as_str().unwrap_or_default(), column["column_name"].as_str().unwrap_or_default());
        for secret in
            ["t.db", "/tmp/a", "insert into", "127.0.0.1", "libsqlite3.so", "/usr/bin", "sqlite3 ", "hiddenword"]
        {
            let found = answer(
                place,
                &format!("SELECT \"{name}\" AS t FROM {table} WHERE lower(\"{name}\") LIKE '%{secret}%' LIMIT 1"),
            )?;
            ensure!(found.is_empty(), "{table}.{name} holds {found:?}");
        }
    }
    let names = answer(place, "SELECT DISTINCT name FROM processes")?;
    ensure!(names.len() == 1 && names[0]["name"] == "(dropped)", "{names:?}");
    // Equal texts are still equal.
    let shapes = answer(place, "SELECT count(*) AS n, count(DISTINCT text) AS d FROM shapes WHERE text LIKE 'hash:%'")?;
    ensure!(shapes[0]["n"] == 5 && shapes[0]["d"] == 5, "{shapes:?}");
    let said = refused(fleet(&["init", &format!("{place}2"), "--keep-raw", "--sql", "drop"]))?;
    ensure!(said.contains("--keep-raw"), "{said}");
    Ok(())
}

fn collected() -> Result<()> {
    let directory = tempfile::tempdir()?;
    let (runs, place) = (directory.path().join("runs"), directory.path().join("fleet"));
    fs::create_dir(&runs)?;
    let archives = others(&here("archives/v3-bench"), &runs, 6, 0)?;
    let expected = told(&archives)?;
    let place = text(&place);
    run(&mut fleet(&["init", "--keep-raw", place]))?;
    for archive in &archives {
        run(&mut fleet(&["add", place, text(archive)]))?;
    }
    let count = || -> Result<usize> {
        Ok(String::from_utf8(run(&mut fleet(&["ls", "--files", "samples", place]))?.stdout)?.lines().count())
    };
    ensure!(count()? == 6);
    let orphan = Path::new(place).join("samples/date=2026-11-20/part-orphan.parquet");
    fs::create_dir_all(orphan.parent().context("a directory")?)?;
    fs::copy(archives[0].join("tables/samples.parquet"), &orphan)?;
    ensure!(counted(place, &expected)? == expected, "a file that no commit names is not read");
    // Within the grace period everything is kept.
    run(&mut fleet(&["gc", place]))?;
    ensure!(count()? == 1 && orphan.exists() && counted(place, &expected)? == expected);
    run(&mut fleet(&["gc", "--grace", "0", place]))?;
    ensure!(!orphan.exists() && counted(place, &expected)? == expected);
    let left = run(Command::new("find").arg(place).args(["-name", "*.parquet"]))?;
    ensure!(String::from_utf8(left.stdout)?.lines().count() == expected.len());
    // The archives are kept, and are identical to the original recordings.
    let raw: Vec<PathBuf> =
        fs::read_dir(Path::new(place).join("_raw"))?.map(|e| Ok(e?.path())).collect::<Result<_>>()?;
    ensure!(raw.len() == 6, "{raw:?}");
    let again = String::from_utf8(run(&mut fleet(&["add", place, text(&raw[0])]))?.stdout)?;
    ensure!(again.contains("1 already there"), "{again}");
    Ok(())
}

/// A full store: a small tmpfs.
fn full() -> Result<()> {
    if let Err(why) = fathom_tests::root() {
        println!("SKIP long::full_store_is_reported_and_add_repeats: {why}");
        return Ok(());
    }
    let directory = tempfile::tempdir()?;
    let runs = directory.path().join("runs");
    fs::create_dir(&runs)?;
    let archives = others(&here("archives/v3-linux-6.18-virtio"), &runs, 30, 1)?;
    let expected = told(&archives)?;
    let small = Tmpfs::new(directory.path().join("small"), "1m")?;
    let place = small.0.join("fleet");
    let place = text(&place);
    run(&mut fleet(&["init", place]))?;
    let said = refused(fleet(&["add", place, text(&runs)]))?;
    ensure!(said.contains("No space left"), "{said}");
    let some = answer(place, "SELECT count(*) AS n FROM archives")?[0]["n"].as_u64().context("a count")?;
    ensure!(some < 30, "it had room");
    run(Command::new("mount").args(["-o", "remount,size=64m"]).arg(&small.0))?;
    run(&mut fleet(&["add", place, text(&runs)]))?;
    ensure!(counted(place, &expected)? == expected);
    Ok(())
}

fn in_s3() -> Result<()> {
    let store = S3::start()?;
    let directory = tempfile::tempdir()?;
    let runs = directory.path();
    let archives = others(&here("archives/v3-linux-6.18-virtio"), runs, 6, 1)?;
    let expected = told(&archives)?;
    let place = "s3://shelf/fleets/a";
    run(store.with(&mut fleet(&["init", place])))?;
    // Two writers at once, as in a directory.
    let mut two = [fleet(&["add", place, text(runs)]), fleet(&["add", place, text(runs)])];
    let children: Vec<_> =
        two.iter_mut().map(|one| store.with(one).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn()).collect();
    for child in children {
        let output = child?.wait_with_output()?;
        ensure!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    }
    let count = |table: &str| -> Result<u64> {
        let statement = format!("SELECT count(*) AS n FROM {table}");
        let output = run(store.with(&mut sql(&[place, "--format", "json", &statement])))?;
        let whole: Value = serde_json::from_slice(&output.stdout)?;
        whole["rows"][0]["n"].as_u64().context("a count")
    };
    for (table, rows) in &expected {
        ensure!(count(table)? == *rows, "{table}: {} rows, and the indexes say {rows}", count(table)?);
    }
    run(store.with(&mut fleet(&["gc", "--grace", "0", place])))?;
    ensure!(count("spans")? == expected["spans"]);
    let said = refused({
        let mut command = fleet(&["ls", "s3://nothing/here"]);
        store.with(&mut command);
        command
    })?;
    ensure!(said.contains("s3://nothing/here") || said.contains("fleet.json"), "{said}");
    if said.is_empty() {
        bail!("nothing was said");
    }
    Ok(())
}
