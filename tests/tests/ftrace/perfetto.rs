//! Traces of Perfetto's own recorder: two stored ones (`tests/traces/README.md`), and one of a run that Fathom also records.
//!
//! The oracle is Perfetto's trace processor: it counts events of the same file. The recorder is Debian's, from the suite `sid`, since
//! Debian 12 has none; it is unpacked with that suite's libraries, and nothing is installed.

use super::*;
use fathom_tests::service::Service;
use std::os::unix::net::UnixStream;
use std::process::Stdio;

fn unpack_trace(name: &str, directory: &Path) -> Result<(PathBuf, PathBuf)> {
    let packed = Path::new(env!("CARGO_MANIFEST_DIR")).join("traces").join(format!("{name}.gz"));
    let plain = directory.join(name);
    fs::write(&plain, run(Command::new("gzip").arg("-dc").arg(&packed))?.stdout)?;
    Ok((plain, packed))
}

/// Returns the archive, and the messages.
fn import_trace(file: &Path, directory: &Path) -> Result<(PathBuf, String)> {
    let archive = directory.join("imported.fathom");
    let output = run(Command::new(fathom()).arg("import").arg(file).arg("-o").arg(&archive))?;
    Ok((archive, String::from_utf8_lossy(&output.stderr).into_owned()))
}

fn event_counts(of: &[(&str, u64)]) -> (BTreeMap<String, u64>, u64) {
    (of.iter().map(|(name, n)| ((*name).to_owned(), *n)).collect(), of.iter().map(|(_, n)| n).sum())
}

/// A recording of Android's own perfetto on a phone (for its source see tests/traces/README.md): the same number of events as Perfetto's
/// trace processor counts, both used and ignored ones.
pub fn of_a_phone() -> Result<()> {
    // `select name, count(*) from ftrace_event group by name`, trace_processor 55.3.
    const USED_EVENTS: [(&str, u64); 4] =
        [("sched_process_exit", 4), ("sched_switch", 15_267), ("sched_wakeup", 8_743), ("task_newtask", 4)];
    const OTHER_EVENTS: [(&str, u64); 3] = [("cpu_frequency", 168), ("cpu_idle", 11_687), ("task_rename", 4)];
    let directory = tempfile::tempdir()?;
    let (plain, packed) = unpack_trace("android-sched.perfetto-trace", directory.path())?;
    let (used, others) = (event_counts(&USED_EVENTS), event_counts(&OTHER_EVENTS));
    processor_agrees(&plain, &used.0.into_iter().chain(others.0).collect())?;
    // Perfetto's reader accepts it packed, too.
    for file in [&plain, &packed] {
        let (archive, said) = import_trace(file, directory.path())?;
        ensure!(said.contains(&format!(": {} events of a Perfetto trace", used.1)), "{said}");
        // Those without a name here are named by their field of Perfetto's message: cpu_idle first, the most frequent.
        ensure!(said.contains(&format!("left out: {} events (field 13 of FtraceEvent 11687, ", others.1)), "{said}");
        ensure!(said.contains("not in the trace: Database, Syscall"), "{said}");
        // Its trace processor reports no loss either.
        ensure!(!said.contains("lost"), "{said}");
        let fact = show(&archive)?["environment"]["kernel.release"]["value"].clone();
        ensure!(fact == "4.19.113-22067904", "{fact}");
    }
    Ok(())
}

