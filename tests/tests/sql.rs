//! `fathom sql` and `fathom fleet` through the program, with the archives' own indexes, DuckDB and arithmetic as oracles.
//!
//! All of them are long: the program under test compiles an SQL engine (`make test-sql` builds it and runs them).

use anyhow::{Context, Result, bail, ensure};
use fathom_tests::contracts::check_contract;
use fathom_tests::fleets::{
    S3, built, copy_directory, copy_sample_archives, crate_path, fleet_command, indexed_rows, make_similar_archives,
    path_text, python, python_has, queried_rows, query_rows, refusal_of, sql_command,
};
use fathom_tests::tmpfs::Tmpfs;
use fathom_tests::{Case, fathom, run, run_suite};
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
        ("long::sql_error_marks_column", built(), sql_error_marks_column),
        ("long::formats_hold_same_rows", built(), formats_hold_same_rows),
        ("long::failed_query_leaves_old_file", built(), old_file_stays),
        ("long::archive_without_tables_gets_them", built(), linked_first),
        ("long::same_recording_twice_is_refused", built(), same_recording_twice_is_refused),
        ("long::every_example_answers", built(), every_example_answers),
        ("long::shell_completes_tables_and_keeps_history", built(), shell_completes_tables_and_keeps_history),
        ("long::deep_statement_overflows_no_stack", built(), deep_statement_overflows_no_stack),
        ("long::integer_that_wraps_is_refused", built(), integer_that_wraps_is_refused),
        ("long::memory_limit_and_plan_are_explained", built(), memory_limit_and_plan_are_explained),
        ("long::select_of_10000_columns_is_answered", built(), select_of_10000_columns_is_answered),
        ("long::ctrl_c_stops_planning_and_running", built(), ctrl_c_stops_planning_and_running),
        ("long::ctrl_c_leaves_no_directory_of_older_tables", built(), leaves_nothing),
        (
            "long::killed_query_leaves_directory_to_next_start_only",
            built(),
            killed_query_leaves_directory_to_next_start_only,
        ),
        ("long::full_directory_of_spilled_rows_is_named", built(), full_spill),
        ("long::fleet_holds_same_rows_as_archives", built(), fleet_rows),
        ("long::killed_add_is_repeated_without_loss_or_double", built(), killed_add_is_repeated_without_loss_or_double),
        ("long::two_writers_add_each_archive_once", built(), two_writers_add_each_archive_once),
        ("long::bad_archives_are_named_and_others_added", built(), bad_archives),
        ("long::word_without_archive_hides_no_other", built(), wrong_word),
        ("long::private_texts_are_nowhere_in_fleet", built(), private_texts_are_nowhere_in_fleet),
        ("long::gc_merges_files_and_removes_orphans", built(), gc_merges_files_and_removes_orphans),
        ("long::full_store_is_reported_and_add_repeats", built(), full_store_is_reported_and_add_repeats),
        ("long::fleet_in_s3_holds_same_rows", with_s3(), in_s3),
    ];
    run_suite(cases)
}

fn every_row() -> Result<()> {
    let directory = tempfile::tempdir()?;
    let archives = copy_sample_archives(directory.path())?;
    let expected = indexed_rows(&archives)?;
    let place = path_text(directory.path());
    ensure!(
        queried_rows(place, &expected)? == expected,
        "{:?}, and the indexes say {expected:?}",
        queried_rows(place, &expected)?
    );
    // A table that no archive has is empty, and not an error.
    ensure!(
        query_rows(place, "SELECT count(*) AS n FROM losses")?[0]["n"].as_u64()
            == Some(expected.get("losses").copied().unwrap_or(0))
    );
    // Every row names its archive and run.
    let kinds = query_rows(
        place,
        "SELECT kind, count(DISTINCT run) AS runs, count(DISTINCT archive) AS names FROM archives GROUP BY kind ORDER BY kind",
    )?;
    let runs: u64 = kinds.iter().filter_map(|row| row["runs"].as_u64()).sum();
    ensure!(kinds.len() == 3 && runs == archives.len() as u64, "{kinds:?}");
    let stray = query_rows(
        place,
        "SELECT count(*) AS n FROM spans s LEFT JOIN archives a ON a.run = s.run WHERE a.run IS NULL OR a.date <> s.date",
    )?;
    ensure!(stray[0]["n"] == 0, "{stray:?}");
    // Times of an older version, which were unsigned, can be subtracted.
    let negative = query_rows(place, "SELECT min(start_ns - end_ns) AS least FROM spans WHERE archive LIKE 'v1%'")?;
    ensure!(negative[0]["least"].as_i64().is_some_and(|least| least < 0), "{negative:?}");
    Ok(())
}

