//! Selects devices from a list, or all that adb lists. A phone that is connected twice, by USB and by Wi-Fi, is one device:
//! two simultaneous runs on it would disturb each other.

use super::adb::AdbServer;
use super::{AddressError, DeviceAddress, adb, check_usable, transport};
use model::Context;
use std::collections::{BTreeMap, BTreeSet};
use std::str::FromStr;

/// A device, or all devices.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum OneOrAll {
    One(DeviceAddress),
    /// All usable devices that adb lists.
    All,
}

impl FromStr for OneOrAll {
    type Err = AddressError;

    fn from_str(text: &str) -> Result<Self, AddressError> {
        if text == "all" { Ok(Self::All) } else { text.parse().map(Self::One) }
    }
}

/// Devices in a comma-separated list.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DeviceNames(pub Vec<OneOrAll>);

impl FromStr for DeviceNames {
    type Err = AddressError;

    fn from_str(text: &str) -> Result<Self, AddressError> {
        DeviceAddress::split_list(text).into_iter().map(str::parse).collect::<Result<_, _>>().map(Self)
    }
}

/// Why no device is selected.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SelectionError {
    #[error(transparent)]
    Adb(#[from] adb::Failure),
    /// All devices were requested, but there are none.
    #[error("adb lists no usable device; `fathom device list` shows why")]
    NoUsable,
}

/// Distinct devices.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Selection {
    /// Their addresses, in the order given.
    pub places: Vec<DeviceAddress>,
    /// Further addresses of a device, and its first address.
    pub duplicates: Vec<(DeviceAddress, DeviceAddress)>,
}

impl Selection {
    /// The only device, if no others were named.
    pub fn alone(&self) -> Option<&DeviceAddress> {
        self.places.first().filter(|_| self.places.len() == 1 && self.duplicates.is_empty())
    }
}

impl OneOrAll {
    /// Selects distinct devices. If there are several Android devices, each is queried for its identity; a device that does
    /// not respond counts as distinct.
    ///
    /// # Errors
    /// All devices were requested, and there are none.
    pub fn select<'a>(requested: impl IntoIterator<Item = &'a Self>) -> Result<Selection, SelectionError> {
        let all = Self::expand(requested)?;
        let phones = all.iter().filter(|place| matches!(place, DeviceAddress::Adb(_))).count();
        Ok(if phones > 1 { keep_first(all, identity) } else { Selection { places: all, duplicates: Vec::new() } })
    }

    fn expand<'a>(requested: impl IntoIterator<Item = &'a Self>) -> Result<Vec<DeviceAddress>, SelectionError> {
        let mut all = Vec::new();
        for one in requested {
            match one {
                Self::One(place) => all.push(place.clone()),
                Self::All => {
                    let listed = AdbServer::from_environment().devices()?;
                    let ready = listed.iter().filter(|device| check_usable(&device.state).is_ok());
                    let before = all.len();
                    all.extend(ready.map(|device| {
                        // If several devices have the same serial number, their ports are used.
                        let shared = listed.iter().filter(|other| other.serial == device.serial).count() > 1;
                        let port = device.get("usb").filter(|_| shared).map(|port| format!("usb:{port}"));
                        DeviceAddress::Adb(Some(port.unwrap_or_else(|| device.serial.clone())))
                    }));
                    if all.len() == before {
                        return Err(SelectionError::NoUsable);
                    }
                }
            }
        }
        let mut seen = BTreeSet::new();
        all.retain(|place| seen.insert(place.to_string()));
        Ok(all)
    }
}

/// Keeps the first address of each device.
fn keep_first(all: Vec<DeviceAddress>, identity: impl Fn(&DeviceAddress) -> Option<String>) -> Selection {
    let mut known = BTreeMap::<String, DeviceAddress>::new();
    let (mut places, mut again) = (Vec::new(), Vec::new());
    for place in all {
        match identity(&place) {
            Some(identity) => match known.get(&identity) {
                Some(first) => again.push((place, first.clone())),
                None => {
                    known.insert(identity, place.clone());
                    places.push(place);
                }
            },
            None => places.push(place),
        }
    }
    Selection { places, duplicates: again }
}

/// The identity of a device, from its serial number and its boot id: cheap models share the number, but no two devices have
/// the same boot id.
fn identity(place: &DeviceAddress) -> Option<String> {
    let DeviceAddress::Adb(_) = place else { return None };
    let context = Context::silent();
    let place = transport::look_up(place, &context).ok()?;
    let line = "echo fathom-who; getprop ro.serialno; cat /proc/sys/kernel/random/boot_id";
    let answer = transport::run(&place, line, None, &context, "identify itself").ok()?;
    let answer = String::from_utf8_lossy(&answer).replace('\r', "");
    let (serial, boot) = answer.split_once("fathom-who\n")?.1.trim_end().split_once('\n')?;
    (!serial.is_empty() && !boot.is_empty()).then(|| format!("{serial} {boot}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn device_with_two_names_is_selected_once() {
        let names = |all: &[DeviceAddress]| all.iter().map(ToString::to_string).collect::<Vec<_>>().join(" ");
        let all = ["adb:R5", "local", "adb:192.0.2.3:5555", "adb:dumb", "adb:mute"].map(|text| text.parse().unwrap());
        let chosen = keep_first(all.to_vec(), |place| match place.to_string().as_str() {
            "adb:R5" | "adb:192.0.2.3:5555" => Some("R5 boot".into()),
            _ => None,
        });
        assert_eq!(names(&chosen.places), "adb:R5 local adb:dumb adb:mute");
        assert_eq!(chosen.duplicates.len(), 1);
        assert_eq!(
            names(&[chosen.duplicates[0].0.clone(), chosen.duplicates[0].1.clone()]),
            "adb:192.0.2.3:5555 adb:R5"
        );
        assert_eq!(chosen.alone(), None);
        // Two addresses of one device create a directory, as two devices do.
        let both = keep_first(all[..3].iter().step_by(2).cloned().collect(), |_| Some("one".into()));
        assert!(both.places.len() == 1 && both.alone().is_none());
    }

    #[test]
    fn device_named_twice_is_selected_once() {
        let requested: Vec<OneOrAll> = ["adb:X", "local", "adb:X"].iter().map(|text| text.parse().unwrap()).collect();
        let names: Vec<String> = OneOrAll::expand(&requested).unwrap().iter().map(ToString::to_string).collect();
        assert_eq!(names, ["adb:X", "local"]);
        assert_eq!("all".parse(), Ok(OneOrAll::All));
    }
}
