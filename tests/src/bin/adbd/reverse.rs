//! Ports of the device forwarded to ports of the host (`adb reverse`): this side listens, and requests a stream from the host for
//! each connection. They end with the host's connection, as on a phone.

use super::Streams;
use std::collections::BTreeMap;
use std::io::{self, Write as _};
use std::net::{TcpListener, TcpStream};
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

/// The target of each port, and the flag that ends its listener.
static REVERSED_PORTS: Mutex<BTreeMap<u16, (String, Arc<AtomicBool>)>> = Mutex::new(BTreeMap::new());

/// Serves `forward:tcp:PORT;tcp:PORT`, `killforward:tcp:PORT`, `killforward-all` and `list-forward`; false if it is none of them.
pub fn serve(what: &str, mut stream: UnixStream, streams: &Streams) -> bool {
    let answer = match what.split_once(':').unwrap_or((what, "")) {
        ("forward", pair) => add_reverse(pair.trim_start_matches("norebind:"), streams),
        ("killforward", port) => remove_reverse(port),
        ("killforward-all", _) => {
            end_all();
            Ok(None)
        }
        ("list-forward", _) => Ok(Some(list_reverses())),
        _ => return false,
    };
    let what_is_list = what.starts_with("list");
    std::thread::spawn(move || {
        let answer = match answer {
            Ok(None) => b"OKAY".to_vec(),
            // A chosen port follows the word; a list is sent without it (adb's handle_forward_request, as adbd builds it).
            Ok(Some(text)) if what_is_list => format!("{:04x}{text}", text.len()).into_bytes(),
            Ok(Some(text)) => format!("OKAY{:04x}{text}", text.len()).into_bytes(),
            Err(error) => {
                let error = error.to_string();
                format!("FAIL{:04x}{error}", error.len()).into_bytes()
            }
        };
        let _ = stream.write_all(&answer);
        let _ = stream.shutdown(std::net::Shutdown::Write);
    });
    true
}

fn parse_port(name: &str) -> io::Result<u16> {
    let wrong = || io::Error::new(io::ErrorKind::InvalidInput, format!("cannot listen at `{name}`"));
    name.strip_prefix("tcp:").and_then(|p| p.parse().ok()).ok_or_else(wrong)
}

fn add_reverse(pair: &str, streams: &Streams) -> io::Result<Option<String>> {
    let (there, here) = pair.split_once(';').ok_or(io::ErrorKind::InvalidInput)?;
    let asked = parse_port(there)?;
    let _ = remove_reverse(there);
    let listener = TcpListener::bind(("127.0.0.1", asked))?;
    let bound = listener.local_addr()?.port();
    let over = Arc::new(AtomicBool::new(false));
    if let Ok(mut ports) = REVERSED_PORTS.lock() {
        ports.insert(bound, (here.to_owned(), over.clone()));
    }
    let (here, streams) = (here.to_owned(), streams.clone());
    std::thread::spawn(move || {
        while let Ok((stream, _)) = listener.accept() {
            if over.load(Ordering::SeqCst) {
                return;
            }
            let Ok((end, other)) = UnixStream::pair() else { continue };
            if streams.add(end, Err(&here)).is_ok() {
                std::thread::spawn(move || super::services::relay(other, stream));
            }
        }
    });
    Ok((asked == 0).then(|| bound.to_string()))
}

fn remove_reverse(name: &str) -> io::Result<Option<String>> {
    let port = parse_port(name)?;
    let gone = REVERSED_PORTS.lock().ok().and_then(|mut ports| ports.remove(&port));
    let (_, over) = gone.ok_or_else(|| io::Error::other(format!("listener 'tcp:{port}' not found")))?;
    over.store(true, Ordering::SeqCst);
    // The listener is waiting for a connection.
    drop(TcpStream::connect(("127.0.0.1", port)));
    Ok(None)
}

/// Ends all.
pub fn end_all() {
    let ports: Vec<u16> = REVERSED_PORTS.lock().map(|ports| ports.keys().copied().collect()).unwrap_or_default();
    ports.iter().for_each(|port| drop(remove_reverse(&format!("tcp:{port}"))));
}

fn list_reverses() -> String {
    let line = |(port, (here, _)): (&u16, &(String, Arc<AtomicBool>))| format!("UsbFfs tcp:{port} {here}\n");
    REVERSED_PORTS.lock().map(|ports| ports.iter().map(line).collect()).unwrap_or_default()
}
