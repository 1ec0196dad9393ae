//! Both ends of a run, conducted from here: each is this program on a device, held by its agent. They get a key that is made for the run
//! alone; it never stands in a file here, and there in one that goes with the agent.
//!
//! The server starts first and says where it listens; the client is told that, and what this machine knows of both
//! ([`RunEnds`]). What it prints is printed here as it comes, and its archive is brought home. Whatever happens (an end dies, a
//! device is lost, Ctrl-C), both ends are then let go, and clean up.

pub mod home;
mod words;

use super::linked::{self, Form};
use super::run_ends::{Endpoint, RunEnds, Trailer};
use crate::args::{InOneWord, NetRun};
use crate::{output, progress};
use anyhow::{Context as _, Result, bail};
use device::reach::{AgentLink, DeviceAddress, Event, Skew, program};
use net::link::Between;
use net::spec::Spec;
use std::net::SocketAddr;
use std::process::ExitCode;
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::{Duration, Instant};
use wire::Key;

/// How often it is looked whether somebody asked for an end.
const LOOK: Duration = Duration::from_millis(100);
/// How long the server may take to listen.
const READY: Duration = Duration::from_secs(30);
/// How long one end may go on without the other, to say what it has to say.
const ALONE: Duration = Duration::from_secs(20);
/// How long an archive may stop coming.
const STALLED: Duration = Duration::from_secs(60);
/// Names in the agents' folders.
const KEY: &str = "net.key";
const ABOUT: &str = "ends.json";
const ARCHIVE: &str = "run.fathom";

/// Why this machine is no end of a run whose way is led through it.
pub const BETWEEN: &str = "--link needs two other devices, with this machine as the router between them: give --from \
    DEVICE and --to DEVICE (or ADDR:PORT). To make this machine an end, use a network namespace: \
    docs/guide/net-link.md has the commands";

/// Whether anything runs elsewhere.
pub fn wanted(args: &NetRun) -> bool {
    args.to.is_some() || args.from != DeviceAddress::Local
}

/// Which end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum End {
    Client,
    Server,
}

/// `spec` is what they will be asked for.
pub fn run(args: &NetRun, spec: &Spec) -> Result<ExitCode> {
    let listen = match listen(args) {
        Ok(listen) => listen,
        Err(why) => {
            eprintln!("fathom: {why}");
            return Ok(ExitCode::from(2));
        }
    };
    if let Some(output) = &args.output {
        home::possible(output, net::rows::size(spec))?;
    }
    let key = match (&args.key, &args.to) {
        (Some(path), _) => Some(Key::read(path)?),
        (None, Some(_)) => Some(Key::generate()?),
        (None, None) => None,
    };
    let context = progress::context(true);
    progress::end_on_signal(&context);
    let (tell, events) = channel();
    let reach = |end: End, address: &DeviceAddress| -> Result<AgentLink> {
        let ours = std::env::current_exe().context("cannot find Fathom's own binary")?;
        let told = |line| eprintln!("fathom: {line}");
        let deployment = program::put(address, &ours, &args.binary, &told)?;
        let tell = tell.clone();
        let link = AgentLink::open(&deployment, move |event| drop(tell.send((end, event))))?;
        if let Some(key) = &key {
            link.put(KEY, key.to_text().as_bytes())?;
        }
        Ok(link)
    };
    let server = args.to.as_ref().map(|address| reach(End::Server, address)).transpose()?;
    let client = reach(End::Client, &args.from)?;
    let mut run =
        Run { args, context, events, client, server, complaints: String::new(), left: None, said: Vec::new() };
    let code = run.conduct(&listen, key.is_some());
    run.end(code)
}

