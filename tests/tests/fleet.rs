//! Fleets beyond one machine, through the program: archives from devices, stores that fail, access control, exports to other tools.
//!
//! All of them are long: the program that they test compiles an SQL engine (`make test-sql` builds it and runs them).

use anyhow::{Context, Result, bail, ensure};
use fathom_tests::fleets::{
    S3, built, copy_directory, copy_sample_archives, crate_path, fleet_command, indexed_rows, make_similar_archives,
    path_text, python, python_has, queried_rows, query_rows, refusal_of, s3proxy, sql_command, versitygw,
};
use fathom_tests::phone::{Phone, Shape};
use fathom_tests::service::Service;
use fathom_tests::sshd::Ssh;
use fathom_tests::tmpfs::Tmpfs;
use fathom_tests::{Case, ext4, fathom, record, root, run, run_suite, wait_until};
use serde_json::Value;
use std::collections::BTreeMap;
use std::fs;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitCode, Stdio};
use std::time::{SystemTime, UNIX_EPOCH};

fn main() -> ExitCode {
    let with_s3 = || built().and_then(|()| python_has("moto"));
    let with_proxy = || built().and_then(|()| s3proxy()).and_then(|()| python_has("moto"));
    let with_versity = || built().and_then(|()| versitygw()).and_then(|()| python_has("moto"));
    let ssh = || built().and_then(|()| fathom_tests::sshd::possible());
    let phone = || built().and_then(|()| fathom_tests::phone::possible());
    let traced = || built().and_then(|()| root()).and_then(|()| python_has("opentelemetry.proto"));
    let collector = || traced().and_then(|()| otelcol().map(drop));
    let cases: Vec<Case> = vec![
        ("long::archives_come_over_ssh_once", ssh(), over_ssh),
        ("long::archives_come_from_android_device", phone(), from_phone),
        ("long::lost_device_leaves_other_archives_added", ssh(), lost_device),
        ("long::flaky_store_loses_and_doubles_nothing", with_s3(), flaky_store),
        ("long::s3proxy_takes_two_writers_and_refuses_wrong_key", with_proxy(), in_s3proxy),
        ("long::s3proxy_behind_faults_loses_and_doubles_nothing", with_proxy(), flaky_s3proxy),
        ("long::versitygw_takes_two_writers_and_refuses_wrong_key", with_versity(), in_versitygw),
        ("long::versitygw_behind_faults_loses_and_doubles_nothing", with_versity(), flaky_versitygw),
        ("long::full_s3proxy_is_named_and_add_repeats", with_proxy().and_then(|()| root()), full_s3proxy),
        ("long::interrupted_add_stops_at_next_archive", built(), interrupted_add_stops_at_next_archive),
        ("long::many_damaged_archives_cost_no_good_one", built(), many_damaged),
        ("best_copy_of_recording_is_added_once", built(), best_copy),
        ("long::slow_store_gives_same_rows", with_s3(), slow_store),
        ("long::store_that_is_down_or_hangs_is_named", with_s3(), dead_store),
        ("long::serve_answers_others_only_with_key", built(), serve_answers_others_only_with_key),
        ("long::report_shows_change_and_links_archives", built(), report_shows_change_and_links_archives),
        ("long::every_kept_archive_has_its_page", built(), every_kept_archive_has_its_page),
        ("long::checkpoints_are_few_after_gc", built(), checkpoints_are_few_after_gc),
        ("long::operations_reach_receiver_under_traceparent", traced(), operations_reach_receiver_under_traceparent),
        ("long::real_collector_takes_operations", collector(), real_collector_takes_operations),
    ];
    run_suite(cases)
}

/// The device's daemon.
const DAEMON_PATH: &str = env!("CARGO_BIN_EXE_adbd");

/// The output of a command.
fn output_of(command: &mut Command) -> Result<String> {
    Ok(String::from_utf8(run(command)?.stdout)?)
}

/// A directory with archives that count as different recordings, and their row counts from the indexes.
fn make_archives(directory: &Path, sample: &str, count: u64) -> Result<(Vec<PathBuf>, BTreeMap<String, u64>)> {
    fs::create_dir_all(directory)?;
    let made = make_similar_archives(&crate_path(sample), directory, count, 1)?;
    let expected = indexed_rows(&made)?;
    Ok((made, expected))
}