/// 15 INSERTs on ext4 on a loop disk, recorded by perfetto 56: compared with the trace processor's counts for that
/// disk.
pub fn of_inserts() -> Result<()> {
    // `select name, count(*) from ftrace_event group by name`, trace_processor 55.3: all of them are used.
    const ALL_EVENTS: [(&str, u64); 20] = [
        ("block_bio_queue", 2105),
        ("block_getrq", 1619),
        ("block_rq_complete", 1931),
        ("block_rq_insert", 1108),
        ("block_rq_issue", 1728),
        ("block_split", 14),
        ("ext4_evict_inode", 270),
        ("ext4_sync_file_enter", 233),
        ("ext4_unlink_enter", 53),
        ("ext4_writepages", 621),
        ("ext4_writepages_result", 621),
        ("jbd2_end_commit", 52),
        ("jbd2_handle_start", 1486),
        ("jbd2_start_commit", 52),
        ("sched_process_exec", 204),
        ("sched_process_exit", 488),
        ("sched_process_fork", 404),
        ("sys_enter", 774),
        ("sys_exit", 773),
        ("task_newtask", 404),
    ];
    // The same with `join args` where `dev` is 1792, that is 7:0: events; for block_rq_issue those with rwbs FF, and nr_sector of
    // all.
    const DISK_DEV: &str = "7340032";
    const BIO_COUNT: u64 = 267;
    const COMMIT_COUNT: u64 = 18;
    const SYNC_COUNT: u64 = 64;
    const FLUSH_COUNT: u64 = 68;
    const COMMAND_COUNT: u64 = 161 - FLUSH_COUNT;
    const SECTOR_COUNT: u64 = 934;
    let directory = tempfile::tempdir()?;
    let (plain, _) = unpack_trace("linux-insert.perfetto-trace", directory.path())?;
    let (all, sum) = event_counts(&ALL_EVENTS);
    processor_agrees(&plain, &all)?;
    let (archive, said) = import_trace(&plain, directory.path())?;
    ensure!(said.contains(&format!(": {sum} events of a Perfetto trace")) && !said.contains("left out"), "{said}");
    ensure!(said.contains("not in the trace: Database, RunQueue\n") && !said.contains("lost"), "{said}");
    let spans = rows(&archive, "spans")?;
    let of = |layer: &'static str, kind: &'static str| {
        spans
            .iter()
            .filter(move |r| cell(r, "disk") == DISK_DEV && cell(r, "layer") == layer && cell(r, "kind") == kind)
    };
    let files = files_on(&archive, DISK_DEV)?;
    let syncs =
        |r: &&Row| matches!(cell(r, "kind"), "fsync" | "fdatasync") && files.iter().any(|f| f == cell(r, "file"));
    let sectors = of("Driver", "command").map(|r| cell_ns(r, "bytes")).sum::<u64>() / 512;
    for (what, theirs, ours) in [
        ("bios", BIO_COUNT, of("Block", "bio").count() as u64),
        ("commands", COMMAND_COUNT, of("Driver", "command").count() as u64),
        ("flushes", FLUSH_COUNT, of("Driver", "flush").count() as u64),
        ("commits", COMMIT_COUNT, of("FileSystem", "commit").count() as u64),
        ("syncs", SYNC_COUNT, spans.iter().filter(syncs).count() as u64),
        ("sectors", SECTOR_COUNT, sectors),
    ] {
        ensure!(theirs == ours, "{what}: trace_processor counts {theirs}, we {ours}");
    }
    Ok(())
}

/// The recorder and its services, on sockets of their own.
struct PerfettoServices {
    directory: PathBuf,
    loader: PathBuf,
    libraries: String,
    perfetto: PathBuf,
    services: Vec<Service>,
}

impl PerfettoServices {
    /// Fetches its programs; nothing runs yet.
    fn fetch(directory: &Path) -> Result<Self, lab::Error> {
        let cache = Path::new(env!("CARGO_MANIFEST_DIR")).join("../target/lab");
        if std::env::consts::ARCH != "x86_64" {
            return Err(lab::Error::Missing("the recorder is fetched for x86_64 only".into()));
        }
        let packages = lab::debian::Packages::from_suite(&cache, "amd64", "sid")?;
        let perfetto = packages.unpack("perfetto")?;
        let mut places = vec![perfetto.join("usr/lib/perfetto")];
        let mut loader = PathBuf::new();
        for name in ["libc6", "libgcc-s1", "libstdc++6", "zlib1g"] {
            let root = packages.unpack(name)?;
            if name == "libc6" {
                loader = root.join("usr/lib64/ld-linux-x86-64.so.2");
            }
            places.push(root.join("usr/lib/x86_64-linux-gnu"));
        }
        let libraries = places.iter().map(|p| p.display().to_string()).collect::<Vec<_>>().join(":");
        Ok(Self { directory: directory.into(), loader, libraries, perfetto, services: Vec::new() })
    }