fn only_reads() -> Result<()> {
    let directory = tempfile::tempdir()?;
    let archive = &copy_sample_archives(directory.path())?[0];
    let out = directory.path().join("out");
    let secret = directory.path().join("secret.csv");
    fs::write(&secret, "a\n1\n")?;
    let before = run(Command::new("find").arg(directory.path()).args(["-printf", "%p %s\n"]))?.stdout;
    let (out, secret) = (path_text(&out), path_text(&secret));
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
        refusal_of(sql_command(&[path_text(archive), &statement])).context(statement)?;
    }
    let after = run(Command::new("find").arg(directory.path()).args(["-printf", "%p %s\n"]))?.stdout;
    ensure!(before == after, "files changed: {}", String::from_utf8_lossy(&after));
    Ok(())
}

fn sql_error_marks_column() -> Result<()> {
    let archive = crate_path("archives/v3-bench");
    let said = refusal_of(sql_command(&[path_text(&archive), "SELECT device,\n  nmae FROM facts"]))?;
    ensure!(said.contains("  nmae FROM facts\n") && said.contains("\n    ^^^^"), "{said}");
    let said = refusal_of(sql_command(&[path_text(&archive), "--explain", "SELECT nmae FROM facts"]))?;
    ensure!(said.contains("\n  SELECT nmae FROM facts\n         ^^^^"), "{said}");
    let plan = String::from_utf8(
        run(&mut sql_command(&[path_text(&archive), "--explain", "SELECT name FROM facts"]))?.stdout,
    )?;
    ensure!(plan.starts_with("logical_plan\n  ") && plan.contains("\nphysical_plan\n  "), "{plan}");
    let said = refusal_of(sql_command(&[path_text(&archive), "SELECT FROM WHERE"]))?;
    ensure!(said.contains('^'), "{said}");
    let said = refusal_of(sql_command(&[path_text(&archive), "SELECT 1 FROM nothing"]))?;
    ensure!(said.contains("nothing"), "{said}");
    Ok(())
}

fn formats_hold_same_rows() -> Result<()> {
    let directory = tempfile::tempdir()?;
    let archive = crate_path("archives/v3-linux-6.18-virtio");
    // A text that would be a formula, and one that would control a terminal.
    let statement = "SELECT name, value, '=1+1' AS formula, chr(27) || 'x' AS escape, -1 AS minus, CAST(NULL AS BIGINT) AS none FROM facts ORDER BY name";
    let rows = query_rows(path_text(&archive), statement)?;
    ensure!(rows.len() > 50 && rows[0]["escape"] == "\u{1b}x" && rows[0]["minus"] == -1 && rows[0]["none"].is_null());
    for ending in ["csv", "parquet", "json"] {
        let path = directory.path().join(format!("a.{ending}"));
        run(&mut sql_command(&[path_text(&archive), "-o", path_text(&path), statement]))?;
    }
    let csv = fs::read_to_string(directory.path().join("a.csv"))?;
    ensure!(
        csv.lines().count() == rows.len() + 1
            && csv.contains("\"'=1+1\"")
            && csv.contains(",-1,")
            && !csv.contains('\u{1b}')
    );
    let table = run(&mut sql_command(&[path_text(&archive), statement]))?.stdout;
    ensure!(!table.contains(&0x1b), "a text steers the terminal");
    let mut json: Value = serde_json::from_slice(&fs::read(directory.path().join("a.json"))?)?;
    ensure!(json["rows"].as_array().is_some_and(|again| *again == rows));
    // Column names depend on the query, so the schema does not list them.
    json["rows"] = Value::Array(Vec::new());
    check_contract("sql", &json)?;
    let names: Vec<PathBuf> = fs::read_dir(directory.path())?.map(|e| Ok(e?.path())).collect::<Result<_>>()?;
    ensure!(names.len() == 3, "something temporary is left: {names:?}");
    if python_has("duckdb").is_ok() {
        let program = "import duckdb, sys; print(len(duckdb.sql(f\"SELECT * FROM '{sys.argv[1]}'\").fetchall()))";
        let read = run(Command::new(python()).args(["-c", program]).arg(directory.path().join("a.parquet")))?;
        ensure!(String::from_utf8(read.stdout)?.trim() == rows.len().to_string());
    }
    let said = refusal_of(sql_command(&[path_text(&archive), "--format", "parquet", "SELECT 1"]))?;
    ensure!(said.contains("-o"), "{said}");
    Ok(())
}

