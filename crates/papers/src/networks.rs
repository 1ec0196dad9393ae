//! The papers' networks, 001's cluster and 002's links: what is run with a device as a node and as an end, and what this machine
//! runs alone, with emulated networks.

use device::remote::DeviceAddress;
use std::path::Path;

/// The workloads that this machine runs alone, and those with the device in place of the emulated part.
const NETWORK_WORKLOADS: [(&str, Option<&str>); 4] = [
    ("cluster", Some("cluster-devices")),
    ("net-wlan", Some("net-devices")),
    ("net-delay", Some("net-delay-devices")),
    ("net-loss", None),
];
/// The paper's congestion controls; Linux provides some of them, Fathom the others.
const CONGESTION_CONTROLS: &str = "bic,cubic,htcp,reno,westwood";

/// Whether a design is one of the network workloads.
pub fn is_network(design: &str) -> bool {
    NETWORK_WORKLOADS.iter().any(|(alone, with)| *alone == design || *with == Some(design))
}

#[derive(Debug)]
pub struct Networks<'a> {
    /// The workloads of the requested figures, as this machine runs them.
    pub workloads: &'a [String],
    /// Exact number of blocks.
    pub blocks: Option<u64>,
    /// Whether it is a smoke test.
    pub quick: bool,
    /// Measure at once, even if the machines are busy.
    pub no_wait: bool,
    /// The user's parameters.
    pub parameters: &'a [(String, Vec<String>)],
}

/// Location of the device, and what it can reach.
#[derive(Debug)]
pub struct Ends<'a> {
    pub place: &'a DeviceAddress,
    pub interface: &'a str,
    /// This machine's interface, if it has one.
    pub host_interface: Option<&'a str>,
    /// A server behind this machine, and its interface.
    pub server: Option<(&'a DeviceAddress, &'a str)>,
}

impl Networks<'_> {
    /// Returns the arguments of `fathom` for emulating the networks on this machine; `None` if none is requested.
    pub fn alone(&self, output: &Path) -> Option<Vec<String>> {
        let designs: Vec<&str> = self.wanted().map(|(alone, _)| alone).collect();
        self.words(output, &designs, Vec::new())
    }

    /// Returns the arguments of `fathom` for measuring with the device; `None` if none is requested.
    pub fn with_device(&self, output: &Path, ends: &Ends<'_>) -> Option<Vec<String>> {
        let possible = |design: &&str| match *design {
            "net-devices" => ends.host_interface.is_some(),
            "net-delay-devices" => ends.server.is_some(),
            _ => true,
        };
        let designs: Vec<&str> = self.wanted().filter_map(|(_, with)| with).filter(possible).collect();
        let (place, interface) = (ends.place, ends.interface);
        let mut given = Vec::new();
        let mut give = |design: &str, values: &[(&str, &str)]| {
            if designs.contains(&design) {
                given.extend(values.iter().map(|(factor, value)| format!("--param={design}.{factor}={value}")));
            }
        };
        let place = place.to_string();
        // The paper uses 1 to 32 threads, of which the claims need these.
        give("cluster-devices", &[("at", &place), ("interface", interface), ("threads", "1,4,8,32")]);
        let traffic = ("traffic", "tcp,udp_iperf");
        let here = ends.host_interface.unwrap_or_default();
        give("net-devices", &[("from", &place), ("interface", interface), ("to_interface", here), traffic]);
        if let Some((server, to)) = ends.server {
            let (server, delays) = (server.to_string(), ("delay_ms", "0,16,32"));
            let all = [("from", place.as_str()), ("to", &server), ("interface", interface), ("to_interface", to)];
            give("net-delay-devices", &all);
            give("net-delay-devices", &[delays, ("loss", "0"), ("direction", "down"), ("cc", CONGESTION_CONTROLS)]);
        }
        self.words(output, &designs, given)
    }

    fn wanted(&self) -> impl Iterator<Item = (&'static str, Option<&'static str>)> {
        NETWORK_WORKLOADS.into_iter().filter(|(alone, _)| self.workloads.iter().any(|w| w == alone))
    }

    fn words(&self, output: &Path, designs: &[&str], given: Vec<String>) -> Option<Vec<String>> {
        let mut words: Vec<String> = ["bench", "run", "--quiet"].map(String::from).to_vec();
        words.push(format!("--output={}", output.to_string_lossy()));
        words.extend(self.blocks.map(|n| format!("--blocks={n}")));
        words.extend(self.quick.then(|| "--quick".into()));
        words.extend(self.no_wait.then(|| "--no-wait".into()));
        words.extend(given);
        let own = self
            .parameters
            .iter()
            .filter(|(name, _)| name.split_once('.').is_some_and(|(design, _)| designs.contains(&design)));
        words.extend(own.map(|(name, values)| format!("--param={name}={}", values.join(","))));
        words.push("--".into());
        words.extend(designs.iter().map(ToString::to_string));
        (!designs.is_empty()).then_some(words)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_name_the_device_and_what_can_be_measured() {
        let all: Vec<String> = ["cluster", "net-wlan", "net-delay", "net-loss", "sqlite"].map(String::from).to_vec();
        let parameters = [
            ("sqlite.rows".to_owned(), vec!["10".to_owned()]),
            ("cluster-devices.batch".to_owned(), vec!["1".to_owned(), "10".to_owned()]),
        ];
        let networks =
            Networks { workloads: &all, blocks: Some(2), quick: true, no_wait: false, parameters: &parameters };
        let alone = networks.alone(Path::new("a")).unwrap().join(" ");
        assert!(alone.ends_with("-- cluster net-wlan net-delay net-loss") && !alone.contains("--param"), "{alone}");
        let place: DeviceAddress = "adb:R58".parse().unwrap();
        let server: DeviceAddress = "netns:server".parse().unwrap();
        let mut ends = Ends { place: &place, interface: "wlan0", host_interface: None, server: None };
        let words = networks.with_device(Path::new("a"), &ends).unwrap().join(" ");
        assert!(words.ends_with("--param=cluster-devices.batch=1,10 -- cluster-devices"), "{words}");
        assert!(words.contains("--param=cluster-devices.at=adb:R58") && !words.contains("rows"), "{words}");
        (ends.host_interface, ends.server) = (Some("eth0"), Some((&server, "eth1")));
        let words = networks.with_device(Path::new("a"), &ends).unwrap().join(" ");
        assert!(words.ends_with("-- cluster-devices net-devices net-delay-devices"), "{words}");
        assert!(words.contains("net-delay-devices.to=netns:server") && words.contains("to_interface=eth1"), "{words}");
        let none = Networks { workloads: &all[4..], ..networks };
        assert_eq!((none.alone(Path::new("a")), none.with_device(Path::new("a"), &ends)), (None, None));
    }
}
