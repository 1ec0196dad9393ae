//! The current conditions that may slow down a process: temperature, clock frequency, other load, battery.
//!
//! Each value is a number or the reason why there is none; nothing is evaluated here (a gate does that). The load of the
//! machine is computed from two samples of the kernel's counters, not from its load average: that covers a minute, which
//! mostly contains the process that was measured before.

use crate::{Reader, dumpsys};

/// The state of a battery.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Battery {
    /// The charge, in percent.
    pub percent: u64,
    /// `Charging`, `Discharging`, `Full`, …, as reported by the kernel.
    pub status: String,
}

/// The values of all sensors; an error tells why one has none.
#[derive(Debug, Clone, PartialEq)]
pub struct Readings {
    /// The highest sensor temperature, °C.
    pub temperature_c: Result<f64, String>,
    /// The current maximum frequency of the slowest CPU, in MHz: temperature and governors lower it.
    pub frequency_mhz: Result<f64, String>,
    /// CPUs that were busy (including stolen time) between the two samples.
    pub busy_cpus: Result<f64, String>,
    pub battery: Result<Battery, String>,
}

/// A sample of the CPUs' counters.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CpuSample {
    busy: u64,
    all: u64,
    cpus: u64,
}

impl CpuSample {
    /// Takes a sample.
    ///
    /// # Errors
    /// Why the counters cannot be read.
    pub fn now(reader: &dyn Reader) -> Result<Self, String> {
        parse(&reader.read("/proc/stat")?).ok_or_else(|| "cannot parse /proc/stat".into())
    }

    /// CPUs that were busy since `before`.
    ///
    /// # Errors
    /// No tick has passed between the two samples.
    pub fn busy_since(&self, before: &Self) -> Result<f64, String> {
        match self.all.saturating_sub(before.all) {
            0 => Err("no tick passed between two reads of /proc/stat".into()),
            all => Ok(self.busy.saturating_sub(before.busy) as f64 / all as f64 * self.cpus as f64),
        }
    }
}

/// Parses the first line of /proc/stat (proc(5)): user, nice, system, idle, iowait, irq, softirq, steal; guests are included in user.
fn parse(text: &str) -> Option<CpuSample> {
    let total = text.lines().find_map(|l| l.strip_prefix("cpu "))?;
    let ticks: Vec<u64> = total.split_whitespace().map(|w| w.parse().ok()).take(8).collect::<Option<_>>()?;
    let all = ticks.iter().try_fold(0_u64, |sum, t| sum.checked_add(*t))?;
    let idle = ticks.get(3)?.checked_add(ticks.get(4).copied().unwrap_or(0))?;
    let one = |l: &&str| l.strip_prefix("cpu").is_some_and(|rest| rest.starts_with(|c: char| c.is_ascii_digit()));
    let cpus = text.lines().filter(one).count().max(1);
    Some(CpuSample { busy: all.checked_sub(idle)?, all, cpus: cpus as u64 })
}

impl Readings {
    /// Reads every sensor; `before` is a sample taken some ticks (10 ms each) ago.
    pub fn now(reader: &dyn Reader, before: &Result<CpuSample, String>) -> Self {
        let busy = CpuSample::now(reader).and_then(|now| now.busy_since(before.as_ref().map_err(Clone::clone)?));
        Self {
            temperature_c: temperature(reader),
            frequency_mhz: frequency(reader),
            busy_cpus: busy,
            battery: battery(reader),
        }
    }
}

fn read_numbers(reader: &dyn Reader, directory: &str, prefix: &str, file: &str) -> Vec<f64> {
    let names = reader.list(directory).unwrap_or_default();
    let read = |n: &String| reader.read(&format!("{directory}/{n}/{file}")).ok()?.trim().parse::<i64>().ok();
    names.iter().filter(|n| n.starts_with(prefix)).filter_map(read).map(|n| n as f64).collect()
}

fn temperature(reader: &dyn Reader) -> Result<f64, String> {
    let zones = read_numbers(reader, "/sys/class/thermal", "thermal_zone", "temp");
    // A disabled sensor reports 0 or far less; no chip is that cold.
    let hottest = zones.into_iter().map(|t| t / 1000.0).filter(|t| *t > 0.0 && *t < 200.0).max_by(f64::total_cmp);
    // Most phones deny a shell access to these files; a service reports the temperature.
    let by_service = || {
        dumpsys::has_dumpsys(reader)
            .then(|| reader.run(&["dumpsys", "thermalservice"]).ok())?
            .and_then(|t| dumpsys::temperature_max(&t))
    };
    hottest.or_else(by_service).ok_or_else(|| "no sensor".into())
}

pub(crate) fn frequency(reader: &dyn Reader) -> Result<f64, String> {
    let limits = read_numbers(reader, "/sys/devices/system/cpu/cpufreq", "policy", "scaling_max_freq");
    limits.into_iter().map(|khz| khz / 1000.0).min_by(f64::total_cmp).ok_or_else(|| "not reported by the kernel".into())
}

