//! What people and design files say of links and devices: rates, times, shares of loss, names.

use ::net::link::loss::LossModel;
use ::net::link::spec::{parse_count, parse_rate, parse_time_ns};
use device::remote::DeviceAddress;

pub fn word_seeds() -> Vec<Vec<u8>> {
    let words = [
        "1.5gbit/s",
        "64kbps",
        "none",
        "300us",
        "0.3s",
        "64K",
        "burst:0.5%,25%,100%,0.1%",
        "1%",
        "ssh:me@[2001:db8::1]:22",
        "ssh:me@2001:db8::1",
        "adb:192.0.2.3:5555",
        "netns:blue",
        "local",
    ];
    words.iter().map(|w| w.as_bytes().to_vec()).collect()
}

/// What is understood is within its bounds, and a name is the same again.
pub fn check_word(bytes: &[u8]) {
    let text = String::from_utf8_lossy(bytes);
    assert!(parse_rate(&text).is_ok_and(|bps| bps <= 1_000_000_000_000) || parse_rate(&text).is_err());
    assert!(parse_time_ns(&text).is_ok_and(|ns| ns <= 60_000_000_000) || parse_time_ns(&text).is_err());
    assert!(parse_count(&text).is_ok_and(|n| n <= u64::from(u32::MAX) << 20) || parse_count(&text).is_err());
    if let Ok(loss) = LossModel::parse(&text) {
        assert!((0.0..=1.0).contains(&loss.mean()), "{loss:?}");
    }
    if let Ok(place) = text.parse::<DeviceAddress>() {
        let again = place.to_string();
        assert_eq!(again.parse().as_ref(), Ok(&place), "{again}");
        // Each stands as a word of its own in command lines of ssh, adb and ip.
        let words = match &place {
            DeviceAddress::Local | DeviceAddress::Adb(None) => Vec::new(),
            DeviceAddress::Netns(word) | DeviceAddress::Adb(Some(word)) | DeviceAddress::Lab(word) => {
                vec![word.as_str()]
            }
            DeviceAddress::Ssh(user, host, _) => user.iter().map(String::as_str).chain([host.as_str()]).collect(),
        };
        assert!(
            words.iter().all(|w| !w.is_empty() && !w.starts_with('-') && !w.contains(char::is_whitespace)),
            "{again}"
        );
    }
}
