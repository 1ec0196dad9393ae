//! Ports and files over adb's protocol: with our client and the real one.

use super::{DAEMON_PATH, phone};
use anyhow::{Context, Result, ensure};
use fathom_tests::phone::{Phone, Shape};
use fathom_tests::{run, wait_until};

pub fn forwarded_port_reaches_device() -> Result<()> {
    let phone = phone()?;
    let listener = std::net::TcpListener::bind("127.0.0.1:0")?;
    let server = device::remote::adb::AdbServer::from_address(format!("127.0.0.1:{}", phone.port));
    let here = server.forward(&phone.serial, listener.local_addr()?.port())?;
    let echo = std::thread::spawn(move || -> std::io::Result<()> {
        let (mut stream, _) = listener.accept()?;
        let mut from = stream.try_clone()?;
        std::io::copy(&mut from, &mut stream).map(drop)
    });
    let mut stream = std::net::TcpStream::connect(("127.0.0.1", here))?;
    std::io::Write::write_all(&mut stream, b"through adb")?;
    let mut back = [0; 11];
    std::io::Read::read_exact(&mut stream, &mut back)?;
    ensure!(&back == b"through adb");
    drop(stream);
    let _ = echo.join();
    server.end_forward(&phone.serial, here)?;
    ensure!(std::net::TcpStream::connect(("127.0.0.1", here)).is_err(), "it still listens");
    Ok(())
}

/// A port of the device that is forwarded to here: with our client and the real one's `adb reverse`.
pub fn reversed_port_reaches_host_until_it_ends() -> Result<()> {
    let phone = phone()?;
    let listener = std::net::TcpListener::bind("127.0.0.1:0")?;
    let here = listener.local_addr()?.port();
    let echo = std::thread::spawn(move || -> std::io::Result<()> {
        for stream in listener.incoming().take(2) {
            let mut stream = stream?;
            let mut from = stream.try_clone()?;
            std::io::copy(&mut from, &mut stream)?;
        }
        Ok(())
    });
    // A port that is free on the device, which means here: the stand-in shares this host's network.
    let free = || -> Result<u16> { Ok(std::net::TcpListener::bind("127.0.0.1:0")?.local_addr()?.port()) };
    let through = |there: u16| -> Result<()> {
        let mut stream = std::net::TcpStream::connect(("127.0.0.1", there))?;
        let bytes: Vec<u8> = (0..200_000_u32).map(|i| (i % 251) as u8).collect();
        let mut into = stream.try_clone()?;
        let sent = bytes.clone();
        let sender = std::thread::spawn(move || std::io::Write::write_all(&mut into, &sent));
        // adb closes a stream as a whole: there is no half-close.
        let mut back = vec![0; bytes.len()];
        std::io::Read::read_exact(&mut stream, &mut back)?;
        let _ = sender.join();
        ensure!(back == bytes, "other bytes came back");
        Ok(())
    };
    let server = device::remote::adb::AdbServer::from_address(format!("127.0.0.1:{}", phone.port));
    let there = free()?;
    server.reverse(&phone.serial, there, here)?;
    let list = run(phone.adb().args(["-s", &phone.serial, "reverse", "--list"]))?;
    ensure!(String::from_utf8_lossy(&list.stdout).contains(&format!("tcp:{there} tcp:{here}")), "{list:?}");
    through(there)?;
    server.end_reverse(&phone.serial, there)?;
    // The device answers before it has closed the port.
    wait_until("a port that is closed", || Ok(std::net::TcpStream::connect(("127.0.0.1", there)).is_err()))?;
    let twice = server.end_reverse(&phone.serial, there);
    ensure!(twice.as_ref().is_err_and(|e| e.to_string().contains("not found")), "{twice:?}");
    // The real client, and a broken link, which ends the forwarding.
    let there = free()?;
    run(phone.adb().args(["-s", &phone.serial, "reverse", &format!("tcp:{there}"), &format!("tcp:{here}")]))?;
    through(there)?;
    phone.cut()?;
    wait_until("a port that is closed", || Ok(std::net::TcpStream::connect(("127.0.0.1", there)).is_err()))?;
    let _ = echo.join();
    Ok(())
}

pub fn adb_pushes_and_pulls_same_bytes() -> Result<()> {
    use device::remote::adb::{AdbServer, AdbSync};
    let bytes: Vec<u8> = (0..300_000_u32).map(|i| ((i * 31) >> 3) as u8).collect();
    for features in ["shell_v2,cmd", "shell_v2,cmd,stat_v2,ls_v2,sendrecv_v2"] {
        let phone = Phone::start(DAEMON_PATH, &Shape { features, ..Shape::default() })?;
        let mut sync = AdbSync::open(&AdbServer::from_address(format!("127.0.0.1:{}", phone.port)), &phone.serial)?;
        let path = "/data/local/tmp/file";
        ensure!(sync.stat(path)?.is_none(), "{features}");
        sync.push(&mut &bytes[..], path, 0o640)?;
        let about = sync.stat(path)?.context("it is there")?;
        ensure!((about.size, about.mode & 0o777) == (300_000, 0o640), "{features}: {about:?}");
        let mut back = Vec::new();
        ensure!(sync.pull(path, &mut back, 1 << 20)? == 300_000 && back == bytes, "{features}");
        let limited = sync.pull(path, &mut Vec::new(), 1000).unwrap_err().to_string();
        ensure!(limited.contains("longer than 1000 bytes"), "{limited}");
        let mut sync = AdbSync::open(&AdbServer::from_address(format!("127.0.0.1:{}", phone.port)), &phone.serial)?;
        let missing = sync.pull("/data/local/tmp/none", &mut Vec::new(), 1000).unwrap_err().to_string();
        ensure!(missing.contains("No such file"), "{missing}");
        let mut sync = AdbSync::open(&AdbServer::from_address(format!("127.0.0.1:{}", phone.port)), &phone.serial)?;
        let refused = sync.push(&mut &bytes[..], "/system/file", 0o600).unwrap_err().to_string();
        ensure!(refused.contains("ermission denied"), "{refused}");
        // And the reverse: how the real client handles it.
        run(phone.adb().args(["-s", &phone.serial, "pull", path]).current_dir(tempfile::tempdir()?.path()))?;
    }
    Ok(())
}
