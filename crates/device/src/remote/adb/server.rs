//! The local adb server. If there is none at its address, `adb start-server` is run once.

use super::wire::{self, ListedDevice};
use std::io::{self, Write as _};
use std::net::{SocketAddr, TcpStream, ToSocketAddrs as _};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// How long the server may take to respond; it forwards some requests to the device.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(30);
/// How long a started server may take until it listens.
const START_TIMEOUT: Duration = Duration::from_secs(15);
const PORT_DEFAULT: u16 = 5037;
/// Marks an address that is not TCP.
const NOT_TCP_PREFIX: &str = "\0";

/// Why a request to adb failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Failure {
    /// The server, or the device through it, refused: its own words.
    #[error("{0}")]
    Refused(String),
    /// The connection to the device broke.
    #[error("the connection to the device broke: {0}")]
    DeviceLost(io::Error),
    /// There is no server, and it cannot be started.
    #[error("{0}")]
    NoServer(String),
    /// The connection to the server broke.
    #[error("the connection to the adb server at {0} broke: {1}")]
    ServerLost(String, io::Error),
}

/// The server's address, from adb's own environment variables.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AdbServer {
    address: String,
}

impl AdbServer {
    /// The server that `adb` would use, by its environment variables.
    pub fn from_environment() -> Self {
        let read = |name: &str| std::env::var(name).ok().filter(|v| !v.is_empty());
        Self { address: server_address(&read) }
    }

    /// The server at this host and port.
    pub fn from_address(address: impl Into<String>) -> Self {
        Self { address: address.into() }
    }

    fn addresses(&self) -> Result<Vec<SocketAddr>, Failure> {
        if let Some(socket) = self.address.strip_prefix(NOT_TCP_PREFIX) {
            let why = format!("ADB_SERVER_SOCKET is {socket}: give tcp:HOST:PORT; other sockets are not supported");
            return Err(Failure::NoServer(why));
        }
        let all = self.address.to_socket_addrs();
        all.map(Iterator::collect).map_err(|e| {
            Failure::NoServer(format!("cannot resolve the address of the adb server {}: {e}", self.address))
        })
    }

    fn connect(&self) -> Result<TcpStream, Failure> {
        let addresses = self.addresses()?;
        let attempt = || addresses.iter().find_map(|a| TcpStream::connect_timeout(a, Duration::from_secs(5)).ok());
        let stream = match attempt() {
            Some(stream) => stream,
            None if addresses.iter().all(|a| a.ip().is_loopback()) => {
                start_server()?;
                let begun = Instant::now();
                loop {
                    if let Some(stream) = attempt() {
                        break stream;
                    }
                    if begun.elapsed() > START_TIMEOUT {
                        return Err(Failure::NoServer(format!(
                            "the adb server does not listen at {}: check the output of `adb start-server`",
                            self.address
                        )));
                    }
                    // Polling: `adb start-server` exits when its server listens, but if it was told to listen elsewhere, or
                    // another process restarts it just now, nothing notifies us when a server accepts here.
                    std::thread::sleep(Duration::from_millis(50));
                }
            }
            None => return Err(Failure::NoServer(format!("no adb server answers at {}", self.address))),
        };
        stream
            .set_nodelay(true)
            .and_then(|()| stream.set_read_timeout(Some(ANSWER_TIMEOUT)))
            .map_err(|e| self.broken(e))?;
        Ok(stream)
    }

    fn broken(&self, error: io::Error) -> Failure {
        // A read with a time limit ends with EAGAIN, which says nothing to a user (socket(7), SO_RCVTIMEO).
        let error = match error.kind() {
            io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut => io::Error::new(
                io::ErrorKind::TimedOut,
                format!("it does not answer within {} s", ANSWER_TIMEOUT.as_secs()),
            ),
            _ => error,
        };
        Failure::ServerLost(self.address.clone(), error)
    }

    fn request(&self, stream: &mut TcpStream, service: &str) -> Result<(), Failure> {
        let status = wire::format_request(service)
            .and_then(|bytes| stream.write_all(&bytes))
            .and_then(|()| wire::read_status(stream));
        status.map_err(|e| self.broken(e))?.map_err(Failure::Refused)
    }

    /// Sends a request to the server itself.
    pub fn ask(&self, service: &str) -> Result<String, Failure> {
        let mut stream = self.connect()?;
        self.request(&mut stream, service)?;
        let answer = wire::read_block(&mut stream).map_err(|e| self.broken(e))?;
        Ok(String::from_utf8_lossy(&answer).into_owned())
    }

    /// The devices that it lists.
    pub fn devices(&self) -> Result<Vec<ListedDevice>, Failure> {
        self.ask("host:devices-l").map(|text| wire::parse_devices(&text))
    }

