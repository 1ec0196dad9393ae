//! Programs that serve a test. A program that was just started does not serve yet: on a cold machine it may take
//! seconds.

use crate::{run, wait_until};
use anyhow::{Context, Result, anyhow, bail};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

/// A running service, with a log of its own. It ends with the test.
pub struct Service {
    name: String,
    child: Child,
    log: PathBuf,
}

impl Service {
    /// Starts it. Its output goes to `log`, which no other service may use: opening it empties it.
    pub fn start(name: &str, command: &mut Command, log: &Path) -> Result<Self> {
        let file = fs::File::create(log).with_context(|| format!("creating {}", log.display()))?;
        command.stdin(Stdio::null()).stdout(file.try_clone()?).stderr(file);
        let child = command.spawn().with_context(|| format!("starting {name}"))?;
        Ok(Self { name: name.into(), child, log: log.into() })
    }

    /// Waits until `so` holds, which must query the service itself: that the process runs proves nothing.
    ///
    /// # Errors
    /// It ended, or was not ready in time: with its output.
    pub fn ready(&mut self, mut so: impl FnMut() -> Result<bool>) -> Result<()> {
        let (child, name) = (&mut self.child, &self.name);
        let waited = wait_until(&format!("{name}, ready to serve,"), || {
            if let Some(status) = child.try_wait()? {
                bail!("{name} ended: {status}");
            }
            so()
        });
        waited.map_err(|error| anyhow!("{error}; it printed: {}", self.printed().trim()))
    }

    /// Whether it has ended.
    pub fn ended(&mut self) -> Result<bool> {
        Ok(self.child.try_wait()?.is_some())
    }

    /// Requests its end, and waits for it.
    pub fn end(&mut self) -> Result<()> {
        run(Command::new("kill").args(["-TERM", &self.child.id().to_string()]))?;
        self.child.wait()?;
        Ok(())
    }

    pub fn printed(&self) -> String {
        fs::read(&self.log).map_or_else(|e| format!("({e})"), |bytes| String::from_utf8_lossy(&bytes).into_owned())
    }

    pub fn id(&self) -> u32 {
        self.child.id()
    }
}

impl Drop for Service {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shell(script: &str, log: &Path) -> Service {
        Service::start("sh", Command::new("sh").args(["-c", script]), log).unwrap()
    }

    #[test]
    fn service_that_starts_slowly_is_awaited() {
        let directory = tempfile::tempdir().unwrap();
        let ready = directory.path().join("ready");
        let script = format!("sleep 0.3; touch {}; exec sleep 600", ready.display());
        let mut service = shell(&script, &directory.path().join("log"));
        service.ready(|| Ok(ready.exists())).unwrap();
        assert!(ready.exists());
    }

    #[test]
    fn service_that_ends_is_reported_with_its_log() {
        let directory = tempfile::tempdir().unwrap();
        let mut service = shell("echo no socket >&2; exit 3", &directory.path().join("log"));
        let error = format!("{:#}", service.ready(|| Ok(false)).unwrap_err());
        assert!(error.contains("exit status: 3") && error.contains("printed: no socket"), "{error}");
    }
}