fn over_ssh() -> Result<()> {
    let ssh = Ssh::start()?;
    let directory = tempfile::tempdir()?;
    // Names that a shell would split, and a device's name in the path.
    let there = directory.path().join("it's here/device=board 3");
    let (made, expected) = make_archives(&there, "archives/v3-bench", 4)?;
    fs::write(there.join("readme.txt"), "no archive")?;
    let place = directory.path().join("fleet");
    let place = path_text(&place);
    let source = format!("{}:{}", ssh.device(), path_text(&directory.path().join("it's here")));
    run(&mut fleet_command(&["init", place]))?;
    let add = || {
        let mut command = fleet_command(&["add", place, &source]);
        ssh.path(&mut command);
        command.env("TMPDIR", directory.path().join("tmp"));
        command
    };
    fs::create_dir(directory.path().join("tmp"))?;
    let first = output_of(&mut add())?;
    ensure!(first.starts_with("4 archives added"), "{first}");
    ensure!(queried_rows(place, &expected)? == expected, "{:?}", queried_rows(place, &expected)?);
    let devices = query_rows(place, "SELECT DISTINCT device FROM archives")?;
    ensure!(devices.len() == 1 && devices[0]["device"] == "board 3", "{devices:?}");
    // Nothing is left, and nothing is fetched again: what would be fetched is no longer an archive.
    ensure!(fs::read_dir(directory.path().join("tmp"))?.next().is_none(), "something is left");
    fs::remove_file(made[0].join("tables/samples.parquet"))?;
    let again = output_of(&mut add())?;
    ensure!(again.starts_with("0 archives added") && again.contains("4 already there"), "{again}");
    // An archive that cannot be read is reported with its name on the device.
    fs::write(made[1].join("runs.jsonl"), "no run\n")?;
    fs::remove_dir_all(made[1].join("tables"))?;
    let output = add().output()?;
    let complaint = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.code() == Some(1) && complaint.contains(&format!("{}:/", ssh.device())), "{complaint}");
    for (word, why) in [(ssh.device(), ":/DIRECTORY"), (format!("{}:/nonexistent", ssh.device()), "nonexistent")] {
        let mut command = fleet_command(&["add", place, &word]);
        ssh.path(&mut command);
        let complaint = refusal_of(command)?;
        ensure!(complaint.contains(why), "{word}: {complaint}");
    }
    Ok(())
}

fn from_phone() -> Result<()> {
    let phone = Phone::start(DAEMON_PATH, &Shape::default())?;
    phone.ready()?;
    let directory = tempfile::tempdir()?;
    let (_, expected) = make_archives(&directory.path().join("runs"), "archives/v3-linux-6.18-virtio", 3)?;
    let serial = phone.name().trim_start_matches("adb:").to_string();
    // The daemon of the tests does not create directories by itself.
    let found =
        |kind: &str| output_of(Command::new("find").arg("runs").args(["-type", kind]).current_dir(directory.path()));
    for dir in found("d")?.lines() {
        phone.shell(&format!("mkdir -p /data/local/tmp/{dir}"))?;
    }
    for file in found("f")?.lines() {
        let to = format!("/data/local/tmp/{file}");
        run(phone.adb().args(["-s", &serial, "push", file, &to]).current_dir(directory.path()))?;
    }
    let place = directory.path().join("fleet");
    let place = path_text(&place);
    run(&mut fleet_command(&["init", place]))?;
    for (source, begins, known) in [
        (format!("{}:/data/local/tmp", phone.name()), "3 archives added", ""),
        ("adb:/data/local/tmp/runs".to_string(), "0 archives added", "3 already there"),
    ] {
        let first = output_of(phone.fathom().args(["fleet", "add", place, &source, "--device", "phone-1"]))?;
        ensure!(first.starts_with(begins) && first.contains(known), "{source}: {first}");
    }
    ensure!(queried_rows(place, &expected)? == expected, "{:?}", queried_rows(place, &expected)?);
    let devices = query_rows(place, "SELECT DISTINCT device FROM spans")?;
    ensure!(devices.len() == 1 && devices[0]["device"] == "phone-1", "{devices:?}");
    Ok(())
}

fn lost_device() -> Result<()> {
    let ssh = Ssh::start()?;
    let directory = tempfile::tempdir()?;
    let (_, expected) = make_archives(&directory.path().join("runs"), "archives/v3-bench", 2)?;
    let place = directory.path().join("fleet");
    let place = path_text(&place);
    run(&mut fleet_command(&["init", place]))?;
    let source = format!("{}:{}", ssh.device(), path_text(directory.path()));
    drop(ssh);
    let output = fleet_command(&["add", place, &source, path_text(&directory.path().join("runs"))]).output()?;
    let (out, complaint) = (String::from_utf8(output.stdout)?, String::from_utf8(output.stderr)?);
    ensure!(output.status.code() == Some(1) && complaint.contains(&source), "{out}{complaint}");
    ensure!(out.starts_with("2 archives added") && out.contains("1 skipped"), "{out}");
    ensure!(queried_rows(place, &expected)? == expected);
    Ok(())
}

/// The store of the tests, behind a proxy that injects faults.
struct Faulty {
    child: Child,
    at: String,
}

impl Faulty {
    fn start(store: &S3, mode: &str, seed: u64) -> Result<Self> {
        let mut child = Command::new(python())
            .arg(crate_path("programs/faulty_store.py"))
            .args([&store.at, mode, &seed.to_string()])
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn()?;
        let mut port = String::new();
        BufReader::new(child.stdout.take().context("it has no stdout")?).read_line(&mut port)?;
        ensure!(!port.is_empty(), "the store between ended: {}", child.wait()?);
        Ok(Self { child, at: format!("127.0.0.1:{}", port.trim()) })
    }

    fn add_store<'a>(&self, store: &S3, command: &'a mut Command) -> &'a mut Command {
        store.add_to(command).env("AWS_ENDPOINT_URL", format!("http://{}", self.at))
    }

    /// How often it did what.
    fn did(&self) -> Result<Value> {
        let mut client = TcpStream::connect(&self.at)?;
        write!(client, "GET /faults HTTP/1.0\r\n\r\n")?;
        let mut answer = String::new();
        client.read_to_string(&mut answer)?;
        Ok(serde_json::from_str(answer.split("\r\n\r\n").nth(1).unwrap_or_default())?)
    }
}

