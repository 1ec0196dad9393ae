//! Facts about the machine: kernel, CPU, memory, virtualization.
//!
//! A fact is included if it can explain a difference between two measurements. Anything that would identify the owner or
//! the individual machine (host name, serial numbers, addresses, the whole kernel command line) is omitted.

use crate::Reader;
use crate::properties::{Properties, is_android};
use model::{Environment, Fact};
use std::collections::BTreeSet;

/// How long a fact is valid.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Validity {
    /// As long as the device is unchanged.
    Device,
    /// Until the next boot.
    Boot,
    /// It may change within a minute.
    Run,
}

impl Validity {
    fn name(self) -> &'static str {
        match self {
            Self::Device => "device",
            Self::Boot => "boot",
            Self::Run => "run",
        }
    }
}

/// Facts being collected.
pub(crate) struct Sheet<'a> {
    pub reader: &'a dyn Reader,
    pub facts: Environment,
}

impl<'a> Sheet<'a> {
    pub fn new(reader: &'a dyn Reader) -> Self {
        Self { reader, facts: Environment::new() }
    }

    /// Records a value or the reason why it is unknown.
    pub fn put(&mut self, name: &str, varies: Validity, unit: &str, source: &str, answer: Result<String, String>) {
        let (value, unknown) = match answer {
            Ok(value) => (Some(value.trim().to_owned()), None),
            Err(why) => (None, Some(why)),
        };
        let unit = (!unit.is_empty() && value.is_some()).then(|| unit.to_owned());
        let fact = Fact { value, unknown, unit, source: source.to_owned(), varies: varies.name().to_owned() };
        self.facts.insert(name.to_owned(), fact);
    }

    /// Records the content of a file.
    pub fn file(&mut self, name: &str, varies: Validity, unit: &str, path: &str) {
        self.part(name, varies, unit, path, |text| Some(text.to_owned()));
    }

    /// Records the part of a file that `find` returns.
    pub fn part(
        &mut self,
        name: &str,
        varies: Validity,
        unit: &str,
        path: &str,
        find: impl Fn(&str) -> Option<String>,
    ) {
        let text = self.reader.read(path);
        let answer = text.and_then(|text| find(&text).ok_or_else(|| "not in that file".to_owned()));
        self.put(name, varies, unit, path, answer);
    }

    /// Records the bracketed choice of a file such as `none [mq-deadline] kyber`, or the whole text if there are no brackets.
    pub fn choice(&mut self, name: &str, varies: Validity, path: &str) {
        self.part(name, varies, "", path, |text| Some(bracketed_choice(text)));
    }

    /// Records the distinct contents of several files, separated by commas.
    fn each(&mut self, name: &str, varies: Validity, unit: &str, source: &str, paths: &[String]) {
        let texts: BTreeSet<String> = paths.iter().filter_map(|p| self.reader.read(p).ok()).collect();
        let all = texts.into_iter().collect::<Vec<_>>().join(", ");
        let answer = if all.is_empty() { Err("not present".to_owned()) } else { Ok(all) };
        self.put(name, varies, unit, source, answer);
    }

    /// The paths of `file` in every subdirectory of `directory` whose name has this prefix.
    fn in_each(&self, directory: &str, prefix: &str, file: &str) -> Vec<String> {
        let names = self.reader.list(directory).unwrap_or_default();
        names.iter().filter(|n| n.starts_with(prefix)).map(|n| format!("{directory}/{n}/{file}")).collect()
    }
}

fn bracketed_choice(text: &str) -> String {
    let inside = text.split_once('[').and_then(|(_, rest)| rest.split_once(']'));
    inside.map_or(text, |(choice, _)| choice).to_owned()
}

/// The options of the kernel's command line that affect its speed.
const KERNEL_SWITCHES: &[&str] = &[
    "mitigations",
    "nospectre_v1",
    "nospectre_v2",
    "spectre_v2",
    "nopti",
    "pti",
    "preempt",
    "isolcpus",
    "nohz_full",
    "rcu_nocbs",
    "idle",
    "processor.max_cstate",
    "intel_idle.max_cstate",
    "intel_pstate",
    "amd_pstate",
    "cpufreq.default_governor",
    "transparent_hugepage",
    "lockdown",
    "iommu",
    "intel_iommu",
    "nvme_core.default_ps_max_latency_us",
    "scsi_mod.use_blk_mq",
    "threadirqs",
    "clocksource",
    "tsc",
];

/// Everything about the machine that does not depend on a path.
pub(crate) fn machine(sheet: &mut Sheet<'_>) {
    system(sheet);
    kernel(sheet);
    processor(sheet);
    memory(sheet);
    virtual_machine(sheet);
    load(sheet);
}

