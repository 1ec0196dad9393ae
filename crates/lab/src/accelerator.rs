//! KVM, if it really works: `/dev/kvm` may exist although a guest under it never comes up (nested virtualization that hangs, a kernel
//! that is incompatible with the host's processor). So it is tried, with a time limit, and the result is kept until the host reboots.
//!
//! *Uncertainty*: a successful trial shows that the kernel comes up, not that a long run completes.

use crate::arch::Arch;
use child::{kill_with_parent, wait_timeout};
use model::Context;
use serde::{Deserialize, Serialize};
use std::fs::File;
use std::io::Read;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// How long a kernel may take to its first panic; under KVM it takes a second or two.
const BOOT_TIMEOUT: Duration = Duration::from_secs(20);
/// How often to check for a requested end.
const POLL_INTERVAL: Duration = Duration::from_millis(100);

/// What runs a guest's processor.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Accelerator {
    /// KVM if it works here, else TCG.
    Auto,
    /// The host's processor.
    Kvm,
    /// An emulated one: the same on every host.
    #[default]
    Tcg,
}

impl Accelerator {
    /// KVM or TCG. The result of a trial is kept in `cache`; once the context is cancelled, nothing is tried.
    pub fn resolve(self, arch: Arch, kernel: &Path, cache: &Path, context: &Context) -> Self {
        match self {
            Self::Auto if !arch.is_own() => Self::Tcg,
            Self::Auto if kvm_works(arch.qemu().0, Path::new("/dev/kvm"), kernel, cache, BOOT_TIMEOUT, context) => {
                Self::Kvm
            }
            Self::Auto => Self::Tcg,
            other => other,
        }
    }

    /// QEMU's arguments for this accelerator.
    pub fn arguments(self, arch: Arch) -> [&'static str; 4] {
        match self {
            Self::Kvm => ["-accel", "kvm", "-cpu", "host"],
            _ => ["-accel", "tcg,thread=single", "-cpu", arch.cpu()],
        }
    }

    /// The value of the fact `virtual.accelerator`.
    pub fn name(self) -> &'static str {
        match self {
            Self::Kvm => "kvm",
            _ => "tcg",
        }
    }
}

/// Whether a kernel boots under KVM: it finds no root file system, panics, and QEMU ends by itself.
fn kvm_works(qemu: &str, device: &Path, kernel: &Path, cache: &Path, limit: Duration, context: &Context) -> bool {
    if File::options().read(true).write(true).open(device).is_err() {
        return false;
    }
    let boot = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
    let kept = cache.join("kvm");
    let known = std::fs::read_to_string(&kept).unwrap_or_default();
    if let Some(answer) = known.strip_prefix(boot.trim()).filter(|_| !boot.is_empty()) {
        return answer.trim() == "works";
    }
    let works = kernel_boots(qemu, kernel, limit, context);
    if context.cancelled() {
        return works;
    }
    // If this fails, it is tried again.
    let _ = std::fs::write(kept, format!("{} {}\n", boot.trim(), if works { "works" } else { "fails" }));
    works
}

fn kernel_boots(qemu: &str, kernel: &Path, limit: Duration, context: &Context) -> bool {
    let mut command = Command::new(qemu);
    let arch = Arch::default();
    command.args(["-nodefaults", "-no-user-config", "-no-reboot", "-display", "none", "-nic", "none"]);
    command.args(["-machine", arch.machine()]);
    command.args(Accelerator::Kvm.arguments(arch)).args(["-m", "256", "-serial", "stdio", "-kernel"]).arg(kernel);
    command.args(["-append", &format!("console={} panic=-1", arch.lines()[0])]);
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
    let Ok(mut child) = kill_with_parent(&mut command).spawn() else { return false };
    let Some(mut output) = child.stdout.take() else { return false };
    let reader = std::thread::spawn(move || {
        let mut console = Vec::new();
        let _ = output.read_to_end(&mut console);
        String::from_utf8_lossy(&console).contains("Linux version")
    });
    let begun = Instant::now();
    let ended = loop {
        match wait_timeout(&mut child, POLL_INTERVAL) {
            Ok(None) if begun.elapsed() < limit && !context.cancelled() => {}
            Ok(None) => {
                // Both fail only if it has ended.
                let _ = child.kill();
                let _ = child.wait();
                break false;
            }
            ended => break matches!(ended, Ok(Some(status)) if status.success()),
        }
    };
    // A process that it started may hold its output open; then it is not waited for.
    ended && reader.join().unwrap_or(false)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Instant;

    /// A program in place of QEMU.
    fn try_kvm(script: &str) -> (bool, String, Duration) {
        let directory = tempfile::tempdir().unwrap();
        let program = directory.path().join("qemu");
        crate::script::write(&program, &format!("#!/bin/sh\n{script}\n")).unwrap();
        let (device, began) = (directory.path().join("kvm-device"), Instant::now());
        std::fs::write(&device, "").unwrap();
        let again = || {
            kvm_works(
                &program.to_string_lossy(),
                &device,
                Path::new("/vmlinuz"),
                directory.path(),
                Duration::from_secs(1),
                &Context::silent(),
            )
        };
        let works = again();
        let kept = std::fs::read_to_string(directory.path().join("kvm")).unwrap();
        std::fs::remove_file(&program).unwrap();
        assert_eq!(again(), works, "the answer is not kept");
        (works, kept, began.elapsed())
    }

    #[test]
    fn kvm_is_used_only_where_a_kernel_boots() {
        assert!(try_kvm("echo '[    0.000000] Linux version 6.1'").0);
        for bad in ["exit 1", "echo SeaBIOS", "echo Linux version; exit 1"] {
            let (works, kept, _) = try_kvm(bad);
            assert!(!works && kept.ends_with("fails\n"), "{bad}: {kept}");
        }
    }

    #[test]
    fn kvm_that_hangs_is_given_up() {
        let (works, kept, took) = try_kvm("echo Linux version; exec sleep 60");
        assert!(!works && kept.ends_with("fails\n"));
        assert!(took < Duration::from_secs(50), "it was waited for");
    }

    #[test]
    fn kvm_without_its_device_is_not_tried() {
        let directory = tempfile::tempdir().unwrap();
        assert!(!kvm_works(
            "/bin/true",
            &directory.path().join("none"),
            Path::new("/vmlinuz"),
            directory.path(),
            BOOT_TIMEOUT,
            &Context::silent()
        ));
    }
}