impl Drop for Faulty {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Rows of each table, queried from the store itself.
fn counted_in(store: &S3, place: &str, tables: &BTreeMap<String, u64>) -> Result<BTreeMap<String, u64>> {
    let count = |table: &String| -> Result<(String, u64)> {
        let statement = format!("SELECT count(*) AS n FROM {table}");
        let output = run(store.add_to(&mut sql_command(&[place, "--format", "json", &statement])))?;
        let whole: Value = serde_json::from_slice(&output.stdout)?;
        Ok((table.clone(), whole["rows"][0]["n"].as_u64().context("a count")?))
    };
    tables.keys().map(count).collect()
}

fn flaky_store() -> Result<()> {
    let did = add_through_faulty_proxy(&S3::start()?, 1..=3)?;
    for fault in ["error 500", "error 503", "reset before", "reset after", "cut short", "late"] {
        ensure!(did.get(fault).is_some_and(|&count| count > 0), "{fault} never happened: {did:?}");
    }
    Ok(())
}

fn flaky_s3proxy() -> Result<()> {
    let directory = tempfile::tempdir()?;
    let did = add_through_faulty_proxy(&S3::start_over(&directory.path().join("data"), directory.path())?, 4..=5)?;
    ensure!(did.values().sum::<u64>() > did.get("nothing").copied().unwrap_or(0), "nothing ever failed: {did:?}");
    Ok(())
}

fn flaky_versitygw() -> Result<()> {
    let directory = tempfile::tempdir()?;
    let did = add_through_faulty_proxy(&S3::versitygw(&directory.path().join("data"), directory.path())?, 6..=7)?;
    ensure!(did.values().sum::<u64>() > did.get("nothing").copied().unwrap_or(0), "nothing ever failed: {did:?}");
    Ok(())
}

/// Adds to fleets behind a faulty proxy, one for each seed; returns how often it did what.
fn add_through_faulty_proxy(store: &S3, seeds: std::ops::RangeInclusive<u64>) -> Result<BTreeMap<String, u64>> {
    let directory = tempfile::tempdir()?;
    let (_, expected) = make_archives(&directory.path().join("runs"), "archives/v3-linux-6.18-virtio", 5)?;
    let archives = directory.path().join("runs");
    let mut did: BTreeMap<String, u64> = BTreeMap::new();
    for seed in seeds {
        let place = format!("s3://shelf/flaky-{seed}");
        run(store.add_to(&mut fleet_command(&["init", &place])))?;
        let faulty = Faulty::start(store, "flaky", seed)?;
        // Faults that the client does not recover from are reported, and the same command can be repeated: two writers at
        // first, then one.
        let mut done = false;
        for n in 0..40 {
            let start = || {
                let mut command = fleet_command(&["add", &place, path_text(&archives)]);
                faulty.add_store(store, &mut command).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn()
            };
            let writers = if n == 0 { vec![start()?, start()?] } else { vec![start()?] };
            let mut succeeded = true;
            for writer in writers {
                let output = writer.wait_with_output()?;
                let complaint = String::from_utf8_lossy(&output.stderr);
                ensure!(!complaint.contains("panicked"), "{complaint}");
                ensure!(output.status.success() || !complaint.trim().is_empty(), "it fails without a word");
                succeeded &= output.status.success();
            }
            if succeeded {
                done = true;
                break;
            }
        }
        ensure!(done, "forty repetitions were not enough");
        for (fault, count) in faulty.did()?.as_object().context("counts")? {
            *did.entry(fault.clone()).or_default() += count.as_u64().unwrap_or(0);
        }
        let found = counted_in(store, &place, &expected)?;
        ensure!(found == expected, "seed {seed}: {found:?}, and the indexes say {expected:?}");
        // Leftovers of failed writers are removed, and nothing else.
        run(store.add_to(&mut fleet_command(&["gc", "--grace", "0", &place])))?;
        ensure!(counted_in(store, &place, &expected)? == expected, "seed {seed}, after gc");
        let checked = output_of(store.add_to(&mut fleet_command(&["ls", "--check", &place])))?;
        ensure!(checked.contains(" 0 damaged"), "{checked}");
    }
    Ok(did)
}

fn in_s3proxy() -> Result<()> {
    let directory = tempfile::tempdir()?;
    use_fleet(&S3::start_over(&directory.path().join("data"), directory.path())?, directory.path())
}

fn in_versitygw() -> Result<()> {
    let directory = tempfile::tempdir()?;
    use_fleet(&S3::versitygw(&directory.path().join("data"), directory.path())?, directory.path())
}

/// A fleet in a store, from its creation to a wrong key.
fn use_fleet(store: &S3, directory: &Path) -> Result<()> {
    let (_, expected) = make_archives(&directory.join("runs"), "archives/v3-linux-6.18-virtio", 6)?;
    let archives = directory.join("runs");
    let place = "s3://shelf/lab/fleets/a";
    run(store.add_to(&mut fleet_command(&["init", "--keep-raw", place])))?;
    let again = refusal_of({
        let mut command = fleet_command(&["init", place]);
        store.add_to(&mut command);
        command
    })?;
    ensure!(again.contains("already a fleet"), "{again}");
    let mut two =
        [fleet_command(&["add", place, path_text(&archives)]), fleet_command(&["add", place, path_text(&archives)])];
    let children: Vec<_> =
        two.iter_mut().map(|one| store.add_to(one).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn()).collect();
    for child in children {
        let output = child?.wait_with_output()?;
        ensure!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    }
    ensure!(counted_in(store, place, &expected)? == expected);
    run(store.add_to(&mut fleet_command(&["gc", "--grace", "0", place])))?;
    ensure!(counted_in(store, place, &expected)? == expected, "after gc");
    let checked = output_of(store.add_to(&mut fleet_command(&["ls", "--check", place])))?;
    ensure!(checked.contains(" 0 damaged"), "{checked}");
    for mut command in [
        fleet_command(&["ls", place]),
        sql_command(&[place, "SELECT 1"]),
        fleet_command(&["add", place, path_text(&archives)]),
    ] {
        store.add_to(&mut command).env("AWS_SECRET_ACCESS_KEY", "wrong");
        let complaint = refusal_of(command)?;
        ensure!(complaint.contains("fleet.json") && complaint.contains("403"), "{complaint}");
    }
    Ok(())
}

/// S3Proxy over a small tmpfs.
fn full_s3proxy() -> Result<()> {
    let directory = tempfile::tempdir()?;
    let (_, expected) = make_archives(&directory.path().join("runs"), "archives/v3-linux-6.18-virtio", 30)?;
    let (small, archives) = (directory.path().join("small"), directory.path().join("runs"));
    let _mounted = Tmpfs::new(small.clone(), "1m")?;
    let store = S3::start_over(&small, directory.path())?;
    let place = "s3://shelf/full";
    run(store.add_to(&mut fleet_command(&["init", place])))?;
    let complaint = refusal_of({
        let mut command = fleet_command(&["add", place, path_text(&archives)]);
        store.add_to(&mut command);
        command
    })?;
    ensure!(complaint.contains("writing "), "{complaint}");
    let some = counted_in(&store, place, &BTreeMap::from([("archives".to_string(), 0)]))?;
    ensure!(some["archives"] < 30, "it had room");
    run(Command::new("mount").args(["-o", "remount,size=64m"]).arg(&small))?;
    run(store.add_to(&mut fleet_command(&["add", place, path_text(&archives)])))?;
    ensure!(counted_in(&store, place, &expected)? == expected);
    Ok(())
}

/// Archives whose tables must be made first, each of which the test releases.
fn interrupted_add_stops_at_next_archive() -> Result<()> {
    let directory = tempfile::tempdir()?;
    let at = |name: &str| directory.path().join(name);
    let (made, _) = make_archives(&at("runs"), "archives/v3-bench", 5)?;
    fs::rename(made[0].join("tables"), at("tables"))?;
    made[1..].iter().try_for_each(|archive| fs::remove_dir_all(archive.join("tables")))?;
    fs::write(at("go"), "")?;
    let script = "#!/bin/sh\ncd \"${0%/*}\" && echo . >>begun && n=$(wc -l <begun)\n\
         while [ $(wc -l <go) -lt $n ]; do sleep 0.02; done\ncp -r tables \"$2/tables\"\n";
    fs::write(at("maker"), script)?;
    run(Command::new("chmod").arg("+x").arg(at("maker")))?;
    run(&mut fleet_command(&["init", path_text(&at("fleet"))]))?;
    let mut command = Command::new(fathom().with_file_name("fathom-sql"));
    command.args(["fleet", "add"]).args([at("fleet"), at("runs")]).env("FATHOM", at("maker"));
    let mut child = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped()).spawn()?;
    let begun = || fs::read_to_string(at("begun")).unwrap_or_default();
    wait_until("the first archive is begun", || Ok(!begun().is_empty()))?;
    run(Command::new("kill").args(["-INT", &child.id().to_string()]))?;
    wait_until("it ends", || {
        fs::write(at("go"), begun())?;
        Ok(child.try_wait()?.is_some())
    })?;
    let mut complaint = String::new();
    child.stderr.take().context("it has no stderr")?.read_to_string(&mut complaint)?;
    let count = begun().lines().count();
    ensure!(child.wait()?.code() == Some(1) && complaint.contains("stopped"), "{complaint}");
    ensure!(count < made.len(), "{count} of {} archives, in spite of Ctrl-C", made.len());
    let left = query_rows(path_text(&at("fleet")), "SELECT count(*) AS n FROM archives")?;
    ensure!(left[0]["n"] == 0, "{left:?}");
    Ok(())
}

