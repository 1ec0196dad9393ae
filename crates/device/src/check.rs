//! What Fathom can do on a device, and what prevents the rest: derived from its facts alone, so that it also works for a
//! device that only sent them.
//!
//! Uncertain: a kernel may deny what its facts permit (SELinux, a vendor's patch). A recording's coverage shows what was
//! attached, and why not; this table predicts it.

use model::Environment;

/// To what extent something works.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Can {
    /// As on any other device.
    Yes,
    Partly,
    No,
    Unknown,
}

impl Can {
    /// The name in text and JSON.
    pub fn name(self) -> &'static str {
        match self {
            Self::Yes => "yes",
            Self::Partly => "partly",
            Self::No => "no",
            Self::Unknown => "unknown",
        }
    }
}

/// A function of Fathom, on this device.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ability {
    /// The function, such as `record: eBPF`.
    pub what: &'static str,
    pub can: Can,
    /// How, or what prevents it.
    pub why: String,
    /// How to enable it, if that is possible.
    pub remedy: Option<&'static str>,
}

/// The facts, in the terms of the rules below.
struct DeviceFacts<'a>(&'a Environment);

impl DeviceFacts<'_> {
    fn get(&self, name: &str) -> Option<&str> {
        self.0.get(name)?.value.as_deref()
    }

    fn is(&self, name: &str, value: &str) -> bool {
        self.get(name) == Some(value)
    }

    fn android(&self) -> Option<u32> {
        self.get("os.sdk")?.parse().ok()
    }

    fn root(&self) -> Option<bool> {
        self.get("access.uid").map(|uid| uid == "0")
    }

    fn capability(&self, name: &str) -> bool {
        self.get("access.capabilities").is_some_and(|all| all.split(' ').any(|c| c == name || c == "sys_admin"))
    }

    /// Major and minor number of the kernel.
    fn kernel(&self) -> Option<(u32, u32)> {
        let mut parts = self.get("kernel.release")?.split(|c: char| !c.is_ascii_digit());
        Some((parts.next()?.parse().ok()?, parts.next()?.parse().ok()?))
    }

    fn option(&self, name: &str) -> Option<bool> {
        let word = self.get("kernel.config")?.split(' ').find_map(|w| w.strip_prefix(name)?.strip_prefix('='))?;
        Some(word != "n")
    }

    fn tool(&self, name: &str) -> Option<bool> {
        Some(self.get("os.tools")?.split(' ').any(|t| t == name))
    }

    fn release(&self) -> &str {
        self.get("kernel.release").unwrap_or("of unknown version")
    }
}

/// What Fathom can do on the device with these facts, one row for each function; Perfetto only on Android.
pub fn abilities(facts: &Environment) -> Vec<Ability> {
    let seen = DeviceFacts(facts);
    let mut all = vec![ebpf(&seen), ftrace(&seen)];
    if seen.android().is_some() {
        all.push(perfetto(&seen));
    }
    all.extend([
        native_benchmarks(&seen),
        bytecode_benchmarks(&seen),
        cold_cache(&seen),
        steady_clock(&seen),
        temperature_gate(&seen),
        both_ends(&seen),
        emulated_link(&seen),
        pool_node(&seen),
    ]);
    all
}

fn ability(what: &'static str, can: Can, why: impl Into<String>) -> Ability {
    Ability { what, can, why: why.into(), remedy: None }
}

const ANDROID_ROOT_REMEDY: &str = "a device whose boot loader is unlocked can be rooted, or run a userdebug build (`adb root`); without root: --via perfetto";
const LINUX_ROOT_REMEDY: &str = "run as root, or give the program CAP_BPF and CAP_PERFMON";

