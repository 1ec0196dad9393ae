//! SQLite through Android's framework (android.database), as apps use it: compiled statements, a cursor whose rows pass through a window in
//! memory. The underlying library is the device's own. It runs on Android's runtime with its JIT, or on Robolectric.
//!
//! It is a process next to this one that takes one command per line and answers with one line each
//! (java/src/fathom/database/Statements.java). It stays for all iterations, since it takes seconds to start. The files are made, checked
//! and removed here.
//!
//! Uncertain: none of this was run on a device. Only `app_process` registers the native methods of android.database; it starts no
//! application, and the framework's own code, AOSP's `SQLiteDatabase`, then uses the settings that it has without one.

use super::files::{Files, check_journal_mode};
use super::{Parameters, SYNCHRONOUS_LEVELS};
use crate::robolectric::UnpackedFiles;
use crate::{Error, art, robolectric};
use model::Context;
use std::io::{BufRead, BufReader, Read, Write};
use std::path::PathBuf;
use std::process::{Child, ChildStdin, ChildStdout, Stdio};

/// The prefix of its answers; all other output is the runtime's.
const ANSWER_PREFIX: &str = "fathom: ";
/// Most lines of the runtime's own before an answer.
const RUNTIME_LINES_MAX: usize = 10_000;

/// The framework, and the location of its classes.
#[derive(Debug, Clone)]
pub(super) enum Framework {
    /// Android's: launcher, or empty for the one in PATH, and the dexed jar.
    Art(String, PathBuf),
    /// Robolectric's: java, and the directory.
    Robolectric(String, PathBuf),
}

/// A running process, ended when dropped.
#[derive(Debug)]
pub(super) struct Android {
    child: Child,
    commands: Option<ChildStdin>,
    answers: BufReader<ChildStdout>,
    framework: Framework,
    context: Context,
    /// Removed after the process has ended.
    _unpacked: Option<UnpackedFiles>,
}

impl Android {
    /// Starts it for this load.
    pub(super) fn start(framework: &Framework, p: &Parameters, context: &Context) -> Result<Self, Error> {
        let mut words = vec!["sqlite".to_owned()];
        for (name, value) in [
            ("op", p.op.name().to_owned()),
            ("rows", p.rows.to_string()),
            ("scans", p.scans.to_string()),
            ("per-transaction", p.per_transaction.to_string()),
            ("page-size", p.page_size.to_string()),
            ("synchronous", p.synchronous.to_owned()),
            ("journal-mode", p.journal_mode.to_owned()),
        ] {
            words.extend([format!("--{name}"), value]);
        }
        let (mut command, name, unpacked) = match framework {
            Framework::Art(launcher, jar) => {
                let launcher = art::find_launcher(launcher, true)?;
                art::check_jar_exists(jar)?;
                (art::command(&launcher, jar, ART_MODE, 0, &words), launcher.to_string_lossy().into_owned(), None)
            }
            Framework::Robolectric(java, directory) => {
                let (command, unpacked) = robolectric::command(java, directory, &words)?;
                (command, java.clone(), Some(unpacked))
            }
        };
        let spawned = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn();
        let mut child = spawned.map_err(|e| Error::Failed(format!("cannot run {name}: {e}")))?;
        let (Some(orders), Some(answers)) = (child.stdin.take(), child.stdout.take()) else {
            return Err(Error::Failed(format!("cannot talk to {name}")));
        };
        let (framework, context) = (framework.clone(), context.clone());
        Ok(Self {
            child,
            commands: Some(orders),
            answers: BufReader::new(answers),
            framework,
            context,
            _unpacked: unpacked,
        })
    }

