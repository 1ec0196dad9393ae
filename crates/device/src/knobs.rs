//! Temporary changes of a machine's settings: files of /sys and /proc, and mount options.
//!
//! The original values are written to a file **before** the first change, and that file is removed after the last was
//! restored. So however the program ends, the next one finds the file of a process that no longer exists, and restores its
//! settings ([`restore_left_over`]). A process is distinguished from a later one with the same PID by its start time.

use model::text::ShownPath as _;
use serde::{Deserialize, Serialize};
use std::fs;
use std::io::{Error, ErrorKind, Read as _, Result};
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// A setting to restore.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Knob {
    /// A file and its value.
    File(PathBuf, String),
    /// A mount and the option that restores it.
    Mount(PathBuf, String),
    /// A directory that was created; removed with all its contents.
    #[serde(rename = "Folder")] // Notes of a killed run may be those of an older version.
    Directory(PathBuf),
    /// A command that resets a setting without a file: its words.
    Command(Vec<String>),
}

/// Why a setting could not be restored.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RestoreError {
    /// A file and its value.
    #[error("{} could not be restored to {value}: {source}", .file.shown())]
    File { file: PathBuf, value: String, source: Error },
    #[error("{}: {}", .0.shown(), .1)]
    Mount(PathBuf, CommandError),
    /// A directory that could not be removed.
    #[error("{}: {}", .0.shown(), .1)]
    Directory(PathBuf, Error),
    #[error("{0}: {1}")]
    Command(String, CommandError),
    /// The notes of an earlier process cannot be read.
    #[error("{}: {}", .0.shown(), .1)]
    Notes(PathBuf, Error),
}

#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CommandError {
    /// It has no words.
    #[error("no command")]
    Empty,
    /// It cannot be started.
    #[error("{0}: {1}")]
    NotStarted(String, Error),
    /// Its exit status, and its output.
    #[error("{0} {1}")]
    Status(std::process::ExitStatus, String),
}

/// The stored settings, and the process that changed them.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct Notes {
    pid: u32,
    began: u64,
    knobs: Vec<Knob>,
}

/// Original settings; restored when dropped.
#[derive(Debug)]
pub struct SavedSettings {
    file: PathBuf,
    knobs: Vec<Knob>,
}

/// The value of a file of /sys: the selected one if there are several (`none [mq-deadline]`).
///
/// # Errors
/// It cannot be read.
pub fn selected_value(file: &Path) -> Result<String> {
    let text = fs::read_to_string(file)?;
    let chosen = text.split_once('[').and_then(|(_, rest)| rest.split_once(']')).map(|(chosen, _)| chosen);
    Ok(chosen.unwrap_or(text.trim()).to_owned())
}

/// When a process started, in the kernel's own unit; `None` if it is gone, or is a zombie.
pub(crate) fn start_ticks(pid: u32) -> Option<u64> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The name before it may contain anything, parentheses too.
    let mut fields = stat.rsplit_once(')')?.1.split_whitespace();
    let state = fields.next()?;
    (!["Z", "X"].contains(&state)).then(|| fields.nth(18)?.parse().ok())?
}

impl SavedSettings {
    /// Stores the settings to restore in a file of `directory`.
    ///
    /// # Errors
    /// The file cannot be written; nothing may be changed then.
    pub fn save(directory: &Path, knobs: Vec<Knob>) -> Result<Self> {
        fs::create_dir_all(directory)?;
        let pid = std::process::id();
        let file = directory.join(format!("fix-{pid}.json"));
        let notes = Notes { pid, began: start_ticks(pid).unwrap_or(0), knobs };
        let fresh = file.with_extension("new");
        let bytes = serde_json::to_vec(&notes)?;
        // The process that removed the last notes may also have removed the directory since.
        fs::write(&fresh, &bytes)
            .or_else(|_| fs::create_dir_all(directory).and_then(|()| fs::write(&fresh, &bytes)))?;
        fs::File::open(&fresh)?.sync_all()?;
        fs::rename(&fresh, &file)?;
        Ok(Self { file, knobs: notes.knobs })
    }

