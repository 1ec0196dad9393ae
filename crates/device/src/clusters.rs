//! CPUs by kind: the number of each kind of core, and their maximum frequency. Phones have two to four kinds in one chip,
//! and the same work takes half or twice as long on another kind.

use crate::Reader;
use crate::facts::{Sheet, Validity};
use std::collections::BTreeMap;

const CPU_DIRECTORY: &str = "/sys/devices/system/cpu";
/// The maximum number of CPUs.
const CPUS_MAX: usize = 1024;

/// Implementer and part numbers of cores, from the manuals of ARM and the vendors (util-linux, lscpu-arm.c, has the list).
const CORE_NAMES: &[(u32, u32, &str)] = &[
    (0x41, 0xc07, "Cortex-A7"),
    (0x41, 0xc09, "Cortex-A9"),
    (0x41, 0xc0d, "Cortex-A17"),
    (0x41, 0xc0e, "Cortex-A17"),
    (0x41, 0xc0f, "Cortex-A15"),
    (0x41, 0xd03, "Cortex-A53"),
    (0x41, 0xd04, "Cortex-A35"),
    (0x41, 0xd05, "Cortex-A55"),
    (0x41, 0xd07, "Cortex-A57"),
    (0x41, 0xd08, "Cortex-A72"),
    (0x41, 0xd09, "Cortex-A73"),
    (0x41, 0xd0a, "Cortex-A75"),
    (0x41, 0xd0b, "Cortex-A76"),
    (0x41, 0xd0c, "Neoverse-N1"),
    (0x41, 0xd0d, "Cortex-A77"),
    (0x41, 0xd40, "Neoverse-V1"),
    (0x41, 0xd41, "Cortex-A78"),
    (0x41, 0xd44, "Cortex-X1"),
    (0x41, 0xd46, "Cortex-A510"),
    (0x41, 0xd47, "Cortex-A710"),
    (0x41, 0xd48, "Cortex-X2"),
    (0x41, 0xd49, "Neoverse-N2"),
    (0x41, 0xd4b, "Cortex-A78C"),
    (0x41, 0xd4c, "Cortex-X1C"),
    (0x41, 0xd4d, "Cortex-A715"),
    (0x41, 0xd4e, "Cortex-X3"),
    (0x41, 0xd4f, "Neoverse-V2"),
    (0x41, 0xd80, "Cortex-A520"),
    (0x41, 0xd81, "Cortex-A720"),
    (0x41, 0xd82, "Cortex-X4"),
    (0x41, 0xd85, "Cortex-X925"),
    (0x41, 0xd87, "Cortex-A725"),
    (0x48, 0xd40, "Cortex-A76 (HiSilicon)"),
    (0x48, 0xd41, "Cortex-A77 (HiSilicon)"),
    (0x51, 0x001, "Oryon"),
    (0x51, 0x201, "Kryo"),
    (0x51, 0x205, "Kryo"),
    (0x51, 0x211, "Kryo"),
    (0x51, 0x800, "Kryo 2xx Gold"),
    (0x51, 0x801, "Kryo 2xx Silver"),
    (0x51, 0x802, "Kryo 3xx Gold"),
    (0x51, 0x803, "Kryo 3xx Silver"),
    (0x51, 0x804, "Kryo 4xx Gold"),
    (0x51, 0x805, "Kryo 4xx Silver"),
    (0x53, 0x001, "Exynos M1"),
    (0x53, 0x002, "Exynos M3"),
    (0x53, 0x003, "Exynos M4"),
    (0x53, 0x004, "Exynos M5"),
];

/// What is known about a CPU.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
struct Core {
    name: String,
    khz: Option<u64>,
    capacity: Option<u64>,
}

/// Records the kinds, in the order of their first CPU.
pub(crate) fn facts(sheet: &mut Sheet<'_>) {
    let answer = sheet.reader.read("/proc/cpuinfo").and_then(|text| {
        let mut cores = parse_cores(&text);
        if cores.is_empty() {
            return Err("/proc/cpuinfo names no processor".into());
        }
        clear_ambiguous_names(&mut cores);
        add_frequencies(sheet.reader, &mut cores);
        for (number, core) in &mut cores {
            let capacity = sheet.reader.read(&format!("{CPU_DIRECTORY}/cpu{number}/cpu_capacity"));
            core.capacity = capacity.ok().and_then(|t| t.trim().parse().ok());
        }
        Ok(describe_cores(&cores))
    });
    sheet.put(
        "cpu.clusters",
        Validity::Device,
        "",
        &format!("/proc/cpuinfo, {CPU_DIRECTORY}/cpufreq, {CPU_DIRECTORY}/cpu*/cpu_capacity"),
        answer,
    );
}

/// The names in /proc/cpuinfo of each online CPU. ARM's are numbers, others are text.
fn parse_cores(text: &str) -> BTreeMap<u32, Core> {
    let mut all = BTreeMap::new();
    let (mut number, mut maker): (Option<u32>, Option<u32>) = (None, None);
    for line in text.lines() {
        let Some((key, value)) = line.split_once(':') else { continue };
        let (key, value) = (key.trim(), value.trim());
        let hex = || u32::from_str_radix(value.trim_start_matches("0x"), 16).ok();
        let name = match key {
            "processor" => {
                number = value.parse().ok().filter(|_| all.len() < CPUS_MAX);
                maker = None;
                // Old kernels list the kind once for all CPUs; then only the CPU's existence is known.
                String::new()
            }
            "model name" => value.to_owned(),
            "CPU implementer" => {
                maker = hex();
                continue;
            }
            "CPU part" => match (maker, hex()) {
                (Some(maker), Some(part)) => core_name(maker, part),
                _ => continue,
            },
            _ => continue,
        };
        if let Some(number) = number {
            let core: &mut Core = all.entry(number).or_default();
            // ARM kernels have both on some devices; the part number is more specific.
            if !name.is_empty() && (key == "CPU part" || core.name.is_empty()) {
                core.name = name;
            }
        }
    }
    all
}

