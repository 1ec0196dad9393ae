//! Settings of a machine that are changed for a while and put back: the files of /sys and /proc that hold them, and options of mounts.
//!
//! What they were is written to a file **before** the first is changed, and that file is removed after the last was put back. So whatever
//! ends the program, the next one finds the file of a process that is no more, and puts back what is in it ([`put_back_left_over`]). A
//! process is distinguished from a later one of the same PID by its start time.

use model::text::ShownPath as _;
use serde::{Deserialize, Serialize};
use std::fs;
use std::io::{Error, Result};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// Something that is put back.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Knob {
    /// A file and its value.
    File(PathBuf, String),
    /// A mount and the option that restores it.
    Mount(PathBuf, String),
    /// A folder that was made, removed with all that is in it.
    Folder(PathBuf),
    /// A command that resets what has no file: its words.
    Command(Vec<String>),
}

/// Why something could not be put back.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum NotPutBack {
    /// A file and its value.
    #[error("{} could not be restored to {value}: {source}", .file.shown())]
    File {
        /// The file.
        file: PathBuf,
        /// Its value.
        value: String,
        /// Why.
        source: Error,
    },
    /// A mount.
    #[error("{}: {}", .0.shown(), .1)]
    Mount(PathBuf, CommandFailed),
    /// A folder that stays.
    #[error("{}: {}", .0.shown(), .1)]
    Folder(PathBuf, Error),
    /// A command: its words.
    #[error("{0}: {1}")]
    Command(String, CommandFailed),
    /// Notes of a process that is no more cannot be read.
    #[error("{}: {}", .0.shown(), .1)]
    Notes(PathBuf, Error),
}

/// Why a command did not do what it is for.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CommandFailed {
    /// It has no words.
    #[error("no command")]
    Empty,
    /// It cannot be started.
    #[error("{0}: {1}")]
    NotStarted(String, Error),
    /// Its exit status, and what it printed.
    #[error("{0} {1}")]
    Status(std::process::ExitStatus, String),
}

/// What was taken down, and by whom.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct Notes {
    pid: u32,
    began: u64,
    knobs: Vec<Knob>,
}

/// Settings as they were; put back when dropped.
#[derive(Debug)]
pub struct Kept {
    file: PathBuf,
    knobs: Vec<Knob>,
}

/// The value of a file of /sys: of several to choose from (`none [mq-deadline]`) the chosen one.
///
/// # Errors
/// It cannot be read.
pub fn value(file: &Path) -> Result<String> {
    let text = fs::read_to_string(file)?;
    let chosen = text.split_once('[').and_then(|(_, rest)| rest.split_once(']')).map(|(chosen, _)| chosen);
    Ok(chosen.unwrap_or(text.trim()).to_owned())
}

/// When a process began, in the kernel's own unit; nothing if it is gone, or ended and only not waited for yet.
pub(crate) fn began(pid: u32) -> Option<u64> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The name before may hold anything, parentheses too.
    let mut fields = stat.rsplit_once(')')?.1.split_whitespace();
    let state = fields.next()?;
    (!["Z", "X"].contains(&state)).then(|| fields.nth(18)?.parse().ok())?
}

impl Kept {
    /// Notes what is to be put back in a file of `folder`.
    ///
    /// # Errors
    /// The notes cannot be written; nothing may be changed then.
    pub fn take(folder: &Path, knobs: Vec<Knob>) -> Result<Self> {
        fs::create_dir_all(folder)?;
        let pid = std::process::id();
        let file = folder.join(format!("fix-{pid}.json"));
        let notes = Notes { pid, began: began(pid).unwrap_or(0), knobs };
        let fresh = file.with_extension("new");
        let bytes = serde_json::to_vec(&notes)?;
        // Who took the last notes away may have taken the folder along since.
        fs::write(&fresh, &bytes).or_else(|_| fs::create_dir_all(folder).and_then(|()| fs::write(&fresh, &bytes)))?;
        fs::File::open(&fresh)?.sync_all()?;
        fs::rename(&fresh, &file)?;
        Ok(Self { file, knobs: notes.knobs })
    }

    /// Puts everything back.
    ///
    /// # Errors
    /// What could not be put back; the notes stay then.
    pub fn put_back(mut self) -> std::result::Result<(), Vec<NotPutBack>> {
        let knobs = std::mem::take(&mut self.knobs);
        finish(&self.file, &knobs)
    }
}

impl Drop for Kept {
    fn drop(&mut self) {
        if !self.knobs.is_empty() {
            let _ = finish(&self.file, &self.knobs);
        }
    }
}

fn finish(file: &Path, knobs: &[Knob]) -> std::result::Result<(), Vec<NotPutBack>> {
    let failed: Vec<NotPutBack> = knobs.iter().filter_map(|knob| back(knob).err()).collect();
    if !failed.is_empty() {
        return Err(failed);
    }
    let _ = fs::remove_file(file);
    // The last notes take their folder along.
    let _ = file.parent().map(fs::remove_dir);
    Ok(())
}

