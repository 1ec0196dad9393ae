//! The real Perfetto, Debian's, in the guest: its services run as root, as Android's do, and the shell user connects with its client. The
//! only part of Android's that is missing: atrace's category `database`, since there is no framework.

use super::{DAEMON_PATH, REPLAYED_MODELS, assert_clean, stderr_of, wait_until};
use anyhow::{Context as _, Result, ensure};
use fathom_tests::phone::{Phone, Shape};
use fathom_tests::{fathom, number, rows, run, show};
use serde_json::Value;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};

/// Boots a guest with Perfetto; `None`, with the reason printed, where Debian's packages cannot be fetched.
fn boot_phone() -> Result<Option<Phone>> {
    let shape = Shape { models: REPLAYED_MODELS, perfetto: true, open: true, ..Shape::default() };
    match Phone::boot(DAEMON_PATH, &shape) {
        Err(error) => match error.downcast_ref() {
            Some(lab::Error::Missing(why)) => {
                println!("SKIP perfetto of a guest: {why}");
                Ok(None)
            }
            _ => Err(error),
        },
        phone => phone.map(Some),
    }
}

/// Writes to the card until it is killed.
struct Load(Child);

impl Drop for Load {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Starts the load through the adb server that the phone is connected to.
fn start_load(server: &Phone, phone: &Phone) -> Result<Load> {
    let line = "while true; do head -c 16384 /dev/zero >/data/local/tmp/written; fsync /data/local/tmp/written; sleep 0.2; done";
    let mut command = server.adb();
    command.args(["-s", &phone.serial, "shell", line]).stdin(Stdio::null()).stdout(Stdio::null());
    let load = Load(command.spawn()?);
    wait_until("the load", || {
        let there = server.adb().args(["-s", &phone.serial, "shell", "ls /data/local/tmp/written"]).output()?;
        Ok(there.status.success())
    })?;
    Ok(load)
}

/// Ends the load and removes what is left of it: closing a shell's stream does not end a loop there.
fn end_load(phone: &Phone, load: Load) -> Result<()> {
    drop(load);
    let end = "for p in $(ps -A -o PID,ARGS | sed -n 's/^ *\\([0-9]*\\) .*whil[e] true; do head.*/\\1/p'); do kill -9 $p; done 2>/dev/null; \
               rm -f /data/local/tmp/written; true";
    phone.shell(end).map(drop)
}

/// Returns the number of the card below /data, by which alone a trace identifies it. The kernel numbers its cards as it finds them.
fn card_number(phone: &Phone) -> Result<String> {
    let mounts = phone.shell("cat /proc/self/mountinfo")?;
    let fields = mounts.lines().map(|line| line.split(' ').collect::<Vec<_>>());
    let number =
        fields.filter(|f| f.get(4) == Some(&"/data")).find_map(|f| f.get(2).map(|number| (*number).to_owned()));
    let number = number.with_context(|| format!("nothing is mounted on /data: {mounts}"))?;
    ensure!(number.starts_with("179:"), "/data is no card: {number}");
    Ok(number)
}

/// Returns the summary, and checks that at least this many bytes were written to the card.
fn assert_written(archive: &Path, card: &str, least: f64) -> Result<Value> {
    let summary = show(archive)?;
    let bytes = number(&summary, &format!("/device_commands/by_disk/{card}/bytes_written"))?;
    ensure!(bytes >= least, "what was written to the card is not in the trace: {}", summary["device_commands"]);
    Ok(summary)
}

pub fn perfetto_of_guest_records_its_card() -> Result<()> {
    let Some(phone) = boot_phone()? else { return Ok(()) };
    let directory = tempfile::tempdir()?;
    let archive = directory.path().join("t.fathom");
    let load = start_load(&phone, &phone)?;
    let mut command = phone.fathom();
    command.args(["record", "--device", &phone.name(), "--via", "perfetto", "--duration", "60", "-o"]).arg(&archive);
    let output = command.output()?;
    end_load(&phone, load)?;
    ensure!(output.status.success(), "{}", stderr_of(&output));
    let card = card_number(&phone)?;
    let summary = assert_written(&archive, &card, 16384.0)?;
    // Events of the card's own driver were recorded, too.
    let commands = summary["driver_commands"].as_array().context("driver_commands")?;
    ensure!(commands.iter().any(|c| c["disk"] == card.as_str()), "{commands:?}");
    ensure!(phone.shell("ls /data/misc/perfetto-traces")?.trim().is_empty(), "the trace was left there");
    // Its times are of the clock that the guest's own shell shows.
    let facts = rows(&archive, "facts")?;
    let fact =
        |name: &str| facts.iter().find(|f| f["name"] == name).map(|f| f["value"].trim_matches(['"', '\'']).to_owned());
    let read: f64 = fact("clock.read_at").context("clock.read_at")?.parse()?;
    let last: f64 = fact("clock.read_at_last").context("clock.read_at_last")?.parse()?;
    let spans = rows(&archive, "spans")?;
    let first = spans.iter().filter_map(|s| s["start_ns"].parse::<f64>().ok()).fold(f64::INFINITY, f64::min);
    ensure!((read - 60e9..last).contains(&first), "{first} is not between {read} and {last}");
    assert_clean(&phone)
}

/// Two guests at once, in one directory; the page has both on this machine's clock.
pub fn perfetto_of_guests_is_joined_on_one_clock() -> Result<()> {
    let (Some(a), Some(b)) = (boot_phone()?, boot_phone()?) else { return Ok(()) };
    let cards = [card_number(&a)?, card_number(&b)?];
    b.connect_to(&a)?;
    let directory = tempfile::tempdir()?;
    let all = directory.path().join("all");
    let loads = [start_load(&a, &a)?, start_load(&a, &b)?];
    let mut command = a.fathom();
    let both = format!("{},{}", a.name(), b.name());
    command.args(["record", "--device", &both, "--via", "perfetto", "--duration", "60", "-o"]).arg(&all);
    let output = command.output()?;
    drop(loads);
    ensure!(output.status.success() && stderr_of(&output).matches("clock was").count() == 2, "{}", stderr_of(&output));
    let archives: Vec<PathBuf> =
        [&a, &b].iter().map(|p| all.join(format!("adb-{}.fathom", p.serial.replace(':', "-")))).collect();
    for (card, archive) in cards.iter().zip(&archives) {
        // Two emulated machines on a busy host write little in that time.
        assert_written(archive, card, 4096.0)?;
    }
    let page = directory.path().join("page.html");
    run(std::process::Command::new(fathom()).arg("report").args(&archives).arg("-o").arg(&page))?;
    let text = fs::read_to_string(&page)?;
    let block = text.split_once("class=\"together\">").and_then(|(_, rest)| rest.split_once("</script>"));
    let together: Value = serde_json::from_str(block.context("no recordings on one clock")?.0)?;
    ensure!(together["charts"].as_array().is_some_and(|c| !c.is_empty()), "{}", together["note"]);
    // A device that does not exist is reported, and the others are recorded.
    let names = format!("{},adb:R58M1", a.name());
    let mut command = a.fathom();
    command.args(["record", "--device", &names, "--via", "perfetto", "--duration", "2", "-o"]).arg(&all);
    let output = command.output()?;
    ensure!(
        output.status.code() == Some(1) && stderr_of(&output).contains("adb:R58M1 has no recording"),
        "{}",
        stderr_of(&output)
    );
    Ok(())
}