/// The value of `key` in lines of `KEY=value`, unquoted.
fn setting(text: &str, key: &str) -> Option<String> {
    let line = text.lines().find_map(|l| l.strip_prefix(key)?.strip_prefix('='));
    line.map(|v| v.trim_matches('"').to_owned())
}

/// The value of `key` in lines of `key : value`.
fn entry(text: &str, key: &str) -> Option<String> {
    text.lines().find_map(|l| {
        let (name, value) = l.split_once(':')?;
        (name.trim() == key && !value.trim().is_empty()).then(|| value.trim().to_owned())
    })
}

fn system(sheet: &mut Sheet<'_>) {
    // Android has no os-release.
    if is_android(sheet.reader) {
        let properties = Properties::read(sheet.reader);
        for (name, property) in [
            ("os.name", "ro.build.version.release"),
            ("os.patch", "ro.build.version.security_patch"),
            ("os.sdk", "ro.build.version.sdk"),
            ("device.model", "ro.product.model"),
            ("device.vendor", "ro.product.manufacturer"),
            ("device.platform", "ro.board.platform"),
        ] {
            // Properties of the vendor's partition are equivalent where an image for many devices has no names of its own.
            let of_vendor = property.replace("ro.product.", "ro.product.vendor.");
            let answer = properties.get(property).or_else(|why| properties.get(&of_vendor).map_err(|_| why));
            let answer = answer.map(|v| if name == "os.name" { format!("Android {v}") } else { v });
            sheet.put(name, Validity::Device, "", &format!("getprop {property}"), answer);
        }
    } else {
        sheet.part("os.name", Validity::Device, "", "/etc/os-release", |text| setting(text, "PRETTY_NAME"));
        sheet.file("device.model", Validity::Device, "", "/sys/class/dmi/id/product_name");
        sheet.file("device.vendor", Validity::Device, "", "/sys/class/dmi/id/sys_vendor");
        // Boards without firmware tables have a device tree.
        if let Ok(model) = sheet.reader.read("/proc/device-tree/model") {
            sheet.put("device.model", Validity::Device, "", "/proc/device-tree/model", Ok(model));
        }
    }
}

fn kernel(sheet: &mut Sheet<'_>) {
    use Validity::{Boot, Run};
    sheet.file("kernel.release", Boot, "", "/proc/sys/kernel/osrelease");
    sheet.file("kernel.version", Boot, "", "/proc/sys/kernel/version");
    sheet.part("kernel.switches", Boot, "", "/proc/cmdline", |text| {
        let of_interest = |word: &&str| KERNEL_SWITCHES.contains(&word.split('=').next().unwrap_or_default());
        Some(text.split_whitespace().filter(of_interest).collect::<Vec<_>>().join(" "))
    });
    sheet.choice("kernel.lockdown", Boot, "/sys/kernel/security/lockdown");
    let types = sheet.reader.list("/sys/kernel/btf");
    let types = types.map(|names| if names.iter().any(|n| n == "vmlinux") { "yes" } else { "no" }.to_owned());
    sheet.put("kernel.btf", Boot, "", "/sys/kernel/btf", types);
    sheet.file("kernel.bpf_stats", Run, "", "/proc/sys/kernel/bpf_stats_enabled");
    sheet.file("kernel.unprivileged_bpf_disabled", Run, "", "/proc/sys/kernel/unprivileged_bpf_disabled");
    sheet.file("kernel.perf_event_paranoid", Run, "", "/proc/sys/kernel/perf_event_paranoid");
    sheet.choice("kernel.clocksource", Boot, "/sys/devices/system/clocksource/clocksource0/current_clocksource");
    sheet.file("kernel.selinux_enforcing", Run, "", "/sys/fs/selinux/enforce");
    mitigations(sheet);
}

/// The kernel's mitigations of CPU vulnerabilities, which slow down system calls: `name: what`, without unaffected ones.
fn mitigations(sheet: &mut Sheet<'_>) {
    const VULNERABILITIES_DIRECTORY: &str = "/sys/devices/system/cpu/vulnerabilities";
    let answer = sheet.reader.list(VULNERABILITIES_DIRECTORY).map(|names| {
        let texts = names
            .iter()
            .filter_map(|n| Some((n, sheet.reader.read(&format!("{VULNERABILITIES_DIRECTORY}/{n}")).ok()?)));
        let all: Vec<String> =
            texts.filter(|(_, t)| t != "Not affected").map(|(name, text)| format!("{name}: {text}")).collect();
        all.join("; ")
    });
    sheet.put("cpu.mitigations", Validity::Boot, "", VULNERABILITIES_DIRECTORY, answer);
}