    /// Restores everything.
    ///
    /// # Errors
    /// The settings that could not be restored; the notes are kept then.
    pub fn restore(mut self) -> std::result::Result<(), Vec<RestoreError>> {
        let knobs = std::mem::take(&mut self.knobs);
        restore_all(&self.file, &knobs)
    }
}

impl Drop for SavedSettings {
    fn drop(&mut self) {
        if !self.knobs.is_empty() {
            let _ = restore_all(&self.file, &self.knobs);
        }
    }
}

fn restore_all(file: &Path, knobs: &[Knob]) -> std::result::Result<(), Vec<RestoreError>> {
    let failed: Vec<RestoreError> = knobs.iter().filter_map(|knob| restore_knob(knob).err()).collect();
    if !failed.is_empty() {
        return Err(failed);
    }
    let _ = fs::remove_file(file);
    // The last notes also remove their directory.
    let _ = file.parent().map(fs::remove_dir);
    Ok(())
}

fn restore_knob(knob: &Knob) -> std::result::Result<(), RestoreError> {
    match knob {
        Knob::File(file, value) => fs::write(file, value).map_err(|source| RestoreError::File {
            file: file.clone(),
            value: value.clone(),
            source,
        }),
        Knob::Mount(directory, option) => {
            let mut mount = Command::new("mount");
            mount.args(["-o", &format!("remount,{option}")]).arg(directory);
            run_checked(&mut mount).map_err(|why| RestoreError::Mount(directory.clone(), why))
        }
        Knob::Command(words) => command(words).map_err(|why| RestoreError::Command(words.join(" "), why)),
        Knob::Directory(directory) => match fs::remove_dir_all(directory) {
            Err(e) if e.kind() != std::io::ErrorKind::NotFound => Err(RestoreError::Directory(directory.clone(), e)),
            _ => Ok(()),
        },
    }
}

/// Runs a command whose exit status indicates success.
pub(crate) fn command(words: &[String]) -> std::result::Result<(), CommandError> {
    let (program, rest) = words.split_first().ok_or(CommandError::Empty)?;
    run_checked(Command::new(program).args(rest))
}

fn run_checked(command: &mut Command) -> std::result::Result<(), CommandError> {
    let program = command.get_program().to_string_lossy().into_owned();
    let done = command.stdin(Stdio::null()).output().map_err(|e| CommandError::NotStarted(program, e))?;
    if done.status.success() {
        return Ok(());
    }
    let output = [done.stdout, done.stderr].concat();
    let output: String = String::from_utf8_lossy(&output).chars().filter(|c| !c.is_control()).take(300).collect();
    Err(CommandError::Status(done.status, output))
}

/// Reads a file of this user. The directory may be in a place where anyone can create files, and notes name directories to remove and
/// commands to run.
fn read_own(file: &Path) -> Result<Vec<u8>> {
    let mut open = fs::OpenOptions::new().read(true).custom_flags(libc::O_NOFOLLOW | libc::O_NONBLOCK).open(file)?;
    let of = open.metadata()?;
    // SAFETY: it only reads this process's user.
    if of.uid() != unsafe { libc::geteuid() } || !of.is_file() {
        return Err(Error::new(ErrorKind::PermissionDenied, "not written by this user"));
    }
    let mut text = Vec::new();
    open.read_to_end(&mut text)?;
    Ok(text)
}