/// Half of a day's archives are truncated: each is named, and all others are added.
fn many_damaged() -> Result<()> {
    let directory = tempfile::tempdir()?;
    let archives = directory.path().join("runs");
    fs::create_dir(&archives)?;
    let made = make_similar_archives(&crate_path("archives/v3-linux-6.18-virtio"), &archives, 60, 0)?;
    let (bad, good): (Vec<PathBuf>, Vec<PathBuf>) =
        made.into_iter().enumerate().fold((vec![], vec![]), |(mut bad, mut good), (n, path)| {
            if n % 2 == 0 {
                bad.push(path)
            } else {
                good.push(path)
            }
            (bad, good)
        });
    for archive in &bad {
        let table = archive.join("tables/spans.parquet");
        fs::write(&table, &fs::read(&table)?[..200])?;
    }
    let place = directory.path().join("fleet");
    let place = path_text(&place);
    run(&mut fleet_command(&["init", place]))?;
    let output = fleet_command(&["add", place, path_text(&archives)]).output()?;
    let (out, complaint) = (String::from_utf8(output.stdout)?, String::from_utf8(output.stderr)?);
    ensure!(output.status.code() == Some(1) && out.starts_with("30 archives added"), "{out}{complaint}");
    for archive in &bad {
        ensure!(
            complaint.matches(&format!("{}: ", path_text(archive))).count() == 1,
            "{}: {complaint}",
            archive.display()
        );
    }
    let expected = indexed_rows(&good)?;
    ensure!(queried_rows(place, &expected)? == expected);
    Ok(())
}

