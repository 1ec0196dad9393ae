//! `fathom mcp` over the protocol of an assistant, and `fathom sql` where its program is missing.

use anyhow::{Context, Result, ensure};
use fathom_tests::fleets::{built, crate_path, fleet_command, path_text, python, python_has};
use fathom_tests::{Case, fathom, run, run_suite};
use serde_json::{Value, json};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};

fn main() -> ExitCode {
    let cases: Vec<Case> = vec![
        ("handshake_lists_tools_and_answers_errors", Ok(()), handshake_lists_tools_and_answers_errors),
        ("answers_are_those_of_verbs_within_budget", Ok(()), answers_are_those_of_verbs_within_budget),
        ("few_executions_cannot_carry_claims", Ok(()), few_executions_cannot_carry_claims),
        (
            "path_outside_directory_or_without_tables_is_refused",
            Ok(()),
            path_outside_directory_or_without_tables_is_refused,
        ),
        ("benchmarks_are_compared_with_intervals", Ok(()), benchmarks_are_compared_with_intervals),
        ("nothing_is_written", Ok(()), reads_only),
        ("missing_fathom_sql_says_how_to_build_it", Ok(()), missing_fathom_sql_says_how_to_build_it),
        ("long::sql_over_fleet_is_answered_and_endless_refused", built(), asks_fleet),
        ("long::sql_neither_leaves_directory_nor_writes", built(), within_directory),
        ("long::python_client_drives_every_tool", built().and_then(|()| python_has("mcp")), python_client),
    ];
    run_suite(cases)
}

fn archives() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("archives")
}

/// Sends these lines and returns the answers.
fn said(options: &[&str], directory: &Path, lines: &[String]) -> Result<Vec<Value>> {
    let mut child = Command::new(fathom())
        .arg("mcp")
        .args(options)
        .arg(directory)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()?;
    child.stdin.take().context("a stdin")?.write_all(lines.join("\n").as_bytes())?;
    let output = child.wait_with_output()?;
    ensure!(output.status.success(), "it ended with {}", output.status);
    String::from_utf8(output.stdout)?.lines().map(|line| Ok(serde_json::from_str(line)?)).collect()
}

