//! Our congestion controls in this kernel: registered, used by sockets, and removed.

use net::cc::{self, Algorithm, NAME_PREFIX};
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};

/// Sends `bytes` over loopback with the congestion control `name`; returns how many arrived.
fn transfer(name: &str, bytes: usize) -> usize {
    let listener = TcpListener::bind("127.0.0.1:0").expect("loopback");
    let address = listener.local_addr().expect("bound");
    let reader = std::thread::spawn(move || {
        let mut received = Vec::new();
        listener.accept().expect("a peer").0.read_to_end(&mut received).expect("its bytes");
        received.len()
    });
    let mut sender = TcpStream::connect(address).expect("it listens");
    cc::select(&sender, name).unwrap_or_else(|e| panic!("{name}: {e}"));
    sender.write_all(&vec![7; bytes]).expect("loopback");
    drop(sender);
    reader.join().expect("reader")
}

#[test]
#[ignore = "root: registers congestion controls"]
fn algorithms_are_registered_used_and_removed() {
    for algorithm in Algorithm::ALL {
        let name = format!("{NAME_PREFIX}{}", algorithm.name());
        let registered = cc::ensure_available(&name).expect("the kernel takes it").expect("it is ours");
        assert!(cc::available_names().expect("/proc").contains(&name));
        assert!(cc::registered_by_bpf().expect("root").contains(&name));
        assert!(matches!(cc::register(algorithm, &name), Err(cc::Error::Exists(_))));
        assert_eq!(transfer(&name, 30_000_000), 30_000_000);

        // Existing connections keep it; new ones cannot use it.
        let listener = TcpListener::bind("127.0.0.1:0").expect("loopback");
        let keeper = TcpStream::connect(listener.local_addr().expect("bound")).expect("it listens");
        cc::select(&keeper, &name).expect("registered");
        drop(registered);
        assert!(!cc::available_names().expect("/proc").contains(&name));
        assert!(cc::select(&listener, &name).is_err());
        (&keeper).write_all(b"still here").expect("it goes on");
        drop(keeper);
    }
}

#[test]
#[ignore = "root: registers congestion controls"]
fn invalid_algorithm_names_are_refused() {
    for name in ["", "sixteen_bytes_xx"] {
        assert!(matches!(cc::register(Algorithm::Bic, name), Err(cc::Error::BadName(_))), "{name:?}");
    }
}