/// Of four copies, the first has a damaged table and the second half a log.
fn best_copy() -> Result<()> {
    let directory = tempfile::tempdir()?;
    let runs = directory.path().join("runs");
    fs::create_dir(&runs)?;
    let [table, half, whole, _again] =
        ["0-table", "1-half", "2-whole", "3-again"].map(|name| runs.join(format!("{name}.fathom")));
    for to in ["0-table", "1-half", "2-whole", "3-again"] {
        copy_directory(&crate_path("archives/v3-linux-6.18-virtio"), &runs.join(format!("{to}.fathom")))?;
    }
    let spans = table.join("tables/spans.parquet");
    fs::write(&spans, &fs::read(&spans)?[..200])?;
    let log = half.join("events.log");
    let bytes = fs::read(&log)?;
    fs::write(&log, &bytes[..bytes.len() / 2])?;
    let place = directory.path().join("fleet");
    let place = path_text(&place);
    run(&mut fleet_command(&["init", place]))?;
    let output = fleet_command(&["add", place, path_text(&runs)]).output()?;
    let (out, complaint) = (String::from_utf8(output.stdout)?, String::from_utf8(output.stderr)?);
    ensure!(output.status.code() == Some(1) && out.starts_with("1 archive added"), "{out}{complaint}");
    ensure!(out.contains("1 already there, 2 skipped"), "{out}{complaint}");
    for bad in [&table, &half] {
        ensure!(complaint.contains(&format!("skipped: {}", path_text(bad))), "{}: {complaint}", bad.display());
    }
    let expected = indexed_rows(std::slice::from_ref(&whole))?;
    ensure!(queried_rows(place, &expected)? == expected);
    // Tables of the half alone are another run of the same recording.
    fs::remove_dir_all(half.join("tables"))?;
    let complaint = refusal_of(fleet_command(&["add", place, path_text(&half)]))?;
    ensure!(complaint.contains("another state of this recording"), "{complaint}");
    let complaint = refusal_of(sql_command(&[path_text(&half), path_text(&whole), "SELECT 1"]))?;
    ensure!(complaint.contains("hold the same recording"), "{complaint}");
    ensure!(queried_rows(place, &expected)? == expected);
    Ok(())
}

fn slow_store() -> Result<()> {
    let store = S3::start()?;
    let directory = tempfile::tempdir()?;
    let (_, expected) = make_archives(&directory.path().join("runs"), "archives/v3-bench", 2)?;
    let place = "s3://shelf/slow";
    let faulty = Faulty::start(&store, "slow", 1)?;
    run(faulty.add_store(&store, &mut fleet_command(&["init", place])))?;
    run(faulty.add_store(&store, &mut fleet_command(&["add", place, path_text(&directory.path().join("runs"))])))?;
    ensure!(counted_in(&store, place, &expected)? == expected);
    let statement = "SELECT count(*) AS n FROM samples";
    let output = run(faulty.add_store(&store, &mut sql_command(&[place, "--format", "json", statement])))?;
    let whole: Value = serde_json::from_slice(&output.stdout)?;
    ensure!(whole["rows"][0]["n"] == expected["samples"], "{whole}");
    Ok(())
}

fn dead_store() -> Result<()> {
    let store = S3::start()?;
    let place = "s3://shelf/dead";
    run(store.add_to(&mut fleet_command(&["init", place])))?;
    for mode in ["down", "hang"] {
        let faulty = Faulty::start(&store, mode, 1)?;
        for mut command in [
            fleet_command(&["add", place, path_text(&crate_path("archives/v3-bench"))]),
            sql_command(&[place, "SELECT 1"]),
        ] {
            // The timeout of one request; the default of 30 s would make a long test.
            faulty.add_store(&store, &mut command).env("AWS_TIMEOUT", "1 s");
            let complaint = refusal_of(command).with_context(|| mode.to_string())?;
            ensure!(complaint.contains("fleet.json") || complaint.contains(place), "{mode}: {complaint}");
        }
    }
    // The fleet is unchanged.
    let listed: Value = serde_json::from_str(&output_of(store.add_to(&mut fleet_command(&["ls", "--json", place])))?)?;
    ensure!(listed["archives"] == 0, "{listed}");
    Ok(())
}