fn processor(sheet: &mut Sheet<'_>) {
    use Validity::{Boot, Device, Run};
    const CPU_DIRECTORY: &str = "/sys/devices/system/cpu";
    // Kernels before 6.1 have no such file.
    let (source, answer) = match sheet.reader.read("/proc/sys/kernel/arch") {
        Ok(arch) => ("/proc/sys/kernel/arch", Ok(arch)),
        Err(_) => ("uname -m", sheet.reader.run(&["uname", "-m"]).map_err(String::from)),
    };
    sheet.put("cpu.architecture", Device, "", source, answer);
    sheet.part("cpu.model", Device, "", "/proc/cpuinfo", |text| {
        // ARM kernels list the part number of each kind of core instead.
        let parts: BTreeSet<&str> =
            text.lines().filter_map(|l| l.strip_prefix("CPU part")?.split_once(':')).map(|(_, p)| p.trim()).collect();
        let arm =
            || (!parts.is_empty()).then(|| format!("ARM part {}", parts.into_iter().collect::<Vec<_>>().join(", ")));
        entry(text, "model name").or_else(|| entry(text, "Hardware")).or_else(arm)
    });
    sheet.part("cpu.online", Run, "", &format!("{CPU_DIRECTORY}/online"), |text| Some(count_list(text)?.to_string()));
    let policies = |sheet: &Sheet<'_>, file| sheet.in_each(&format!("{CPU_DIRECTORY}/cpufreq"), "policy", file);
    let source = format!("{CPU_DIRECTORY}/cpufreq/policy*");
    for (name, file, unit, varies) in [
        ("cpu.governor", "scaling_governor", "", Run),
        ("cpu.driver", "scaling_driver", "", Boot),
        ("cpu.frequency_max", "scaling_max_freq", "kHz", Run),
    ] {
        let paths = policies(sheet, file);
        sheet.each(name, varies, unit, &format!("{source}/{file}"), &paths);
    }
    sheet.file("cpu.smt", Run, "", &format!("{CPU_DIRECTORY}/smt/active"));
    // Determines how long waking an idle CPU takes: a guest's may poll for a while before it halts.
    sheet.file("cpu.idle_driver", Boot, "", &format!("{CPU_DIRECTORY}/cpuidle/current_driver"));
    sheet.file("cpu.halt_poll", Run, "ns", "/sys/module/haltpoll/parameters/guest_halt_poll_ns");
    sheet.part("cpu.cache", Device, "", "/proc/cpuinfo", |text| entry(text, "cache size"));
}

/// The number of elements of a list such as `0-3,6`.
fn count_list(list: &str) -> Option<usize> {
    list.trim().split(',').try_fold(0, |sum: usize, part| {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let (first, last): (usize, usize) = (first.parse().ok()?, last.parse().ok()?);
        sum.checked_add(last.checked_sub(first)?.checked_add(1)?)
    })
}

fn memory(sheet: &mut Sheet<'_>) {
    use Validity::{Device, Run};
    let bytes = |text: &str, key| {
        let kib: u64 = entry(text, key)?.strip_suffix(" kB")?.trim().parse().ok()?;
        Some(kib.checked_mul(1024)?.to_string())
    };
    sheet.part("memory.total", Device, "B", "/proc/meminfo", |text| bytes(text, "MemTotal"));
    sheet.part("memory.available", Run, "B", "/proc/meminfo", |text| bytes(text, "MemAvailable"));
    sheet.part("memory.swap", Run, "B", "/proc/meminfo", |text| bytes(text, "SwapTotal"));
    sheet.choice("memory.huge_pages", Run, "/sys/kernel/mm/transparent_hugepage/enabled");
    // When the kernel writes back dirty pages of the page cache.
    for (name, unit) in [
        ("dirty_ratio", "%"),
        ("dirty_background_ratio", "%"),
        ("dirty_bytes", "B"),
        ("dirty_expire_centisecs", "cs"),
        ("dirty_writeback_centisecs", "cs"),
    ] {
        sheet.file(&format!("memory.{name}"), Run, unit, &format!("/proc/sys/vm/{name}"));
    }
}

/// An option on the kernel's command line of the lab's guests: `tcg` if their CPU is emulated, so that no time is that of hardware.
const ACCELERATOR_SWITCH: &str = "fathom.accelerator=";