    /// Starts the services, each once the previous one serves: an earlier client fails, as `perfetto` does, or retries only
    /// after seconds.
    fn serve(&mut self) -> Result<()> {
        let socket = |directory: &Path, name: &str| UnixStream::connect(directory.join(name)).is_ok();
        let mut traced = self.start("traced")?;
        traced.ready(|| Ok(["p", "c"].iter().all(|name| socket(&self.directory, name))))?;
        self.services.push(traced);
        let mut probes = self.start("traced_probes")?;
        probes.ready(|| {
            let query = self.command("bin/perfetto").arg("--query").stdin(Stdio::null()).output()?;
            Ok(String::from_utf8_lossy(&query.stdout).contains("linux.ftrace"))
        })?;
        self.services.push(probes);
        Ok(())
    }

    fn start(&self, service: &str) -> Result<Service> {
        Service::start(service, &mut self.command(&format!("sbin/{service}")), &self.directory.join(service))
    }

    /// The services' output.
    fn printed(&self) -> String {
        self.services.iter().map(Service::printed).collect::<Vec<_>>().join("\n")
    }

    fn command(&self, program: &str) -> Command {
        let mut command = Command::new(&self.loader);
        command.arg("--library-path").arg(&self.libraries).arg(self.perfetto.join("usr").join(program));
        for (name, socket) in [("PRODUCER", "p"), ("CONSUMER", "c")] {
            command.env(format!("PERFETTO_{name}_SOCK_NAME"), self.directory.join(socket));
        }
        command
    }
}