pub(crate) fn battery(reader: &dyn Reader) -> Result<Battery, String> {
    const POWER_SUPPLY_DIRECTORY: &str = "/sys/class/power_supply";
    let names = reader.list(POWER_SUPPLY_DIRECTORY).unwrap_or_default();
    let found = names.iter().find_map(|name| {
        let read = |file: &str| reader.read(&format!("{POWER_SUPPLY_DIRECTORY}/{name}/{file}")).ok();
        // Chargers have a status on some phones, and peripherals such as mice have batteries; neither has both of these.
        if read("type").is_some_and(|t| t != "Battery") || read("scope").is_some_and(|s| s == "Device") {
            return None;
        }
        Some(Battery { percent: read("capacity")?.trim().parse().ok()?, status: read("status")? })
    });
    match found {
        Some(battery) => Ok(battery),
        None if dumpsys::has_dumpsys(reader) => {
            let charge = dumpsys::parse_battery(&reader.run(&["dumpsys", "battery"])?)?;
            Ok(Battery { percent: charge.percent, status: charge.status })
        }
        None => Err("no battery".into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Files by path.
    struct Files(Vec<(&'static str, &'static str)>);

    impl Reader for Files {
        fn read(&self, path: &str) -> Result<String, String> {
            self.0
                .iter()
                .find(|(p, _)| *p == path)
                .map(|(_, text)| text.to_string())
                .ok_or_else(|| "no such file".into())
        }
        fn list(&self, directory: &str) -> Result<Vec<String>, String> {
            let below = |p: &str| Some(p.strip_prefix(directory)?.strip_prefix('/')?.split('/').next()?.to_string());
            let mut names: Vec<String> = self.0.iter().filter_map(|(p, _)| below(p)).collect();
            names.dedup();
            Ok(names)
        }
        fn run(&self, words: &[&str]) -> Result<String, crate::RunError> {
            self.read(&format!("/run/{}", words.join(" "))).map_err(crate::RunError::Failed)
        }
        fn canonical(&self, path: &str) -> Result<String, String> {
            Ok(path.into())
        }
        fn identity(&self, _: &str) -> Result<(model::Dev, u64), String> {
            Err("no files".into())
        }
    }

    const STAT_BEFORE: &str =
        "cpu  100 0 100 1000 50 0 0 0 0 0\ncpu0 50 0 50 500 25 0 0 0\ncpu1 50 0 50 500 25 0 0 0\nintr 5\n";
    const STAT_AFTER: &str = "cpu  110 0 105 1080 50 0 0 5 0 0\ncpu0 60 0 50 540 25 0 0 0\ncpu1 50 0 55 540 25 0 0 5\n";

    #[test]
    fn busy_cpus_are_computed_from_two_samples() {
        let (before, after) = (parse(STAT_BEFORE).unwrap(), parse(STAT_AFTER).unwrap());
        // 20 of 100 ticks of two CPUs.
        assert!((after.busy_since(&before).unwrap() - 0.4).abs() < 1e-12);
        assert!(before.busy_since(&before).is_err());
    }

    #[test]
    fn all_sensors_of_a_phone_are_read() {
        let phone = Files(vec![
            ("/proc/stat", STAT_AFTER),
            ("/sys/class/thermal/thermal_zone0/temp", "-40000"),
            ("/sys/class/thermal/thermal_zone1/temp", "41500\n"),
            ("/sys/class/thermal/thermal_zone2/temp", "38000"),
            ("/sys/devices/system/cpu/cpufreq/policy0/scaling_max_freq", "1800000"),
            ("/sys/devices/system/cpu/cpufreq/policy4/scaling_max_freq", "2400000"),
            ("/sys/class/power_supply/usb/type", "USB"),
            ("/sys/class/power_supply/usb/status", "Charging"),
            ("/sys/class/power_supply/battery/type", "Battery"),
            ("/sys/class/power_supply/battery/capacity", "83"),
            ("/sys/class/power_supply/battery/status", "Discharging"),
        ]);
        let readings = Readings::now(&phone, &Ok(parse(STAT_BEFORE).unwrap()));
        assert_eq!((readings.temperature_c, readings.frequency_mhz), (Ok(41.5), Ok(1800.0)));
        assert_eq!(readings.battery, Ok(Battery { percent: 83, status: "Discharging".into() }));
        assert!((readings.busy_cpus.unwrap() - 0.4).abs() < 1e-12);
    }

    #[test]
    fn phone_that_hides_files_is_read_by_its_services() {
        let phone = Files(vec![
            ("/system/bin/dumpsys", ""),
            (
                "/run/dumpsys thermalservice",
                "Current temperatures from HAL:\n\tTemperature{mValue=41.5, mType=0, mName=CPU0, mStatus=0}\n",
            ),
            ("/run/dumpsys battery", "  status: 3\n  level: 83\n"),
        ]);
        let readings = Readings::now(&phone, &Err("not yet".into()));
        assert_eq!(readings.temperature_c, Ok(41.5));
        assert_eq!(readings.battery, Ok(Battery { percent: 83, status: "Discharging".into() }));
    }

    #[test]
    fn machine_without_sensors_says_why() {
        let readings = Readings::now(&Files(vec![("/proc/stat", "nonsense")]), &Err("not yet".into()));
        assert!(readings.temperature_c.is_err() && readings.frequency_mhz.is_err() && readings.battery.is_err());
        assert!(readings.busy_cpus.unwrap_err().contains("/proc/stat"));
    }

    proptest! {
        #[test]
        fn arbitrary_input_does_not_panic(text in "(cpu ?[0-9 ]{0,60}\n?){0,3}.{0,20}") {
            parse(&text);
        }
    }
}
