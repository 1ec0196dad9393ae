//! Facts specific to Android: its properties, its thermal and battery status, the available tools, the configuration of its SQLite.

use crate::dumpsys::{battery_temperature, parse_battery, temperature, thermal_status};
use crate::facts::{Sheet, Validity};
use crate::properties::Properties;

/// Tools in /system/bin that determine what can be done.
const TOOL_NAMES: [&str; 6] = ["perfetto", "atrace", "dumpsys", "app_process64", "dalvikvm64", "sqlite3"];

pub(crate) fn facts(sheet: &mut Sheet<'_>) {
    use Validity::{Boot, Device, Run};
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
            // SQLiteGlobal.java reads the property, then the framework's own setting, which a shell cannot read.
            answer = Err(format!("{property} is not set: the framework's own default applies"));
        }
        sheet.put(name, varies, "", &format!("getprop {property}"), answer);
    }
    let tools = sheet.reader.list("/system/bin").map(|names| {
        let has = TOOL_NAMES.iter().filter(|t| names.iter().any(|n| n == *t));
        has.copied().collect::<Vec<_>>().join(" ")
    });
    sheet.put("os.tools", Device, "", "/system/bin", tools);
    let su = ["/system/bin", "/system/xbin", "/sbin", "/debug_ramdisk"]
        .iter()
        .any(|directory| sheet.reader.list(directory).is_ok_and(|names| names.iter().any(|n| n == "su")));
    sheet.put(
        "access.su",
        Boot,
        "",
        "su in /system/bin, /system/xbin, /sbin",
        Ok(if su { "yes" } else { "no" }.into()),
    );
    sheet.put("access.selinux", Run, "", "getenforce", sheet.reader.run(&["getenforce"]).map_err(String::from));
    let heat = sheet.reader.run(&["dumpsys", "thermalservice"]).map_err(String::from);
    let status = heat.as_deref().map_err(|e| (*e).to_owned()).and_then(|text| Ok(thermal_status(text)?.to_owned()));
    sheet.put("thermal.status", Run, "", "dumpsys thermalservice", status);
    let skin = heat.and_then(|text| temperature(&text, "skin").ok_or_else(|| "no skin sensor is listed".into()));
    sheet.put("thermal.skin", Run, "°C", "dumpsys thermalservice", skin.map(|t| format!("{t:.1}")));
    let text = sheet.reader.run(&["dumpsys", "battery"]).map_err(String::from);
    let charge = text.as_deref().map_err(|e| (*e).to_owned()).and_then(parse_battery);
    sheet.put("battery.level", Run, "%", "dumpsys battery", charge.clone().map(|c| c.percent.to_string()));
    sheet.put("battery.status", Run, "", "dumpsys battery", charge.map(|c| c.status));
    let warmth =
        text.and_then(|text| battery_temperature(&text).ok_or_else(|| "`dumpsys battery` has no temperature".into()));
    sheet.put("battery.temperature", Run, "°C", "dumpsys battery", warmth.map(|t| format!("{t:.1}")));
}