fn old_file_stays() -> Result<()> {
    let directory = tempfile::tempdir()?;
    let (archive, path) = (crate_path("archives/v3-bench"), directory.path().join("a.csv"));
    fs::write(&path, "old")?;
    // This fails only at run time.
    refusal_of(sql_command(&[
        path_text(&archive),
        "-o",
        path_text(&path),
        "SELECT 1 / (value - value) FROM (SELECT CAST(value AS BIGINT) AS value FROM samples)",
    ]))?;
    ensure!(fs::read_to_string(&path)? == "old" && fs::read_dir(directory.path())?.count() == 1);
    let said = refusal_of(sql_command(&[path_text(&archive), "-o", "/nonexistent/a.csv", "SELECT 1"]))?;
    ensure!(said.contains("/nonexistent"), "{said}");
    for (output, place) in [(&["-o", "/dev/full"][..], "/dev/full"), (&[], "standard output")] {
        let mut command = sql_command(output);
        command.args([path_text(&archive), "SELECT * FROM samples"]).stdout(fs::File::create("/dev/full")?);
        let out = command.stderr(Stdio::piped()).spawn()?.wait_with_output()?;
        let said = String::from_utf8_lossy(&out.stderr);
        ensure!(!out.status.success() && said.contains(&format!("write the result to {place}: No space")), "{said}");
    }
    Ok(())
}

fn linked_first() -> Result<()> {
    let directory = tempfile::tempdir()?;
    let archive = directory.path().join("a.fathom");
    copy_directory(&crate_path("archives/v3-linux-6.18-virtio"), &archive)?;
    let rows = query_rows(path_text(&archive), "SELECT count(*) AS n FROM spans")?;
    fs::remove_dir_all(archive.join("tables"))?;
    ensure!(query_rows(path_text(&archive), "SELECT count(*) AS n FROM spans")? == rows);
    fs::remove_dir_all(archive.join("tables"))?;
    fs::remove_file(archive.join("events.log"))?;
    let said = refusal_of(sql_command(&[path_text(&archive), "SELECT count(*) FROM spans"]))?;
    ensure!(said.contains("a.fathom"), "{said}");
    // A damaged table gives no answer.
    let damaged = directory.path().join("b.fathom");
    copy_directory(&crate_path("archives/v3-bench"), &damaged)?;
    let table = damaged.join("tables/samples.parquet");
    let mut bytes = fs::read(&table)?;
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    fs::write(&table, bytes)?;
    let said = refusal_of(sql_command(&[path_text(&damaged), "SELECT count(*) FROM samples"]))?;
    ensure!(said.contains("samples.parquet") && said.contains("reindex"), "{said}");
    ensure!(
        !query_rows(path_text(&damaged), "SELECT count(*) AS n FROM facts")?.is_empty(),
        "the other tables can be asked"
    );
    Ok(())
}

fn same_recording_twice_is_refused() -> Result<()> {
    let directory = tempfile::tempdir()?;
    copy_directory(&crate_path("archives/v3-bench"), &directory.path().join("a.fathom"))?;
    copy_directory(&crate_path("archives/v3-bench"), &directory.path().join("b.fathom"))?;
    let said = refusal_of(sql_command(&[path_text(directory.path()), "SELECT 1"]))?;
    ensure!(said.contains("a.fathom") && said.contains("b.fathom") && said.contains("twice"), "{said}");
    let said = refusal_of(sql_command(&["/nonexistent/x.fathom", "SELECT 1"]))?;
    ensure!(said.contains("/nonexistent/x.fathom"), "{said}");
    Ok(())
}

fn every_example_answers() -> Result<()> {
    let directory = tempfile::tempdir()?;
    copy_sample_archives(directory.path())?;
    let answers = run(&mut sql_command(&[path_text(directory.path()), "--examples"]))?;
    let answers = String::from_utf8(answers.stdout)?;
    let titles =
        answers.lines().filter(|line| line.contains('?') && line.chars().take(2).all(|c| c.is_ascii_digit())).count();
    ensure!(titles == 20, "{titles} answers");
    // Four flushes per INSERT with a rollback journal, as in the recording of the sample.
    let sample = crate_path("archives/v3-linux-6.18-virtio");
    let one = run(&mut sql_command(&[path_text(&sample), "--format", "json", "--example", "flushes-an-insert"]))?;
    let one: Value = serde_json::from_slice(&one.stdout)?;
    let one = one["rows"].as_array().context("rows")?.clone();
    ensure!(one[0]["file_system"] == "ext4" && one[0]["inserts"] == 2 && one[0]["flushes_an_insert"] == 4.0, "{one:?}");
    let listed = run(&mut sql_command(&["--examples"]))?;
    ensure!(String::from_utf8(listed.stdout)?.matches("-- ").count() >= 40);
    Ok(())
}

/// Deep statements are answered or refused; a stack overflow would be a signal.
fn deep_statement_overflows_no_stack() -> Result<()> {
    let archive = crate_path("archives/v3-bench");
    let sum = |terms: usize| format!("SELECT {} AS n", vec!["1"; terms].join("+"));
    ensure!(query_rows(path_text(&archive), &sum(1000))?[0]["n"] == 1000);
    for statement in [sum(100_000), format!("SELECT {}1{}", "(".repeat(20_000), ")".repeat(20_000))] {
        // From stdin: an argument of the command line has its own limit.
        let mut command = sql_command(&[path_text(&archive)]);
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null()).spawn()?;
        child.stdin.take().context("a stdin")?.write_all(statement.as_bytes())?;
        let status = child.wait()?;
        ensure!(status.code().is_some_and(|code| code < 2), "{}…: {status}", &statement[..40]);
    }
    Ok(())
}

