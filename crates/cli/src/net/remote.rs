//! The ends of a run on other devices: started over ssh, with a key that is made for this run alone and never leaves memory
//! here. There it stands in a file of its user's own while the end runs.

use crate::args::{Device, NetRun};
use anyhow::{Context as _, Result, bail};
use std::io::{BufRead as _, BufReader, Write as _};
use std::process::{Child, Command, ExitCode, Stdio};
use wire::Key;

/// What is left to do here.
pub enum Arranged {
    /// The end that asks ran elsewhere.
    Done(ExitCode),
    /// To ask, of an end that was started for it if there is one.
    Ask(Option<Served>),
}

/// An end that serves, started for one run.
pub struct Served {
    pub key: Key,
    child: Child,
}

impl Drop for Served {
    fn drop(&mut self) {
        // It ends with its asker; this is for a run that did not come about.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Starts what is to run elsewhere.
pub fn arrange(args: &NetRun) -> Result<Arranged> {
    let served = args.to.as_ref().map(|device| serve(args, device)).transpose()?;
    let Device::Ssh(_) = &args.from else { return Ok(Arranged::Ask(served)) };
    if args.output.is_some() {
        bail!("the archive of -o would stay on the device that asks; take --json, or run `fathom net run -o` there");
    }
    let key = match (&served, &args.key) {
        (Some(served), _) => Some(served.key.clone()),
        (None, Some(path)) => Some(Key::read(path)?),
        (None, None) => None,
    };
    let mut child = start(args, &args.from, &asker(std::env::args().skip(1)), key.as_ref(), Stdio::inherit())?;
    let status = child.wait()?;
    Ok(Arranged::Done(status.code().map_or(ExitCode::FAILURE, |code| ExitCode::from(code.clamp(0, 255) as u8))))
}

fn serve(args: &NetRun, device: &Device) -> Result<Served> {
    let key = Key::generate()?;
    let words = ["net", "serve", "--once", "--listen", &args.address.to_string()].map(String::from);
    let mut child = start(args, device, &words, Some(&key), Stdio::piped())?;
    let mut ready = String::new();
    if let Some(stdout) = child.stdout.as_mut() {
        BufReader::new(stdout).read_line(&mut ready)?;
    }
    let served = Served { key, child };
    if ready.trim().parse::<std::net::SocketAddr>().is_err() {
        bail!("the end that serves did not start; what it said stands above");
    }
    Ok(served)
}

/// The words of this call for the device that asks.
fn asker(words: impl Iterator<Item = String>) -> Vec<String> {
    let ours = ["--from", "--to", "--key", "--remote-fathom"];
    let (mut kept, mut skip) = (Vec::new(), false);
    for word in words {
        let name = word.split('=').next().unwrap_or_default();
        if skip || ours.contains(&name) {
            skip = !skip && !word.contains('=');
            continue;
        }
        kept.push(word);
    }
    kept
}

/// Starts Fathom on a device with these words, and hands it the key through its input.
fn start(args: &NetRun, device: &Device, words: &[String], key: Option<&Key>, stdout: Stdio) -> Result<Child> {
    let (mut command, program) = match device {
        Device::Local => {
            let mut shell = Command::new("sh");
            shell.arg("-c");
            (shell, std::env::current_exe()?.to_string_lossy().into_owned())
        }
        Device::Ssh(host) => {
            let mut ssh = Command::new("ssh");
            ssh.args(["-o", "BatchMode=yes", "--", host]);
            (ssh, args.remote_fathom.clone())
        }
    };
    command.arg(script(&program, words, key.is_some()));
    let mut child = command.stdin(Stdio::piped()).stdout(stdout).spawn().with_context(|| match device {
        Device::Local => "cannot start the other end".to_string(),
        Device::Ssh(host) => format!("cannot start ssh for {host}"),
    })?;
    if let (Some(key), Some(mut stdin)) = (key, child.stdin.take()) {
        stdin.write_all(key.to_text().as_bytes()).context("the other device did not take the key")?;
    }
    Ok(child)
}

/// A line for a shell of any kind: the key goes into a file that goes when Fathom does.
fn script(program: &str, words: &[String], key: bool) -> String {
    let call: Vec<String> = std::iter::once(quoted(program)).chain(words.iter().map(|w| quoted(w))).collect();
    let call = call.join(" ");
    match key {
        true => format!(
            "umask 077; f=$(mktemp) && trap 'rm -f \"$f\"' EXIT && trap 'exit 1' HUP INT TERM && cat >\"$f\" && {call} --key \"$f\""
        ),
        false => call,
    }
}

fn quoted(word: &str) -> String {
    format!("'{}'", word.replace('\'', r"'\''"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_asker_gets_all_words_but_those_of_the_arrangement() {
        let words = "net run 192.0.2.7:7100 --from ssh:a --to=ssh:b --duration 3 --key k --json --remote-fathom /x";
        let kept = asker(words.split(' ').map(String::from));
        assert_eq!(kept.join(" "), "net run 192.0.2.7:7100 --duration 3 --json");
    }

    #[test]
    fn a_shell_runs_nothing_but_what_is_meant() {
        let words = ["a b".to_string(), "$(touch x)".into(), "it's".into()];
        let output = Command::new("sh").args(["-c", &script("echo", &words, false)]).output().unwrap();
        assert_eq!(String::from_utf8_lossy(&output.stdout), "a b $(touch x) it's\n");
    }
}