/// Evidence of a hypervisor below this system, whose disk and clock are not what they claim to be.
fn virtual_machine(sheet: &mut Sheet<'_>) {
    let flag = |text: &str| {
        // ARM has no such flag: without a line of flags the fact is unknown.
        let flags = entry(text, "flags")?;
        Some(if flags.split(' ').any(|f| f == "hypervisor") { "yes" } else { "no" }.to_owned())
    };
    sheet.part("virtual.hypervisor", Validity::Device, "", "/proc/cpuinfo", flag);
    sheet.file("virtual.type", Validity::Device, "", "/sys/hypervisor/type");
    // Of guests whose kernel or processor says so; on any other machine the fact is omitted.
    let accelerator =
        |line: &str| Some(line.split_whitespace().find_map(|w| w.strip_prefix(ACCELERATOR_SWITCH))?.to_owned());
    if sheet.reader.read("/proc/cmdline").is_ok_and(|line| accelerator(&line).is_some()) {
        sheet.part("virtual.accelerator", Validity::Boot, "", "/proc/cmdline", accelerator);
        return;
    }
    // The name that QEMU's emulator gives to `-cpu max`, its default for many guests.
    let emulated = |text: &str| entry(text, "model name")?.starts_with("QEMU TCG CPU").then(|| "tcg".to_owned());
    if sheet.reader.read("/proc/cpuinfo").is_ok_and(|text| emulated(&text).is_some()) {
        sheet.part("virtual.accelerator", Validity::Boot, "", "/proc/cpuinfo", emulated);
    }
}

fn load(sheet: &mut Sheet<'_>) {
    use Validity::Run;
    sheet.part("load.one_minute", Run, "", "/proc/loadavg", |text| Some(text.split(' ').next()?.to_owned()));
    let zones = sheet.in_each("/sys/class/thermal", "thermal_zone", "temp");
    let hottest = zones.iter().filter_map(|p| sheet.reader.read(p).ok()?.parse::<i64>().ok()).max();
    let hottest = hottest.map(|t| t.to_string()).ok_or_else(|| "no sensor".to_owned());
    sheet.put("load.temperature_max", Run, "m°C", "/sys/class/thermal/thermal_zone*/temp", hottest);
    let supplies = sheet.in_each("/sys/class/power_supply", "", "status");
    sheet.each("load.battery", Run, "", "/sys/class/power_supply/*/status", &supplies);
}

/// The battery's charge, where Android does not report it.
pub(crate) fn battery(sheet: &mut Sheet<'_>) {
    let charge = crate::sensors::battery(sheet.reader).map(|battery| battery.percent.to_string());
    sheet.put("battery.level", Validity::Run, "%", "/sys/class/power_supply/*/capacity", charge);
}

/// See [`crate::versions`].
pub(crate) fn versions(sheet: &mut Sheet<'_>) {
    use Validity::{Device, Run};
    const BOOST_PATH: &str = "/sys/devices/system/cpu/cpufreq/boost";
    const NO_TURBO_PATH: &str = "/sys/devices/system/cpu/intel_pstate/no_turbo";
    let yes_or_no = |on: bool| if on { "yes" } else { "no" }.to_owned();
    match sheet.reader.read(NO_TURBO_PATH) {
        Ok(off) => sheet.put("cpu.boost", Run, "", NO_TURBO_PATH, Ok(yes_or_no(off == "0"))),
        Err(_) => sheet.part("cpu.boost", Run, "", BOOST_PATH, |text| Some(yes_or_no(text == "1"))),
    }
    sheet.file("kernel.address_randomisation", Run, "", "/proc/sys/kernel/randomize_va_space");
    for (name, words) in [
        ("version.java", &["java", "--version"][..]),
        ("version.sqlite3", &["sqlite3", "--version"]),
        ("version.cc", &["cc", "--version"]),
    ] {
        let answer = sheet.reader.run(words).map(|text| text.lines().next().unwrap_or_default().to_owned());
        sheet.put(name, Device, "", &words.join(" "), answer.map_err(String::from));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn processor_lists_are_counted() {
        assert_eq!((count_list("0-1"), count_list("0"), count_list("0-3,6,8-9\n")), (Some(2), Some(1), Some(7)));
        assert_eq!((count_list(""), count_list("3-1"), count_list("0-18446744073709551615")), (None, None, None));
    }

    #[test]
    fn bracketed_choice_is_extracted() {
        assert_eq!(bracketed_choice("none [mq-deadline] kyber"), "mq-deadline");
        assert_eq!(bracketed_choice("tsc"), "tsc");
        assert_eq!(bracketed_choice("a [b"), "a [b");
    }

    proptest! {
        #[test]
        fn arbitrary_input_does_not_panic(text in "(?s).{0,80}") {
            count_list(&text);
            bracketed_choice(&text);
            entry(&text, "a");
            setting(&text, "a");
        }
    }
}