fn integer_that_wraps_is_refused() -> Result<()> {
    let archive = crate_path("archives/v3-linux-6.18-virtio");
    let largest = "9223372036854775807";
    for statement in [
        format!("SELECT max(start_ns) + {largest} FROM spans"),
        format!("SELECT start_ns - {largest} - {largest} FROM spans"),
        format!("SELECT id * {largest} FROM spans WHERE id > 1"),
        format!("SELECT sum({largest}) FROM spans"),
        format!("SELECT layer, sum({largest}) FROM spans GROUP BY layer"),
        format!("SELECT sum({largest}) OVER (PARTITION BY layer) FROM spans"),
    ] {
        let said = refusal_of(sql_command(&[path_text(&archive), &statement])).context(statement.clone())?;
        ensure!(said.contains("64 bits") && said.contains("CAST"), "{statement}: {said}");
    }
    // A sum that fits equals one computed in another way.
    let sums = query_rows(
        path_text(&archive),
        "SELECT sum(start_ns) AS a, CAST(sum(0.0 + start_ns) AS BIGINT) AS b FROM spans GROUP BY layer",
    )?;
    ensure!(sums.len() > 3 && sums.iter().all(|row| row["a"].is_i64() && row["a"] == row["b"]), "{sums:?}");
    Ok(())
}

fn memory_limit_and_plan_are_explained() -> Result<()> {
    let archive = crate_path("archives/v3-linux-6.18-virtio");
    let said =
        refusal_of(sql_command(&[path_text(&archive), "--memory", "1k", "SELECT * FROM spans ORDER BY start_ns"]))?;
    ensure!(said.contains("--memory") && !said.to_lowercase().contains("pool"), "{said}");
    // With the keyword as with the option.
    let plan =
        String::from_utf8(run(&mut sql_command(&[path_text(&archive), "EXPLAIN SELECT count(*) FROM spans"]))?.stdout)?;
    ensure!(plan.starts_with("logical_plan\n  ") && !plan.contains("\\u{"), "{plan}");
    let option = String::from_utf8(
        run(&mut sql_command(&[path_text(&archive), "--explain", "SELECT count(*) FROM spans"]))?.stdout,
    )?;
    ensure!(option == plan, "{option}, and {plan}");
    // Only the comment has a `;`.
    let two = run(&mut sql_command(&[path_text(&archive), "--format", "csv", "SELECT 1 AS one /* a; b */"]))?;
    ensure!(String::from_utf8(two.stdout)? == "one\r\n1\r\n");
    Ok(())
}

fn select_of_10000_columns_is_answered() -> Result<()> {
    let directory = tempfile::tempdir()?;
    let (archive, path) = (crate_path("archives/v3-bench"), directory.path().join("wide.sql"));
    let columns: Vec<String> = (0..10_000).map(|n| format!("{n} c{n}")).collect();
    fs::write(&path, format!("SELECT {}", columns.join(",")))?;
    let output = sql_command(&[path_text(&archive), "--format", "json", "--file", path_text(&path)]).output()?;
    let said = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "{said}");
    let whole: Value = serde_json::from_slice(&output.stdout)?;
    ensure!(whole["rows"][0]["c9999"] == 9999 && whole["columns"].as_array().is_some_and(|all| all.len() == 10_000));
    Ok(())
}

/// CPU time of a process, in ticks of the kernel; `None` once it has exited.
fn cpu_ticks(pid: u32) -> Option<u64> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let fields: Vec<&str> = stat.rsplit_once(')')?.1.split(' ').collect();
    (fields.get(1) != Some(&"Z")).then(|| fields.get(12)?.parse().ok())?
}

