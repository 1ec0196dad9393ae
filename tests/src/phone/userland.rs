//! The content of a device's root: toybox, mksh and their libraries. For this machine's architecture they are this machine's own; for
//! another one they are Debian's, fetched and unpacked, with a daemon that was built for it.

use crate::{installed, run};
use anyhow::{Context, Result};
use lab::arch::Arch;
use lab::debian::Packages;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The directory of packages.
pub fn package_cache() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../target/lab")
}

/// Programs and libraries of one architecture.
pub struct Userland {
    /// The shell, linked statically.
    pub shell: PathBuf,
    pub toybox: PathBuf,
    /// Passes requests for one directory to another, by FUSE.
    pub bindfs: Option<PathBuf>,
    /// Libraries and their loader: path here, and path there.
    pub libraries: Vec<(PathBuf, PathBuf)>,
}

impl Userland {
    /// The userland of this architecture.
    pub fn for_arch(arch: Arch) -> Result<Self> {
        if arch.is_own() { own_userland() } else { fetched_userland(arch) }
    }
}

/// Debian ships mksh linked statically against musl.
fn find_shell() -> Option<PathBuf> {
    let triple = format!("/usr/lib/{}-linux-musl/bin/mksh", std::env::consts::ARCH);
    [triple.as_str(), "/usr/lib/klibc/bin/mksh"].map(PathBuf::from).into_iter().find(|p| p.is_file())
}

/// Why there is none for this machine's architecture.
pub fn possible() -> Result<(), String> {
    ["toybox", "ldd"].into_iter().try_for_each(installed)?;
    find_shell().map(drop).ok_or_else(|| "mksh is not installed".into())
}

fn own_userland() -> Result<Userland> {
    let toybox = Path::new("/bin/toybox");
    let linked = String::from_utf8(run(Command::new("ldd").arg(toybox))?.stdout)?;
    let libraries = linked.split_whitespace().filter(|w| w.starts_with('/')).map(|w| (w.into(), w.into())).collect();
    let path = std::env::var_os("PATH").unwrap_or_default();
    let bindfs = std::env::split_paths(&path).map(|directory| directory.join("bindfs")).find(|p| p.is_file());
    Ok(Userland { shell: find_shell().context("mksh is not installed")?, toybox: toybox.into(), bindfs, libraries })
}

fn fetched_userland(arch: Arch) -> Result<Userland> {
    let packages = Packages::new(&package_cache(), arch.debian())?;
    let triple = |libc: &str| format!("{}-linux-{libc}", arch.name());
    let mut libraries = Vec::new();
    for package in ["libc6", "libcrypt1", "libfuse2"] {
        let root = packages.unpack(package)?;
        for directory in ["lib".to_owned(), format!("lib/{}", triple("gnu"))] {
            for entry in fs::read_dir(root.join(&directory)).into_iter().flatten() {
                let (name, path) =
                    (entry.as_ref().map(fs::DirEntry::file_name), entry.as_ref().map(fs::DirEntry::path));
                let (Ok(name), Ok(path)) = (name, path) else { continue };
                if path.is_file() && name.to_string_lossy().contains(".so") {
                    libraries.push((path, Path::new("/").join(&directory).join(name)));
                }
            }
        }
    }
    Ok(Userland {
        shell: packages.unpack("mksh")?.join("usr/lib").join(triple("musl")).join("bin/mksh"),
        toybox: packages.unpack("toybox")?.join("bin/toybox"),
        bindfs: Some(packages.unpack("bindfs")?.join("usr/bin/bindfs")),
        libraries,
    })
}

/// Installs the real recorder of Android, Perfetto from Debian's suite `sid`, in place of the fake: client, service and ftrace reader,
/// with their own libraries. Its sockets are at Android's paths; the machine starts the services ([`super::machine`]).
pub fn put_perfetto(root: &Path, arch: Arch) -> Result<()> {
    let packages = Packages::from_suite(&package_cache(), arch.debian(), "sid")?;
    let to = root.join("system/perfetto");
    fs::create_dir_all(&to)?;
    let perfetto = packages.unpack("perfetto")?;
    for program in ["bin/perfetto", "sbin/traced", "sbin/traced_probes"] {
        let from = perfetto.join("usr").join(program);
        fs::copy(&from, to.join(from.file_name().context("a name")?))?;
    }
    let mut directories = vec![perfetto.join("usr/lib/perfetto")];
    for package in ["libc6", "libgcc-s1", "libstdc++6", "zlib1g"] {
        directories.push(packages.unpack(package)?.join(format!("usr/lib/{}-linux-gnu", arch.name())));
    }
    for directory in directories {
        for entry in fs::read_dir(&directory).with_context(|| directory.display().to_string())? {
            let path = entry?.path();
            if path.is_file() && path.file_name().is_some_and(|name| name.to_string_lossy().contains(".so")) {
                fs::copy(&path, to.join(path.file_name().context("a name")?))?;
            }
        }
    }
    let loader = match arch {
        Arch::X86_64 => "ld-linux-x86-64.so.2",
        Arch::Aarch64 => "ld-linux-aarch64.so.1",
    };
    for (script, program) in [("perfetto", "perfetto"), ("traced", "traced"), ("traced_probes", "traced_probes")] {
        let path = root.join("system/bin").join(script);
        let _ = fs::remove_file(&path);
        let text = format!(
            "#!/system/bin/sh\nexport PERFETTO_PRODUCER_SOCK_NAME=/dev/socket/traced_producer\n\
             export PERFETTO_CONSUMER_SOCK_NAME=/dev/socket/traced_consumer\n\
             exec /system/perfetto/{loader} --library-path /system/perfetto /system/perfetto/{program} \"$@\"\n"
        );
        lab::script::write(path, &text)?;
    }
    Ok(())
}
