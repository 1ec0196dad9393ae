//! What only Android has: its properties, its own word on heat and battery, which of its tools are there, how its SQLite is set.

use crate::Reader;
use crate::facts::{Sheet, Varies};
use crate::properties::Properties;
use crate::sensors::Battery;

/// Tools in /system/bin that decide what can be done.
const TOOLS: [&str; 6] = ["perfetto", "atrace", "dumpsys", "app_process64", "dalvikvm64", "sqlite3"];

pub(crate) fn facts(sheet: &mut Sheet<'_>) {
    use Varies::{Boot, Device, Run};
    let properties = Properties::read(sheet.reader);
    for (name, varies, names) in [
        ("device.soc", Device, &["ro.soc.model", "ro.hardware.chipname", "ro.chipname", "ro.board.platform"][..]),
        ("device.soc_vendor", Device, &["ro.soc.manufacturer", "ro.product.manufacturer"][..1]),
        ("device.hardware", Device, &["ro.hardware"]),
        ("device.name", Device, &["ro.product.device"]),
        ("os.build", Device, &["ro.build.display.id", "ro.build.id"]),
        ("os.build_type", Device, &["ro.build.type"]),
        ("os.debuggable", Device, &["ro.debuggable"]),
        ("os.abis", Device, &["ro.product.cpu.abilist", "ro.product.cpu.abi"]),
        ("os.verified_boot", Boot, &["ro.boot.verifiedbootstate"]),
        ("os.encryption", Device, &["ro.crypto.type", "ro.crypto.state"]),
        ("art.use_jit", Boot, &["dalvik.vm.usejit"]),
        ("art.filter", Boot, &["dalvik.vm.dex2oat-filter", "pm.dexopt.install"]),
        ("sqlite.journal_mode", Boot, &["debug.sqlite.journalmode"]),
        ("sqlite.synchronous", Boot, &["debug.sqlite.syncmode"]),
        ("sqlite.wal_synchronous", Boot, &["debug.sqlite.wal.syncmode"]),
        ("perfetto.enabled", Boot, &["persist.traced.enable"]),
    ] {
        let (property, mut answer) = properties.first(names);
        if name.starts_with("sqlite.") && answer.is_err() {
            // SQLiteGlobal.java asks for the property, then for the framework's own setting, which a shell cannot read.
            answer = Err(format!("{property} is not set: the framework's own default holds"));
        }
        sheet.put(name, varies, "", &format!("getprop {property}"), answer);
    }
    let tools = sheet.reader.list("/system/bin").map(|names| {
        let has = TOOLS.iter().filter(|t| names.iter().any(|n| n == *t));
        has.copied().collect::<Vec<_>>().join(" ")
    });
    sheet.put("os.tools", Device, "", "/system/bin", tools);
    let su = ["/system/bin", "/system/xbin", "/sbin", "/debug_ramdisk"]
        .iter()
        .any(|folder| sheet.reader.list(folder).is_ok_and(|names| names.iter().any(|n| n == "su")));
    sheet.put(
        "access.su",
        Boot,
        "",
        "su in /system/bin, /system/xbin, /sbin",
        Ok(if su { "yes" } else { "no" }.into()),
    );
    sheet.put("access.selinux", Run, "", "getenforce", sheet.reader.run(&["getenforce"]));
    let heat = sheet.reader.run(&["dumpsys", "thermalservice"]);
    let status = heat.as_deref().map_err(|e| (*e).to_owned()).and_then(|text| Ok(thermal_status(text)?.to_owned()));
    sheet.put("thermal.status", Run, "", "dumpsys thermalservice", status);
    let skin = heat.and_then(|text| temperature(&text, "skin").ok_or_else(|| "no such sensor is named".into()));
    sheet.put("thermal.skin", Run, "°C", "dumpsys thermalservice", skin.map(|t| format!("{t:.1}")));
    let text = sheet.reader.run(&["dumpsys", "battery"]);
    let battery = text.as_deref().map_err(|e| (*e).to_owned()).and_then(battery_of);
    sheet.put("battery.level", Run, "%", "dumpsys battery", battery.clone().map(|b| b.percent.to_string()));
    sheet.put("battery.status", Run, "", "dumpsys battery", battery.map(|b| b.status));
    let warmth = text.and_then(|text| warmth(&text).ok_or_else(|| "not in what it says".into()));
    sheet.put("battery.temperature", Run, "°C", "dumpsys battery", warmth.map(|t| format!("{t:.1}")));
}

/// Levels of android.os.PowerManager (THERMAL_STATUS_*).
const LEVELS: [&str; 7] = ["none", "light", "moderate", "severe", "critical", "emergency", "shutdown"];

