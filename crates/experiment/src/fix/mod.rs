//! `fathom fix`: tries the remedies that `explain` names, each as a variant compared with the unchanged command, in the
//! randomised blocks and with the A/A control of [`crate::ab`].
//!
//! [`remedies`] lists them, each with how it is applied and what it gives up: a remedy that gives up durability is never the best
//! unless the user allows it ([`Durability`]). [`contract`] is the result of a run, [`text`] formats it for people.

pub mod contract;
pub mod remedies;
pub mod text;

use crate::ab::Command;
use child::quoted_if_needed;
use remedies::Remedy;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// What all variants have in common.
#[derive(Debug, Clone, Default)]
pub struct Variants<'a> {
    /// This program, which prepares the variants.
    pub fathom: PathBuf,
    /// The command's arguments; `{db}` is the copy of the database.
    pub command: &'a [String],
    /// The database and its copy.
    pub database: Option<(PathBuf, PathBuf)>,
    /// The preloaded object that sets PRAGMAs.
    pub object: PathBuf,
    /// Current settings of the machine: each variant starts with them.
    pub machine: &'a [(PathBuf, String)],
    /// Mounts, each with the option that restores it.
    pub mounts: &'a [(PathBuf, String)],
    /// Command to run before each variant, after the database was copied.
    pub prepare: Option<&'a str>,
}

/// Replaces a placeholder in a shell's line by one word, whatever characters it has and whether the placeholder is quoted.
fn substitute_word(line: &str, placeholder: &str, word: &str) -> String {
    let (mut out, mut rest, mut quote) = (String::new(), line, None);
    while let Some(c) = rest.chars().next() {
        if let Some(after) = rest.strip_prefix(placeholder) {
            match quote {
                None => out += &quoted_if_needed(word),
                Some('\'') => out += &word.replace('\'', r"'\''"),
                Some(_) => word.chars().for_each(|c| {
                    if "$`\"\\".contains(c) {
                        out.push('\\');
                    }
                    out.push(c);
                }),
            }
            rest = after;
            continue;
        }
        let mut end = c.len_utf8();
        match (c, quote) {
            ('\\', None | Some('"')) => end += rest[end..].chars().next().map_or(0, char::len_utf8),
            ('\'' | '"', None) => quote = Some(c),
            (c, Some(open)) if c == open => quote = None,
            _ => {}
        }
        out += &rest[..end];
        rest = &rest[end..];
    }
    out
}

impl Variants<'_> {
    /// Returns the command with the copy in place of the database.
    pub fn words(&self) -> Vec<String> {
        let copy = self.database.as_ref().map(|(_, copy)| copy.to_string_lossy().into_owned());
        self.command.iter().map(|word| copy.as_ref().map_or(word.clone(), |copy| word.replace("{db}", copy))).collect()
    }

    /// Returns the line that runs a variant: always through `env`, so that all variants include its start-up time.
    fn command_line(&self, remedy: Option<&Remedy>) -> String {
        let mut words = vec!["env".to_owned()];
        if let Some(pragmas) = remedy.and_then(|remedy| remedy.connection.as_ref()) {
            words.push(format!("LD_PRELOAD={}", self.object.to_string_lossy()));
            words.push(format!("FATHOM_PRAGMAS={pragmas}"));
        }
        words.extend(self.words());
        words.iter().map(|word| quoted_if_needed(word)).collect::<Vec<_>>().join(" ")
    }

    /// Returns the line that prepares a variant.
    pub fn prepare(&self, remedy: Option<&Remedy>) -> String {
        let mut words: Vec<String> =
            vec![self.fathom.to_string_lossy().into_owned(), "workload".into(), "variant".into()];
        if let Some((from, to)) = &self.database {
            words.extend(["--database".into(), from.to_string_lossy().into_owned(), to.to_string_lossy().into_owned()]);
            if let Some(sql) = remedy.and_then(|remedy| remedy.persistent.as_ref()) {
                words.extend(["--pragma".into(), sql.clone()]);
            }
        }
        let own = remedy.and_then(|remedy| remedy.machine.as_ref());
        for (file, value) in self.machine {
            let value = own.filter(|(own, _)| own == file).map_or(value, |(_, value)| value);
            words.extend(["--set".into(), format!("{}={value}", file.to_string_lossy())]);
        }
        let own = remedy.and_then(|remedy| remedy.mount.as_ref());
        for (directory, back) in self.mounts {
            words.extend(["--remount".into(), format!("{}={back}", directory.to_string_lossy())]);
        }
        if let Some((directory, option)) = own {
            words.extend(["--remount".into(), format!("{}={option}", directory.to_string_lossy())]);
        }
        let mut line = words.iter().map(|word| quoted_if_needed(word)).collect::<Vec<_>>().join(" ");
        if let Some(prepare) = self.prepare {
            line += " && ";
            line += &match &self.database {
                Some((_, copy)) => substitute_word(prepare, "{db}", &copy.to_string_lossy()),
                None => prepare.to_owned(),
            };
        }
        line
    }

    /// Returns the commands of [`crate::ab::AbRequest`]: unchanged, then with each remedy. The variable [`PREPARE_VARIABLE`] prepares a variant.
    pub fn commands(&self, remedies: &[Remedy]) -> Vec<Command> {
        let command = |name: &str, remedy: Option<&Remedy>| Command {
            name: name.into(),
            line: self.command_line(remedy),
            directory: None,
            values: BTreeMap::from([(PREPARE_VARIABLE.to_owned(), self.prepare(remedy))]),
        };
        let mut all = vec![command(BASELINE_NAME, None)];
        all.extend(remedies.iter().map(|remedy| command(&remedy.name, Some(remedy))));
        all
    }
}