fn root_remedy(seen: &DeviceFacts<'_>) -> &'static str {
    if seen.android().is_some() { ANDROID_ROOT_REMEDY } else { LINUX_ROOT_REMEDY }
}

fn ebpf(seen: &DeviceFacts<'_>) -> Ability {
    const FUNCTION_NAME: &str = "record: eBPF";
    // Ring buffers require 5.8.
    if let Some((major, minor)) = seen.kernel()
        && (major, minor) < (5, 8)
    {
        return ability(
            FUNCTION_NAME,
            Can::No,
            format!("Linux {major}.{minor} has no BPF ring buffer (added in 5.8): using ftrace"),
        );
    }
    if seen.option("BPF_SYSCALL") == Some(false) {
        return ability(FUNCTION_NAME, Can::No, "the kernel was built without CONFIG_BPF_SYSCALL: using ftrace");
    }
    let types = seen.get("kernel.btf");
    if types == Some("no") || (types.is_none() && seen.option("DEBUG_INFO_BTF") == Some(false)) {
        return ability(FUNCTION_NAME, Can::No, format!("tp_btf: no BTF in {}: using ftrace", seen.release()));
    }
    match seen.root() {
        None => ability(FUNCTION_NAME, Can::Unknown, "it is not known whether Fathom runs as root"),
        Some(true) => match types {
            Some(_) => ability(FUNCTION_NAME, Can::Yes, "root, BTF"),
            None => ability(FUNCTION_NAME, Can::Unknown, "root; whether the kernel has BTF is not known"),
        },
        Some(false) if seen.capability("bpf") && seen.capability("perfmon") => {
            ability(FUNCTION_NAME, Can::Yes, "CAP_BPF and CAP_PERFMON, BTF")
        }
        Some(false) => Ability { remedy: Some(root_remedy(seen)), ..ability(FUNCTION_NAME, Can::No, "needs root") },
    }
}

fn ftrace(seen: &DeviceFacts<'_>) -> Ability {
    const FUNCTION_NAME: &str = "record: ftrace";
    if seen.option("FTRACE") == Some(false) {
        return ability(FUNCTION_NAME, Can::No, "the kernel was built without CONFIG_FTRACE");
    }
    match seen.root() {
        None => ability(FUNCTION_NAME, Can::Unknown, "it is not known whether Fathom runs as root"),
        Some(false) => Ability {
            remedy: Some(root_remedy(seen)),
            ..ability(FUNCTION_NAME, Can::No, "instances of tracefs need root")
        },
        Some(true) if seen.option("FTRACE_SYSCALLS") == Some(false) => ability(
            FUNCTION_NAME,
            Can::Partly,
            "root; no system calls: CONFIG_FTRACE_SYSCALLS is off, as in Android's GKI",
        ),
        Some(true) => ability(FUNCTION_NAME, Can::Yes, "root"),
    }
}

fn perfetto(seen: &DeviceFacts<'_>) -> Ability {
    const FUNCTION_NAME: &str = "record: --via perfetto";
    let sdk = seen.android().unwrap_or_default();
    if sdk < 28 || seen.tool("perfetto") == Some(false) {
        return ability(
            FUNCTION_NAME,
            Can::No,
            format!("Android with API level {sdk} has no perfetto (added in Android 9, level 28)"),
        );
    }
    // Disabled by default on devices other than Google's until Android 11.
    if sdk < 30 && !seen.is("perfetto.enabled", "1") {
        let remedy = Some("adb shell setprop persist.traced.enable 1");
        return Ability {
            remedy,
            ..ability(FUNCTION_NAME, Can::Partly, "its service may be off: persist.traced.enable is not 1")
        };
    }
    ability(
        FUNCTION_NAME,
        Can::Yes,
        "no root needed; blind: system calls of the program, page cache, causes of a write, statements of a bundled SQLite",
    )
}

fn native_benchmarks(seen: &DeviceFacts<'_>) -> Ability {
    // The program that sent these facts ran there.
    let arch = seen.get("cpu.architecture").unwrap_or("unknown architecture");
    ability("bench: CPU, storage, SQLite, HTTP", Can::Yes, format!("the static program for {arch}"))
}

fn bytecode_benchmarks(seen: &DeviceFacts<'_>) -> Ability {
    const FUNCTION_NAME: &str = "bench: bytecode, drawing";
    if seen.android().is_some() {
        return match (seen.tool("app_process64"), seen.tool("dalvikvm64")) {
            (Some(true), _) => ability(
                FUNCTION_NAME,
                Can::Yes,
                "app_process64: interpreted, JIT, compiled ahead of time; each mode proven from /proc/self/maps",
            ),
            (_, Some(true)) => ability(FUNCTION_NAME, Can::Partly, "dalvikvm64 only: no drawing"),
            (Some(false), _) => ability(FUNCTION_NAME, Can::No, "neither app_process64 nor dalvikvm64 in /system/bin"),
            (None, _) => ability(FUNCTION_NAME, Can::Unknown, "/system/bin cannot be listed"),
        };
    }
    match seen.get("version.java") {
        Some(java) => ability(FUNCTION_NAME, Can::Yes, java),
        None => Ability { remedy: Some("install a JDK"), ..ability(FUNCTION_NAME, Can::No, "no `java`") },
    }
}

fn cold_cache(seen: &DeviceFacts<'_>) -> Ability {
    const FUNCTION_NAME: &str = "bench: cold cache by drop_caches";
    match seen.root() {
        Some(true) => ability(FUNCTION_NAME, Can::Yes, "root"),
        Some(false) => ability(FUNCTION_NAME, Can::No, "needs root; O_DIRECT and fadvise are used instead"),
        None => ability(FUNCTION_NAME, Can::Unknown, "it is not known whether Fathom runs as root"),
    }
}

fn steady_clock(seen: &DeviceFacts<'_>) -> Ability {
    const FUNCTION_NAME: &str = "bench: steady clock";
    match seen.android() {
        Some(sdk) if sdk >= 30 => ability(
            FUNCTION_NAME,
            Can::Partly,
            "`bench run --fixed-performance` sets and resets Android's mode, where the vendor supports it",
        ),
        Some(sdk) => {
            ability(FUNCTION_NAME, Can::No, format!("fixed performance mode came with API level 30; this is {sdk}"))
        }
        None => match seen.get("cpu.governor") {
            Some("performance") => ability(FUNCTION_NAME, Can::Yes, "governor performance"),
            Some(governor) => {
                ability(FUNCTION_NAME, Can::Partly, format!("governor {governor}; root may set `performance`"))
            }
            None => ability(FUNCTION_NAME, Can::Unknown, "the kernel reports no governor"),
        },
    }
}

fn temperature_gate(seen: &DeviceFacts<'_>) -> Ability {
    const FUNCTION_NAME: &str = "bench: gate by temperature";
    match (seen.get("load.temperature_max"), seen.get("thermal.status")) {
        (Some(_), _) => ability(FUNCTION_NAME, Can::Yes, "/sys/class/thermal"),
        (None, Some(_)) => ability(FUNCTION_NAME, Can::Yes, "dumpsys thermalservice"),
        (None, None) => ability(FUNCTION_NAME, Can::No, "no sensor can be read"),
    }
}

fn both_ends(seen: &DeviceFacts<'_>) -> Ability {
    const FUNCTION_NAME: &str = "net: both ends";
    match seen.get("net.congestion_controls") {
        Some(all) => ability(FUNCTION_NAME, Can::Yes, format!("congestion controls: {all}")),
        None => ability(FUNCTION_NAME, Can::Yes, "the kernel's own congestion control"),
    }
}

fn emulated_link(seen: &DeviceFacts<'_>) -> Ability {
    const FUNCTION_NAME: &str = "net: emulated link there";
    match seen.root() {
        Some(true) => ability(FUNCTION_NAME, Can::Yes, "root"),
        Some(false) if seen.capability("net_admin") => ability(FUNCTION_NAME, Can::Yes, "CAP_NET_ADMIN"),
        Some(false) => ability(FUNCTION_NAME, Can::No, "needs root; emulate the link on the other end"),
        None => ability(FUNCTION_NAME, Can::Unknown, "it is not known whether Fathom runs as root"),
    }
}

fn pool_node(seen: &DeviceFacts<'_>) -> Ability {
    let why = if seen.android().is_some() {
        "a store in /data/local/tmp; ends when the device restarts"
    } else {
        "a store in a file or on a block device"
    };
    ability("pool: node", Can::Yes, why)
}

#[cfg(test)]
mod tests {
    use super::*;
    use model::Fact;

    fn facts(all: &[(&str, &str)]) -> Environment {
        let fact = |value: &str| Fact {
            value: Some(value.into()),
            unknown: None,
            unit: None,
            source: "test".into(),
            varies: "device".into(),
        };
        all.iter().map(|(name, value)| (name.to_string(), fact(value))).collect()
    }

    fn find_ability<'a>(all: &'a [Ability], what: &str) -> &'a Ability {
        all.iter().find(|a| a.what.starts_with(what)).unwrap()
    }

    #[test]
    fn unrooted_phone_records_via_perfetto_only() {
        let all = abilities(&facts(&[
            ("os.sdk", "33"),
            ("access.uid", "2000"),
            ("access.capabilities", "none"),
            ("kernel.release", "5.10.149-android13-4"),
            ("kernel.config", "BPF_SYSCALL=y DEBUG_INFO_BTF=n FTRACE=y"),
            ("os.tools", "perfetto dumpsys app_process64"),
            ("thermal.status", "none"),
        ]));
        let bpf = find_ability(&all, "record: eBPF");
        assert_eq!((bpf.can, bpf.why.as_str()), (Can::No, "tp_btf: no BTF in 5.10.149-android13-4: using ftrace"));
        assert_eq!(
            (find_ability(&all, "record: ftrace").can, find_ability(&all, "record: ftrace").remedy),
            (Can::No, Some(ANDROID_ROOT_REMEDY))
        );
        assert_eq!(find_ability(&all, "record: --via").can, Can::Yes);
        assert_eq!(
            (find_ability(&all, "bench: bytecode").can, find_ability(&all, "bench: gate").can),
            (Can::Yes, Can::Yes)
        );
    }

    #[test]
    fn rooted_gki_phone_records_by_ebpf() {
        let all = abilities(&facts(&[
            ("os.sdk", "34"),
            ("access.uid", "0"),
            ("kernel.release", "6.1.68-android14-11"),
            ("kernel.btf", "yes"),
            ("kernel.config", "BPF_SYSCALL=y DEBUG_INFO_BTF=y FTRACE=y FTRACE_SYSCALLS=n"),
        ]));
        assert_eq!(
            (find_ability(&all, "record: eBPF").can, find_ability(&all, "record: ftrace").can),
            (Can::Yes, Can::Partly)
        );
        assert_eq!((find_ability(&all, "bench: cold").can, find_ability(&all, "bench: gate").can), (Can::Yes, Can::No));
    }

    #[test]
    fn old_kernels_and_systems_are_known_by_their_version() {
        let all = abilities(&facts(&[("os.sdk", "26"), ("access.uid", "2000"), ("kernel.release", "4.4.78-perf+")]));
        assert!(find_ability(&all, "record: eBPF").why.starts_with("Linux 4.4 has no BPF ring buffer"));
        assert_eq!(find_ability(&all, "record: --via").can, Can::No);
        let all = abilities(&facts(&[("os.sdk", "29"), ("os.tools", "perfetto")]));
        assert_eq!(find_ability(&all, "record: --via").can, Can::Partly);
        assert_eq!(find_ability(&all, "record: ftrace").can, Can::Unknown);
    }

    #[test]
    fn device_without_facts_claims_no_abilities() {
        let all = abilities(&Environment::new());
        assert!(all.iter().all(|a| !a.why.is_empty() && a.what != "record: --via perfetto"));
        assert_eq!(
            (find_ability(&all, "record: eBPF").can, find_ability(&all, "bench: bytecode").can),
            (Can::Unknown, Can::No)
        );
    }
}
