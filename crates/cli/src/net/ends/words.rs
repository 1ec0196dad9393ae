//! The words with which the client is called.

use super::{ABOUT, ARCHIVE, KEY};
use crate::args::{NetRun, Rate};
use clap::ValueEnum;
use std::net::SocketAddr;

/// `net run …` with all that was asked for here, but for where the ends are.
pub fn asking(args: &NetRun, address: SocketAddr, key: bool) -> Vec<String> {
    // Every option is named, so that a new one cannot be forgotten.
    let NetRun {
        address: _,
        key: _,
        duration,
        interface,
        streams,
        direction,
        tcp,
        udp,
        transactions,
        rate,
        preset,
        packet,
        request,
        response,
        sndbuf,
        rcvbuf,
        mss,
        cc,
        nodelay,
        pacing,
        copy,
        tcp_probe,
        no_readings,
        readings_cost,
        json,
        lines,
        readings,
        output,
        from: _,
        to: _,
        to_interface: _,
        link: _,
        binary: _,
        ends: _,
    } = args;
    let mut words = vec!["net".to_string(), "run".into(), address.to_string()];
    let mut put = |name: &str, value: Option<String>| words.extend(value.map(|v| format!("--{name}={v}")));
    put("ends", Some(ABOUT.into()));
    put("key", key.then(|| KEY.into()));
    put("output", output.as_ref().map(|_| ARCHIVE.into()));
    put("duration", Some(duration.as_secs_f64().to_string()));
    put("interface", interface.clone());
    put("streams", Some(streams.to_string()));
    if !transactions {
        put("direction", named(direction));
    }
    put(
        "rate",
        rate.map(|rate| match rate {
            Rate::Of(bps) => bps.to_string(),
            Rate::Auto => "auto".into(),
        }),
    );
    put("preset", preset.as_ref().and_then(named));
    if *udp && preset.is_none() {
        put("packet", Some(packet.to_string()));
    }
    if *transactions {
        put("request", Some(request.to_string()));
        put("response", Some(response.to_string()));
    }
    put("sndbuf", sndbuf.map(|b| b.to_string()));
    put("rcvbuf", rcvbuf.map(|b| b.to_string()));
    put("mss", mss.map(|b| b.to_string()));
    put("cc", cc.clone());
    put("pacing", pacing.map(|b| b.to_string()));
    put("readings-cost", readings_cost.as_ref().and_then(named));
    let flags = [
        ("tcp", tcp),
        ("udp", udp),
        ("transactions", transactions),
        ("nodelay", nodelay),
        ("copy", copy),
        ("tcp-probe", tcp_probe),
        ("no-readings", no_readings),
        ("json", json),
        ("lines", lines),
        ("readings", readings),
    ];
    words.extend(flags.iter().filter(|(_, set)| **set).map(|(name, _)| format!("--{name}")));
    words
}

fn named(value: &impl ValueEnum) -> Option<String> {
    value.to_possible_value().map(|v| v.get_name().to_string())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::args::{Cli, NetVerb, Verb};
    use clap::Parser;

    fn parse(words: impl IntoIterator<Item = String>) -> Box<NetRun> {
        let cli = Cli::try_parse_from(std::iter::once("fathom".to_string()).chain(words)).unwrap();
        match cli.verb {
            Verb::Net(net) => match net.verb {
                NetVerb::Run(run) => run,
                other => panic!("{other:?}"),
            },
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn remote_end_gets_same_options() {
        for line in [
            "net run --to ssh:b --interface wlan0",
            "net run 192.0.2.7:7100 --from ssh:a --to=adb --duration 3.5 --direction both --streams 4 --json -o x.fathom --copy",
            "net run --to local --udp --rate auto --packet 1200 --from adb:R58 --interface wlan0 --to-interface eth0",
            "net run --to local --udp --preset iperf2 --from adb:R58 --interface wlan0 --lines --readings",
            "net run --to local --transactions --request 7 --response 99 --mss 1200 --nodelay",
            "net run --to local --tcp --rate 10M --cc reno --sndbuf 256K --rcvbuf 64K --pacing 50M --tcp-probe",
            "net run --to local --no-readings",
            "net run --to local --readings-cost",
            "net run --to local --readings-cost=control",
            "net run --from netns:a --to netns:b --interface eth0 --link delay=5ms,loss=1%",
        ] {
            let asked = parse(line.split(' ').map(String::from));
            let mut there = parse(asking(&asked, "192.0.2.7:7100".parse().unwrap(), true));
            assert_eq!(there.key.take().as_deref(), Some(KEY.as_ref()));
            assert_eq!(there.ends.take().as_deref(), Some(ABOUT.as_ref()));
            assert_eq!(there.output.is_some(), asked.output.is_some());
            // Options about the ends stay local.
            there.address = asked.address;
            there.output = asked.output.clone();
            (there.from, there.to) = (asked.from.clone(), asked.to.clone());
            (there.to_interface, there.link) = (asked.to_interface.clone(), asked.link.clone());
            assert_eq!(format!("{there:?}"), format!("{asked:?}"), "{line}");
        }
    }
}
