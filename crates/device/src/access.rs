//! What the current user may do on a device: user, capabilities, and the kernel's configuration. This determines what
//! Fathom can do there.

use crate::facts::{Sheet, Validity};

/// The kernel options that determine what can be recorded or emulated.
const KERNEL_OPTIONS: &[&str] = &[
    "BPF_SYSCALL",
    "BPF_EVENTS",
    "DEBUG_INFO_BTF",
    "FTRACE",
    "FTRACE_SYSCALLS",
    "BLK_DEV_IO_TRACE",
    "KPROBES",
    "UPROBE_EVENTS",
    "NET_SCH_NETEM",
    "NET_SCH_TBF",
    "TUN",
    "IO_URING",
];

/// linux/capability.h: numbers of the capabilities that Fathom uses.
const CAPABILITY_NAMES: &[(u32, &str)] =
    &[(2, "dac_read_search"), (12, "net_admin"), (19, "sys_ptrace"), (21, "sys_admin"), (38, "perfmon"), (39, "bpf")];

pub(crate) fn facts(sheet: &mut Sheet<'_>) {
    use Validity::{Boot, Run};
    sheet.part("access.uid", Run, "", "/proc/self/status", |text| {
        field(text, "Uid")?.split_whitespace().nth(1).map(Into::into)
    });
    sheet.part("access.capabilities", Run, "", "/proc/self/status", |text| {
        let bits = u64::from_str_radix(field(text, "CapEff")?, 16).ok()?;
        let has: Vec<&str> =
            CAPABILITY_NAMES.iter().filter(|(n, _)| bits >> n & 1 == 1).map(|(_, name)| *name).collect();
        Some(if has.is_empty() { "none".into() } else { has.join(" ") })
    });
    sheet.part("access.seccomp", Run, "", "/proc/self/status", |text| {
        Some(match field(text, "Seccomp")? {
            "0" => "no".into(),
            "1" => "strict".into(),
            "2" => "filter".into(),
            other => other.to_owned(),
        })
    });
    sheet.part("access.selinux_context", Run, "", "/proc/self/attr/current", |text| {
        Some(text.trim_end_matches('\0').trim().to_owned()).filter(|t| !t.is_empty())
    });
    // Only root can read the directory, so a successful listing is sufficient.
    let directories = ["/sys/kernel/tracing", "/sys/kernel/debug/tracing"];
    let lists = |directory: &&&str| sheet.reader.list(directory).is_ok_and(|names| names.iter().any(|n| n == "events"));
    let found = directories.iter().find(lists);
    let answer = found.map(|f| (*f).to_owned()).ok_or_else(|| "not mounted, or not readable".to_owned());
    sheet.put("access.tracefs", Boot, "", &directories.join(", "), answer);
    // From the smallest mapping of this process: KernelPageSize.
    sheet.part("memory.page_size", Boot, "B", "/proc/self/smaps", |text| {
        let kib: u64 = field(text, "KernelPageSize")?.strip_suffix("kB")?.trim().parse().ok()?;
        Some(kib.checked_mul(1024)?.to_string())
    });
    sheet.file("net.congestion_controls", Boot, "", "/proc/sys/net/ipv4/tcp_allowed_congestion_control");
    put_kernel_config(sheet);
}

/// The value of `key` in lines of `key:value`.
fn field<'a>(text: &'a str, key: &str) -> Option<&'a str> {
    text.lines().find_map(|l| l.strip_prefix(key)?.strip_prefix(':')).map(str::trim)
}

fn put_kernel_config(sheet: &mut Sheet<'_>) {
    let release = sheet.reader.read("/proc/sys/kernel/osrelease").unwrap_or_default();
    let boot = format!("/boot/config-{release}");
    let packed = sheet.reader.run(&["zcat", "/proc/config.gz"]);
    let (source, text) = match packed {
        Ok(text) if text.contains("CONFIG_") => ("/proc/config.gz".to_owned(), Ok(text)),
        _ => (boot.clone(), sheet.reader.read(&boot)),
    };
    let answer =
        text.map(|text| extract_options(&text)).map_err(|why| format!("neither /proc/config.gz nor {boot}: {why}"));
    sheet.put("kernel.config", Validity::Boot, "", &source, answer);
}

/// The options of interest, as `NAME=y`, `NAME=m` or `NAME=n`.
fn extract_options(text: &str) -> String {
    let value = |name: &str| {
        let line = text.lines().find_map(|l| l.strip_prefix("CONFIG_")?.strip_prefix(name)?.strip_prefix('='));
        match line.unwrap_or("n") {
            value @ ("y" | "m") => format!("{name}={value}"),
            _ => format!("{name}=n"),
        }
    };
    KERNEL_OPTIONS.iter().map(|name| value(name)).collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kernel_options_are_extracted() {
        let text = "CONFIG_BPF_SYSCALL=y\n# CONFIG_FTRACE_SYSCALLS is not set\nCONFIG_TUN=m\nCONFIG_FTRACE=y\n";
        let all = extract_options(text);
        for has in ["BPF_SYSCALL=y", "FTRACE=y", "FTRACE_SYSCALLS=n", "TUN=m", "KPROBES=n"] {
            assert!(all.split(' ').any(|word| word == has), "{has}: {all}");
        }
    }

    #[test]
    fn status_fields_are_exact() {
        let text = "Name:\tx\nUid:\t2000\t2000\t2000\t2000\nCapInh:\t0\nCapEff:\t000000c000001000\n";
        assert_eq!((field(text, "CapEff"), field(text, "Cap")), (Some("000000c000001000"), None));
    }
}