fn ctrl_c_stops_planning_and_running() -> Result<()> {
    let archive = crate_path("archives/v3-linux-6.18-virtio");
    let terms = format!("SELECT {} FROM spans", vec!["layer"; 900].join(" || "));
    for statement in
        ["SELECT count(*) FROM spans a, spans b, spans c, spans d WHERE a.id + b.id + c.id + d.id < 0", &terms]
    {
        let mut child = sql_command(&[path_text(&archive)])
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()?;
        child.stdin.take().context("a stdin")?.write_all(statement.as_bytes())?;
        fathom_tests::wait_until("it is at work", || Ok(cpu_ticks(child.id()).is_none_or(|ticks| ticks > 60)))?;
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
    make_similar_archives(&crate_path("archives/v1-linux-6.1-virtio"), &runs, 40, 1)?;
    // The query has no end: however long the signal takes, the program is still at work.
    let endless = "SELECT count(*) FROM spans a CROSS JOIN spans b CROSS JOIN spans c CROSS JOIN spans d";
    let mut command = sql_command(&[path_text(&runs), endless]);
    let mut child = command.env("TMPDIR", &tmp).stdout(Stdio::null()).stderr(Stdio::piped()).spawn()?;
    let some = || -> Result<bool> { Ok(fs::read_dir(&tmp)?.next().is_some()) };
    fathom_tests::wait_until("older tables are written anew", some)?;
    run(Command::new("kill").args(["-INT", &child.id().to_string()]))?;
    let ended = child.wait()?;
    ensure!(ended.code() == Some(1) && !some()?, "{ended}, and there is {:?}", fs::read_dir(&tmp)?.next());
    // Nor does a closed terminal leave anything behind.
    let mut child = command.spawn()?;
    fathom_tests::wait_until("older tables are written anew", some)?;
    run(Command::new("kill").args(["-HUP", &child.id().to_string()]))?;
    let ended = child.wait()?;
    ensure!(ended.code() == Some(1) && !some()?, "{ended}, and there is {:?}", fs::read_dir(&tmp)?.next());
    // Nor does a completed query.
    run(sql_command(&[path_text(&runs), "SELECT count(*) FROM spans"]).env("TMPDIR", &tmp))?;
    ensure!(!some()?);
    Ok(())
}

/// A query that exceeds its memory.
const SPILLING_QUERY: &str = "SELECT a.text || b.name AS x, b.value, a.run FROM shapes a CROSS JOIN facts b CROSS JOIN facts c ORDER BY x, b.value";

fn killed_query_leaves_directory_to_next_start_only() -> Result<()> {
    let directory = tempfile::tempdir()?;
    let (runs, tmp) = (directory.path().join("runs"), directory.path().join("tmp"));
    fs::create_dir(&runs)?;
    fs::create_dir(&tmp)?;
    make_similar_archives(&crate_path("archives/v1-linux-6.1-virtio"), &runs, 3, 1)?;
    let start = || -> Result<std::process::Child> {
        let mut command = sql_command(&[path_text(&runs), "--memory", "16M", SPILLING_QUERY]);
        Ok(command.env("TMPDIR", &tmp).stdout(Stdio::null()).stderr(Stdio::null()).spawn()?)
    };
    // Rewritten older tables, and spilled rows.
    let spilled = || -> Result<bool> {
        let found =
            run(Command::new("find").arg(&tmp).args(["-type", "f", "-not", "-name", "*.parquet", "-size", "+0"]))?;
        Ok(!found.stdout.is_empty())
    };
    let mut child = start()?;
    fathom_tests::wait_until("it spills", spilled)?;
    child.kill()?;
    child.wait()?;
    ensure!(fs::read_dir(&tmp)?.next().is_some(), "nothing was left");
    // A running process keeps its own files, while the next one removes those of the killed one.
    let mut other = start()?;
    fathom_tests::wait_until("it spills", || {
        let listed = fs::read_dir(&tmp)?.count();
        Ok(spilled()? && listed > 0)
    })?;
    run(sql_command(&[path_text(&crate_path("archives/v3-bench")), "SELECT 1"]).env("TMPDIR", &tmp))?;
    let alive = other.try_wait()?.is_none();
    ensure!(alive && spilled()?, "what was lived in is gone");
    other.kill()?;
    other.wait()?;
    run(sql_command(&[path_text(&crate_path("archives/v3-bench")), "SELECT 1"]).env("TMPDIR", &tmp))?;
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
    let mut command =
        sql_command(&[path_text(&crate_path("archives/v3-linux-6.18-virtio")), "--memory", "16M", SPILLING_QUERY]);
    command.env("TMPDIR", &small.0).stdout(Stdio::null());
    let said = refusal_of(command)?;
    ensure!(said.contains("No space left"), "{said}");
    ensure!(fs::read_dir(&small.0)?.next().is_none(), "something is left");
    Ok(())
}

fn shell_completes_tables_and_keeps_history() -> Result<()> {
    let state = tempfile::tempdir()?;
    let archive = crate_path("archives/v3-bench");
    let program = crate_path("programs/terminal.py");
    // Tab completes the table; the statement spans two lines; an error does not end the session.
    let typed = "SELECT count(*) AS n FROM sam\t\n;\nSELECT nmae FROM facts;\n\\d cells\n\\q\n";
    let mut child = Command::new("python3")
        .arg(program)
        .arg(fathom())
        .args(["sql", path_text(&archive)])
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
fn create_fleet(place: &str, archives: &Path) -> Result<Output> {
    run(&mut fleet_command(&["init", place]))?;
    run(&mut fleet_command(&["add", place, path_text(archives)]))
}

fn fleet_rows() -> Result<()> {
    let directory = tempfile::tempdir()?;
    let (runs, place) = (directory.path().join("runs"), directory.path().join("fleet"));
    fs::create_dir(&runs)?;
    let archives = copy_sample_archives(&runs)?;
    let expected = indexed_rows(&archives)?;
    let place = path_text(&place);
    let said = String::from_utf8(create_fleet(place, &runs)?.stdout)?;
    ensure!(said.starts_with(&format!("{} archives added", archives.len())), "{said}");
    ensure!(queried_rows(place, &expected)? == expected);
    // Sums over values, in the fleet and directly in the archives.
    for statement in [
        "SELECT device, run, date, archive, CAST(sum(start_ns) AS DECIMAL(38)) AS s, count(end_ns) AS n FROM spans GROUP BY 1, 2, 3, 4 ORDER BY 2",
        "SELECT run, name, value, unit, source FROM facts ORDER BY 1, 2, 3",
        "SELECT run, metric, labels, time_ns, value FROM samples ORDER BY 1, 2, 3, 4, 5",
        "SELECT * FROM archives ORDER BY run",
    ] {
        let (raw, kept) = (query_rows(path_text(&runs), statement)?, query_rows(place, statement)?);
        ensure!(raw == kept && !raw.is_empty(), "{statement}: {} rows, and {}", raw.len(), kept.len());
    }
    // Added again, also under another name: nothing changes.
    let moved = runs.join("renamed.fathom");
    fs::rename(&archives[0], &moved)?;
    let said = String::from_utf8(run(&mut fleet_command(&["add", place, path_text(&runs)]))?.stdout)?;
    ensure!(
        said.starts_with("0 archives added") && said.contains(&format!("{} already there", archives.len())),
        "{said}"
    );
    ensure!(queried_rows(place, &expected)? == expected);
    let listed: Value = serde_json::from_slice(&run(&mut fleet_command(&["ls", "--json", place]))?.stdout)?;
    check_contract("fleet-ls", &listed)?;
    ensure!(listed["archives"] == archives.len(), "{listed}");
    Ok(())
}

fn killed_add_is_repeated_without_loss_or_double() -> Result<()> {
    let directory = tempfile::tempdir()?;
    let (runs, place) = (directory.path().join("runs"), directory.path().join("fleet"));
    fs::create_dir(&runs)?;
    let archives = make_similar_archives(&crate_path("archives/v3-linux-6.18-virtio"), &runs, 40, 1)?;
    let expected = indexed_rows(&archives)?;
    let place = path_text(&place);
    run(&mut fleet_command(&["init", place]))?;
    // Each round runs longer; the last one finishes by itself.
    let mut rounds = 0;
    for n in 1.. {
        let mut child = fleet_command(&["add", place, path_text(&runs)]).stdout(Stdio::null()).spawn()?;
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
        let whole = query_rows(
            place,
            "SELECT count(*) AS n FROM archives a JOIN (SELECT run, count(*) AS c FROM spans GROUP BY run) s ON s.run = a.run WHERE s.c <> 252",
        )?;
        ensure!(whole[0]["n"] == 0, "{whole:?}");
    }
    ensure!(rounds > 2, "nothing was killed");
    run(&mut fleet_command(&["add", place, path_text(&runs)]))?;
    ensure!(queried_rows(place, &expected)? == expected);
    // Files of the killed runs are removed, and nothing else.
    run(&mut fleet_command(&["gc", "--grace", "0", place]))?;
    ensure!(queried_rows(place, &expected)? == expected);
    let files = String::from_utf8(run(&mut fleet_command(&["ls", "--files", "--", place]))?.stdout)?;
    let found = run(Command::new("find").arg(place).args(["-name", "*.parquet", "-printf", "%P\n"]))?;
    let mut found: Vec<String> = String::from_utf8(found.stdout)?.lines().map(str::to_string).collect();
    found.sort();
    ensure!(found == files.lines().collect::<Vec<_>>(), "{found:?}");
    Ok(())
}

fn two_writers_add_each_archive_once() -> Result<()> {
    let directory = tempfile::tempdir()?;
    let (runs, place) = (directory.path().join("runs"), directory.path().join("fleet"));
    fs::create_dir(&runs)?;
    let archives = make_similar_archives(&crate_path("archives/v3-bench"), &runs, 30, 1)?;
    let expected = indexed_rows(&archives)?;
    let place = path_text(&place);
    run(&mut fleet_command(&["init", "--keep-raw", place]))?;
    let start =
        || fleet_command(&["add", place, path_text(&runs)]).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn();
    let both = [start()?, start()?, start()?];
    let mut added = 0;
    for writer in both {
        let output = writer.wait_with_output()?;
        ensure!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        let said = String::from_utf8(output.stdout)?;
        added += said.split(' ').next().and_then(|n| n.parse::<usize>().ok()).with_context(|| said.clone())?;
    }
    ensure!(added == archives.len(), "{added} added");
    ensure!(queried_rows(place, &expected)? == expected);
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
    let good = make_similar_archives(&crate_path("archives/v3-linux-6.18-virtio"), &runs, 5, 0)?;
    let expected = indexed_rows(&good)?;
    let bad = |name: &str| -> Result<PathBuf> {
        let to = runs.join(name);
        copy_directory(&good[0], &to)?;
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
    let place = path_text(&place);
    run(&mut fleet_command(&["init", place]))?;
    let output = fleet_command(&["add", place, path_text(&runs)]).output()?;
    let (out, said) = (String::from_utf8(output.stdout)?, String::from_utf8(output.stderr)?);
    ensure!(output.status.code() == Some(1), "{out}{said}");
    for name in ["cut", "foreign", "newer", "flipped", "index"] {
        ensure!(said.lines().any(|line| line.contains(&format!("{name}.fathom"))), "{name}: {said}");
    }
    ensure!(out.starts_with("5 archives added") && out.contains("5 skipped"), "{out}");
    ensure!(queried_rows(place, &expected)? == expected);
    Ok(())
}

fn wrong_word() -> Result<()> {
    let directory = tempfile::tempdir()?;
    let (place, empty) = (directory.path().join("fleet"), directory.path().join("empty"));
    fs::create_dir(&empty)?;
    run(&mut fleet_command(&["init", path_text(&place)]))?;
    let good = crate_path("archives/v3-bench");
    let output =
        fleet_command(&["add", path_text(&place), "/nonexistent/a.fathom", path_text(&good), path_text(&empty)])
            .output()?;
    let (out, said) = (String::from_utf8(output.stdout)?, String::from_utf8(output.stderr)?);
    ensure!(
        output.status.code() == Some(1) && out.starts_with("1 archive added") && out.contains("2 skipped"),
        "{out}{said}"
    );
    ensure!(said.contains("/nonexistent/a.fathom") && said.contains(path_text(&empty)), "{said}");
    // A query fails instead: without that archive it would be another query.
    let said = refusal_of(sql_command(&[path_text(&good), "/nonexistent/a.fathom", "SELECT 1"]))?;
    ensure!(said.contains("/nonexistent/a.fathom"), "{said}");
    Ok(())
}

fn private_texts_are_nowhere_in_fleet() -> Result<()> {
    let directory = tempfile::tempdir()?;
    let place = directory.path().join("fleet");
    let place = path_text(&place);
    run(&mut fleet_command(&["init", place, "--commands", "drop", "--paths", "hash", "--sql", "hash"]))?;
    run(&mut fleet_command(&[
        "add",
        place,
        path_text(&crate_path("archives/v3-linux-6.18-virtio")),
        path_text(&crate_path("archives/v3-net")),
    ]))?;
    // A comparison of commands, which are the names of its cells.
    let compared = directory.path().join("ab.fathom");
    let mut bench = Command::new(fathom());
    bench.args(["bench", "ab", "--blocks", "10", "--budget", "1s", "-o"]).arg(&compared);
    run(bench.args(["--", "true hiddenword", "true otherhiddenword"]))?;
    run(&mut fleet_command(&["add", place, path_text(&compared)]))?;
    // In every text column of every table, texts that occur in the archives only in private fields.
    let columns = query_rows(
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
            let found = query_rows(
                place,
                &format!("SELECT \"{name}\" AS t FROM {table} WHERE lower(\"{name}\") LIKE '%{secret}%' LIMIT 1"),
            )?;
            ensure!(found.is_empty(), "{table}.{name} holds {found:?}");
        }
    }
    let names = query_rows(place, "SELECT DISTINCT name FROM processes")?;
    ensure!(names.len() == 1 && names[0]["name"] == "(dropped)", "{names:?}");
    // Equal texts are still equal.
    let shapes =
        query_rows(place, "SELECT count(*) AS n, count(DISTINCT text) AS d FROM shapes WHERE text LIKE 'hash:%'")?;
    ensure!(shapes[0]["n"] == 5 && shapes[0]["d"] == 5, "{shapes:?}");
    let said = refusal_of(fleet_command(&["init", &format!("{place}2"), "--keep-raw", "--sql", "drop"]))?;
    ensure!(said.contains("--keep-raw"), "{said}");
    Ok(())
}

fn gc_merges_files_and_removes_orphans() -> Result<()> {
    let directory = tempfile::tempdir()?;
    let (runs, place) = (directory.path().join("runs"), directory.path().join("fleet"));
    fs::create_dir(&runs)?;
    let archives = make_similar_archives(&crate_path("archives/v3-bench"), &runs, 6, 0)?;
    let expected = indexed_rows(&archives)?;
    let place = path_text(&place);
    run(&mut fleet_command(&["init", "--keep-raw", place]))?;
    for archive in &archives {
        run(&mut fleet_command(&["add", place, path_text(archive)]))?;
    }
    let count = || -> Result<usize> {
        Ok(String::from_utf8(run(&mut fleet_command(&["ls", "--files", "samples", place]))?.stdout)?.lines().count())
    };
    ensure!(count()? == 6);
    let orphan = Path::new(place).join("samples/date=2026-11-20/part-orphan.parquet");
    fs::create_dir_all(orphan.parent().context("a directory")?)?;
    fs::copy(archives[0].join("tables/samples.parquet"), &orphan)?;
    ensure!(queried_rows(place, &expected)? == expected, "a file that no commit names is not read");
    // Within the grace period everything is kept.
    run(&mut fleet_command(&["gc", place]))?;
    ensure!(count()? == 1 && orphan.exists() && queried_rows(place, &expected)? == expected);
    run(&mut fleet_command(&["gc", "--grace", "0", place]))?;
    ensure!(!orphan.exists() && queried_rows(place, &expected)? == expected);
    let left = run(Command::new("find").arg(place).args(["-name", "*.parquet"]))?;
    ensure!(String::from_utf8(left.stdout)?.lines().count() == expected.len());
    // The archives are kept, and are identical to the original recordings.
    let raw: Vec<PathBuf> =
        fs::read_dir(Path::new(place).join("_raw"))?.map(|e| Ok(e?.path())).collect::<Result<_>>()?;
    ensure!(raw.len() == 6, "{raw:?}");
    let again = String::from_utf8(run(&mut fleet_command(&["add", place, path_text(&raw[0])]))?.stdout)?;
    ensure!(again.contains("1 already there"), "{again}");
    Ok(())
}

/// A full store: a small tmpfs.
fn full_store_is_reported_and_add_repeats() -> Result<()> {
    if let Err(why) = fathom_tests::root() {
        println!("SKIP long::full_store_is_reported_and_add_repeats: {why}");
        return Ok(());
    }
    let directory = tempfile::tempdir()?;
    let runs = directory.path().join("runs");
    fs::create_dir(&runs)?;
    let archives = make_similar_archives(&crate_path("archives/v3-linux-6.18-virtio"), &runs, 30, 1)?;
    let expected = indexed_rows(&archives)?;
    let small = Tmpfs::new(directory.path().join("small"), "1m")?;
    let place = small.0.join("fleet");
    let place = path_text(&place);
    run(&mut fleet_command(&["init", place]))?;
    let said = refusal_of(fleet_command(&["add", place, path_text(&runs)]))?;
    ensure!(said.contains("No space left"), "{said}");
    let some = query_rows(place, "SELECT count(*) AS n FROM archives")?[0]["n"].as_u64().context("a count")?;
    ensure!(some < 30, "it had room");
    run(Command::new("mount").args(["-o", "remount,size=64m"]).arg(&small.0))?;
    run(&mut fleet_command(&["add", place, path_text(&runs)]))?;
    ensure!(queried_rows(place, &expected)? == expected);
    Ok(())
}

fn in_s3() -> Result<()> {
    let store = S3::start()?;
    let directory = tempfile::tempdir()?;
    let runs = directory.path();
    let archives = make_similar_archives(&crate_path("archives/v3-linux-6.18-virtio"), runs, 6, 1)?;
    let expected = indexed_rows(&archives)?;
    let place = "s3://shelf/fleets/a";
    run(store.add_to(&mut fleet_command(&["init", place])))?;
    // Two writers at once, as in a directory.
    let mut two = [fleet_command(&["add", place, path_text(runs)]), fleet_command(&["add", place, path_text(runs)])];
    let children: Vec<_> =
        two.iter_mut().map(|one| store.add_to(one).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn()).collect();
    for child in children {
        let output = child?.wait_with_output()?;
        ensure!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    }
    let count = |table: &str| -> Result<u64> {
        let statement = format!("SELECT count(*) AS n FROM {table}");
        let output = run(store.add_to(&mut sql_command(&[place, "--format", "json", &statement])))?;
        let whole: Value = serde_json::from_slice(&output.stdout)?;
        whole["rows"][0]["n"].as_u64().context("a count")
    };
    for (table, rows) in &expected {
        ensure!(count(table)? == *rows, "{table}: {} rows, and the indexes say {rows}", count(table)?);
    }
    run(store.add_to(&mut fleet_command(&["gc", "--grace", "0", place])))?;
    ensure!(count("spans")? == expected["spans"]);
    let said = refusal_of({
        let mut command = fleet_command(&["ls", "s3://nothing/here"]);
        store.add_to(&mut command);
        command
    })?;
    ensure!(said.contains("s3://nothing/here") || said.contains("fleet.json"), "{said}");
    if said.is_empty() {
        bail!("nothing was said");
    }
    Ok(())
}
