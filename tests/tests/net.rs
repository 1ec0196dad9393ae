//! `fathom net` through the program: what it refuses and what it prints.

use anyhow::{Context, Result, ensure};
use fathom_tests::{Case, fathom, page_data, rows, run, run_suite, silent_connections, wait_until};
use serde_json::Value;
use std::io::{BufRead as _, BufReader, Read as _};
use std::path::Path;
use std::process::{Child, Command, ExitCode, Stdio};
use std::time::Duration;

fn main() -> ExitCode {
    let cases: Vec<Case> = vec![
        ("usage_errors_name_missing_option", Ok(()), usage_errors_name_missing_option),
        ("unreachable_and_unusable_addresses_are_reported", Ok(()), unreachable_and_unusable_addresses_are_reported),
        ("json_and_archive_have_documented_fields", Ok(()), json_and_archive_have_documented_fields),
        ("ctrl_c_ends_both_ends_and_keeps_results", Ok(()), ctrl_c_ends_both_ends_and_keeps_results),
        ("results_are_printed_if_archive_cannot_be_written", Ok(()), results_are_printed_if_archive_cannot_be_written),
        ("udp_sends_every_due_packet", Ok(()), udp_sends_every_due_packet),
        ("silent_connections_do_not_block_clients", Ok(()), silent_clients),
        ("suspended_run_is_invalid", Ok(()), stood_still),
        ("recording_shares_clock_and_page_with_run", fathom_tests::root(), recording_shares_clock_and_page_with_run),
    ];
    run_suite(cases)
}

/// A server, killed when dropped.
struct ServingProcess {
    child: Child,
    at: String,
}

impl ServingProcess {
    fn start(words: &[&str]) -> Result<Self> {
        let mut command = Command::new(fathom());
        command.args(["net", "serve", "--listen", "127.0.0.1:0"]).args(words);
        let mut child = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null()).spawn()?;
        let mut at = String::new();
        BufReader::new(child.stdout.take().context("it has no stdout")?).read_line(&mut at)?;
        Ok(Self { child, at: at.trim().into() })
    }
}