/// Only the first piece of a packet has ports, so the rules that lead a run through the link find no packet that comes in pieces.
fn in_one_piece(args: &NetRun, to: SocketAddr, mtu: u32) -> Result<(), String> {
    let packet = if args.preset.is_some() { crate::args::IPERF2_PACKET } else { args.packet };
    // IP's head and UDP's.
    let heads = if to.is_ipv4() { 28 } else { 48 };
    if args.udp && packet + heads > mtu {
        return Err(format!(
            "packets of {packet} bytes are {} bytes with headers, over the link's MTU of {mtu}: they would be \
             fragmented and bypass the link; give --packet {} or less, or a link with a larger mtu",
            packet + heads,
            mtu.saturating_sub(heads)
        ));
    }
    Ok(())
}

/// How the server is told where to listen; or where the client will find it.
fn listen(args: &NetRun) -> Result<Vec<String>, String> {
    if args.link.is_some() && (args.from == DeviceAddress::Local || args.to == Some(DeviceAddress::Local)) {
        return Err(BETWEEN.into());
    }
    let interface = args.to_interface.as_ref().or(args.interface.as_ref());
    match (args.address, interface, &args.to) {
        (Some(address), ..) if address.ip().is_unspecified() => {
            Err(format!("{address} is the wildcard address: give the server's own, such as 192.0.2.7:7100"))
        }
        (Some(address), ..) => Ok(vec!["--listen".into(), address.to_string()]),
        (None, Some(interface), _) => Ok(vec!["--interface".into(), interface.clone()]),
        (None, None, Some(to)) if *to == args.from => Ok(vec!["--listen".into(), "127.0.0.1:0".into()]),
        (None, None, _) => {
            Err("no address to test: give --interface IF (the server listens on its address) or ADDR:PORT".into())
        }
    }
}

struct Run<'a> {
    args: &'a NetRun,
    context: model::Context,
    events: Receiver<(End, Event)>,
    client: AgentLink,
    server: Option<AgentLink>,
    /// What the server said; told if something goes wrong.
    complaints: String,
    /// Since when one end is alone.
    left: Option<Instant>,
    /// What the client printed, if the link is still to be added to it.
    said: Vec<u8>,
}

