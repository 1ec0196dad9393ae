//! Debian's stock kernel, unpacked: its image, and its modules in the order in which they can be loaded.
//!
//! The package has no `modules.dep`: `depmod` makes it at installation. Each module lists its dependencies in its own
//! `.modinfo` section (`depends=a,b`), and no other order exists; so that section is read here. Modules requested by
//! alias (`softdep=`) are not followed: the lists below name them.

use crate::Error;
use crate::arch::Arch;
use crate::debian::Packages;
use model::Context;
use model::text::ShownPath as _;
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

/// A kernel and its modules.
#[derive(Debug)]
pub struct Kernel {
    /// The image that QEMU starts.
    pub image: PathBuf,
    /// Such as `6.1.0-9-amd64`.
    pub release: String,
    modules: BTreeMap<String, PathBuf>,
}

impl Kernel {
    /// The stock kernel of Debian for an architecture, kept under `cache`. Cancelling the context ends the fetching.
    ///
    /// # Errors
    /// `Missing` if it is not available here.
    pub fn stock(cache: &Path, arch: Arch, context: &Context) -> Result<Self, Error> {
        let packages = Packages::new(cache, arch.debian())?.with_context(context);
        // The metapackage is resolved once: an existing kernel is good enough, and needs no network.
        let name_file = name_file(cache, arch);
        let name = match fs::read_to_string(&name_file) {
            Ok(name) => name,
            Err(_) => {
                let meta = format!("linux-image-{}", arch.debian());
                let names = packages.dependencies(&meta)?;
                let name = names.into_iter().find(|n| n.starts_with("linux-image-"));
                let name = name.ok_or_else(|| Error::Missing(format!("{meta} names no kernel")))?;
                fs::write(&name_file, &name).map_err(|e| Error::io("write", &name_file, e))?;
                name
            }
        };
        Self::from_package(&packages.unpack(&name)?)
    }

    /// Whether a kernel was already fetched.
    pub fn is_cached(cache: &Path, arch: Arch) -> bool {
        let directory = |name: String| cache.join(format!("packages/{name}-{}", arch.debian()));
        fs::read_to_string(name_file(cache, arch)).is_ok_and(|name| directory(name).is_dir())
    }

    /// A kernel package's files under `directory`.
    fn from_package(directory: &Path) -> Result<Self, Error> {
        let libraries = directory.join("lib/modules");
        let mut entries = fs::read_dir(&libraries).map_err(|e| Error::io("read", &libraries, e))?;
        let release = entries.next().and_then(Result::ok).map(|e| e.file_name().to_string_lossy().into_owned());
        let release = release.ok_or_else(|| Error::Missing(format!("no modules in {}", libraries.shown())))?;
        let mut modules = BTreeMap::new();
        collect_modules(&libraries.join(&release).join("kernel"), &mut modules)?;
        Ok(Self { image: directory.join(format!("boot/vmlinuz-{release}")), release, modules })
    }

    /// The files of these modules and of their dependencies, each after its own dependencies. A name that is not a
    /// module is built in, or wrong; which of the two shows when the guest lacks it.
    ///
    /// # Errors
    /// `Io` if a module cannot be read.
    pub fn load_order(&self, names: &[&str]) -> Result<Vec<PathBuf>, Error> {
        let mut order = Vec::new();
        for name in names {
            self.visit(&name.replace('-', "_"), &mut order)?;
        }
        Ok(order)
    }

    fn visit(&self, name: &str, order: &mut Vec<PathBuf>) -> Result<(), Error> {
        let Some(path) = self.modules.get(name).filter(|path| !order.contains(path)) else {
            return Ok(());
        };
        let bytes = fs::read(path).map_err(|e| Error::io("read", path, e))?;
        for needed in parse_dependencies(&bytes) {
            self.visit(&needed, order)?;
        }
        order.push(path.clone());
        Ok(())
    }
}

/// The file that holds the name of an architecture's kernel.
fn name_file(cache: &Path, arch: Arch) -> PathBuf {
    cache.join(match arch {
        Arch::X86_64 => "kernel",
        Arch::Aarch64 => "kernel-arm64",
    })
}

/// Every `.ko` below a directory, by the kernel's name for it (`-` is `_`).
fn collect_modules(directory: &Path, modules: &mut BTreeMap<String, PathBuf>) -> Result<(), Error> {
    for entry in fs::read_dir(directory).map_err(|e| Error::io("read", directory, e))?.flatten() {
        let path = entry.path();
        if path.is_dir() {
            collect_modules(&path, modules)?;
        } else if path.extension().is_some_and(|e| e == "ko") {
            let name = path.file_stem().unwrap_or_default().to_string_lossy().replace('-', "_");
            modules.insert(name, path);
        }
    }
    Ok(())
}

/// The dependencies in a module's `.modinfo`.
fn parse_dependencies(module: &[u8]) -> Vec<String> {
    const DEPENDS_KEY: &[u8] = b"\0depends=";
    let Some(at) = module.windows(DEPENDS_KEY.len()).position(|w| w == DEPENDS_KEY) else {
        return Vec::new();
    };
    let value = module[at + DEPENDS_KEY.len()..].split(|&b| b == 0).next().unwrap_or_default();
    let names = value.split(|&b| b == b',').filter(|n| !n.is_empty());
    names.map(|n| String::from_utf8_lossy(n).replace('-', "_")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn modules_follow_their_dependencies() {
        let directory = tempfile::tempdir().unwrap();
        let modules = directory.path().join("lib/modules/1.0/kernel");
        fs::create_dir_all(&modules).unwrap();
        for (name, needs) in [("ext4", "jbd2,crc16"), ("jbd2", ""), ("crc16", ""), ("dm-mod", "jbd2")] {
            let content = format!("ELF\0license=GPL\0depends={needs}\0name={name}\0");
            fs::write(modules.join(format!("{name}.ko")), content).unwrap();
        }
        let kernel = Kernel::from_package(directory.path()).unwrap();
        let order = kernel.load_order(&["dm_mod", "ext4", "built_in"]).unwrap();
        let names: Vec<_> = order.iter().map(|p| p.file_stem().unwrap().to_string_lossy().into_owned()).collect();
        assert_eq!(names, ["jbd2", "dm-mod", "crc16", "ext4"]);
        assert_eq!(kernel.release, "1.0");
    }
}