impl Drop for ServingProcess {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn silent_clients() -> Result<()> {
    let directory = tempfile::tempdir()?;
    let key = directory.path().join("key").display().to_string();
    run(Command::new(fathom()).args(["pool", "keygen", &key]))?;
    let serving = ServingProcess::start(&["--key", &key])?;
    let begun = |first: &[u8]| -> Result<()> {
        let mut idle = silent_connections::open(&serving.at)?;
        // Some are closed already.
        idle.iter_mut().for_each(|stream| drop(std::io::Write::write_all(stream, first)));
        run(&mut net(&["run", &serving.at, "--key", &key, "--duration", "1", "--json"]))?;
        Ok(())
    };
    // Nothing, and the first bytes of a data connection.
    [&b""[..], b"FATHOMdt"].into_iter().try_for_each(begun)
}

fn net(words: &[&str]) -> Command {
    let mut command = Command::new(fathom());
    command.arg("net").args(words).stdin(Stdio::null());
    command
}

fn refused(words: &[&str], status: i32, reason: &str) -> Result<()> {
    let output = net(words).output()?;
    let messages = String::from_utf8_lossy(&output.stderr);
    ensure!(
        output.status.code() == Some(status) && messages.contains(reason),
        "{words:?}: {:?}: {messages}",
        output.status
    );
    Ok(())
}

fn usage_errors_name_missing_option() -> Result<()> {
    refused(&["serve", "--listen", "0.0.0.0:0"], 2, "keygen")?;
    refused(&["run", "127.0.0.1:1", "--udp"], 2, "--preset iperf2")?;
    refused(&["run", "127.0.0.1:1", "--rate", "auto"], 2, "--udp")?;
    refused(&["run", "127.0.0.1:1", "--streams", "1000"], 2, "1 to 128")?;
    refused(&["run", "127.0.0.1:1", "--duration", "9999999"], 2, "3600000")?;
    refused(&["run", "127.0.0.1:1", "--udp", "--tcp"], 2, "cannot be used with")?;
    refused(&["run", "127.0.0.1:1", "--rate", "-5"], 2, "")?;
    refused(&["run"], 2, "ADDR:PORT")
}

fn unreachable_and_unusable_addresses_are_reported() -> Result<()> {
    let serving = ServingProcess::start(&[])?;
    refused(&["serve", "--listen", &serving.at], 1, "choose another")?;
    refused(&["run", &serving.at, "--cc", "nosuch", "--duration", "0.2"], 1, "nosuch")?;
    refused(&["run", &serving.at, "--interface", "nosuch0"], 1, "nosuch0")?;
    let at = serving.at.clone();
    drop(serving);
    refused(&["run", &at], 1, "fathom net serve")
}

fn json(words: &[&str]) -> Result<Value> {
    let output = run(net(words).arg("--json"))?;
    Ok(serde_json::from_slice(&output.stdout)?)
}

fn json_and_archive_have_documented_fields() -> Result<()> {
    let serving = ServingProcess::start(&[])?;
    let directory = tempfile::tempdir()?;
    let archive = directory.path().join("run.fathom");
    let archive = archive.to_str().context("a path of text")?;
    let value = json(&["run", &serving.at, "--duration", "1", "--direction", "both", "-o", archive])?;
    let bps = &value["throughput_bps"];
    let (estimate, low, high) = (bps["estimate"].as_f64(), bps["ci95"][0].as_f64(), bps["ci95"][1].as_f64());
    ensure!(low <= estimate && estimate <= high && estimate > Some(0.0), "{bps}");
    ensure!(value["valid"] == true && value["lateness_us"].is_null() && value["samples"] == archive, "{value}");
    for way in value["directions"].as_array().context("directions")? {
        let shares = way["limited_by"].as_array().context("limits")?;
        let sum: f64 = shares.iter().filter_map(|l| l["share"].as_f64()).sum();
        ensure!(sum > 0.9 && sum < 1.001, "{shares:?}");
        ensure!(shares.iter().all(|l| l["cause"].is_string() && l["evidence"].is_string()), "{shares:?}");
        ensure!(way["readings"].as_u64() > Some(0), "{way}");
    }
    page_says_the_same(&value, archive)?;
    let shown = String::from_utf8(run(Command::new(fathom()).args(["show", archive]))?.stdout)?;
    ensure!(shown.contains("up was limited by") && shown.contains("down was limited by"), "{shown}");
    let shown: Value = serde_json::from_slice(&run(Command::new(fathom()).args(["show", "--json", archive]))?.stdout)?;
    let estimate = shown["results"][0]["estimate"].as_f64().context("an estimate")?;
    ensure!((estimate / value["throughput_bps"]["estimate"].as_f64().unwrap_or(0.0) - 1.0).abs() < 1e-9, "{shown}");
    ensure!(shown["limited_by"].as_array().is_some_and(|l| l.len() == 2), "{shown}");
    run(Command::new(fathom()).args(["export", "--csv", archive, "-o"]).arg(directory.path().join("csv")))?;
    let samples = std::fs::read_to_string(directory.path().join("csv/samples.csv"))?;
    for metric in ["tcp.cwnd", "interval", "receiver.unread", "limit"] {
        ensure!(samples.contains(metric), "there is no {metric}");
    }
    ensure!(samples.contains("direction=down stream=0"), "the other end's readings are missing");

    // Half of the intervals have samples, and there is a ratio, or on a machine that is late a reason why there is
    // none.
    let value = json(&["run", &serving.at, "--duration", "4", "--direction", "down", "--readings-cost"])?;
    let (one, readings) = (&value["directions"][0]["readings_ratio"], &value["directions"][0]["readings"]);
    ensure!(one["pairs"].as_u64() >= Some(6) || one["unknown"].is_string(), "{value}");
    ensure!(readings.as_u64() > Some(20) && readings.as_u64() < Some(320), "{readings} of 400");
    ensure!(value["limited_by"] == Value::Array(Vec::new()), "{value}");

    let lines = run(&mut net(&["run", &serving.at, "--duration", "1", "--lines", "--transactions"]))?;
    let text = String::from_utf8(lines.stdout)?;
    let lines: Vec<Value> = text.lines().map(serde_json::from_str).collect::<Result<_, _>>()?;
    ensure!(lines.iter().any(|l| l["metric"] == "transactions" && l["v"].as_f64() > Some(0.0)), "{text}");
    ensure!(lines.iter().any(|l| l["verified"] == true), "{text}");
    Ok(())
}

/// The page of a kept run shows the estimate that the run printed, its interval, and its limit with evidence and remedy.
fn page_says_the_same(value: &Value, archive: &str) -> Result<()> {
    let file = format!("{archive}.html");
    run(Command::new(fathom()).args(["report", archive, "-o", &file]))?;
    let page = page_data(Path::new(&file))?;
    let near = |a: &Value, b: &Value| {
        let (a, b) = (a.as_f64().unwrap_or(f64::NAN), b.as_f64().unwrap_or(f64::NAN));
        (a - b).abs() <= 1e-9 * b.abs()
    };
    let same = |shown: &Value, expected: &Value| {
        near(&shown["estimate"], &expected["estimate"])
            && (0..2).all(|end| near(&shown["ci95"][end], &expected["ci95"][end]))
    };
    let result = &page["shown"]["results"][0];
    ensure!(same(result, &value["throughput_bps"]), "{result} is not {}", value["throughput_bps"]);
    let (bars, ways) = (&page["figures"][0]["bars"], value["directions"].as_array().context("directions")?);
    ensure!(same(&bars[0], &value["throughput_bps"]), "{bars}");
    for (at, way) in ways.iter().enumerate() {
        let label = format!("direction={} ", way["direction"].as_str().unwrap_or_default());
        let bar =
            bars.as_array().into_iter().flatten().find(|b| b["label"].as_str().is_some_and(|l| l.starts_with(&label)));
        ensure!(bar.is_some_and(|bar| same(bar, &way["throughput_bps"])), "{label}: {bars}");
        let (held, limits) = (&page["held"][at], way["limited_by"].as_array().context("limited_by")?);
        ensure!(
            held["direction"] == way["direction"] && held["limits"].as_array().is_some_and(|l| l.len() == limits.len()),
            "{held}"
        );
        for (shown, expected) in held["limits"].as_array().into_iter().flatten().zip(limits) {
            let same = ["share", "evidence", "remedy"].iter().all(|key| shown[key] == expected[key]);
            ensure!(same && shown["cause"].as_str().is_some_and(|c| !c.contains('_')), "{shown} is not {expected}");
        }
    }
    Ok(())
}

fn ctrl_c_ends_both_ends_and_keeps_results() -> Result<()> {
    let serving = ServingProcess::start(&[])?;
    let directory = tempfile::tempdir()?;
    let archive = directory.path().join("run.fathom");
    let mut asking = net(&["run", &serving.at, "--duration", "600", "--direction", "both", "-o"]);
    let mut asking = asking.arg(&archive).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn()?;
    // It prints a rate each second: from then on there is a result to keep.
    let mut expected = BufReader::new(asking.stderr.take().context("stderr")?);
    let mut messages = String::new();
    expected.read_line(&mut messages)?;
    run(Command::new("kill").args(["-INT", &asking.id().to_string()]))?;
    expected.read_to_string(&mut messages)?;
    let output = asking.wait_with_output()?;
    ensure!(output.status.code() == Some(130) && messages.contains("interrupted; the results so far"), "{messages}");
    let text = String::from_utf8(output.stdout)?;
    ensure!(text.starts_with("up ") && text.contains("\ndown ") && text.contains("limited by"), "{text}");
    // A later reader of the archive must not take it for ten minutes.
    let shown = String::from_utf8(run(Command::new(fathom()).arg("show").arg(&archive))?.stdout)?;
    ensure!(shown.contains("interrupted"), "{shown}");
    run(Command::new(fathom()).args(["export", "--csv"]).arg(&archive).arg("-o").arg(directory.path().join("csv")))?;
    ensure!(std::fs::read_to_string(directory.path().join("csv/samples.csv"))?.contains("tcp.cwnd"));
    // The other end is free for the next run.
    json(&["run", &serving.at, "--duration", "1"]).map(drop)
}

/// Waits until the client has a data connection or flow in addition to its control connection: then its run begins.
fn begun(serving: &ServingProcess) -> Result<()> {
    let port: u16 = serving.at.rsplit(':').next().context("a port")?.parse()?;
    let (own, established) = (format!(":{port:04X} "), " 01 ");
    wait_until("connections of data", || {
        let tables = ["tcp", "udp"].map(|table| std::fs::read_to_string(format!("/proc/net/{table}")));
        let [tcp, udp] = tables;
        // A connection has two ends here, only one of which has the port as its own: its address is in the second
        // column.
        let of = |table: &str| {
            let words = |line: &&str| line.split_whitespace().nth(1).is_some_and(|at| at.ends_with(own.trim_end()));
            table.lines().filter(words).filter(|line| line.contains(established)).count()
        };
        Ok(of(&tcp?) + of(&udp?) >= 2)
    })
}

/// Results are printed even if the archive's directory vanished meanwhile; an invalid directory is reported before the
/// run.
fn results_are_printed_if_archive_cannot_be_written() -> Result<()> {
    let serving = ServingProcess::start(&[])?;
    refused(&["run", "127.0.0.1:1", "-o", "/no/such/directory/r.fathom"], 1, "/no/such/directory")?;
    let directory = tempfile::tempdir()?;
    for words in [&[][..], &["--json"]] {
        let place = directory.path().join("place");
        std::fs::create_dir(&place)?;
        let mut asking = net(&["run", &serving.at, "--duration", "2", "-o"]);
        let asking = asking.arg(place.join("r.fathom")).args(words).stdout(Stdio::piped()).stderr(Stdio::piped());
        let asking = asking.spawn()?;
        begun(&serving)?;
        ensure!(std::fs::read_dir(&place)?.count() == 0, "something stands there before there is a result");
        std::fs::remove_dir(&place)?;
        let output = asking.wait_with_output()?;
        let (text, messages) = (String::from_utf8(output.stdout)?, String::from_utf8(output.stderr)?);
        ensure!(
            output.status.code() == Some(1) && messages.contains("not stored in"),
            "{:?}: {messages}",
            output.status
        );
        match words {
            [] => ensure!(text.starts_with("up ") && text.contains("limited by"), "{text}"),
            _ => {
                let value: Value = serde_json::from_str(&text)?;
                ensure!(
                    value["throughput_bps"]["estimate"].as_f64() > Some(0.0) && value["samples"].is_null(),
                    "{value}"
                );
            }
        }
    }
    Ok(())
}

fn udp_sends_every_due_packet() -> Result<()> {
    let serving = ServingProcess::start(&[])?;
    let value = json(&["run", &serving.at, "--duration", "1", "--udp", "--preset", "iperf2"])?;
    let packets = &value["directions"][0]["packets"];
    // 1 Mb/s in packets of 1470 bytes for a second.
    ensure!(packets["due"] == 85 && packets["sent"] == 85, "{packets}");
    let number = |key: &str| packets[key].as_u64().unwrap_or(u64::MAX);
    ensure!(number("received") + number("lost") == 85, "{packets}");
    // Both ends read this machine's clock.
    ensure!(packets["one_way_us"]["offset_error"].as_f64() == Some(0.0), "{packets}");
    Ok(())
}

/// For 1.5 s the client is stopped: results of that time do not describe the path.
fn stood_still() -> Result<()> {
    let serving = ServingProcess::start(&[])?;
    for words in [&["--rate", "10M"][..], &["--udp", "--rate", "10M"], &["--transactions"]] {
        let mut asking = net(&["run", &serving.at, "--duration", "3", "--json"]);
        let asking = asking.args(words).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn()?;
        begun(&serving)?;
        // A fixed wait: into the run, whose beginning the two ends negotiate.
        std::thread::sleep(Duration::from_millis(700));
        for (signal, then_ms) in [("-STOP", 1500), ("-CONT", 0)] {
            run(Command::new("kill").args([signal, &asking.id().to_string()]))?;
            std::thread::sleep(Duration::from_millis(then_ms));
        }
        let output = asking.wait_with_output()?;
        let value: Value = serde_json::from_slice(&output.stdout)?;
        let why = value["invalid"].as_str().unwrap_or_default();
        ensure!(output.status.code() == Some(1) && value["valid"] == false, "{words:?}: {:?} {value}", output.status);
        ensure!(why.contains("was suspended"), "{words:?}: {why}");
    }
    Ok(())
}

/// A script under `fathom record` stops a run twice, and writes a file once it has stopped and another one before it continues the run:
/// the recording's times of these writes and the run's times of its samples must be of one clock, for no sample was taken between them.
fn recording_shares_clock_and_page_with_run() -> Result<()> {
    let serving = ServingProcess::start(&[])?;
    let directory = tempfile::tempdir()?;
    let script = format!(
        r#"{program} net run {at} --duration 3 --rate 20M --tcp-probe -o run.fathom >run.txt 2>run.err & run=$!
        # A second after its beginning it tells a rate.
        until [ -s run.err ]; do [ -d /proc/$run ] || exit 1; sleep 0.05; done
        for pause in one:0.35 two:0.6; do
            kill -STOP $run
            while :; do
                [ -d /proc/$run ] || exit 1
                for thread in /proc/$run/task/*/stat; do
                    read -r pid name state rest <$thread
                    [ "$state" = T ] || {{ sleep 0.02; continue 2; }}
                done
                break
            done
            echo begins >${{pause%:*}}.begins
            sleep ${{pause#*:}}
            echo ends >${{pause%:*}}.ends
            kill -CONT $run
            sleep 0.3
        done
        wait $run"#,
        program = fathom().display(),
        at = serving.at
    );
    let mut record = Command::new(fathom());
    record.args(["record", "--quiet", "-o", "rec.fathom", "--", "sh", "-c", &script]).current_dir(directory.path());
    run(&mut record)?;
    let (net_run, recording) = (directory.path().join("run.fathom"), directory.path().join("rec.fathom"));

    let files = rows(&recording, "files")?;
    let spans = rows(&recording, "spans")?;
    let written = |name: &str| -> Result<[u64; 2]> {
        let file = files.iter().find(|f| f["path"].ends_with(name)).with_context(|| format!("no file {name}"))?;
        let call = spans.iter().find(|s| s["layer"] == "Syscall" && s["kind"] == "write" && s["file"] == file["id"]);
        let call = call.with_context(|| format!("no write to {name}"))?;
        Ok([call["start_ns"].parse()?, call["end_ns"].parse()?])
    };
    let samples = rows(&net_run, "samples")?;
    let times = |metric: &str| -> Result<Vec<u64>> {
        let of = samples.iter().filter(|s| s["metric"] == metric);
        let mut all = of.map(|s| Ok(s["time_ns"].parse()?)).collect::<Result<Vec<u64>>>()?;
        all.sort_unstable();
        Ok(all)
    };
    let (readings, acks) = (times("tcp.cwnd")?, times("ack.cwnd")?);
    ensure!(readings.len() > 100 && acks.len() > 100, "{} readings, {} acknowledgements", readings.len(), acks.len());
    let mut before = 0;
    for pause in ["one", "two"] {
        let ([begins, _], [_, ends]) = (written(&format!("{pause}.begins"))?, written(&format!("{pause}.ends"))?);
        let within = readings.iter().filter(|t| (begins..=ends).contains(*t)).count();
        ensure!(within == 0, "{pause}: {within} readings while the program was suspended, from {begins} to {ends}");
        // The other end acknowledges what it has after 200 ms at the latest (TCP_DELACK_MAX), and once more when it reads it, which on a
        // busy machine is later. On another clock there would be as many of these as at any other time.
        let quiet = begins + 200_000_000..=ends;
        let late = acks.iter().filter(|t| quiet.contains(*t)).count() as f64;
        let usual =
            acks.len() as f64 * ends.saturating_sub(*quiet.start()) as f64 / (acks[acks.len() - 1] - acks[0]) as f64;
        ensure!(
            late <= usual / 4.0,
            "{pause}: {late} acknowledgements long after the last byte was sent, of {usual} as usual"
        );
        // And the pause was made during the run: there are samples between it and the one before, and after it. The adjacent samples
        // bound how far the clocks could be apart.
        let last = readings.iter().rev().find(|t| **t < begins).filter(|t| **t > before);
        let next = readings.iter().find(|t| **t > ends).context("no reading after it")?;
        let last = last.with_context(|| format!("{pause}: no reading before it"))?;
        let ms = |ns: u64| ns as f64 / 1e6;
        println!(
            "{pause}: the last reading {:.1} ms before it, the next {:.1} ms after",
            ms(begins - last),
            ms(next - ends)
        );
        before = ends;
    }

    let page = directory.path().join("page.html");
    for order in [[&net_run, &recording], [&recording, &net_run]] {
        run(Command::new(fathom()).arg("report").args(order).arg("-o").arg(&page))?;
        let page = page_data(&page)?;
        let charts = page["flows"].as_array().context("flows")?;
        let line = |title: &str, name: &str| {
            let chart = charts.iter().find(|c| c["title"].as_str().is_some_and(|t| t.starts_with(title)));
            let lines = chart.and_then(|c| c["flows"].as_array());
            lines.and_then(|l| l.iter().find(|l| l["name"].as_str().is_some_and(|n| n.ends_with(name)))).cloned()
        };
        ensure!(line("congestion window", "each acknowledgement").is_some(), "no line of acknowledgements");
        let calls = line("latency of recorded operations", "calls on files").context("no line of the recording")?;
        let seconds = calls["points"].as_array().context("points")?.iter().filter_map(|p| p[0].as_f64());
        ensure!(seconds.clone().all(|s| (0.0..=3.5).contains(&s)) && seconds.count() > 2, "{calls}");
    }
    // A recording from another time is refused.
    let other = directory.path().join("other.fathom");
    run(Command::new(fathom())
        .args(["record", "--quiet", "-o"])
        .arg(&other)
        .args(["--", "sh", "-c", "echo >other"])
        .current_dir(directory.path()))?;
    let output = Command::new(fathom()).arg("report").args([&net_run, &other]).arg("-o").arg(&page).output()?;
    let messages = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.code() == Some(1) && messages.contains("does not overlap"), "{messages}");
    Ok(())
}