fn back(knob: &Knob) -> std::result::Result<(), NotPutBack> {
    match knob {
        Knob::File(file, value) => fs::write(file, value).map_err(|source| NotPutBack::File {
            file: file.clone(),
            value: value.clone(),
            source,
        }),
        Knob::Mount(folder, option) => {
            let mut mount = Command::new("mount");
            mount.args(["-o", &format!("remount,{option}")]).arg(folder);
            done(&mut mount).map_err(|why| NotPutBack::Mount(folder.clone(), why))
        }
        Knob::Command(words) => command(words).map_err(|why| NotPutBack::Command(words.join(" "), why)),
        Knob::Folder(folder) => match fs::remove_dir_all(folder) {
            Err(e) if e.kind() != std::io::ErrorKind::NotFound => Err(NotPutBack::Folder(folder.clone(), e)),
            _ => Ok(()),
        },
    }
}

/// Runs a command that says by its exit status whether it worked.
pub(crate) fn command(words: &[String]) -> std::result::Result<(), CommandFailed> {
    let (program, rest) = words.split_first().ok_or(CommandFailed::Empty)?;
    done(Command::new(program).args(rest))
}

fn done(command: &mut Command) -> std::result::Result<(), CommandFailed> {
    let program = command.get_program().to_string_lossy().into_owned();
    let done = command.stdin(Stdio::null()).output().map_err(|e| CommandFailed::NotStarted(program, e))?;
    match done.status.success() {
        true => Ok(()),
        false => {
            let output = [done.stdout, done.stderr].concat();
            let output: String =
                String::from_utf8_lossy(&output).chars().filter(|c| !c.is_control()).take(300).collect();
            Err(CommandFailed::Status(done.status, output))
        }
    }
}

/// Puts back what processes left that are no more: what was put back, and what could not be.
///
/// # Errors
/// The folder of the notes cannot be read.
pub fn put_back_left_over(folder: &Path) -> Result<(Vec<Knob>, Vec<NotPutBack>)> {
    let (mut done, mut failed) = (Vec::new(), Vec::new());
    let entries = match fs::read_dir(folder) {
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => return Ok((done, failed)),
        entries => entries?,
    };
    for entry in entries {
        let file = entry?.path();
        let ours =
            file.file_name().and_then(|n| n.to_str()).is_some_and(|n| n.starts_with("fix-") && n.ends_with(".json"));
        if !ours {
            continue;
        }
        let notes: Notes = match fs::read(&file).and_then(|text| serde_json::from_slice(&text).map_err(Error::from)) {
            Ok(notes) => notes,
            Err(e) => {
                failed.push(NotPutBack::Notes(file, e));
                continue;
            }
        };
        if began(notes.pid).is_some_and(|began| began == notes.began) {
            continue;
        }
        match finish(&file, &notes.knobs) {
            Ok(()) => done.extend(notes.knobs),
            Err(why) => failed.extend(why),
        }
    }
    Ok((done, failed))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_are_put_back_when_dropped() {
        let folder = tempfile::tempdir().unwrap();
        let [notes, file, made] = ["notes", "knob", "made"].map(|name| folder.path().join(name));
        fs::write(&file, "none [mq-deadline] kyber\n").unwrap();
        fs::create_dir(&made).unwrap();
        let old = value(&file).unwrap();
        assert_eq!(old, "mq-deadline");
        let kept = Kept::take(&notes, vec![Knob::File(file.clone(), old), Knob::Folder(made.clone())]).unwrap();
        fs::write(&file, "none").unwrap();
        drop(kept);
        assert_eq!(fs::read_to_string(&file).unwrap(), "mq-deadline");
        assert!(!made.exists() && !notes.exists());
    }

    #[test]
    fn killed_process_leaves_notes_that_next_one_follows() {
        let folder = tempfile::tempdir().unwrap();
        let [notes, file] = ["notes", "knob"].map(|name| folder.path().join(name));
        fs::write(&file, "changed").unwrap();
        let kept = Kept::take(&notes, vec![Knob::File(file.clone(), "as it was".into())]).unwrap();
        // It lives: nobody touches its settings.
        let (done, failed) = put_back_left_over(&notes).unwrap();
        assert!(done.is_empty() && failed.is_empty());
        assert_eq!(fs::read_to_string(&file).unwrap(), "changed");
        // As if its number were another process's by now.
        let own = notes.join(format!("fix-{}.json", std::process::id()));
        let mut left: Notes = serde_json::from_slice(&fs::read(&own).unwrap()).unwrap();
        left.began += 1;
        fs::write(&own, serde_json::to_vec(&left).unwrap()).unwrap();
        std::mem::forget(kept);
        let (done, failed) = put_back_left_over(&notes).unwrap();
        assert_eq!((done.len(), failed.len()), (1, 0));
        assert!(fs::read_to_string(&file).unwrap() == "as it was" && !own.exists());
        // What cannot be restored is reported, and tried again next time.
        left.knobs = vec![Knob::File(folder.path().join("no/such"), "1".into())];
        fs::create_dir_all(&notes).unwrap();
        fs::write(&own, serde_json::to_vec(&left).unwrap()).unwrap();
        fs::write(notes.join("fix-damaged.json"), "{").unwrap();
        let (_, failed) = put_back_left_over(&notes).unwrap();
        assert!(failed.len() == 2 && own.exists(), "{failed:?}");
    }
}