/// ARM kernels before 3.19 list all CPUs and then one kind, even if there are two: which CPUs have it is unknown.
fn clear_ambiguous_names(cores: &mut BTreeMap<u32, Core>) {
    if cores.values().any(|c| c.name.is_empty()) {
        cores.values_mut().for_each(|c| c.name.clear());
    }
}

fn core_name(maker: u32, part: u32) -> String {
    let known = CORE_NAMES.iter().find(|(m, p, _)| (*m, *p) == (maker, part));
    known.map_or_else(|| format!("core {part:#05x} of maker {maker:#04x}"), |(.., name)| (*name).to_owned())
}

/// The maximum frequency of each CPU, from the hardware. Offline CPUs are included.
fn add_frequencies(reader: &dyn Reader, cores: &mut BTreeMap<u32, Core>) {
    let khz = |path: String| reader.read(&path).ok()?.trim().parse::<u64>().ok();
    let names = reader.list(CPU_DIRECTORY).unwrap_or_default();
    for number in names.iter().filter_map(|n| n.strip_prefix("cpu")?.parse::<u32>().ok()).take(CPUS_MAX) {
        if let Some(khz) = khz(format!("{CPU_DIRECTORY}/cpu{number}/cpufreq/cpuinfo_max_freq")) {
            cores.entry(number).or_default().khz = Some(khz);
        }
    }
    let directory = format!("{CPU_DIRECTORY}/cpufreq");
    let policies = reader.list(&directory).unwrap_or_default();
    for policy in policies.iter().filter(|n| n.starts_with("policy")) {
        let Some(khz) = khz(format!("{directory}/{policy}/cpuinfo_max_freq")) else { continue };
        let related = reader.read(&format!("{directory}/{policy}/related_cpus")).unwrap_or_default();
        for number in related.split_whitespace().take(CPUS_MAX).filter_map(|w| w.parse().ok()) {
            cores.entry(number).or_default().khz = Some(khz);
        }
    }
}

fn describe_cores(cores: &BTreeMap<u32, Core>) -> String {
    let mut kinds: Vec<(Core, usize)> = Vec::new();
    // The kind of an offline CPU only follows from its frequency and capacity: those with names come first.
    let (named, nameless): (Vec<&Core>, Vec<&Core>) = cores.values().partition(|c| !c.name.is_empty());
    for core in named.into_iter().chain(nameless) {
        let alike = |known: &Core| {
            (core.name.is_empty() || known.name == core.name)
                && known.khz == core.khz
                && (core.capacity.is_none() || known.capacity == core.capacity)
        };
        match kinds.iter_mut().find(|(known, _)| alike(known)) {
            Some((_, count)) => *count += 1,
            None => kinds.push((core.clone(), 1)),
        }
    }
    let kind = |(core, count): &(Core, usize)| {
        let name = if core.name.is_empty() { "core" } else { &core.name };
        let speed = core.khz.map_or(String::new(), |khz| format!(" up to {} MHz", khz / 1000));
        let capacity = core.capacity.map_or(String::new(), |c| format!(" (capacity {c})"));
        format!("{count} x {name}{speed}{capacity}")
    };
    kinds.iter().map(kind).collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn cores_are_counted_by_kind() {
        let text = "processor\t: 0\nCPU implementer\t: 0x41\nCPU part\t: 0xd05\n\nprocessor\t: 1\nCPU implementer\t: 0x41\nCPU part\t: 0xd05\n\n\
                    processor : 2\nCPU implementer : 0x41\nCPU part : 0xd44\nprocessor : 3\nCPU implementer : 0x99\nCPU part : 0x001\nHardware : X\n";
        assert_eq!(describe_cores(&parse_cores(text)), "2 x Cortex-A55, 1 x Cortex-X1, 1 x core 0x001 of maker 0x99");
        assert_eq!(
            describe_cores(&parse_cores(
                "processor : 0\nmodel name : Intel 8086\n\nprocessor : 1\nmodel name : Intel 8086\n"
            )),
            "2 x Intel 8086"
        );
        let mut once = parse_cores(
            "Processor : AArch64 rev 4\nprocessor : 0\nprocessor : 1\nCPU implementer : 0x41\nCPU part : 0xd03\n",
        );
        clear_ambiguous_names(&mut once);
        assert_eq!(describe_cores(&once), "2 x core", "the one kind that is named need not be the only one");
    }

    #[test]
    fn frequency_and_capacity_distinguish_cores() {
        let core = |khz, capacity| Core { name: "Cortex-A78".into(), khz: Some(khz), capacity: Some(capacity) };
        let cores: BTreeMap<u32, Core> = [core(2_400_000, 900), core(2_400_000, 900), core(2_850_000, 1024)]
            .into_iter()
            .enumerate()
            .map(|(i, c)| (i as u32, c))
            .collect();
        assert_eq!(
            describe_cores(&cores),
            "2 x Cortex-A78 up to 2400 MHz (capacity 900), 1 x Cortex-A78 up to 2850 MHz (capacity 1024)"
        );
    }

    proptest! {
        #[test]
        fn arbitrary_input_does_not_panic(text in "((processor|CPU part|CPU implementer|model name)\t: [0-9a-fx]{0,12}\n){0,6}.{0,10}") {
            describe_cores(&parse_cores(&text));
        }
    }
}