    /// Makes the server reconnect to a network device, identified by its serial number, if it is not listed; or, if it is
    /// `stale`, even if it is. Failures are ignored: the device is looked up afterwards.
    pub fn reconnect(&self, serial: &str, stale: bool) {
        let network = serial.rsplit_once(':').is_some_and(|(_, port)| port.parse::<u16>().is_ok());
        let Some(all) = self.devices().ok().filter(|_| network) else { return };
        let listed = all.iter().find(|d| d.serial == serial);
        // A device that is being authorized is left alone.
        if stale && listed.is_some_and(|d| d.state == "offline") {
            let _ = self.ask(&format!("host:disconnect:{serial}"));
        } else if listed.is_some() {
            return;
        }
        let _ = self.ask(&format!("host:connect:{serial}"));
    }

    /// The features of a device's adb.
    pub fn features(&self, serial: &str) -> Result<Vec<String>, Failure> {
        let text = self.ask(&format!("host-serial:{serial}:features"))?;
        Ok(text.split([',', '\n']).map(|f| f.trim().to_owned()).filter(|f| !f.is_empty()).collect())
    }

    /// Opens a service of a device: afterwards the stream belongs to the service.
    pub fn open(&self, serial: &str, service: &str) -> Result<TcpStream, Failure> {
        let mut stream = self.connect()?;
        self.request(&mut stream, &format!("host:transport:{serial}"))?;
        self.request(&mut stream, service)?;
        stream.set_read_timeout(None).map_err(|e| self.broken(e))?;
        Ok(stream)
    }

    /// Opens a stream of changes of the device list.
    pub fn track(&self) -> Result<Tracker, Failure> {
        let mut stream = self.connect()?;
        self.request(&mut stream, "host:track-devices")?;
        Ok(Tracker { stream, server: self.clone() })
    }

    /// Makes the server listen on a free port of this machine for a port of the device; returns the port. For control only:
    /// a measurement through it would measure adb.
    pub fn forward(&self, serial: &str, port: u16) -> Result<u16, Failure> {
        let mut stream = self.connect()?;
        self.request(&mut stream, &format!("host-serial:{serial}:forward:tcp:0;tcp:{port}"))?;
        // The first status was that of the connection, the second is that of the forwarding.
        let answer = wire::read_status(&mut stream).map_err(|e| self.broken(e))?.map_err(Failure::Refused);
        answer.and_then(|()| {
            let text = wire::read_block(&mut stream).map_err(|e| self.broken(e))?;
            let port = String::from_utf8_lossy(&text).trim().parse();
            port.map_err(|_| Failure::Refused("adb did not report the forwarded port".into()))
        })
    }

    pub fn end_forward(&self, serial: &str, port: u16) -> Result<(), Failure> {
        let mut stream = self.connect()?;
        self.request(&mut stream, &format!("host-serial:{serial}:killforward:tcp:{port}"))
    }

    /// Makes the device listen on a port for one of this machine, if its adb supports it.
    pub fn reverse(&self, serial: &str, there: u16, here: u16) -> Result<(), Failure> {
        let mut stream = self.open(serial, &format!("reverse:forward:tcp:{there};tcp:{here}"))?;
        wire::read_status(&mut stream).map_err(|e| self.broken(e))?.map_err(Failure::Refused)
    }

    /// Removes that forwarding.
    pub fn end_reverse(&self, serial: &str, there: u16) -> Result<(), Failure> {
        let mut stream = self.open(serial, &format!("reverse:killforward:tcp:{there}"))?;
        wire::read_status(&mut stream).map_err(|e| self.broken(e))?.map_err(Failure::Refused)
    }
}

/// The list of devices as it changes; the first is the current one.
#[derive(Debug)]
pub struct Tracker {
    stream: TcpStream,
    server: AdbServer,
}

impl Tracker {
    /// The next list, or `None` if nothing changed within `limit`.
    ///
    /// # Errors
    /// The server is gone.
    pub fn next(&mut self, limit: Duration) -> Result<Option<Vec<ListedDevice>>, Failure> {
        self.stream.set_read_timeout(Some(limit)).map_err(|e| self.server.broken(e))?;
        // Nothing is consumed before the whole length is available.
        let mut first = [0; 4];
        match self.stream.peek(&mut first) {
            // The caller checks for a signal before the next call.
            Err(e)
                if matches!(
                    e.kind(),
                    io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut | io::ErrorKind::Interrupted
                ) =>
            {
                return Ok(None);
            }
            Err(e) => return Err(self.server.broken(e)),
            Ok(_) => {}
        }
        self.stream.set_read_timeout(Some(ANSWER_TIMEOUT)).map_err(|e| self.server.broken(e))?;
        let text = wire::read_block(&mut self.stream).map_err(|e| self.server.broken(e))?;
        Ok(Some(wire::parse_devices(&String::from_utf8_lossy(&text))))
    }
}

