//! What the parser of scenarios accepts, what it refuses, and its messages.

use super::*;

const SMALL_SCENARIO: &str = r#"
about = "one"
[disk.data]
bus = "scsi"
[filesystem]
type = "ext4"
disk = "data"
[workload]
commands = ["fathom workload sqlite --dir {dir} --journal-mode {journal_mode} --page-size {page_size}"]
"#;

fn parse_with(settings: &[&str]) -> Result<Scenario, Error> {
    Scenario::parse("small.toml", SMALL_SCENARIO, &settings.iter().map(ToString::to_string).collect::<Vec<_>>())
}

fn parse_error(text: &str) -> String {
    Scenario::parse("small.toml", text, &[]).expect_err("it is wrong").to_string()
}

#[test]
fn shipped_scenarios_are_valid_and_have_short_summaries() {
    for entry in shipped() {
        let (name, scenario) = find(entry.name, &[]).unwrap_or_else(|e| panic!("{e}"));
        assert_eq!(name, entry.name);
        assert!(scenario.about.chars().count() <= 90, "{name}: {}", scenario.about);
    }
    assert!(shipped().is_sorted_by_key(|entry| entry.name));
}

#[test]
fn series_runs_shipped_scenarios_with_settings() {
    for series in series() {
        assert!(series.about.chars().count() <= 90 && shipped().iter().all(|entry| entry.name != series.name));
        let (found, settings) = find_series(&format!("{},rows=7,fs=f2fs", series.name)).unwrap();
        assert_eq!((found.name, settings.as_slice()), (series.name, ["rows=7".into(), "fs=f2fs".into()].as_slice()));
        for (name, word) in found.runs {
            let (_, scenario) = find(word, &settings).unwrap_or_else(|e| panic!("{e}"));
            assert_eq!((scenario.filesystem.kind, scenario.workload.rows), (Kind::F2fs, 7), "{name}");
            let command = scenario.fill_placeholders(&scenario.workload.commands[0]).unwrap();
            assert!(command.contains("--rows 7 "), "{command}");
        }
        let error = find(series.name, &[]).expect_err("it is no scenario").to_string();
        assert!(error.contains("a series") && error.contains(found.runs[0].1), "{error}");
    }
    assert!(find_series("scsi-ext4").is_none());
}

#[test]
fn rows_fill_their_placeholder_in_each_shipped_scenario() {
    for entry in shipped() {
        let (name, scenario) = find(entry.name, &["rows=12345".into()]).unwrap_or_else(|e| panic!("{e}"));
        let all: String = scenario.workload.commands.iter().map(|c| scenario.fill_placeholders(c).unwrap()).collect();
        assert!(all.contains("--rows 12345 "), "{name}: {all}");
    }
    assert!(parse_with(&["rows=0"]).unwrap_err().to_string().contains("workload.rows"));
}

#[test]
fn omitted_keys_have_defaults() {
    let scenario = parse_with(&[]).unwrap();
    assert_eq!(
        scenario.disk["data"],
        Disk { bus: Bus::Scsi, size: Bytes(256 << 20), scheduler: None, parameters: vec![], map: None }
    );
    assert_eq!(scenario.record, Record { backend: Backend::Ebpf, arguments: vec![] });
    assert_eq!((scenario.machine.memory, scenario.workload.limit), (Bytes(1 << 30), Span(300)));
}

#[test]
fn scenario_round_trips_through_toml() {
    let delay = "disk.log.map={target='delay', write_ms=5}";
    let debug = "disk.log={bus='scsi_debug', size='2M', parameters=['delay=5']}";
    let scenario = parse_with(&[debug, delay, "machine.silence=90s"]).unwrap();
    let text = scenario.to_toml();
    assert_eq!(Scenario::parse("again", &text, &[]).unwrap(), scenario, "{text}");
    assert!(text.contains("\"2M\"") && text.contains("\"90s\""), "{text}");
}

