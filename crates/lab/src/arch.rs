//! The architecture of a guest: its names in QEMU, Debian and the kernel, and its serial lines.
//!
//! A guest of another architecture than this machine's is emulated, and this machine's programs do not run in it: its busybox is Debian's
//! for that architecture, its `fathom` a file that was built for it, and its file system is made here, before it boots.

use crate::Error;
use model::program::{Build, find_build};
use model::text::ShownPath as _;
use serde::{Deserialize, Serialize};
use std::path::{Path, PathBuf};

/// A processor's architecture, with the names of `uname -m`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Arch {
    /// A PC (`q35`).
    #[serde(alias = "amd64")]
    X86_64,
    /// QEMU's `virt` machine.
    #[serde(alias = "arm64")]
    Aarch64,
}

impl Default for Arch {
    /// This machine's.
    fn default() -> Self {
        if cfg!(target_arch = "aarch64") { Self::Aarch64 } else { Self::X86_64 }
    }
}

impl Arch {
    /// The name that `uname -m` prints.
    pub fn name(self) -> &'static str {
        match self {
            Self::X86_64 => "x86_64",
            Self::Aarch64 => "aarch64",
        }
    }

    /// Debian's name.
    pub fn debian(self) -> &'static str {
        match self {
            Self::X86_64 => "amd64",
            Self::Aarch64 => "arm64",
        }
    }

    /// Whether this machine's programs run in such a guest.
    pub fn is_own(self) -> bool {
        self.name() == std::env::consts::ARCH
    }

    /// Its QEMU, and the Debian package that has it.
    pub fn qemu(self) -> (&'static str, &'static str) {
        match self {
            Self::X86_64 => ("qemu-system-x86_64", "qemu-system-x86"),
            Self::Aarch64 => ("qemu-system-aarch64", "qemu-system-arm"),
        }
    }

    /// QEMU's machine.
    pub(crate) fn machine(self) -> &'static str {
        match self {
            Self::X86_64 => "q35",
            Self::Aarch64 => "virt",
        }
    }

    /// QEMU's emulated processor.
    pub(crate) fn cpu(self) -> &'static str {
        match self {
            Self::X86_64 => "qemu64",
            Self::Aarch64 => "cortex-a57",
        }
    }

    /// The kernel's console, our line and the terminal. A `virt` machine has only one built-in serial line, so the others are PCI cards.
    pub(crate) fn lines(self) -> [&'static str; 3] {
        match self {
            Self::X86_64 => ["ttyS0", "ttyS1", "ttyS2"],
            Self::Aarch64 => ["ttyAMA0", "ttyS0", "ttyS1"],
        }
    }

    /// QEMU's arguments for the serial line of this character device, after the console's.
    pub(crate) fn serial(self, chardev: &str) -> [String; 2] {
        match self {
            Self::X86_64 => ["-serial".into(), format!("chardev:{chardev}")],
            Self::Aarch64 => ["-device".into(), format!("pci-serial,chardev={chardev}")],
        }
    }

    /// Its number in ELF.
    fn elf(self) -> u8 {
        match self {
            Self::X86_64 => 62,
            Self::Aarch64 => 183,
        }
    }

    /// Whether a program is built for it.
    fn runs(self, program: &Path) -> bool {
        use std::io::Read as _;
        let mut head = [0; 20];
        let read = std::fs::File::open(program).and_then(|mut file| file.read_exact(&mut head));
        read.is_ok() && head.starts_with(b"\x7fELF") && head[18] == self.elf() && head[19] == 0
    }

    /// Returns Fathom's program for such a guest: `ours` if it fits; otherwise the file `fathom-ARCH` next to it, or the one that a
    /// source tree built.
    /// # Errors
    /// `Program`, with the remedy: there is none, or it was built from other sources.
    pub fn program(self, ours: &Path) -> Result<PathBuf, Error> {
        if self.runs(ours) {
            return Ok(ours.to_path_buf());
        }
        if let Err(error) = std::fs::File::open(ours) {
            return Err(Error::io("open", ours, error));
        }
        let name = self.name();
        match find_build(ours, name, |path| self.runs(path), |path| std::fs::read(path).ok()) {
            Some(Build::Same(path)) => Ok(path),
            Some(Build::Other(path)) => Err(Error::Program(format!(
                "{} was built from other sources than {}: `make {name}` in the source tree rebuilds it; elsewhere put the {name} program \
                 of the same release in its place. --program {} runs it as it is",
                path.shown(),
                ours.shown(),
                path.shown()
            ))),
            None => Err(Error::Program(format!(
                "the guest's architecture is {name}, and {} is not for it: put Fathom's program for {name} beside it as fathom-{name}, or \
                 name it with --program FILE. In the source tree `make {name}` builds it",
                ours.shown()
            ))),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use model::program::SOURCES_PREFIX;

    #[test]
    fn program_of_guest_architecture_is_found() {
        let directory = tempfile::tempdir().unwrap();
        let elf = |path: &str, machine: u8| {
            let path = directory.path().join(path);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            let head = [b"\x7fELF\x02\x01\x01".as_slice(), &[0; 11], &[machine, 0]].concat();
            std::fs::write(&path, head).unwrap();
            path
        };
        let ours = elf("target/release/fathom", 62);
        assert_eq!(Arch::X86_64.program(&ours).unwrap(), ours);
        let said = Arch::Aarch64.program(&ours).unwrap_err().to_string();
        assert!(said.contains("the guest's architecture is aarch64") && said.contains("--program FILE"), "{said}");
        let built = elf("target/aarch64-unknown-linux-musl/release/fathom", 183);
        assert_eq!(Arch::Aarch64.program(&ours).unwrap(), built);
        // A program for another architecture is skipped.
        elf("target/release/fathom-aarch64", 62);
        assert_eq!(Arch::Aarch64.program(&ours).unwrap(), built);
        let beside = elf("target/release/fathom-aarch64", 183);
        assert_eq!(Arch::Aarch64.program(&ours).unwrap(), beside);
        // A program built from other sources is not used.
        let own = std::fs::read(&ours).unwrap();
        std::fs::write(&ours, [&own[..], SOURCES_PREFIX.as_bytes(), &[b'a'; 64]].concat()).unwrap();
        let said = Arch::Aarch64.program(&ours).unwrap_err().to_string();
        assert!(said.contains("other sources") && said.contains("`make aarch64`"), "{said}");
        assert_eq!(Arch::Aarch64.program(&beside).unwrap(), beside);
    }
}