fn server_address(read: &dyn Fn(&str) -> Option<String>) -> String {
    // `tcp:HOST:PORT` or `tcp:PORT`.
    if let Some(socket) = read("ADB_SERVER_SOCKET") {
        return match socket.strip_prefix("tcp:") {
            Some(rest) if rest.contains(':') => rest.into(),
            Some(rest) => format!("127.0.0.1:{rest}"),
            None => format!("{NOT_TCP_PREFIX}{socket}"),
        };
    }
    let host = read("ANDROID_ADB_SERVER_ADDRESS").unwrap_or_else(|| "127.0.0.1".into());
    let port = read("ANDROID_ADB_SERVER_PORT").and_then(|p| p.parse().ok()).unwrap_or(PORT_DEFAULT);
    format!("{host}:{port}")
}

/// Starts a server, without inheriting our outputs.
fn start_server() -> Result<(), Failure> {
    let mut command = Command::new("adb");
    command.arg("start-server").stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    // One that still starts is not killed: `connect` finds out whether it listens.
    match command.spawn().map(|mut child| child::wait_timeout(&mut child, START_TIMEOUT)) {
        Ok(_) => Ok(()),
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            Err(Failure::NoServer("`adb` is not installed (Debian: apt-get install adb)".into()))
        }
        Err(error) => Err(Failure::NoServer(format!("cannot start adb: {error}"))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Read as _;
    use std::net::TcpListener;

    #[test]
    fn server_address_follows_the_variables_of_adb() {
        let with = |all: &[(&str, &str)]| {
            let all: Vec<(String, String)> = all.iter().map(|(k, v)| (k.to_string(), v.to_string())).collect();
            server_address(&move |name| all.iter().find(|(k, _)| k == name).map(|(_, v)| v.clone()))
        };
        assert_eq!(with(&[]), "127.0.0.1:5037");
        assert_eq!(with(&[("ANDROID_ADB_SERVER_PORT", "6000")]), "127.0.0.1:6000");
        assert_eq!(with(&[("ANDROID_ADB_SERVER_ADDRESS", "10.0.0.2")]), "10.0.0.2:5037");
        assert_eq!(with(&[("ADB_SERVER_SOCKET", "tcp:host:6001"), ("ANDROID_ADB_SERVER_PORT", "1")]), "host:6001");
        assert_eq!(with(&[("ADB_SERVER_SOCKET", "tcp:6001")]), "127.0.0.1:6001");
        // No other server is used instead.
        let other = AdbServer::from_address(with(&[
            ("ADB_SERVER_SOCKET", "localabstract:adb"),
            ("ANDROID_ADB_SERVER_PORT", "1"),
        ]));
        assert!(matches!(other.devices(), Err(Failure::NoServer(why)) if why.contains("localabstract:adb")));
    }

    /// A server that answers one connection with these bytes, whatever the request.
    fn serve_bytes(bytes: &'static [u8]) -> AdbServer {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let server = AdbServer::from_address(listener.local_addr().unwrap().to_string());
        std::thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            let mut buffer = [0; 512];
            let _ = stream.read(&mut buffer);
            stream.write_all(bytes).unwrap();
        });
        server
    }

    #[test]
    fn refusals_and_broken_answers_are_distinguished() {
        let refused = serve_bytes(b"FAIL000edevice offline").ask("host:x").unwrap_err();
        assert!(matches!(&refused, Failure::Refused(why) if why == "device offline"), "{refused}");
        for bytes in [&b""[..], b"OK", b"HTTP/1.1 400", b"OKAY", b"OKAY0005ab", b"OKAYzzzz"] {
            let error = serve_bytes(bytes).ask("host:x").unwrap_err();
            assert!(matches!(error, Failure::ServerLost(..)), "{bytes:?}: {error}");
        }
        assert_eq!(serve_bytes(b"OKAY0003abc").ask("host:x").unwrap(), "abc");
        assert_eq!(serve_bytes(b"OKAY0008shell_v2").features("s").unwrap(), ["shell_v2"]);
    }

    #[test]
    fn tracker_reports_each_change() {
        let mut tracker = serve_bytes(b"OKAY000bR58\tdevice\n0000").track().unwrap();
        assert_eq!(tracker.next(Duration::from_secs(20)).unwrap().unwrap()[0].serial, "R58");
        assert_eq!(tracker.next(Duration::from_secs(20)).unwrap(), Some(vec![]));
        assert!(tracker.next(Duration::from_secs(20)).is_err(), "the server went");
    }
}
