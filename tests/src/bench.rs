//! A benchmark for the tests: a design whose workload is a script with made-up durations, so that scores are arithmetic and
//! nothing depends on the speed of the machine.

use crate::{fathom, run};
use anyhow::Result;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use tempfile::TempDir;

/// Iterations of `{duration}` ns, in some processes up to a thousandth more; 5 rows of work each. The content of the file `slow` in
/// the working directory is put before the digits: the same command, whose program has become slower.
pub const FAKE_DESIGN: &str = r#"
name = "fake"
question = "How fast is a script that makes its numbers up?"
argv = ["/bin/sh", "-c", '''
sleep {pause}
longer=$(cat slow 2>/dev/null)
for i in 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16; do
    echo "{\"metric\":\"iteration\",\"unit\":\"ns\",\"t\":$i,\"v\":$longer$1.$(($$ % 10))}"
done
echo "{\"metric\":\"work\",\"unit\":\"row\",\"v\":5}"
echo "{\"mark\":\"mode\",\"text\":\"made up\"}"
echo "{\"verified\":{honest},\"by\":\"nothing\"}"
''', "sh", "{duration}"]

[score]

[run]
blocks = 6
precision_percent = 2
budget_s = 600

[quick]
blocks = 5
precision_percent = 2
budget_s = 60

[[factor]]
name = "duration"
about = "ns of an iteration"
default = [1000, 2000]
range = [1, 1000000]

[[factor]]
name = "honest"
about = "whether the result is right"
default = true
values = [true, false]

[[factor]]
name = "pause"
about = "s before it begins"
default = 0
values = [0, 0.05, 0.4]
"#;

/// A directory with the design in it, as `fake.toml`.
pub fn fake_directory() -> Result<TempDir> {
    let directory = tempfile::tempdir()?;
    std::fs::write(directory.path().join("fake.toml"), FAKE_DESIGN)?;
    Ok(directory)
}

/// A directory with the design in it, as the program's working directory.
pub struct Directory(TempDir);

impl Directory {
    /// Creates one.
    pub fn new() -> Result<Self> {
        Ok(Self(fake_directory()?))
    }

    pub fn directory_path(&self) -> &Path {
        self.0.path()
    }

    /// A file in it.
    pub fn path(&self, name: &str) -> PathBuf {
        self.directory_path().join(name)
    }

    /// `fathom` with these words; a measurement does not wait for a quiet machine.
    pub fn command(&self, words: &[&str]) -> Command {
        let mut command = Command::new(fathom());
        command.args(words).current_dir(self.directory_path()).stdin(Stdio::null());
        if words.starts_with(&["bench", "run"]) && !words.contains(&"--no-wait") {
            command.arg("--no-wait");
        }
        command
    }

    /// Runs the command and returns its exit status, stdout and stderr.
    pub fn messages(&self, words: &[&str]) -> Result<(Option<i32>, String, String)> {
        let Output { status, stdout, stderr } = self.command(words).output()?;
        let text = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).into_owned();
        Ok((status.code(), text(stdout), text(stderr)))
    }

    /// Runs the command and returns its stdout.
    pub fn run(&self, words: &[&str]) -> Result<String> {
        Ok(String::from_utf8(run(&mut self.command(words))?.stdout)?)
    }
}
