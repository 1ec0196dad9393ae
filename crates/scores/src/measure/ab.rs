//! Side-by-side measurement of commands: checks before anything runs, and measurement in blocks into an archive.

use crate::measure::error::IoContext as _;
use crate::measure::setting::{no_disk, remove_leftovers};
use crate::measure::{Error, Notify, Result, machine};
use archive::runs::Entry;
use archive::{Archive, ArchiveKind, Meta};
use experiment::ab::git::Worktrees;
use experiment::ab::{self, Command};
use experiment::store::Store;
use experiment::{Design, Results, Setting};
use model::text::shown;
use model::{Context, Environment};
use std::path::{Path, PathBuf};

/// Parses pairs of `NAME VALUES`.
pub fn parse_parameters(words: &[String]) -> Result<Vec<(String, Vec<String>)>> {
    let pair = |pair: &[String]| -> Result<(String, Vec<String>)> {
        let [name, values] = pair else { return Err(Error::Usage("--param: expected NAME VALUES".into())) };
        let values = ab::parse_values(values).map_err(|why| Error::Usage(format!("--param {name} {why}")))?;
        Ok((name.clone(), values))
    };
    words.chunks(2).map(pair).collect()
}

/// Refuses a command whose program does not exist.
pub fn check_program(command: &Command) -> Result<()> {
    let line = ab::substitute_values(&command.line, &command.values);
    let words = workload::command::parse_command_line(&line).map_err(|error| Error::Usage(error.to_string()))?;
    let program = words.argv.first().map_or("", String::as_str);
    let in_path = || {
        let all = std::env::var_os("PATH").unwrap_or_default();
        std::env::split_paths(&all).any(|dir| dir.join(program).is_file())
    };
    let found = if program.contains('/') { Path::new(program).is_file() } else { in_path() };
    let missing = || {
        let within = if line == program { String::new() } else { format!(" (of the command `{}`)", shown(&line)) };
        Error::Usage(format!("{}: command not found{within}", shown(program)))
    };
    found.then_some(()).ok_or_else(missing)
}

/// Returns each command in each worktree.
pub fn in_worktrees(worktrees: &Worktrees, commands: &[Command]) -> Vec<Command> {
    let in_one = |command: &Command, (commit, directory): &(String, PathBuf)| {
        let name = match commands.len() {
            1 => commit.clone(),
            _ => format!("{commit}: {}", if command.name.is_empty() { &command.line } else { &command.name }),
        };
        Command { name, directory: Some(directory.clone()), ..command.clone() }
    };
    commands.iter().flat_map(|command| worktrees.all.iter().map(move |tree| in_one(command, tree))).collect()
}

/// Runs such a design into a new archive; also returns the facts of this machine. The caller makes its tables.
///
/// # Errors
/// The archive cannot be written, or nothing can be run.
pub fn measure(design: &Design, to: &Path, context: &Context, notify: Notify<'_>) -> Result<(Results, Environment)> {
    let fathom = std::env::current_exe().doing("cannot find Fathom's own binary")?;
    let meta = Meta::new(ArchiveKind::Bench, archive::unix_now_ns(), std::env::args().collect());
    Archive::create(to, &meta, true)?;
    let mut store = Store::create(to)?;
    let facts = machine::facts(&[]);
    store.push(Entry::Machine(facts.clone()))?;
    store.plan(std::slice::from_ref(design))?;
    let (mut make, mut half_widths) = (no_disk, ab::half_widths);
    let mut setting = Setting::new(&fathom, &mut make);
    setting.half_widths = Some(&mut half_widths);
    setting.past = store.begin(0);
    remove_leftovers(design, &setting, notify);
    let results = experiment::run(design, &mut setting, context, &mut store)?;
    if let Some(stopped) = results.stopped.filter(|_| !context.cancelled()) {
        store.end(0, stopped)?;
    }
    context.clear_progress();
    Ok((results, facts))
}