impl Run<'_> {
    fn conduct(&mut self, listen: &[String], key: bool) -> Result<ExitCode> {
        let address = match &self.server {
            Some(server) => {
                let mut argv = vec![server.deployment().program.clone()];
                argv.extend(["net", "serve", "--once", "--key", KEY].map(String::from));
                argv.extend_from_slice(listen);
                server.start(&argv)?;
                self.ready()?
            }
            None => self.args.address.context("no address")?,
        };
        if let Some(link) = &self.args.link {
            in_one_piece(self.args, address, link.spec.mtu()).map_err(anyhow::Error::msg)?;
        }
        let between = self.args.link.as_ref().map(|link| Between::create(&link.spec, address)).transpose()?;
        let about = serde_json::to_vec(&self.about())?;
        self.client.put(ABOUT, &about)?;
        let mut argv = vec![self.client.deployment().program.clone()];
        argv.extend(words::asking(self.args, address, key));
        self.client.start(&argv)?;
        let status = self.follow()?;
        let link = match (&self.args.link, between) {
            (Some(link), Some(between)) => Some((link, between.finish())),
            _ => None,
        };
        let valid = link.as_ref().is_none_or(|(link, outcome)| self.tell(link, outcome, status));
        if let Some(output) = &self.args.output {
            self.client.fetch(ARCHIVE)?;
            let came = self.bring(output, link.as_ref().map(|(link, outcome)| (*link, outcome)));
            // Of a run that failed there may be none.
            if status == 0 || status == 130 {
                came?;
            }
        }
        let status = if status == 0 && !valid {
            // Both ends did what they should.
            self.complaints.clear();
            1
        } else {
            status
        };
        Ok(ExitCode::from(u8::try_from(status).unwrap_or(1)))
    }

    /// Prints what the client said, with the link's part of it. Whether the result counts.
    fn tell(&self, link: &InOneWord, outcome: &net::link::Outcome, status: i32) -> bool {
        let said = String::from_utf8_lossy(&self.said);
        let (said, Trailer { within }) = Trailer::cut(&said);
        match status {
            0 | 130 => output::text(&linked::printed(said, within, self.form(), &link.spec, outcome)),
            // Of a run that failed there is nothing over which the link stood.
            _ => output::text(said),
        }
        let invalid = outcome.invalid(&link.spec, within);
        if !invalid.is_empty() {
            eprintln!("fathom: {}", linked::not_the_one(&invalid));
        }
        invalid.is_empty()
    }

    fn form(&self) -> Form {
        match (self.args.json, self.args.lines) {
            (true, _) => Form::Json,
            (_, true) => Form::Lines,
            _ => Form::Text,
        }
    }

    fn next(&mut self) -> Result<Option<(End, Event)>> {
        match self.events.recv_timeout(LOOK) {
            Ok((_, Event::Gone(why))) => Err(why.into()),
            Ok((_, Event::Done(Err(why)))) => bail!("{why}"),
            Ok(event) => Ok(Some(event)),
            Err(RecvTimeoutError::Timeout) => Ok(None),
            Err(RecvTimeoutError::Disconnected) => bail!("both ends were lost"),
        }
    }

    /// The address on which the server listens.
    fn ready(&mut self) -> Result<SocketAddr> {
        let begun = Instant::now();
        let mut said = Vec::new();
        loop {
            match self.next()? {
                Some((_, Event::Out(bytes))) => said.extend(bytes),
                Some((_, Event::Err(bytes))) => self.complaints += &String::from_utf8_lossy(&bytes),
                Some((_, Event::Exit(_))) => {
                    bail!(
                        "{} cannot run the server",
                        self.args.to.as_ref().map_or("it".into(), DeviceAddress::to_string)
                    )
                }
                _ => {}
            }
            if let Some(line) = said.split_inclusive(|b| *b == b'\n').next().filter(|l| l.ends_with(b"\n")) {
                let line = String::from_utf8_lossy(line);
                return line.trim().parse().context("the server did not report its address");
            }
            if self.context.cancelled() {
                bail!("interrupted; nothing was stored");
            }
            if begun.elapsed() > READY {
                bail!("the server is not listening after {} s", READY.as_secs());
            }
        }
    }

    fn about(&self) -> RunEnds {
        let one = |link: &AgentLink| Endpoint {
            name: link.deployment().place.to_string(),
            facts: device::collect(link, None),
        };
        RunEnds {
            client: one(&self.client),
            server: self.server.as_ref().map(one),
            // Others have this machine's clock.
            skew_ns: matches!(self.args.from, DeviceAddress::Ssh(..) | DeviceAddress::Adb(_))
                .then(|| self.client.skew())
                .flatten()
                .map(|Skew { ahead_ns, error_ns }| (ahead_ns, error_ns)),
            boot: device::boot_id(&device::Local),
            trailer: self.args.link.is_some(),
            archive: self.args.output.clone(),
        }
    }

    /// Hands on what the client says until it ends; its exit status.
    fn follow(&mut self) -> Result<i32> {
        let mut told = false;
        let (mut out, mut aside) = (output::Lines::new(output::out), output::Lines::new(output::aside));
        loop {
            if self.context.cancelled() && !told {
                told = true;
                self.client.signal(libc::SIGINT as u8)?;
            }
            if self.left.is_some_and(|since| since.elapsed() > ALONE) {
                bail!("the server was lost; the client continues");
            }
            match self.events.recv_timeout(LOOK) {
                // The client finds out by itself, and says what it has measured.
                Ok((End::Server, Event::Gone(why))) => {
                    self.complaints += &format!("fathom: {why}\n");
                    self.left.get_or_insert_with(Instant::now);
                }
                Ok((End::Server, Event::Exit(_))) => drop(self.left.get_or_insert_with(Instant::now)),
                Ok((End::Server, Event::Err(bytes))) => self.complaints += &String::from_utf8_lossy(&bytes),
                Ok((End::Client, Event::Out(bytes))) if self.args.link.is_some() => self.said.extend(bytes),
                Ok((End::Client, Event::Out(bytes))) => out.take(&bytes),
                Ok((End::Client, Event::Err(bytes))) => aside.take(&bytes),
                // A command that a signal ended.
                Ok((End::Client, Event::Exit(status))) => return Ok(if status < 0 { 128 - status } else { status }),
                Ok((End::Client, Event::Gone(why))) => return Err(why.into()),
                Ok((_, Event::Done(Err(why)))) => bail!("{why}"),
                Ok(_) | Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => bail!("both ends were lost"),
            }
        }
    }

    /// Brings the archive home.
    fn bring(&mut self, output: &std::path::Path, link: Option<(&InOneWord, &net::link::Outcome)>) -> Result<()> {
        let coming = home::Coming::begin(output)?;
        let mut last = Instant::now();
        loop {
            match self.events.recv_timeout(LOOK) {
                Ok((End::Client, Event::Part(name, bytes))) => {
                    last = Instant::now();
                    coming.take(ARCHIVE, &name, &bytes)?;
                }
                Ok((End::Client, Event::Done(done))) => {
                    done.map_err(anyhow::Error::msg).context("the archive cannot be copied from the device")?;
                    if let Some((link, outcome)) = link {
                        let within = Trailer::cut(&String::from_utf8_lossy(&self.said)).1.within;
                        linked::keep(coming.folder(), &link.text, &link.spec, outcome, within)?;
                    }
                    return coming.finish(output, self.args.json || self.args.lines);
                }
                Ok((End::Client, Event::Gone(why))) => return Err(why.into()),
                Ok(_) | Err(RecvTimeoutError::Timeout) if last.elapsed() < STALLED => {}
                _ => bail!("the transfer of the archive stalled"),
            }
        }
    }

    /// Lets both ends go.
    fn end(self, code: Result<ExitCode>) -> Result<ExitCode> {
        let wrong = !code.as_ref().is_ok_and(|c| *c == ExitCode::SUCCESS || *c == ExitCode::from(130));
        if wrong {
            for line in self.complaints.lines().filter(|l| !l.contains("waiting for runs")) {
                let name = self.args.to.as_ref().map_or("the server".into(), DeviceAddress::to_string);
                eprintln!("fathom: {name}: {}", line.trim_start_matches("fathom: "));
            }
        }
        for link in [Some(self.client), self.server].into_iter().flatten() {
            let name = link.deployment().place.to_string();
            if !link.close() {
                eprintln!(
                    "fathom: {name} did not confirm its clean-up; what was started there exits by itself within a \
                     minute"
                );
            }
        }
        match code {
            Err(_) if self.context.cancelled() => {
                eprintln!("fathom: interrupted; nothing was stored");
                Ok(ExitCode::from(130))
            }
            code => code,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::args::{Cli, NetVerb, Verb};
    use clap::Parser as _;

    #[test]
    fn packets_that_would_be_fragmented_are_refused() {
        let (v4, v6) = ("192.0.2.7:7100".parse().unwrap(), "[2001:db8::7]:7100".parse().unwrap());
        for (words, to, mtu, fits) in [
            ("--udp --rate 1M --packet 1472", v4, 1500, true),
            ("--udp --rate 1M --packet 1473", v4, 1500, false),
            ("--udp --rate 1M", v4, 1280, false),
            ("--udp --preset iperf2", v4, 1500, true),
            ("--udp --preset iperf2", v6, 1500, false),
            ("--tcp", v4, 1280, true),
        ] {
            let words = format!("fathom net run --to local --from ssh:a --interface eth0 {words}");
            let cli = Cli::try_parse_from(words.split(' ')).unwrap();
            let Verb::Net(net) = cli.verb else { panic!("{words}") };
            let NetVerb::Run(run) = net.verb else { panic!("{words}") };
            assert_eq!(in_one_piece(&run, to, mtu).is_ok(), fits, "{words}");
        }
    }
}