/// `fathom serve`, and the port that it listens on.
struct ServedFleet {
    child: Child,
    out: BufReader<std::process::ChildStdout>,
    port: u16,
}

impl ServedFleet {
    fn start(words: &[&str]) -> Result<Self> {
        let mut command = Command::new(fathom());
        command.arg("serve").args(words).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn()?;
        let mut out = BufReader::new(child.stdout.take().context("it has no stdout")?);
        let mut line = String::new();
        out.read_line(&mut line)?;
        let port = line.split_once("//").and_then(|(_, rest)| rest.split('/').next()?.rsplit(':').next()?.parse().ok());
        let Some(port) = port else {
            let mut why = String::new();
            child.stderr.take().context("it has no stderr")?.read_to_string(&mut why)?;
            child.wait()?;
            bail!("{line}{why}");
        };
        Ok(Self { child, out, port })
    }

    /// The response to a request with these headers: the status, and the whole text.
    fn get(&self, path: &str, headers: &str) -> Result<(u16, String)> {
        let mut client = TcpStream::connect(("127.0.0.1", self.port))?;
        write!(client, "GET {path} HTTP/1.1\r\n{headers}\r\n")?;
        let mut answer = Vec::new();
        client.read_to_end(&mut answer)?;
        let answer = String::from_utf8(answer)?;
        let status = answer.split(' ').nth(1).and_then(|status| status.parse().ok()).context("a status")?;
        Ok((status, answer))
    }
}