/// Restores the settings left by processes that no longer exist: returns what was restored, and what could not be.
///
/// # Errors
/// The directory of the notes cannot be read.
pub fn restore_left_over(directory: &Path) -> Result<(Vec<Knob>, Vec<RestoreError>)> {
    let (mut done, mut failed) = (Vec::new(), Vec::new());
    let entries = match fs::read_dir(directory) {
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
        let notes: Notes = match read_own(&file).and_then(|text| serde_json::from_slice(&text).map_err(Error::from)) {
            Ok(notes) => notes,
            Err(e) => {
                failed.push(RestoreError::Notes(file, e));
                continue;
            }
        };
        if start_ticks(notes.pid).is_some_and(|began| began == notes.began) {
            continue;
        }
        match restore_all(&file, &notes.knobs) {
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
    fn settings_are_restored_when_dropped() {
        let directory = tempfile::tempdir().unwrap();
        let [notes, file, made] = ["notes", "knob", "made"].map(|name| directory.path().join(name));
        fs::write(&file, "none [mq-deadline] kyber\n").unwrap();
        fs::create_dir(&made).unwrap();
        let old = selected_value(&file).unwrap();
        assert_eq!(old, "mq-deadline");
        let kept =
            SavedSettings::save(&notes, vec![Knob::File(file.clone(), old), Knob::Directory(made.clone())]).unwrap();
        fs::write(&file, "none").unwrap();
        drop(kept);
        assert_eq!(fs::read_to_string(&file).unwrap(), "mq-deadline");
        assert!(!made.exists() && !notes.exists());
    }

    /// In a temporary directory, another user may create the directory of the notes first.
    #[test]
    #[ignore = "root: gives a file to another user"]
    fn notes_of_another_user_are_not_followed() {
        let directory = tempfile::tempdir().unwrap();
        let [notes, kept, made] = ["notes", "kept", "made"].map(|name| directory.path().join(name));
        fs::create_dir(&notes).unwrap();
        fs::create_dir(&kept).unwrap();
        let left = Notes { pid: 1, began: 0, knobs: vec![Knob::Directory(kept.clone())] };
        let file = notes.join("fix-1.json");
        fs::write(&file, serde_json::to_vec(&left).unwrap()).unwrap();
        std::os::unix::fs::chown(&file, Some(65534), None).unwrap();
        let own = Notes { knobs: vec![Knob::Directory(made.clone())], ..left };
        fs::write(directory.path().join("elsewhere"), serde_json::to_vec(&own).unwrap()).unwrap();
        std::os::unix::fs::symlink(directory.path().join("elsewhere"), notes.join("fix-2.json")).unwrap();
        fs::create_dir(&made).unwrap();
        let (done, failed) = restore_left_over(&notes).unwrap();
        assert!(done.is_empty() && failed.len() == 2, "{done:?} {failed:?}");
        assert!(kept.exists() && made.exists() && failed.iter().any(|why| why.to_string().contains("this user")));
        std::os::unix::fs::chown(&file, Some(0), None).unwrap();
        assert_eq!(restore_left_over(&notes).unwrap().0.len(), 1);
        assert!(!kept.exists());
    }

    #[test]
    fn notes_of_a_killed_process_are_followed_by_the_next() {
        let directory = tempfile::tempdir().unwrap();
        let [notes, file] = ["notes", "knob"].map(|name| directory.path().join(name));
        fs::write(&file, "changed").unwrap();
        let kept = SavedSettings::save(&notes, vec![Knob::File(file.clone(), "as it was".into())]).unwrap();
        // The process is alive: its settings are left alone.
        let (done, failed) = restore_left_over(&notes).unwrap();
        assert!(done.is_empty() && failed.is_empty());
        assert_eq!(fs::read_to_string(&file).unwrap(), "changed");
        // Simulates that its number now belongs to another process.
        let own = notes.join(format!("fix-{}.json", std::process::id()));
        let mut left: Notes = serde_json::from_slice(&fs::read(&own).unwrap()).unwrap();
        left.began += 1;
        fs::write(&own, serde_json::to_vec(&left).unwrap()).unwrap();
        std::mem::forget(kept);
        let (done, failed) = restore_left_over(&notes).unwrap();
        assert_eq!((done.len(), failed.len()), (1, 0));
        assert!(fs::read_to_string(&file).unwrap() == "as it was" && !own.exists());
        // What cannot be restored is reported, and tried again next time.
        left.knobs = vec![Knob::File(directory.path().join("no/such"), "1".into())];
        fs::create_dir_all(&notes).unwrap();
        fs::write(&own, serde_json::to_vec(&left).unwrap()).unwrap();
        fs::write(notes.join("fix-damaged.json"), "{").unwrap();
        let (_, failed) = restore_left_over(&notes).unwrap();
        assert!(failed.len() == 2 && own.exists(), "{failed:?}");
    }
}
