//! Thermal and battery status from Android's services, as text output (`dumpsys`): where a phone hides the kernel's files
//! from a shell, this is the only source.

use crate::Reader;

/// The state of a battery, in the kernel's terms.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Charge {
    /// The charge, in percent.
    pub percent: u64,
    /// `Charging`, `Discharging`, …
    pub status: String,
}

/// Levels of android.os.PowerManager (THERMAL_STATUS_*).
const THERMAL_LEVELS: [&str; 7] = ["none", "light", "moderate", "severe", "critical", "emergency", "shutdown"];

/// Android's thermal level of the device.
pub(crate) fn thermal_status(text: &str) -> Result<&'static str, String> {
    let line = text.lines().find_map(|l| l.trim().strip_prefix("Thermal Status:"));
    let level = line.and_then(|l| l.trim().parse::<usize>().ok()).and_then(|n| THERMAL_LEVELS.get(n).copied());
    level.ok_or_else(|| "the thermal service reports no status (its hardware layer may not be ready)".into())
}

/// A sensor of `dumpsys thermalservice`, °C: `Temperature{mValue=33.2, mType=3, mName=skin, mStatus=0}`, matched by name or
/// type (3: skin, android.os.Temperature). The current values take precedence over the cached ones, since they come last.
pub(crate) fn temperature(text: &str, name: &str) -> Option<f64> {
    let of = |line: &str| {
        let inside = line.trim().strip_prefix("Temperature{")?.strip_suffix('}')?;
        let get = |key: &str| inside.split(", ").find_map(|part| part.strip_prefix(key)?.strip_prefix('='));
        let is = get("mName")?.to_ascii_lowercase().contains(name) || (name == "skin" && get("mType")? == "3");
        let value: f64 = get("mValue")?.parse().ok()?;
        (is && value > 0.0 && value < 200.0).then_some(value)
    };
    text.lines().rev().find_map(of)
}

/// The highest temperature in the output of Android's thermal service, °C.
pub(crate) fn temperature_max(text: &str) -> Option<f64> {
    let value = |line: &str| {
        let rest = line.trim().strip_prefix("Temperature{mValue=")?;
        rest.split_once(',')?.0.parse::<f64>().ok().filter(|t| *t > 0.0 && *t < 200.0)
    };
    let current = text.split_once("Current temperatures from HAL:").map_or(text, |(_, rest)| rest);
    // The thresholds that follow have no value, and cooling devices another prefix.
    current.lines().filter_map(value).max_by(f64::total_cmp)
}

fn entry<'a>(text: &'a str, key: &str) -> Option<&'a str> {
    text.lines().find_map(|l| l.trim().strip_prefix(key)?.strip_prefix(':')).map(str::trim)
}

/// Parses `dumpsys battery`, in the kernel's terms (android.os.BatteryManager: BATTERY_STATUS_*).
pub(crate) fn parse_battery(text: &str) -> Result<Charge, String> {
    let level: u64 = entry(text, "level").and_then(|t| t.parse().ok()).ok_or("`dumpsys battery` has no level")?;
    let scale: u64 = entry(text, "scale").and_then(|t| t.parse().ok()).filter(|n| *n > 0).unwrap_or(100);
    let status = match entry(text, "status") {
        Some("2") => "Charging",
        Some("3") => "Discharging",
        Some("4") => "Not charging",
        Some("5") => "Full",
        _ => "Unknown",
    };
    if entry(text, "present") == Some("false") {
        return Err("no battery".into());
    }
    let percent = level.checked_mul(100).map(|n| n / scale).filter(|p| *p <= 100);
    Ok(Charge { percent: percent.ok_or("`dumpsys battery` has an invalid level")?, status: status.into() })
}

pub(crate) fn battery_temperature(text: &str) -> Option<f64> {
    entry(text, "temperature")?
        .parse::<i64>()
        .ok()
        .map(|tenths| tenths as f64 / 10.0)
        .filter(|t| *t > -60.0 && *t < 200.0)
}

/// Whether Android's own services can be queried.
pub(crate) fn has_dumpsys(reader: &dyn Reader) -> bool {
    reader.list("/system/bin").is_ok_and(|names| names.iter().any(|n| n == "dumpsys"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const THERMAL_OUTPUT: &str = "IsStatusOverride: false\nThermalEventListeners:\n\tcallbacks: 2\nThermal Status: 1\nCached temperatures:\n\
        \tTemperature{mValue=90.0, mType=3, mName=skin, mStatus=0}\nHAL Ready: true\nCurrent temperatures from HAL:\n\
        \tTemperature{mValue=44.1, mType=0, mName=CPU0, mStatus=0}\n\tTemperature{mValue=33.2, mType=3, mName=VIRTUAL-SKIN, mStatus=0}\n\
        \tTemperature{mValue=NaN, mType=1, mName=GPU, mStatus=0}\nCurrent cooling devices from HAL:\n\tCoolingDevice{mValue=0, mType=2, mName=x}\n";

    #[test]
    fn thermal_service_is_parsed() {
        assert_eq!(thermal_status(THERMAL_OUTPUT), Ok("light"));
        assert!(thermal_status("Thermal Status: 9").is_err() && thermal_status("").is_err());
        assert_eq!((temperature(THERMAL_OUTPUT, "skin"), temperature_max(THERMAL_OUTPUT)), (Some(33.2), Some(44.1)));
    }

    #[test]
    fn battery_service_is_parsed() {
        let text = "Current Battery Service state:\n  AC powered: false\n  status: 2\n  health: 2\n  present: true\n  level: 85\n  scale: 100\n  temperature: 290\n";
        assert_eq!(parse_battery(text), Ok(Charge { percent: 85, status: "Charging".into() }));
        assert_eq!(battery_temperature(text), Some(29.0));
        for bad in ["", "level: x", "level: 500\nscale: 100", "level: 18446744073709551615", "level: 5\npresent: false"]
        {
            assert!(parse_battery(bad).is_err(), "{bad}");
        }
        assert_eq!(
            parse_battery("level: 127\nscale: 255\nstatus: 9").map(|b| (b.percent, b.status)),
            Ok((49, "Unknown".into()))
        );
    }

    proptest! {
        #[test]
        fn arbitrary_input_does_not_panic(text in "((level|scale|temperature|Thermal Status): ?-?[0-9]{0,20}\n|\tTemperature\\{mValue=[0-9.]{0,5}, mType=3, mName=x\\}\n){0,5}.{0,20}") {
            let _ = (parse_battery(&text), battery_temperature(&text), thermal_status(&text), temperature_max(&text), temperature(&text, "x"));
        }
    }
}