impl Drop for ServedFleet {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn serve_answers_others_only_with_key() -> Result<()> {
    let directory = tempfile::tempdir()?;
    let (_, expected) = make_archives(&directory.path().join("runs"), "archives/v3-linux-6.18-virtio", 3)?;
    let place = directory.path().join("fleet");
    let place = path_text(&place);
    run(&mut fleet_command(&["init", "--keep-raw", place]))?;
    run(&mut fleet_command(&["add", place, path_text(&directory.path().join("runs"))]))?;
    let before = output_of(Command::new("find").arg(place).args(["-printf", "%p %s %T@\n"]))?;
    let key = directory.path().join("key");
    fs::write(&key, "correct horse battery staple\n")?;
    // Beyond this machine only with a key, and only with a valid one.
    for words in [&["--listen", "0.0.0.0:0"][..], &["--listen", "[::]:0"], &["--key-file", "/nonexistent"]] {
        let mut command = Command::new(fathom());
        command.arg("serve").args([place]).args(words).stdin(Stdio::null());
        let complaint = refusal_of(command)?;
        ensure!(complaint.contains("--key-file") || complaint.contains("/nonexistent"), "{complaint}");
    }
    let open = ServedFleet::start(&[place, "--listen", "127.0.0.1:0"])?;
    let host = "Host: localhost\r\n";
    // Silent clients delay nobody.
    let _silent: Vec<TcpStream> =
        (0..8).map(|_| TcpStream::connect(("127.0.0.1", open.port))).collect::<std::io::Result<_>>()?;
    let (status, metrics) = open.get("/metrics", host)?;
    ensure!(status == 200 && metrics.contains("\nfathom_fleet_archives 3\n"), "{metrics}");
    let rows = format!("\nfathom_fleet_rows{{table=\"spans\"}} {}\n", expected["spans"]);
    ensure!(metrics.contains(&rows), "{metrics}");
    ensure!(open.get("/", host)?.0 == 200 && open.get("/", "Host: evil.example\r\n")?.0 == 403);
    let run_of =
        query_rows(place, "SELECT run FROM archives ORDER BY run")?[0]["run"].as_str().context("a run")?.to_string();
    let (status, page) = open.get(&format!("/archive/{run_of}"), host)?;
    ensure!(status == 200 && page.contains("<script") && page.contains("insert into t values"), "{status}");
    ensure!(open.get("/archive/0000000000000000", host)?.0 == 404 && open.get("/etc/passwd", host)?.0 == 404);
    drop(open);
    let shut = ServedFleet::start(&[place, "--listen", "0.0.0.0:0", "--key-file", path_text(&key)])?;
    ensure!(shut.get("/metrics", host)?.0 == 401);
    ensure!(shut.get("/metrics", "Authorization: Bearer correct horse battery stapler\r\n")?.0 == 401);
    ensure!(shut.get("/metrics", "Host: x\r\nAuthorization: Bearer correct horse battery staple\r\n")?.0 == 200);
    drop(shut);
    let after = output_of(Command::new("find").arg(place).args(["-printf", "%p %s %T@\n"]))?;
    ensure!(before == after, "something was written");
    Ok(())
}

fn every_kept_archive_has_its_page() -> Result<()> {
    let directory = tempfile::tempdir()?;
    // One of them is so old that it has tables but no log.
    fs::create_dir(directory.path().join("runs"))?;
    let all = copy_sample_archives(&directory.path().join("runs"))?;
    let place = directory.path().join("fleet");
    let place = path_text(&place);
    run(&mut fleet_command(&["init", "--keep-raw", place]))?;
    run(&mut fleet_command(&["add", place, path_text(&directory.path().join("runs"))]))?;
    let served = ServedFleet::start(&[place, "--listen", "127.0.0.1:0"])?;
    let kept = query_rows(place, "SELECT run, archive FROM archives")?;
    ensure!(kept.len() == all.len(), "{kept:?}");
    for one in kept {
        let run = one["run"].as_str().context("a run")?;
        let (status, page) = served.get(&format!("/archive/{run}"), "Host: localhost\r\n")?;
        ensure!(status == 200 && page.contains("<script"), "{}: {status} {page}", one["archive"]);
    }
    Ok(())
}

/// A fleet of generated recordings of four devices on twenty days; from the eleventh day on, every second device is slower by a third.
fn report_shows_change_and_links_archives() -> Result<()> {
    let directory = tempfile::tempdir()?;
    let (archives, place) = (directory.path().join("generated"), directory.path().join("fleet"));
    run(Command::new(fathom().with_file_name("fathom-sql"))
        .args(["generate", "--seed", "3", "--count", "240", "--devices", "4", "--days", "20", "--worse-from", "10"])
        .arg(&archives)
        .arg(crate_path("archives/v3-linux-6.18-virtio")))?;
    let place = path_text(&place);
    run(&mut fleet_command(&["init", "--keep-raw", place]))?;
    run(&mut fleet_command(&["add", place, path_text(&archives)]))?;
    let (page, plain) = (directory.path().join("my fleet.html"), directory.path().join("plain.html"));
    run(&mut fleet_command(&["report", place, "-o", path_text(&page), "--pages"]))?;
    let page = fs::read_to_string(&page)?;
    // The verb for archives makes the same page, without links.
    run(Command::new(fathom()).args(["report", place, "-o", path_text(&plain)]))?;
    let plain = fs::read_to_string(&plain)?;
    ensure!(plain.matches("<svg").count() == page.matches("<svg").count() && !plain.contains("<a href"), "{plain}");
    // 2026-12-03 is the first day.
    let changes: Vec<&str> = page.lines().filter(|line| line.starts_with("<tr><td>20")).collect();
    ensure!(!changes.is_empty(), "no change is found");
    for device in ["shelf-000", "shelf-002"] {
        let row = format!("<tr><td>2026-12-13<td>{device}<td>");
        ensure!(changes.iter().any(|line| line.starts_with(&row)), "{device}: {changes:?}");
    }
    let wrong = changes.iter().find(|line| line.contains("<td>shelf-001<") || line.contains("<td>shelf-003<"));
    ensure!(wrong.is_none(), "{wrong:?}");
    // Each link points to a page of that archive.
    let links: Vec<&str> =
        page.split("<a href=\"my%20fleet.archives/").skip(1).filter_map(|rest| rest.split('"').next()).collect();
    ensure!(!links.is_empty(), "no archive is linked");
    for link in links {
        let own = fs::read_to_string(directory.path().join("my fleet.archives").join(link))?;
        ensure!(own.contains("<script") && own.contains("insert into t values"), "{link}");
    }
    Ok(())
}

fn checkpoints_are_few_after_gc() -> Result<()> {
    let directory = tempfile::tempdir()?;
    let place = directory.path().join("fleet");
    let (made, expected) = make_archives(&directory.path().join("runs"), "archives/v3-bench", 1)?;
    let place = path_text(&place);
    run(&mut fleet_command(&["init", place]))?;
    run(&mut fleet_command(&["add", place, path_text(&made[0])]))?;
    // Each of them writes one.
    for _ in 0..3 {
        run(&mut fleet_command(&["gc", "--grace", "0", place]))?;
        let left = fs::read_dir(Path::new(place).join("_checkpoints"))?.count();
        ensure!(left == 1, "{left} checkpoints");
    }
    ensure!(queried_rows(place, &expected)? == expected);
    Ok(())
}

/// The context that the recorded application propagates.
const TRACE_ID: &str = "4bf92f3577b34da6a3ce929d0e0e4736";
const PARENT_ID: &str = "00f067aa0ba902b7";

/// A fleet with a recording of an application that propagates its trace context, and the window in which it ran, ns since
/// 1970.
fn traced_fleet(directory: &Path) -> Result<(String, u64, u64)> {
    let disk = ext4()?;
    let database = disk.path().join("t.db");
    let statement = format!(
        "create table t(i); insert into t values ('secret') /*action='checkout',traceparent='00-{TRACE_ID}-{PARENT_ID}-01'*/; \
         insert into t values (2); select count(*) from t /*traceparent='00-{TRACE_ID}-{PARENT_ID}-00'*/;"
    );
    let now = || SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_nanos() as u64);
    let before = now();
    let archive = record(directory, &[], &["sqlite3", &database.to_string_lossy(), &statement])?;
    let after = now();
    let found = run(Command::new("grep").arg("-rlE").arg("secret|checkout").arg(&archive));
    ensure!(found.is_err(), "the archive holds what was in a literal or a comment");
    let place = directory.join("fleet");
    run(&mut fleet_command(&["init", path_text(&place)]))?;
    run(&mut fleet_command(&["add", path_text(&place), path_text(&archive)]))?;
    let contexts = query_rows(
        path_text(&place),
        "SELECT c.traceparent, s.text FROM contexts c JOIN operations o ON o.run = c.run AND o.id = c.operation JOIN shapes s ON s.run = o.run AND s.id = o.shape ORDER BY 1",
    )?;
    ensure!(contexts.len() == 2 && contexts[1]["text"] == "insert into t values (?)", "{contexts:?}");
    Ok((path_text(&place).into(), before, after))
}

