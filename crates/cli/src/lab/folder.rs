//! Where kernels are kept, and the folder of a run's result.

use anyhow::{Context as _, Result, bail};
use std::path::{Path, PathBuf};

/// Where kernels are kept: what was asked for, or the user's cache folder.
pub fn cache(asked: Option<&Path>) -> Result<PathBuf> {
    let of = |name: &str| std::env::var_os(name).map(PathBuf::from).filter(|path| path.is_absolute());
    match (asked, of("XDG_CACHE_HOME"), of("HOME")) {
        (Some(asked), _, _) => Ok(asked.to_path_buf()),
        (None, Some(cache), _) => Ok(cache.join("fathom/lab")),
        (None, None, Some(home)) => Ok(home.join(".cache/fathom/lab")),
        (None, None, None) => {
            bail!("neither XDG_CACHE_HOME nor HOME is set: name a folder for kernels with --cache DIR")
        }
    }
}

/// Makes the folder, empty. That of an earlier run moves out of the way; anything else that is there stays, and is an error.
pub fn result(folder: &Path) -> Result<()> {
    let name = folder.display();
    let used = || Ok::<_, std::io::Error>(std::fs::read_dir(folder)?.next().is_some());
    if folder.exists() && used().with_context(|| format!("cannot read {name}"))? {
        if !folder.join(lab::run::SCENARIO).is_file() {
            bail!("{name} exists and is not a lab result: name another folder with -o DIR");
        }
        let mut old = folder.canonicalize().with_context(|| format!("cannot find {name}"))?.into_os_string();
        old.push(".old");
        let old = PathBuf::from(old);
        if old.exists() {
            if !old.join(lab::run::SCENARIO).is_file() {
                bail!("{} already exists; move it to keep {name}", old.display());
            }
            std::fs::remove_dir_all(&old).with_context(|| format!("cannot remove {}", old.display()))?;
        }
        std::fs::rename(folder, &old).with_context(|| format!("cannot move {name} to {}", old.display()))?;
    }
    std::fs::create_dir_all(folder).with_context(|| format!("cannot create {name}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn earlier_result_is_kept_and_other_directories_not_moved() {
        let top = tempfile::tempdir().unwrap();
        let folder = top.path().join("x.lab");
        for run in ["1", "2", "3"] {
            result(&folder).unwrap();
            assert_eq!(folder.read_dir().unwrap().count(), 0);
            std::fs::write(folder.join(lab::run::SCENARIO), run).unwrap();
        }
        let kept = std::fs::read_to_string(top.path().join("x.lab.old").join(lab::run::SCENARIO)).unwrap();
        assert_eq!(kept, "2");
        let said = result(top.path()).unwrap_err().to_string();
        assert!(said.contains("is not a lab result") && folder.exists(), "{said}");
    }
}
