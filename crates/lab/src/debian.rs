//! Debian packages without installing them: fetched through apt's own configuration (mirrors, proxies, keys), but with a
//! state folder of ours, and unpacked under a cache folder. The machine's package lists and database are neither read
//! nor written, and no root is needed.
//!
//! Uncertainty: a list that was fetched weeks ago names versions that the mirror has dropped. A download that fails is
//! therefore tried once more with fresh lists.

use crate::Error;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

/// Debian's packages of one architecture, kept in a cache folder that several processes may share.
#[derive(Debug)]
pub struct Packages {
    cache: PathBuf,
    arch: String,
}

impl Packages {
    /// Packages of `arch` in Debian's terms (`amd64`, `arm64`).
    ///
    /// # Errors
    /// `Missing` if apt or dpkg is not on this machine; `Io` if the cache folder cannot be made.
    pub fn new(cache: &Path, arch: &str) -> Result<Self, Error> {
        crate::need("apt-get", "apt")?;
        crate::need("dpkg-deb", "dpkg")?;
        fs::create_dir_all(cache).map_err(|e| Error::io("create", cache, e))?;
        let cache = fs::canonicalize(cache).map_err(|e| Error::io("find", cache, e))?;
        Ok(Self { cache, arch: arch.to_string() })
    }

    /// The folder that holds the files of a package; fetched and unpacked if it is not there yet.
    ///
    /// # Errors
    /// `Missing` if it cannot be fetched (no network, no such package): a test says so and is skipped.
    pub fn unpacked(&self, name: &str) -> Result<PathBuf, Error> {
        let folder = self.cache.join("packages").join(format!("{name}-{}", self.arch));
        let _lock = self.lock()?;
        if folder.exists() {
            return Ok(folder);
        }
        // Made under another name and renamed when whole, so that an interrupted run leaves nothing that looks done.
        let fresh = folder.with_extension("part");
        if fresh.exists() {
            fs::remove_dir_all(&fresh).map_err(|e| Error::io("clear", &fresh, e))?;
        }
        fs::create_dir_all(&fresh).map_err(|e| Error::io("create", &fresh, e))?;
        let package = self.download(name, &fresh)?;
        run(Command::new("dpkg-deb").arg("--extract").arg(&package).arg(&fresh))?;
        fs::remove_file(&package).map_err(|e| Error::io("remove", &package, e))?;
        fs::rename(&fresh, &folder).map_err(|e| Error::io("rename", &fresh, e))?;
        Ok(folder)
    }

    /// What a package depends on, by name: how a metapackage such as `linux-image-amd64` names the real one.
    ///
    /// # Errors
    /// As [`Self::unpacked`].
    pub fn depends(&self, name: &str) -> Result<Vec<String>, Error> {
        let _lock = self.lock()?;
        self.lists(false)?;
        let text = run(self.apt("apt-cache")?.args(["depends", &self.full(name)]))?;
        Ok(depends(&text))
    }

    fn full(&self, name: &str) -> String {
        format!("{name}:{}", self.arch)
    }

    fn download(&self, name: &str, into: &Path) -> Result<PathBuf, Error> {
        self.lists(false)?;
        let attempt = || run(self.apt("apt-get")?.current_dir(into).args(["download", &self.full(name)]));
        if attempt().is_err() {
            self.lists(true)?;
            attempt()?;
        }
        let entries = fs::read_dir(into).map_err(|e| Error::io("read", into, e))?;
        let package = entries.flatten().map(|e| e.path()).find(|p| p.extension().is_some_and(|x| x == "deb"));
        package.ok_or_else(|| Error::Missing(format!("apt-get fetched no {name}")))
    }

    /// Fetches the package lists, unless they are there or `again` is set.
    fn lists(&self, again: bool) -> Result<(), Error> {
        let done = self.cache.join(format!("apt-{}/updated", self.arch));
        if again || !done.exists() {
            run(self.apt("apt-get")?.arg("update"))?;
            File::create(&done).map_err(|e| Error::io("create", &done, e))?;
        }
        Ok(())
    }

    /// One of apt's programs, on a state of its own.
    fn apt(&self, program: &str) -> Result<Command, Error> {
        let state = self.cache.join(format!("apt-{}", self.arch));
        for folder in ["lists/partial", "cache/archives/partial"] {
            let folder = state.join(folder);
            fs::create_dir_all(&folder).map_err(|e| Error::io("create", &folder, e))?;
        }
        let mut command = Command::new(program);
        let mut option = |name: &str, value: &str| {
            command.arg("-o").arg(format!("{name}={value}"));
        };
        option("Dir::State", &state.to_string_lossy());
        option("Dir::State::lists", &state.join("lists").to_string_lossy());
        option("Dir::Cache", &state.join("cache").to_string_lossy());
        // Nothing is installed there: an empty database.
        option("Dir::State::status", "/dev/null");
        option("APT::Architecture", &self.arch);
        option("APT::Architectures::", &self.arch);
        // As root apt would fetch as the user _apt, who may not write here.
        option("APT::Sandbox::User", &std::env::var("USER").unwrap_or_else(|_| "root".into()));
        // The machine's own hooks speak of the machine's own lists.
        option("APT::Update::Post-Invoke-Success::", "");
        option("Acquire::Retries", "3");
        command.arg("--quiet");
        Ok(command)
    }

    fn lock(&self) -> Result<File, Error> {
        let path = self.cache.join("lock");
        let file = File::create(&path).map_err(|e| Error::io("create", &path, e))?;
        file.lock().map_err(|e| Error::io("lock", &path, e))?;
        Ok(file)
    }
}

/// Runs it; a failure carries the last lines of its stderr.
fn run(command: &mut Command) -> Result<String, Error> {
    let program = command.get_program().to_string_lossy().into_owned();
    let Output { status, stdout, stderr } =
        command.stdin(Stdio::null()).output().map_err(|e| Error::Missing(format!("cannot start {program}: {e}")))?;
    if status.success() {
        return Ok(String::from_utf8_lossy(&stdout).into_owned());
    }
    let stderr = String::from_utf8_lossy(&stderr);
    let tail: Vec<&str> = stderr.lines().rev().take(3).collect();
    Err(Error::Missing(format!("{program}: {status}: {}", tail.into_iter().rev().collect::<Vec<_>>().join("; "))))
}

/// Reads `apt-cache depends`.
fn depends(text: &str) -> Vec<String> {
    let names = text.lines().filter_map(|line| line.trim().trim_start_matches('|').strip_prefix("Depends: "));
    names.map(|name| name.split(':').next().unwrap_or(name).trim().to_string()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dependencies_are_parsed() {
        let text =
            "linux-image-amd64:amd64\n  Depends: linux-image-6.1.0-9-amd64\n |Depends: kmod:amd64\n  Recommends: x\n";
        assert_eq!(depends(text), ["linux-image-6.1.0-9-amd64", "kmod"]);
    }
}
