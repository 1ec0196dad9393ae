//! What `fathom lab` reads: a scenario, and settings for it.

use lab::scenario::{Scenario, find, shipped};

/// The shipped scenarios, each with a line that is a setting.
pub fn scenario_seeds() -> Vec<Vec<u8>> {
    let settings = ["sqlite.page_size=1024", "disk.log.bus=nvme", "workload.limit=90s", "record.backend=ftrace"];
    let texts = shipped().iter().zip(settings.iter().cycle());
    texts.map(|(entry, setting)| format!("{setting}\n{}", entry.text).into_bytes()).collect()
}

/// What is taken is written as a file that is the same scenario.
pub fn check_scenario(bytes: &[u8]) {
    let text = String::from_utf8_lossy(bytes);
    let (setting, file) = text.split_once('\n').unwrap_or(("", &text));
    // Settings behind a name, as `--device lab:` has them.
    let _ = find(&format!("scsi-ext4,{setting}"), &[]);
    for settings in [vec![], vec![setting.to_string()]] {
        let Ok(scenario) = Scenario::parse("fuzzed", file, &settings) else { continue };
        let written = scenario.to_toml();
        match Scenario::parse("written", &written, &[]) {
            Ok(again) => assert_eq!(again, scenario),
            Err(error) => panic!("{error}\n{written}"),
        }
    }
}