/// How hot Android says that the device is.
pub(crate) fn thermal_status(text: &str) -> Result<&'static str, String> {
    let line = text.lines().find_map(|l| l.trim().strip_prefix("Thermal Status:"));
    let level = line.and_then(|l| l.trim().parse::<usize>().ok()).and_then(|n| LEVELS.get(n).copied());
    level.ok_or_else(|| "the thermal service does not say (its hardware layer may not be ready)".into())
}

/// A sensor of `dumpsys thermalservice`, °C: `Temperature{mValue=33.2, mType=3, mName=skin, mStatus=0}`, whose name or type (3: skin,
/// android.os.Temperature) says so. What stands under the current ones counts before cached ones, since it comes last.
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

/// The hottest sensor that Android's thermal service names, °C.
pub(crate) fn hottest(text: &str) -> Option<f64> {
    let value = |line: &str| {
        let rest = line.trim().strip_prefix("Temperature{mValue=")?;
        rest.split_once(',')?.0.parse::<f64>().ok().filter(|t| *t > 0.0 && *t < 200.0)
    };
    let current = text.split_once("Current temperatures from HAL:").map_or(text, |(_, rest)| rest);
    // The thresholds that follow have no value, and cooling devices another name.
    current.lines().filter_map(value).max_by(f64::total_cmp)
}

fn entry<'a>(text: &'a str, key: &str) -> Option<&'a str> {
    text.lines().find_map(|l| l.trim().strip_prefix(key)?.strip_prefix(':')).map(str::trim)
}

/// What `dumpsys battery` says, in the kernel's words (android.os.BatteryManager: BATTERY_STATUS_*).
pub(crate) fn battery_of(text: &str) -> Result<Battery, String> {
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
    Ok(Battery { percent: percent.ok_or("`dumpsys battery` has a level that is none")?, status: status.into() })
}

fn warmth(text: &str) -> Option<f64> {
    entry(text, "temperature")?
        .parse::<i64>()
        .ok()
        .map(|tenths| tenths as f64 / 10.0)
        .filter(|t| *t > -60.0 && *t < 200.0)
}

/// Whether Android's own services can be asked.
pub(crate) fn has_dumpsys(reader: &dyn Reader) -> bool {
    reader.list("/system/bin").is_ok_and(|names| names.iter().any(|n| n == "dumpsys"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const HEAT: &str = "IsStatusOverride: false\nThermalEventListeners:\n\tcallbacks: 2\nThermal Status: 1\nCached temperatures:\n\
        \tTemperature{mValue=90.0, mType=3, mName=skin, mStatus=0}\nHAL Ready: true\nCurrent temperatures from HAL:\n\
        \tTemperature{mValue=44.1, mType=0, mName=CPU0, mStatus=0}\n\tTemperature{mValue=33.2, mType=3, mName=VIRTUAL-SKIN, mStatus=0}\n\
        \tTemperature{mValue=NaN, mType=1, mName=GPU, mStatus=0}\nCurrent cooling devices from HAL:\n\tCoolingDevice{mValue=0, mType=2, mName=x}\n";

    #[test]
    fn thermal_service_is_parsed() {
        assert_eq!(thermal_status(HEAT), Ok("light"));
        assert!(thermal_status("Thermal Status: 9").is_err() && thermal_status("").is_err());
        assert_eq!((temperature(HEAT, "skin"), hottest(HEAT)), (Some(33.2), Some(44.1)));
    }

    #[test]
    fn battery_service_is_parsed() {
        let text = "Current Battery Service state:\n  AC powered: false\n  status: 2\n  health: 2\n  present: true\n  level: 85\n  scale: 100\n  temperature: 290\n";
        assert_eq!(battery_of(text), Ok(Battery { percent: 85, status: "Charging".into() }));
        assert_eq!(warmth(text), Some(29.0));
        for bad in ["", "level: x", "level: 500\nscale: 100", "level: 18446744073709551615", "level: 5\npresent: false"]
        {
            assert!(battery_of(bad).is_err(), "{bad}");
        }
        assert_eq!(
            battery_of("level: 127\nscale: 255\nstatus: 9").map(|b| (b.percent, b.status)),
            Ok((49, "Unknown".into()))
        );
    }

    proptest! {
        #[test]
        fn arbitrary_input_does_not_panic(text in "((level|scale|temperature|Thermal Status): ?-?[0-9]{0,20}\n|\tTemperature\\{mValue=[0-9.]{0,5}, mType=3, mName=x\\}\n){0,5}.{0,20}") {
            let _ = (battery_of(&text), warmth(&text), thermal_status(&text), hottest(&text), temperature(&text, "x"));
        }
    }
}