/// The name of such a design, as shown in the progress.
pub const DESIGN_NAME: &str = "fix";
/// The variable that prepares a variant.
pub const PREPARE_VARIABLE: &str = "fathom_variant";
/// The baseline's name.
pub const BASELINE_NAME: &str = "as it is";

/// Returns the directory and the path of a database's copy: next to it, on the same file system.
pub fn copy_paths(database: &Path, pid: u32) -> Option<(PathBuf, PathBuf)> {
    let directory = database.parent()?.join(format!(".fathom-fix-{pid}"));
    let copy = directory.join(database.file_name()?);
    Some((directory, copy))
}

#[cfg(test)]
mod tests {
    use super::remedies::{Durability, Machine, all};
    use super::*;

    fn variants(command: &[String]) -> Variants<'_> {
        Variants {
            fathom: "/f".into(),
            command,
            database: Some(("/d/a b.db".into(), "/d/.fathom-fix-1/a b.db".into())),
            object: "/o.so".into(),
            ..Variants::default()
        }
    }

    #[test]
    fn arms_differ_only_in_the_remedy() {
        let command = ["app".to_owned(), "{db}".into(), "x y".into()];
        let variants = variants(&command);
        let remedies = all(&Machine::default());
        let wal = remedies.iter().find(|r| r.name == "wal-normal").unwrap();
        let commands = variants.commands(std::slice::from_ref(wal));
        assert_eq!(commands[0].line, "env app '/d/.fathom-fix-1/a b.db' 'x y'");
        assert_eq!(
            commands[1].line,
            "env LD_PRELOAD=/o.so 'FATHOM_PRAGMAS=PRAGMA synchronous=NORMAL' app '/d/.fathom-fix-1/a b.db' 'x y'"
        );
        assert_eq!(
            commands[0].values[PREPARE_VARIABLE],
            "/f workload variant --database '/d/a b.db' '/d/.fathom-fix-1/a b.db'"
        );
        assert!(commands[1].values[PREPARE_VARIABLE].ends_with("--pragma 'PRAGMA journal_mode=WAL'"), "{commands:?}");
        assert_eq!(wal.durability, Durability::LastCommits);
    }

    #[test]
    fn each_arm_sets_the_machine_anew() {
        let command = ["app".to_owned()];
        let scheduler = || PathBuf::from("/sys/block/vda/queue/scheduler");
        let machine = [(scheduler(), "mq-deadline".to_owned())];
        let variants = Variants { machine: &machine, prepare: Some("rm -f x"), ..variants(&command) };
        let remedy = Remedy { machine: Some((scheduler(), "none".into())), ..all(&Machine::default())[0].clone() };
        assert!(variants.prepare(None).ends_with("--set /sys/block/vda/queue/scheduler=mq-deadline && rm -f x"));
        assert!(variants.prepare(Some(&remedy)).contains("--set /sys/block/vda/queue/scheduler=none && "));
    }

    #[test]
    fn path_in_a_shell_line_is_one_word_in_any_quotes() {
        for path in ["/a/b.db", "/it's/a b.db", "/$x/`y`.db", r#"/a"b\c;.db"#, "/ä *.db"] {
            for line in [
                "printf %s {db}",
                "printf %s \"{db}\"",
                "printf %s '{db}'",
                r#"printf %s \"{db}"#,
                "printf %s 'a\"'{db}",
            ] {
                let line = substitute_word(line, "{db}", path);
                let out = std::process::Command::new("sh").args(["-c", &line]).output().unwrap();
                let printed = String::from_utf8_lossy(&out.stdout).into_owned();
                assert!(out.status.success() && printed.ends_with(path), "{line}: {printed}");
            }
        }
    }
}