/// An OTLP receiver: prints every accepted request, decoded by the protocol's own definitions, as lines of JSON.
struct OtlpReceiver {
    child: Child,
    out: BufReader<std::process::ChildStdout>,
    url: String,
}

impl OtlpReceiver {
    fn start(mode: &str) -> Result<Self> {
        let mut child = Command::new(python())
            .arg(crate_path("programs/otlp_receiver.py"))
            .arg(mode)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn()?;
        let mut out = BufReader::new(child.stdout.take().context("it has no stdout")?);
        let mut port = String::new();
        out.read_line(&mut port)?;
        ensure!(!port.is_empty(), "the receiver ended: {}", child.wait()?);
        Ok(Self { child, out, url: format!("http://127.0.0.1:{}", port.trim()) })
    }

    fn next(&mut self) -> Result<Value> {
        let mut line = String::new();
        self.out.read_line(&mut line)?;
        Ok(serde_json::from_str(&line)?)
    }
}

impl Drop for OtlpReceiver {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn operations_reach_receiver_under_traceparent() -> Result<()> {
    let directory = tempfile::tempdir()?;
    let (place, before, after) = traced_fleet(directory.path())?;
    let mut ids = Vec::new();
    // A receiver that is busy at first, then accepts them; and once more after a restart.
    for mode in ["busy-once", "takes"] {
        let mut receiver = OtlpReceiver::start(mode)?;
        let served = ServedFleet::start(&[&place, "--listen", "127.0.0.1:0", "--otlp", &receiver.url])?;
        let spans = receiver.next()?;
        ensure!(spans.as_array().is_some_and(|spans| spans.len() == 1), "only what is sampled: {spans}");
        let span = &spans[0];
        ensure!(span["trace_id"] == TRACE_ID && span["parent_span_id"] == PARENT_ID, "{span}");
        ensure!(span["attributes"]["db.query.text"] == "insert into t values (?)", "{span}");
        let at = |name: &str| span[name].as_u64().context("a time");
        let (start, end) = (at("start")?, at("end")?);
        ensure!(before < start && start < end && end < after, "{before} < {start} < {end} < {after}");
        let layers = span["attributes"].as_object().context("attributes")?;
        let inside: i64 =
            layers.iter().filter(|(key, _)| key.starts_with("fathom.layer.")).filter_map(|(_, ns)| ns.as_i64()).sum();
        ensure!(inside == (end - start) as i64, "{inside} ns in layers of {}", end - start);
        ids.push(span["span_id"].clone());
        wait_until("the metrics count it", || {
            let (_, metrics) = served.get("/metrics", "Host: localhost\r\n")?;
            Ok(metrics.contains("\nfathom_otlp_spans_total 1\n"))
        })?;
    }
    ensure!(ids[0] == ids[1], "another identity after a restart: {ids:?}");
    // A receiver that rejects spans is reported, and nothing is sent again.
    let mut receiver = OtlpReceiver::start("refuses")?;
    let mut served = ServedFleet::start(&[&place, "--listen", "127.0.0.1:0", "--otlp", &receiver.url])?;
    receiver.next()?;
    let mut line = String::new();
    served.out.read_line(&mut line)?;
    ensure!(line.contains("rejected 1 spans") && line.contains("400"), "{line}");
    Ok(())
}

/// The OpenTelemetry collector, built from its own modules.
fn otelcol() -> Result<PathBuf, String> {
    let built = crate_path("../target/tools/bin/otelcol");
    built.is_file().then_some(built).ok_or_else(|| "otelcol is not built; `scripts/otelcol` does it, with Go".into())
}

fn real_collector_takes_operations() -> Result<()> {
    let directory = tempfile::tempdir()?;
    let (place, ..) = traced_fleet(directory.path())?;
    let port = std::net::TcpListener::bind("127.0.0.1:0")?.local_addr()?.port();
    let (config, log) = (directory.path().join("config.yaml"), directory.path().join("log"));
    fs::write(
        &config,
        format!(
            "receivers: {{otlp: {{protocols: {{http: {{endpoint: \"127.0.0.1:{port}\"}}}}}}}}\n\
             exporters: {{debug: {{verbosity: detailed}}}}\n\
             service: {{telemetry: {{metrics: {{level: none}}}}, pipelines: {{traces: {{receivers: [otlp], exporters: [debug]}}}}}}\n"
        ),
    )?;
    let mut collector = Command::new(otelcol().map_err(anyhow::Error::msg)?);
    let mut collector = Service::start("the collector", collector.arg("--config").arg(&config), &log)?;
    collector.ready(|| Ok(TcpStream::connect(("127.0.0.1", port)).is_ok()))?;
    let _served =
        ServedFleet::start(&[&place, "--listen", "127.0.0.1:0", "--otlp", &format!("http://127.0.0.1:{port}")])?;
    wait_until("the collector shows the span", || Ok(collector.printed().contains("insert into t values (?)")))?;
    let shown = collector.printed();
    ensure!(shown.contains(TRACE_ID) && shown.contains(PARENT_ID), "{shown}");
    Ok(())
}