fn call(tool: &str, arguments: Value) -> String {
    json!({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": tool, "arguments": arguments}})
        .to_string()
}

/// Calls a tool; returns its result, or why it refuses.
fn tool(options: &[&str], directory: &Path, tool: &str, arguments: Value) -> Result<Result<Value, String>> {
    let answers = said(options, directory, &[call(tool, arguments)])?;
    let result = &answers.first().context("an answer")?["result"];
    let text = result["content"][0]["text"].as_str().with_context(|| format!("{answers:?}"))?;
    Ok(if result["isError"] == true { Err(text.to_string()) } else { Ok(serde_json::from_str(text)?) })
}

fn handshake_lists_tools_and_answers_errors() -> Result<()> {
    let lines = [
        json!({"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": {"protocolVersion": "2025-06-18"}})
            .to_string(),
        json!({"jsonrpc": "2.0", "method": "notifications/initialized"}).to_string(),
        "{ not JSON".into(),
        "\u{1b}[2J".into(),
        json!({"jsonrpc": "2.0", "id": "a", "method": "tools/list"}).to_string(),
        json!({"jsonrpc": "2.0", "id": 2, "method": "resources/list"}).to_string(),
        call("rm", json!({})),
        call("summary", json!({"archive": 5})),
    ];
    let answers = said(&[], &archives(), &lines)?;
    ensure!(answers.len() == 7, "{answers:?}");
    ensure!(
        answers[0]["result"]["protocolVersion"] == "2025-06-18"
            && answers[0]["result"]["serverInfo"]["name"] == "fathom"
    );
    ensure!(answers[1]["error"]["code"] == -32700 && answers[2]["error"]["code"] == -32700);
    let tools = answers[3]["result"]["tools"].as_array().context("tools")?;
    let names: Vec<&str> = tools.iter().filter_map(|tool| tool["name"].as_str()).collect();
    ensure!(names == ["list", "summary", "explain", "diff", "sql"], "{names:?}");
    ensure!(
        tools.iter().all(|tool| tool["annotations"]["readOnlyHint"] == true && tool["inputSchema"]["type"] == "object")
    );
    ensure!(answers[4]["error"]["code"] == -32601);
    ensure!(answers[5]["result"]["isError"] == true && answers[6]["result"]["isError"] == true, "{answers:?}");
    Ok(())
}

fn answers_are_those_of_verbs_within_budget() -> Result<()> {
    let directory = archives();
    let listed = tool(&[], &directory, "list", json!({}))?.map_err(anyhow::Error::msg)?;
    let there =
        std::fs::read_dir(&directory)?.filter(|entry| entry.as_ref().is_ok_and(|entry| entry.path().is_dir())).count();
    ensure!(listed["result"]["archives"].as_array().is_some_and(|all| all.len() == there), "{listed}");
    let name = json!({"archive": "v3-linux-6.18-virtio"});
    let shown = run(Command::new(fathom()).args(["show", "--json"]).arg(directory.join("v3-linux-6.18-virtio")))?;
    let shown: Value = serde_json::from_slice(&shown.stdout)?;
    let whole = tool(&["--budget", "100000"], &directory, "summary", name.clone())?.map_err(anyhow::Error::msg)?;
    ensure!(whole["result"] == shown && whole["left_out"].is_null(), "an answer with room for it is cut");
    for budget in ["500", "2000"] {
        let cut = tool(&["--budget", budget], &directory, "summary", name.clone())?.map_err(anyhow::Error::msg)?;
        let characters = cut.to_string().chars().count();
        ensure!(characters <= 4 * budget.parse::<usize>()?, "{characters} characters for {budget} tokens");
        // The subject of the query is cut last.
        let first = &cut["result"]["operations"][0];
        ensure!(first["statement"] == shown["operations"][0]["statement"], "{budget} tokens: {cut}");
        ensure!(cut["provenance"]["of"][0]["kind"] == "trace", "{cut}");
        ensure!(cut["left_out"].as_array().is_some_and(|left| !left.is_empty()));
    }
    let explained = tool(&[], &directory, "explain", name)?.map_err(anyhow::Error::msg)?;
    ensure!(explained["result"]["findings"].as_array().is_some_and(|all| !all.is_empty()), "{explained}");
    Ok(())
}

fn benchmarks_are_compared_with_intervals() -> Result<()> {
    let both = json!({"a": "v3-bench", "b": "v3-bench-slower"});
    let compared = tool(&[], &archives(), "diff", both)?.map_err(anyhow::Error::msg)?;
    let first = &compared["result"]["results"][0];
    ensure!(first["verdict"] == "slower" && first["ratio_ci_adjusted"][1].as_f64() < Some(1.0), "{compared}");
    ensure!(compared["provenance"]["of"][1]["archive"].as_str().is_some_and(|path| path.ends_with("v3-bench-slower")));
    // Two archives of different kinds are not compared.
    let mixed = tool(&[], &archives(), "diff", json!({"a": "v3-bench", "b": "v3-linux-6.18-virtio"}))?;
    ensure!(mixed.is_err(), "{mixed:?}");
    Ok(())
}

fn few_executions_cannot_carry_claims() -> Result<()> {
    let directory = tempfile::tempdir()?;
    for name in ["a.fathom", "b.fathom"] {
        run(Command::new("cp")
            .arg("-r")
            .arg(archives().join("v3-linux-6.18-virtio"))
            .arg(directory.path().join(name)))?;
    }
    let both = json!({"a": "a.fathom", "b": "b.fathom"});
    let diff = tool(&[], directory.path(), "diff", both)?.map_err(anyhow::Error::msg)?;
    let claims = diff["cannot_claim"].to_string();
    ensure!(diff["result"]["verdict"] == "inconclusive" && claims.contains("too few executions"), "{diff}");
    let summary =
        tool(&[], directory.path(), "summary", json!({"archive": "a.fathom"}))?.map_err(anyhow::Error::msg)?;
    ensure!(summary["cannot_claim"].to_string().contains("fewer than six executions"), "{summary}");
    Ok(())
}

fn path_outside_directory_or_without_tables_is_refused() -> Result<()> {
    let directory = tempfile::tempdir()?;
    let archive = directory.path().join("a.fathom");
    run(Command::new("cp").arg("-r").arg(archives().join("v3-bench")).arg(&archive))?;
    for outside in ["/etc", "..", "/nonexistent", "a.fathom/../../"] {
        let why = tool(&[], directory.path(), "summary", json!({"archive": outside}))?;
        ensure!(why.is_err(), "{outside}: {why:?}");
        let why = tool(&[], directory.path(), "sql", json!({"archives": [outside], "query": "SELECT 1"}))?;
        ensure!(why.is_err(), "{outside}: {why:?}");
    }
    std::fs::remove_dir_all(archive.join("tables"))?;
    for (name, arguments) in
        [("summary", json!({"archive": "a.fathom"})), ("sql", json!({"archives": ["."], "query": "SELECT 1"}))]
    {
        let why = tool(&[], directory.path(), name, arguments)?.err().context("it was answered")?;
        ensure!(why.contains("reindex"), "{why}");
    }
    ensure!(!archive.join("tables").exists());
    Ok(())
}

fn reads_only() -> Result<()> {
    let directory = tempfile::tempdir()?;
    run(Command::new("cp")
        .arg("-r")
        .arg(archives().join("v3-linux-6.18-virtio"))
        .arg(directory.path().join("a.fathom")))?;
    let state = || run(Command::new("find").arg(directory.path()).args(["-printf", "%p %s %T@\n"]));
    let before = state()?.stdout;
    for (name, arguments) in [
        ("list", json!({})),
        ("summary", json!({"archive": "a.fathom"})),
        ("explain", json!({"archive": "a.fathom"})),
        ("diff", json!({"a": "a.fathom", "b": "a.fathom"})),
    ] {
        let answered = tool(&[], directory.path(), name, arguments)?;
        ensure!(answered.is_ok() || name == "diff", "{name}: {answered:?}");
    }
    ensure!(before == state()?.stdout);
    Ok(())
}

fn missing_fathom_sql_says_how_to_build_it() -> Result<()> {
    let directory = tempfile::tempdir()?;
    let alone = directory.path().join("fathom");
    std::fs::copy(fathom(), &alone)?;
    for (verb, words) in [("sql", ["a.fathom", "SELECT 1"]), ("fleet", ["ls", "a"])] {
        // Its help does not need the engine.
        run(Command::new(&alone).args([verb, "--help"]).env("PATH", directory.path()))?;
        let output = Command::new(&alone).arg(verb).args(words).env("PATH", directory.path()).output()?;
        let said = String::from_utf8(output.stderr)?;
        ensure!(output.status.code() == Some(1) && said.contains("make build-sql"), "{verb}: {said}");
    }
    // Found in PATH, it gets the verb, the arguments, and the caller's path.
    let path = directory.path().join("fathom-sql");
    std::fs::write(&path, "#!/bin/sh\necho \"$FATHOM\" \"$@\"\n")?;
    run(Command::new("chmod").arg("+x").arg(&path))?;
    let output = run(Command::new(&alone).args(["sql", "--explain", "a b", "SELECT 1"]))?;
    ensure!(String::from_utf8(output.stdout)?.trim() == format!("{} sql --explain a b SELECT 1", alone.display()));
    Ok(())
}

fn asks_fleet() -> Result<()> {
    let directory = tempfile::tempdir()?;
    let place = directory.path().join("fleet");
    // The archives that it keeps have no tables of their own.
    run(&mut fleet_command(&["init", "--keep-raw", path_text(&place)]))?;
    run(&mut fleet_command(&["add", path_text(&place), path_text(&crate_path("archives/v3-linux-6.18-virtio"))]))?;
    let ask = |query: &str| tool(&[], directory.path(), "sql", json!({"archives": ["fleet"], "query": query}));
    let counted = ask("SELECT count(*) AS n FROM spans")?.map_err(anyhow::Error::msg)?;
    ensure!(counted["result"]["rows"][0]["n"] == 252, "{counted}");
    ensure!(counted["provenance"]["of"][0]["fleet"].as_str().is_some_and(|path| path.ends_with("/fleet")), "{counted}");
    let listed = tool(&[], directory.path(), "list", json!({}))?.map_err(anyhow::Error::msg)?;
    ensure!(listed["result"]["fleets"].as_array().is_some_and(|all| all.len() == 1), "{listed}");
    ensure!(listed["result"]["archives"] == json!([]), "{listed}");
    let endless = "SELECT a.*, b.* FROM spans a CROSS JOIN spans b CROSS JOIN spans c";
    let why = ask(endless)?.err().context("it was answered")?;
    ensure!(why.contains("ask for less"), "{why}");
    Ok(())
}

/// What `fathom sql` discovers in a directory: links that lead out of it, and directories that only it takes for archives, whose tables it would
/// build.
fn within_directory() -> Result<()> {
    let directory = tempfile::tempdir()?;
    let (inside, outside) = (directory.path().join("in"), directory.path().join("out.fathom"));
    std::fs::create_dir(&inside)?;
    let copy = |to: &Path| run(Command::new("cp").arg("-r").arg(archives().join("v3-linux-6.18-virtio")).arg(to));
    copy(&inside.join("a.fathom"))?;
    copy(&outside)?;
    std::fs::remove_dir_all(outside.join("tables"))?;
    // Different from the recording inside.
    std::fs::OpenOptions::new().append(true).open(outside.join("events.log"))?.write_all(b"more")?;
    std::os::unix::fs::symlink(&outside, inside.join("link.fathom"))?;
    // A fleet in the directory keeps archives without tables.
    let place = inside.join("fleet");
    run(&mut fleet_command(&["init", "--keep-raw", path_text(&place)]))?;
    run(&mut fleet_command(&["add", path_text(&place), path_text(&crate_path("archives/v3-bench"))]))?;
    let state = || {
        Ok::<_, anyhow::Error>(run(Command::new("find").arg(directory.path()).args(["-printf", "%p %s %T@\n"]))?.stdout)
    };
    let before = state()?;
    let asked = json!({"archives": ["."], "query": "SELECT \"archive\" FROM archives"});
    let answer = tool(&[], &inside, "sql", asked)?.map_err(anyhow::Error::msg)?;
    ensure!(answer["result"]["rows"] == json!([{"archive": "a.fathom"}]), "{answer}");
    ensure!(before == state()?, "something was written");
    // Deeper than listing searches directories.
    let deep = inside.join("1/2/3/4/5/6/7");
    std::fs::create_dir_all(&deep)?;
    std::fs::rename(&outside, deep.join("b.fathom"))?;
    let before = state()?;
    let asked = json!({"archives": ["."], "query": "SELECT 1"});
    let why = tool(&[], &inside, "sql", asked)?.err().context("it was answered")?;
    ensure!(why.contains("reindex") && before == state()?, "{why}");
    Ok(())
}

/// The protocol's official client, in Python, which validates every message against its schema.
fn python_client() -> Result<()> {
    let output = run(Command::new(python()).arg(crate_path("programs/mcp_client.py")).arg(fathom()).arg(archives()))?;
    ensure!(String::from_utf8_lossy(&output.stdout).contains("every tool answers"));
    Ok(())
}