    /// Opens a database with the requested settings.
    pub(super) fn open(&mut self, files: &Files, p: &Parameters) -> Result<(), Error> {
        let path = files.database.canonicalize()?;
        let path = path.to_str().filter(|path| !path.contains(['\n', '\r']));
        let path = path.ok_or_else(|| {
            Error::Failed(
                "Java opens only files with names in UTF-8 and without line breaks (choose another directory with --dir)"
                    .into(),
            )
        })?;
        let answer = self.execute(&format!("open {path}"))?;
        let mut words = answer.split(' ');
        check_journal_mode(words.next().unwrap_or_default(), p)?;
        let synchronous = SYNCHRONOUS_LEVELS.iter().position(|level| *level == p.synchronous).unwrap_or_default();
        let expected = [synchronous.to_string(), p.page_size.to_string()];
        if words.eq(expected.iter().map(String::as_str)) {
            return Ok(());
        }
        let expected = expected.join(" ");
        Err(Error::Failed(format!(
            "android.database did not take synchronous and page_size ({expected}); it answered {answer}"
        )))
    }

    /// Version and source of the engine.
    pub(super) fn version(&mut self) -> Result<String, Error> {
        let answer = self.execute("version")?;
        Ok(match self.framework {
            Framework::Art(..) => format!("{answer}, the device's own through android.database"),
            Framework::Robolectric(..) => format!("{answer}, Robolectric's through android.database"),
        })
    }

    /// Executes the load; returns start, end (CLOCK_BOOTTIME) and the number of statements.
    pub(super) fn run(&mut self) -> Result<(u64, u64, u64), Error> {
        let answer = self.execute("run")?;
        let numbers: Vec<u64> = answer.split(' ').filter_map(|word| word.parse().ok()).collect();
        match numbers[..] {
            [begin, ns, count] => Ok((begin, begin.saturating_add(ns), count)),
            _ => Err(Error::Failed(format!("android.database answered {answer:?}"))),
        }
    }

    /// Executes a command; returns the answer without its kind.
    pub(super) fn execute(&mut self, order: &str) -> Result<String, Error> {
        let sent = self.commands.as_mut().map(|orders| writeln!(orders, "{order}"));
        let answer = match sent {
            Some(Ok(())) => self.read_answer(),
            _ => None,
        };
        match answer.as_deref().and_then(|line| line.split_once(' ')) {
            Some(("done" | "text", rest)) => Ok(rest.to_owned()),
            Some(("wrong", why)) => Err(Error::Wrong(why.to_owned())),
            Some(("failed", why)) => Err(Error::Failed(format!("android.database cannot {order}: {why}"))),
            _ => Err(self.exit_error()),
        }
    }

    fn read_answer(&mut self) -> Option<String> {
        (0..RUNTIME_LINES_MAX).find_map(|_| {
            let mut line = String::new();
            match self.answers.read_line(&mut line) {
                Ok(0) | Err(_) => Some(None),
                Ok(_) => line.trim_end().strip_prefix(ANSWER_PREFIX).map(|answer| Some(answer.to_owned())),
            }
        })?
    }

    /// Ends it; returns the proof of its mode.
    pub(super) fn end(mut self) -> Result<String, Error> {
        drop(self.commands.take());
        let mut printed = String::new();
        // An error counts as the end.
        let _ = self.answers.read_to_string(&mut printed);
        let (maps, _) = art::parse_output(&printed);
        let Ok(maps) = maps else { return Err(self.exit_error()) };
        let proof = match &self.framework {
            Framework::Art(_, jar) => art::judge(ART_MODE, &maps, jar).map(|proof| format!("{ART_MODE}: {proof}")),
            Framework::Robolectric(..) => {
                robolectric::judge(&maps).map(|proof| format!("{}: {proof}", robolectric::MODE))
            }
        };
        proof.map_err(|why| Error::Failed(format!("android.database did not run as requested: {why}")))
    }

    fn exit_error(&mut self) -> Error {
        drop(self.commands.take());
        if self.context.cancelled() {
            return Error::Interrupted;
        }
        let mut said = String::new();
        if let Some(stderr) = &mut self.child.stderr {
            let _ = stderr.read_to_string(&mut said);
        }
        let lines: Vec<&str> = said.lines().filter(|line| !line.trim().is_empty()).take(3).collect();
        Error::Failed(format!("android.database ended: {}", lines.join("; ")))
    }
}

/// Apps are compiled while they run.
const ART_MODE: &str = "art-jit";

impl Drop for Android {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