/// Perfetto and Fathom record one run. For the disk under test, each of our spans is in the imported trace, and at least 99 of 100 links
/// between them.
pub fn beside_ours() -> Result<()> {
    const EVENT_NAMES: [&str; 11] = [
        "raw_syscalls/*",
        "block/*",
        "jbd2/*",
        "ext4/*",
        "filemap/*",
        "task/task_newtask",
        "sched/sched_switch",
        "sched/sched_waking",
        "sched/sched_process_exec",
        "sched/sched_process_exit",
        "sched/sched_process_fork",
    ];
    let directory = tempfile::tempdir()?;
    let disk = ext4()?;
    let mut recorder = match PerfettoServices::fetch(directory.path()) {
        Ok(recorder) => recorder,
        Err(lab::Error::Missing(why)) => {
            println!("SKIP perfetto_and_fathom_agree_on_one_run: {why}");
            return Ok(());
        }
        Err(error) => return Err(error.into()),
    };
    recorder.serve()?;
    let events: String = EVENT_NAMES.iter().map(|e| format!("ftrace_events: \"{e}\" ")).collect();
    let config = format!(
        "buffers {{ size_kb: 262144 fill_policy: DISCARD }} data_sources {{ config {{ name: \"linux.ftrace\" ftrace_config {{ {events} \
         buffer_size_kb: 65536 drain_period_ms: 100 }} }} }} \
         data_sources {{ config {{ name: \"linux.process_stats\" process_stats_config {{ scan_all_processes_on_start: true }} }} }} \
         data_sources {{ config {{ name: \"linux.system_info\" }} }}"
    );
    fs::write(directory.path().join("config"), config)?;
    let trace = directory.path().join("t.pftrace");
    // The recording process prints its process ID once all sources have started; that process keeps a pipe open.
    let said = directory.path().join("pid");
    let mut start = recorder.command("bin/perfetto");
    start.args(["--txt", "-D", "-c"]).arg(directory.path().join("config")).arg("-o").arg(&trace);
    // If the background process fails, this is the only message, unless its stderr is read.
    let messages = directory.path().join("messages");
    start.stdin(Stdio::null()).stdout(fs::File::create(&said)?).stderr(fs::File::create(&messages)?);
    let begun = start.status()?;
    let told = || Ok::<_, anyhow::Error>(format!("{}\n{}", fs::read_to_string(&messages)?, recorder.printed()));
    ensure!(begun.success(), "perfetto: {begun}: {}", told()?);
    let pid = fs::read_to_string(&said)?.trim().to_owned();
    let ours = directory.path().join("ours.fathom");
    let mut command = Command::new(fathom());
    command.args(["record", "--quiet", "--no-probe-cost", "--backend", "ebpf", "-o"]).arg(&ours);
    command.args(["--", "python3", "-c", PYTHON_PROGRAM]).arg(disk.path().join("t.db")).arg(INSERT_COUNT.to_string());
    let recorded = run(&mut command);
    run(Command::new("kill").args(["-s", "TERM", &pid]))?;
    while Path::new("/proc").join(&pid).exists() {
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
    recorded?;
    assert_near("events that eBPF lost", records_lost(&show(&ours)?)?, 0.0)?;

    let (theirs, said) = import_trace(&trace, directory.path())?;
    ensure!(said.contains("events of a Perfetto trace") && !said.contains("lost"), "{said}");
    let dev = disk.dev()?.0.to_string();
    let spans = |archive: &Path| -> Result<Vec<Row>> {
        let files = files_on(archive, &dev)?;
        let called =
            |r: &Row| matches!(cell(r, "kind"), "fsync" | "fdatasync") && files.iter().any(|f| f == cell(r, "file"));
        let wanted = |r: &Row| match cell(r, "layer") {
            "Block" | "IoScheduler" | "Driver" => cell(r, "disk") == dev,
            "FileSystem" => cell(r, "kind") == "commit" && cell(r, "disk") == dev,
            "Syscall" => called(r),
            _ => false,
        };
        Ok(rows(archive, "spans")?.into_iter().filter(wanted).collect())
    };
    let (ours_of_disk, mut theirs_of_disk) = (spans(&ours)?, spans(&theirs)?);
    // Perfetto records for longer: the disk may have commands before and after.
    let begins = ours_of_disk.iter().map(|r| cell_ns(r, "start_ns"));
    let (from, to) = (begins.clone().min().context("no span")?, begins.max().context("no span")?);
    theirs_of_disk.retain(|r| (from..=to).contains(&cell_ns(r, "start_ns")));
    let pairs = pair_spans(&ours_of_disk, &theirs_of_disk);
    for (layer, kind) in [
        ("Syscall", ""),
        ("FileSystem", "commit"),
        ("Block", "bio"),
        ("IoScheduler", ""),
        ("Driver", "command"),
        ("Driver", "flush"),
    ] {
        let of = |rows: &[Row]| {
            rows.iter().filter(|r| cell(r, "layer") == layer && cell(r, "kind").starts_with(kind)).count()
        };
        let (n, m) = (of(&ours_of_disk), of(&theirs_of_disk));
        println!("{layer} {kind}: {n} by Fathom, {m} by Perfetto");
        // A span at the window's edge may be within it for only one of the two.
        ensure!(n > 0 && n.abs_diff(m) <= 1, "{layer} {kind}: {n} by Fathom, {m} by Perfetto");
    }
    let missing = ours_of_disk.len() - pairs.len();
    ensure!(missing <= 2, "{missing} of {} spans are not in Perfetto's trace", ours_of_disk.len());
    let (all, again, not) = links_again(&ours, &theirs, &pairs)?;
    println!("links: {all} by Fathom, {again} of them from Perfetto's trace; not: {not:?}");
    ensure!(
        all > INSERT_COUNT && u64::from(again) * 100 >= u64::from(all) * 99,
        "{again} of {all} links; not: {not:?}"
    );
    Ok(())
}