#[test]
fn settings_override_scenario_file() {
    let scenario = parse_with(&["sqlite.journal_mode=wal", "sqlite.page_size=1024", "disk.data.bus=\"nvme\""]).unwrap();
    assert_eq!(scenario.sqlite.journal_mode, JournalMode::Wal);
    assert_eq!(scenario.disk["data"].bus, Bus::Nvme);
    let command = scenario.fill_placeholders(&scenario.workload.commands[0]).unwrap();
    assert_eq!(command, "fathom workload sqlite --dir /mnt --journal-mode wal --page-size 1024");
    let backend = parse_with(&["record.backend=ftrace", "record.arguments=['--keep-sql']"]).unwrap().record;
    assert_eq!(
        (backend.backend, backend.arguments.as_slice()),
        (Backend::Ftrace, ["--keep-sql".to_string()].as_slice())
    );
}

#[test]
fn error_of_an_unknown_key_names_its_line() {
    let text = SMALL_SCENARIO.replace("bus = \"scsi\"", "bus = \"scsi\"\nspeed = 1");
    let error = parse_error(&text);
    assert!(error.starts_with("small.toml: ") && error.contains("line 5"), "{error}");
    assert!(error.contains("unknown field `speed`") && error.contains("`bus`"), "{error}");
    let error = parse_error(&SMALL_SCENARIO.replace("scsi", "floppy"));
    assert!(
        error.contains("line 4") && error.contains("unknown variant `floppy`") && error.contains("`virtio`"),
        "{error}"
    );
}

#[test]
fn errors_of_settings_say_what_is_expected() {
    let error = |setting: &str| parse_with(&[setting]).expect_err(setting).to_string();
    let unknown = error("disk.data.speed=1");
    assert!(unknown.starts_with("--set disk.data.speed=1: ") && unknown.contains("unknown field `speed`"), "{unknown}");
    assert!(error("sqlite").contains("expected KEY=VALUE"));
    assert!(error("sqlite.=1").contains("expected a key such as"));
    assert!(error("about.x=1").contains("about is not a table"));
    assert!(error("sqlite.page_size=1000").contains("power of two"));
    assert!(error("filesystem.disk=log").contains("no disk \"log\"; there is data"));
    assert!(error("filesystem.type=xfs").contains("xfs needs at least 300M, and disk.data.size is 256M"));
    assert!(parse_with(&["filesystem.type=xfs", "disk.data.size=300M"]).is_ok());
    assert_eq!(parse_with(&["disk.data.size=536870912"]).unwrap().disk["data"].size, Bytes(512 << 20));
    assert!(error("disk.data.size=1T").contains("is not a size"));
    assert!(error("disk.data.size=-1").contains("\"-1\" is not a size"));
    assert!(error("disk.data.size=true").contains("expected a size such as"));
    assert!(error("disk.dat.bus=nvme").contains("no disk \"dat\"; there is data"));
    assert!(error("workload.limit=0s").contains("from 1s to 24h"));
    assert!(error("disk.data.scheduler=cfq").contains("unknown variant `cfq`"));
    assert!(error("disk.data.map={target='delay', ms=5}").contains("unknown field `ms`"));
    assert!(error("disk.data.map={target='flakey', up_s=0, down_s=0}").contains("disk.data.map: up_s and down_s"));
    assert!(error("disk.data={bus='sd', size='300M'}").contains("a power of two"));
    assert!(error("disk.data.parameters=['delay=1']").contains("only bus scsi_debug"));
    assert!(error("disk.data={bus='scsi_debug', parameters=['delay=1; x']}").contains("is not a module parameter"));
    assert!(error("disk.data={bus='loop', size='600M'}").contains("twice their size"));
    assert!(error("disk.exchange={bus='nvme'}").contains("disk.exchange: expected a name"));
    assert!(error("record.arguments=['--output=x']").contains("the lab's own"));
    assert!(error("filesystem.mount='a, b'").contains("without blanks"));
}

