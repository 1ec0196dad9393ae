//! Selects devices where several are possible: a list, or all that adb lists.

use super::adb::AdbServer;
use super::{DeviceAddress, NotADevice, adb, usable};
use std::collections::BTreeSet;
use std::str::FromStr;

/// A device, or all of them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum OneOrAll {
    /// This one.
    One(DeviceAddress),
    /// All that adb lists and that can be worked on.
    All,
}

impl FromStr for OneOrAll {
    type Err = NotADevice;

    fn from_str(text: &str) -> Result<Self, NotADevice> {
        if text == "all" { Ok(Self::All) } else { text.parse().map(Self::One) }
    }
}

/// Devices in a list with commas.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DeviceNames(pub Vec<OneOrAll>);

impl FromStr for DeviceNames {
    type Err = NotADevice;

    fn from_str(text: &str) -> Result<Self, NotADevice> {
        DeviceAddress::names(text).into_iter().map(str::parse).collect::<Result<_, _>>().map(Self)
    }
}

/// Why no device is selected.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum NoneMeant {
    /// The adb server.
    #[error(transparent)]
    Adb(#[from] adb::Failure),
    /// All of none.
    #[error("adb lists no usable device; `fathom device list` shows why")]
    NoUsable,
}

impl OneOrAll {
    /// The devices, each once.
    ///
    /// # Errors
    /// All were meant, and there is none.
    pub fn expand<'a>(meant: impl IntoIterator<Item = &'a Self>) -> Result<Vec<DeviceAddress>, NoneMeant> {
        let mut all = Vec::new();
        for one in meant {
            match one {
                Self::One(place) => all.push(place.clone()),
                Self::All => {
                    let listed = AdbServer::of_environment().devices()?;
                    let ready = listed.into_iter().filter(|device| usable(&device.state).is_ok());
                    let before = all.len();
                    all.extend(ready.map(|device| DeviceAddress::Adb(Some(device.serial))));
                    if all.len() == before {
                        return Err(NoneMeant::NoUsable);
                    }
                }
            }
        }
        let mut seen = BTreeSet::new();
        all.retain(|place| seen.insert(place.to_string()));
        Ok(all)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn device_named_twice_is_selected_once() {
        let meant: Vec<OneOrAll> = ["adb:X", "local", "adb:X"].iter().map(|text| text.parse().unwrap()).collect();
        let names: Vec<String> = OneOrAll::expand(&meant).unwrap().iter().map(ToString::to_string).collect();
        assert_eq!(names, ["adb:X", "local"]);
        assert_eq!("all".parse(), Ok(OneOrAll::All));
    }
}
