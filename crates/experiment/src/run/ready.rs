//! Turns a cell into a process that can be started: its directories, its variables, its words.

use super::{Purpose, Runner, file_system};
use crate::design::Fill;
use crate::scratch::Scratch;
use crate::{Cell, Error, template};
use model::text::ShownPath as _;
use std::collections::BTreeMap;
use std::path::Path;

/// A process that can be started; its directories are removed on drop.
pub(super) struct ReadyProcess {
    pub argv: Vec<String>,
    pub background: Vec<String>,
    _directories: (Scratch, Option<Scratch>),
}

impl Runner<'_, '_> {
    /// Returns the cell's command with lists expanded and factors filled in, for the record.
    pub(super) fn expanded_argv(&self, cell: &Cell) -> Vec<String> {
        let lists = self.word_lists(&cell.fill, false);
        let list = |word: &String| match word.strip_prefix('@').and_then(|name| lists.get(name)) {
            Some(list) => list.clone(),
            None => vec![word.clone()],
        };
        let filled = |word: String| template::fill(&word, &cell.fill.variables);
        cell.argv.iter().flat_map(list).map(filled).collect()
    }

    /// Makes the directories and the command of a process; the inner error is a reason why this process cannot run.
    pub(super) fn prepare_process(
        &self,
        at: usize,
        cell: &Cell,
        fill: &Fill,
        block: u64,
        purpose: Purpose,
    ) -> Result<Result<ReadyProcess, String>, Error> {
        let scratch = Scratch::new(&self.setting.scratch)?;
        // Storage under test may vanish, or become read-only: then this replicate fails, and the next may work.
        let there = cell
            .dir
            .as_deref()
            .map(|dir| self.check_storage(dir).and_then(|()| Scratch::new(dir).map_err(|e| e.to_string())));
        let dir = match there.transpose() {
            Ok(dir) => dir,
            Err(why) => return Ok(Err(why)),
        };
        let sizing = self.design.plan.as_ref().and_then(|p| p.sizing.as_ref());
        let inner = match (sizing, purpose) {
            (None, _) | (_, Purpose::Warmup) => None,
            (Some(_), Purpose::Count) => match self.inner.get(&at) {
                Some(inner) => Some(inner.clone()),
                None => {
                    let why = self.not_sized.get(&at).map_or("it did not end", String::as_str);
                    return Ok(Err(format!("its iterations could not be sized, since its warm-up failed: {why}")));
                }
            },
        };
        let mut variables = self.variables(at, fill, &scratch);
        let path = |p: &Path| p.to_string_lossy().into_owned();
        variables.extend(dir.iter().map(|d| ("dir".to_string(), path(&d.path))));
        let kept = cell.dir.as_ref().and_then(|d| self.kept.get(d));
        variables.extend(kept.map(|k| ("kept".to_string(), path(&k.path))));
        variables.extend(inner.map(|inner| ("inner".to_string(), inner)));
        variables.insert("block_number".to_string(), block.to_string());
        let lists = self.word_lists(fill, purpose == Purpose::Warmup);
        let expand = |words| template::expand(words, &lists, &variables);
        Ok(match (expand(&cell.argv), expand(&cell.background)) {
            (Ok(argv), Ok(background)) => Ok(ReadyProcess { argv, background, _directories: (scratch, dir) }),
            (Err(why), _) | (_, Err(why)) => Err(why),
        })
    }

    /// Whether a directory is still on its original file system. When a card or stick is unmounted, an empty directory of another disk
    /// is left, on which everything could be run, and measured.
    fn check_storage(&self, dir: &Path) -> Result<(), String> {
        match self.storage.get(dir) {
            Some(before) if *before != file_system(dir)? => Err(format!(
                "the storage under test is no longer at {}: the directory is on another file system now. Mount the \
                 storage there again",
                dir.shown()
            )),
            _ => Ok(()),
        }
    }

    /// Wraps the process in the recorder.
    pub(super) fn wrap_in_recorder(&self, ready: ReadyProcess, archive: &Path) -> ReadyProcess {
        let fathom = self.setting.variables.get("fathom").cloned().unwrap_or_default();
        let record = ["record", "--quiet", "--as-root", "--output"].map(String::from);
        let record = std::iter::once(fathom).chain(record).chain([archive.to_string_lossy().into_owned(), "--".into()]);
        ReadyProcess { argv: record.chain(ready.argv).collect(), ..ready }
    }

    /// Returns the lists of words that a command may include.
    pub(super) fn word_lists(&self, fill: &Fill, calibrate: bool) -> BTreeMap<String, Vec<String>> {
        let mut lists = self.design.words.clone();
        lists.extend(fill.words.clone());
        if let Some(sizing) = self.design.plan.as_ref().and_then(|p| p.sizing.as_ref()) {
            let words = if calibrate { &sizing.calibrate } else { &sizing.fixed };
            lists.insert("sizing".into(), words.clone());
        }
        lists
    }

    pub(super) fn variables(&self, at: usize, fill: &Fill, scratch: &Scratch) -> BTreeMap<String, String> {
        let mut variables = self.setting.variables.clone();
        variables.extend(fill.variables.clone());
        let mut add = |name: &str, path: &Path| variables.insert(name.into(), path.to_string_lossy().into_owned());
        add("scratch", &scratch.path);
        if let Some(directory) = &self.design.directory {
            add("design", directory);
        }
        if let Some(shared) = self.shared.get(&at) {
            add("shared", &shared.path);
        }
        if let Some(disk) = &self.disk {
            add("disk", disk.path());
            add("device", disk.device());
        }
        variables
    }
}