#[test]
fn settings_follow_the_name_with_short_keys() {
    let (name, scenario) =
        find("scsi-ext4,fs=f2fs,bus=nvme,size=1G,journal_mode=wal,memory=2G,backend=ftrace", &[]).unwrap();
    assert_eq!(name, "scsi-ext4");
    assert_eq!((scenario.filesystem.kind, scenario.sqlite.journal_mode), (Kind::F2fs, JournalMode::Wal));
    assert_eq!((scenario.disk["data"].bus, scenario.disk["data"].size), (Bus::Nvme, Bytes(1 << 30)));
    assert_eq!((scenario.machine.memory, scenario.record.backend), (Bytes(2 << 30), Backend::Ftrace));
    let (_, quoted) = find("scsi-ext4,mount='noatime,commit=60',mkfs=['-O','^has_journal'],cpus=1", &[]).unwrap();
    assert_eq!((quoted.filesystem.mount.as_str(), quoted.machine.cpus), ("noatime,commit=60", 1));
    assert_eq!(quoted.filesystem.mkfs, ["-O", "^has_journal"]);
    let (_, plain) = find("scsi-ext4,mount=noatime,nobarrier", &["filesystem.mount=relatime".into()]).unwrap();
    assert_eq!(plain.filesystem.mount, "relatime");
    let error = |word: &str| find(word, &[]).expect_err(word).to_string();
    assert!(
        error("scsi-ext4,commit=60").contains("no setting \"commit\"; expected fs, bus, "),
        "{}",
        error("scsi-ext4,commit=60")
    );
    assert!(error("floppy,fs=f2fs").starts_with("floppy: no such scenario"));
    assert!(error("scsi-ext4,fs=ntfs").contains("--set fs=ntfs: "));
    assert!(error("scsi-ext4,fs").starts_with("scsi-ext4,fs: no such scenario"));
}

#[test]
fn ports_are_forwarded_as_written() {
    let forward = |setting: &str| parse_with(&[setting]).map(|scenario| scenario.machine.forward);
    let of = |texts: &[&str]| -> Vec<Forward> { texts.iter().map(|t| t.parse().unwrap()).collect() };
    assert_eq!(forward("forward=7100").unwrap(), of(&["127.0.0.1:7100:7100"]));
    assert_eq!(forward("forward=192.0.2.1:8080:80").unwrap(), of(&["192.0.2.1:8080:80"]));
    assert_eq!(forward("machine.forward=[7100, '8080:80']").unwrap(), of(&["7100", "8080:80"]));
    for bad in ["forward=0", "forward=true", "forward=1:2:3", "forward=['x']"] {
        assert!(forward(bad).unwrap_err().to_string().contains("expected ports such as 7100, "), "{bad}");
    }
}

#[test]
fn only_a_name_in_braces_is_a_placeholder() {
    let scenario = parse_with(&[]).unwrap();
    let filled = |command: &str| scenario.fill_placeholders(command);
    let shell = "f() { echo ${HOME} {a,b} {}; }; awk '{print}x {'";
    assert_eq!(filled(&shell.replace("{print}", "{ print }")).unwrap(), shell.replace("{print}", "{ print }"));
    assert_eq!(filled("{dir}{dir}").unwrap(), "/mnt/mnt");
    assert!(filled("echo {dirs}").unwrap_err().contains("unknown {dirs}; expected one of {dir}"));
}

#[test]
fn error_of_an_unknown_scenario_lists_scenarios() {
    let error = find("floppy", &[]).expect_err("there is none").to_string();
    assert!(error.contains("scsi-ext4") && error.contains("FILE.toml"), "{error}");
    let error = find("/no/such.toml", &[]).expect_err("there is none").to_string();
    assert!(error.starts_with("/no/such.toml: cannot read it"), "{error}");
}
